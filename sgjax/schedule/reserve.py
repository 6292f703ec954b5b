"""What admission keeps free beside whom it lets in, for those who are here already.

Imports nothing of sgjax. That a request fits says nothing of what it evicts: a `Reserve` decides.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

Held = Callable[[float], int]
"""Count evictable tokens that the waiting would hit; it may stop once it has so many."""


class Candidate(NamedTuple):
    """A request that fits beside those who run. All are tokens.

    Attributes:
        matched: its tokens that are cached.
        own: those of them that nobody who runs holds.
        missing: what its other tokens take, in whole pages.
        spare: what is left when it is in and all have grown as expected, evictable ones included.
        capacity: what the whole pool holds.
    """

    matched: int
    own: int
    missing: int
    spare: float
    capacity: int


class Reserve(abc.ABC):
    """Decide whether a request that fits is let in. Alone it always is, so nobody is kept out."""

    foresees: bool = False
    """Whether it asks what the waiting would hit."""

    @abc.abstractmethod
    def allows(self, candidate: Candidate, held: Held) -> bool:
        """Return whether a candidate leaves enough.

        Args:
            candidate: whom the policy puts first.
            held: what all others who wait would hit.
        """

    def admitted(self, candidate: Candidate) -> None:  # noqa: B027
        """Hear of a request that is let in for the first time."""


class NoReserve(Reserve):
    """Let in who fits, whatever that evicts (the paper's)."""

    def allows(self, candidate: Candidate, held: Held) -> bool:
        """Return True."""
        del candidate, held
        return True


class WorkingSet(Reserve):
    """Keep a share of the room for those who are here already: ours.

    A program that asks in turns, such as a chat, comes back for what it has computed. Where more
    begin than there is room for, they evict each other between turns. Two things keep a request
    out, as far as it must be computed rather than found. What others who wait would hit counts as
    taken; and the same share again is left to those who run, for their next turns. Where nobody
    comes back that is room for nothing, so it is less where less than half of the requests did,
    of the last `MEMORY` or so (at first all count as if they had).

    Source:
        The idea is Denning's, The working set model for program behavior (1968): a program runs
        only where what it is about to use fits beside what the others use.

    Args:
        keep: the share of the pool, in [0, 1].
    """

    foresees = True
    MEMORY = 32

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._returning = 1.0

    def allows(self, candidate: Candidate, held: Held) -> bool:
        """Return whether what is spare covers what is kept from a request like this."""
        most = self._keep * candidate.capacity
        computed = candidate.missing / (candidate.missing + candidate.matched)
        left = candidate.spare / computed - min(1.0, 2 * self._returning) * most
        return left >= most or (left >= 0 and held(most) <= left)

    def admitted(self, candidate: Candidate) -> None:
        """Move the mean: who comes back hits, for itself alone, at least what it still misses."""
        returns = candidate.own >= candidate.missing
        self._returning += (returns - self._returning) / self.MEMORY
