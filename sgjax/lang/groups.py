"""Announcement: one hint, and the streams that will name it in their first request.

Imports the backend's records. Members of a fork go out together; the programs of a batch each when
they are ready. A hint expects a fixed number of followers, so whoever never asks must be counted.
"""

import threading
from typing import TYPE_CHECKING, final

from sgjax.lang.backends.base import Call, Hint

if TYPE_CHECKING:
    from sgjax.lang.stream import Stream

Ask = tuple["Stream", Call]


@final
class Announcement:
    """Count the followers of one hint; hold their first calls back until all are there.

    Args:
        hint: what was announced.
        members: how many streams follow it.
        together: whether first calls wait for one another.
    """

    def __init__(self, hint: Hint, members: int, together: bool) -> None:
        self.hint = hint
        self._together = together
        self._open = members
        self._held: list[Ask] = []
        self._lock = threading.Lock()

    @property
    def holds(self) -> bool:
        """Return whether calls wait here."""
        return bool(self._held)

    @property
    def complete(self) -> bool:
        """Return whether every member has asked or left."""
        return self._open == 0

    def ask(self, stream: "Stream", call: Call) -> list[Ask]:
        """Take a member's first call; return the calls that go out now."""
        with self._lock:
            self._open -= 1
            self._held.append((stream, call))
            return self._take() if self._open == 0 or not self._together else []

    def leave(self) -> list[Ask]:
        """Note that a member asks for no call of its own; return the calls that go out now."""
        with self._lock:
            self._open -= 1
            return self._take() if self._open == 0 else []

    def flush(self) -> list[Ask]:
        """Return the calls that wait for others; those will go out alone."""
        with self._lock:
            return self._take()

    def _take(self) -> list[Ask]:
        held, self._held = self._held, []
        return held
