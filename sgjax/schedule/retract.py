"""Which running sequence goes back to the queue when the pool is full.

Imports sequence only.
"""

import abc

from sgjax.schedule.sequence import Sequence


class RetractRule(abc.ABC):
    """Pick a victim among the running."""

    @abc.abstractmethod
    def pick(self, running: list[Sequence]) -> Sequence:
        """Return the sequence to retract; `running` has at least two."""


class LeastProgress(RetractRule):
    """Retract whoever has produced least, the latest arrival among equals.

    It loses least, and the oldest always goes on, so the queue cannot livelock.
    """

    def pick(self, running: list[Sequence]) -> Sequence:
        """Return the sequence with the fewest output tokens."""
        return min(running, key=lambda seq: (seq.num_output, -seq.arrival))
