"""What to do when a request could reuse a prefix that is being computed right now.

Imports sequence, cache and numpy. Siblings admitted in one step would all miss the cache, while
Theorem 3.1 speaks of serial visits, so this is a strategy: `Admit` ignores it (the paper's
behaviour), `Defer` waits until the prefix is there, `SharePlanned` puts planned pages into the
tree at once and lets siblings read what the same step writes.
"""

import abc

import numpy as np

from sgjax.schedule.sequence import Sequence


class Siblings(abc.ABC):
    """Decide whether a request waits for one that is being computed."""

    shares_planned: bool = False
    """Whether pages enter the tree when they are planned instead of when they are computed.

    The executor must write a step's K/V before its attention reads any.
    """

    @abc.abstractmethod
    def wait_for(
        self, seq: Sequence, matched: int, computing: list[Sequence]
    ) -> tuple[Sequence, int] | None:
        """Return whom `seq` should wait for, if anyone.

        Args:
            seq: the candidate for admission.
            matched: its tokens that are cached now.
            computing: admitted sequences whose prompts are not yet in the tree.

        Returns:
            The sequence to wait for, and how many of its tokens must be in the tree; or None.
        """


class Admit(Siblings):
    """Admit at once: siblings of one step all compute their common prefix."""

    def wait_for(
        self, seq: Sequence, matched: int, computing: list[Sequence]
    ) -> tuple[Sequence, int] | None:
        """Return None."""
        del seq, matched, computing
        return None


class Defer(Siblings):
    """Wait while a longer prefix is being computed by another request.

    Args:
        min_tokens: fewer tokens than this are not worth a wait.
    """

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens

    def wait_for(
        self, seq: Sequence, matched: int, computing: list[Sequence]
    ) -> tuple[Sequence, int] | None:
        """Return the one that computes the longest prefix beyond what is cached."""
        best, length = None, matched + self._min_tokens - 1
        limit = seq.match_limit
        if length >= limit:
            return None
        # Who has another token where the best one ends is no better: one look saves comparing most.
        decides = seq.tokens[length]
        for writer in computing:
            if writer.tokens.length <= length or writer.tokens[length] != decides:
                continue
            common = common_prefix(seq, writer)
            if common > length:
                best, length = writer, common
                if length == limit:
                    break
                decides = seq.tokens[length]
        return None if best is None else (best, length)


class SharePlanned(Siblings):
    """Read what the same step writes: no sibling waits and none computes twice."""

    shares_planned = True

    def wait_for(
        self, seq: Sequence, matched: int, computing: list[Sequence]
    ) -> tuple[Sequence, int] | None:
        """Return None: planned pages are in the tree already."""
        del seq, matched, computing
        return None


class Deferred:
    """Sequences that wait for a prefix that another one computes."""

    def __init__(self) -> None:
        # writer's arrival -> (tokens that must be in the tree, who waits for them)
        self._waiters: dict[int, list[tuple[int, Sequence]]] = {}

    def add(self, seq: Sequence, writer: Sequence, tokens: int) -> None:
        """Let `seq` wait until `writer` has put so many tokens into the tree."""
        self._waiters.setdefault(writer.arrival, []).append((tokens, seq))

    def wake(self, writer: Sequence) -> list[Sequence]:
        """Return, and forget, whose prefix `writer` has computed, or all if it left its pages."""
        waiters = self._waiters.pop(writer.arrival, [])
        gone = writer.node is None
        still = [(t, s) for t, s in waiters if not gone and writer.num_computed < t]
        if still:
            self._waiters[writer.arrival] = still
        return [s for t, s in waiters if gone or writer.num_computed >= t]

    def remove(self, seq: Sequence) -> None:
        """Forget a sequence, if it waits here."""
        for writer, waiters in list(self._waiters.items()):
            kept = [(tokens, s) for tokens, s in waiters if s is not seq]
            if kept:
                self._waiters[writer] = kept
            else:
                del self._waiters[writer]


def common_prefix(seq: Sequence, other: Sequence) -> int:
    """Return the length of the common prefix that `seq` could take from the cache."""
    limit = min(seq.match_limit, other.num_tokens)
    differs = seq.tokens.view(0, limit) != other.tokens.view(0, limit)
    first = int(np.argmax(differs)) if limit else 0
    return first if limit and differs[first] else limit
