"""How many prompt tokens any prefix cache must compute: the lower bound of Appendix A.3.

Imports the standard library only. The prompts' prefix tree is never built: in sorted order a
prompt shares most with its predecessor, so its new edge is what lies past their common prefix.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TokenIds = Sequence[int]


@dataclass(frozen=True)
class HitRateBound:
    """What the prefix tree of a set of prompts says about every cache.

    Attributes:
        prompt_tokens: tokens over all prompts, repetitions included.
        tree_tokens: total length of the edges of the prompts' prefix tree; each must be computed
            at least once.
        repeated_prompts: prompts that are equal to an earlier one. The tree adds nothing for
            them, yet an engine computes their last token again, because only its logits give the
            next token (a match ends at `tokens[:-1]`).
    """

    prompt_tokens: int
    tree_tokens: int
    repeated_prompts: int

    @property
    def optimal(self) -> float:
        """Return the paper's bound on the hit rate, 1 - tree tokens / prompt tokens."""
        return self._rate(self.tree_tokens)

    @property
    def reachable(self) -> float:
        """Return the bound for an engine that computes at least one token of every request."""
        return self._rate(self.tree_tokens + self.repeated_prompts)

    def _rate(self, computed: int) -> float:
        return 1.0 - computed / self.prompt_tokens if self.prompt_tokens else 0.0


def hit_rate_bound(prompts: Iterable[TokenIds]) -> HitRateBound:
    """Bound the cache hit rate over a set of prompts, for any order and any cache size.

    Args:
        prompts: the token ids of each request's prompt; the order does not matter.

    Returns:
        The bound, from the edges of the prompts' prefix tree.

    Source:
        Appendix A.3 (the lower bound that a depth-first order attains, Theorem 3.1).
    """
    prompt_tokens = tree_tokens = repeated = 0
    previous: tuple[int, ...] | None = None
    for prompt in sorted(map(tuple, prompts)):
        shared = 0 if previous is None else common_prefix(previous, prompt)
        prompt_tokens += len(prompt)
        tree_tokens += len(prompt) - shared
        repeated += prompt == previous
        previous = prompt
    return HitRateBound(prompt_tokens, tree_tokens, repeated)


def common_prefix(a: TokenIds, b: TokenIds) -> int:
    """Return the number of leading tokens in which `a` and `b` agree."""
    length = min(len(a), len(b))
    for i in range(length):
        if a[i] != b[i]:
            return i
    return length
