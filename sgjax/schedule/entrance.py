"""What a request passes on its way to the waiting queue. Imports sequence only.

In an engine there is nothing in between. A simulated server may have processes of its own before
the scheduler (`sim.entrance`), which decide when it gets to see whom.
"""

import abc

from sgjax.schedule.sequence import Sequence


class Entrance(abc.ABC):
    """Keep requests until the scheduler may see them."""

    @abc.abstractmethod
    def keeps(self, seq: Sequence) -> bool:
        """Take in a request that came; return whether it is kept back for now."""

    @property
    @abc.abstractmethod
    def is_idle(self) -> bool:
        """Return whether nobody is kept back, and a look takes no time."""

    @abc.abstractmethod
    def look(self) -> list[Sequence]:
        """Return, and forget, whom the scheduler finds when it looks at its queue, in order."""

    @abc.abstractmethod
    def wait(self) -> bool:
        """Let time pass until somebody is there; return False where nobody is kept back."""

    @abc.abstractmethod
    def remove(self, seq: Sequence) -> None:
        """Forget a request, if it is kept here."""

    @abc.abstractmethod
    def ended(self) -> None:
        """Hear that a request ended well."""


class Open(Entrance):
    """Nothing in between: who came is there."""

    def keeps(self, seq: Sequence) -> bool:
        """Return False."""
        del seq
        return False

    @property
    def is_idle(self) -> bool:
        """Return True."""
        return True

    def look(self) -> list[Sequence]:
        """Return nobody: all are in the queue."""
        return []

    def wait(self) -> bool:
        """Return False."""
        return False

    def remove(self, seq: Sequence) -> None:
        """Do nothing."""

    def ended(self) -> None:
        """Do nothing."""
