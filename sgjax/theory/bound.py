"""How many prompt tokens any prefix cache must compute: the lower bound of Appendix A.3.

Imports theory.visits. The requests' prefix tree is never built: in sorted order a path shares most
with its predecessor, so a stack of open edges is enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sgjax.theory.visits import Path, TokenIds, Visit, common_prefix, paths


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
    asked = [tuple(prompt) for prompt in prompts]
    answered = [()] * len(asked) if outputs is None else [tuple(output) for output in outputs]
    visits = [Visit(p, o) for p, o in zip(asked, answered, strict=True)]
    whole = [
        Path(tuple((t,) for t in v.prompt + v.output[:-1]), len(v.prompt), 0, 0) for v in visits
    ]
    paged = paths(visits, page_size)
    prompt_tokens = sum(path.prompt_tokens for path in paged)
    hits = sum(path.matchable for path in paged) - first_misses(paged)
    return HitRateBound(prompt_tokens, first_misses(whole), prompt_tokens - page_size * hits)


def first_misses(visits: Sequence[Path]) -> int:
    """Return the tree's pages that are matchable for every request through them.

    They are nobody's by-product, so whichever request comes first must miss them; all others can
    be hits for whoever could match them.
    """
    ordered = sorted(visits, key=lambda path: path.pages)
    # Edges that are still open: (end, least matchable length of the requests seen through it).
    stack: list[tuple[int, int]] = [(0, 0)]
    missed = 0
    for at, path in enumerate(ordered):
        following = ordered[at + 1].pages if at + 1 < len(ordered) else ()
        shared = common_prefix(path.pages, following)
        _push(stack, len(path.pages), path.matchable)
        while stack[-1][0] > shared:
            end, least = stack.pop()
            start = max(stack[-1][0], shared)
            missed += max(0, min(end, least) - start)
            _push(stack, start, least)
    return missed


def _push(stack: list[tuple[int, int]], end: int, least: int) -> None:
    """Open an edge that ends at `end`, or note one more request through the one that does."""
    if stack[-1][0] == end:
        end, other = stack.pop()
        least = min(other, least)
    stack.append((end, least))
