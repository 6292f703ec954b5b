"""How many prompt tokens any prefix cache must compute: the lower bound of Appendix A.3.

Imports numpy and theory.visits. The requests' prefix tree is never built: in sorted order a path
shares most with its predecessor, so a stack of open edges is enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgjax.theory.visits import TokenIds

Keys = NDArray[np.int64]
Way = tuple[Keys, int]
"""A request's path as numbers of its pages, and how many of them, from the front, it could match.
"""


@dataclass(frozen=True)
class HitRateBound:
    """What the prefix tree of a set of requests says about every cache.

    Attributes:
        prompt_tokens: tokens over all prompts, repetitions included.
        tree_tokens: total length of the edges of the prompts' prefix tree, without what some
            request generated: each must be computed at least once.
        least_computed: prompt tokens that an engine computes at least. More than `tree_tokens`,
            because a match ends before a prompt's last token (only its logits give the next one)
            and comes in whole pages.
    """

    prompt_tokens: int
    tree_tokens: int
    least_computed: int

    @property
    def optimal(self) -> float:
        """Return the paper's bound on the hit rate, 1 - tree tokens / prompt tokens."""
        return self._rate(self.tree_tokens)

    @property
    def reachable(self) -> float:
        """Return the bound for an engine, which computes at least one token of every request."""
        return self._rate(self.least_computed)

    def _rate(self, computed: int) -> float:
        return 1.0 - computed / self.prompt_tokens if self.prompt_tokens else 0.0


def hit_rate_bound(
    prompts: Iterable[TokenIds],
    outputs: Iterable[TokenIds] | None = None,
    page_size: int = 1,
) -> HitRateBound:
    """Bound the cache hit rate over a set of requests, for any order and any cache size.

    Args:
        prompts: the token ids of each request's prompt; the order does not matter.
        outputs: the generated ids of each, in the same order; None counts no reuse of them.
        page_size: S, for `least_computed`; the paper's tree is one of tokens.

    Returns:
        The bound. An unlimited cache that serves the requests by length of their prompts attains
        `least_computed`; a depth-first order attains it with a cache of the longest request's
        size (Theorem 3.1) where no request's output leads into another's prompt.

    Source:
        Appendix A.3.
    """
    asked = [np.asarray(prompt, np.int64) for prompt in prompts]
    if outputs is None:
        left = asked
    else:
        pairs = zip(asked, outputs, strict=True)
        left = [np.concatenate([p, np.asarray(o, np.int64)[:-1]]) for p, o in pairs]
    lengths = [len(prompt) for prompt in asked]
    whole = list(zip(left, lengths, strict=True))
    paged = [(_pages(keys, page_size), (length - 1) // page_size) for keys, length in whole]
    hits = sum(matchable for _, matchable in paged) - _first_misses(paged)
    return HitRateBound(
        prompt_tokens=sum(lengths),
        tree_tokens=_first_misses(whole),
        least_computed=sum(lengths) - page_size * hits,
    )


def _pages(keys: Keys, size: int) -> Keys:
    """Return a number for each full page, equal for equal pages."""
    if size == 1:
        return keys
    full = keys[: len(keys) // size * size].reshape(-1, size)
    return np.array([hash(page.tobytes()) for page in full], np.int64)


def _first_misses(ways: Sequence[Way]) -> int:
    """Return the tree's pages that are matchable for every request through them.

    They are nobody's by-product, so whichever request comes first must miss them; all others can
    be hits for whoever could match them.
    """
    # Bytes put equal beginnings side by side as well as numbers do, and are compared at once.
    ordered = sorted(ways, key=lambda way: way[0].tobytes())
    # Edges that are still open: (end, least matchable length of the requests seen through it).
    stack: list[tuple[int, int]] = [(0, 0)]
    missed = 0
    for at, (pages, matchable) in enumerate(ordered):
        shared = _shared(pages, ordered[at + 1][0]) if at + 1 < len(ordered) else 0
        _push(stack, len(pages), matchable)
        while stack[-1][0] > shared:
            end, least = stack.pop()
            start = max(stack[-1][0], shared)
            missed += max(0, min(end, least) - start)
            _push(stack, start, least)
    return missed


def _shared(a: Keys, b: Keys) -> int:
    """Return the number of leading items in which two paths agree."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length


def _push(stack: list[tuple[int, int]], end: int, least: int) -> None:
    """Open an edge that ends at `end`, or note one more request through the one that does."""
    if stack[-1][0] == end:
        end, other = stack.pop()
        least = min(other, least)
    stack.append((end, least))
