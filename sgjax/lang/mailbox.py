"""Mailbox: the messages of one program, run one after the other by whoever posts them.

Imports errors. Whoever posts runs the messages that are there, unless somebody is at it: what only
messages touch needs no lock, and a message that posts does not recurse.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from sgjax.errors import ProgramError

Message = Callable[[], None]


@final
class Mailbox:
    """Run messages.

    Args:
        when_still: returns what is to be done, if anything, when no message is left and nobody will
            append one: all who could wait, or the user's function is over.
        failed: hears what a message raised: a defect, which must not leave readers waiting.
    """

    def __init__(
        self, when_still: Callable[[], Message | None], failed: Callable[[Exception], None]
    ) -> None:
        self._when_still = when_still
        self._failed = failed
        self._messages: deque[Message] = deque()
        self._lock = threading.Lock()
        self._at_it = False
        self._blocked = 0
        self.is_open = True

    def post(self, message: Message) -> None:
        """Run a message after all earlier ones; return at once if another thread is at it."""
        with self._lock:
            is_mine = self._enqueue(message)
        if is_mine:
            self._run()

    def append(self, message: Message) -> None:
        """Post a message that appends to a prompt.

        Raises:
            ProgramError: the user's function has returned.
        """
        with self._lock:
            # Nothing may come behind the message that ends all prompts.
            if not self.is_open:
                raise ProgramError(
                    "nothing can be appended: the program has returned; its state can be read"
                )
            is_mine = self._enqueue(message)
        if is_mine:
            self._run()

    def close(self, message: Message) -> None:
        """Post a message behind which nothing can be appended."""
        with self._lock:
            self.is_open = False
            is_mine = self._enqueue(message)
        if is_mine:
            self._run()

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """Mark a thread as one that waits: what waits for its further appends must go."""
        with self._lock:
            self._blocked += 1
        self.post(_nothing)
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def _enqueue(self, message: Message) -> bool:
        """Enqueue a message, under the lock; return whether it is this thread that runs it."""
        self._messages.append(message)
        is_mine, self._at_it = not self._at_it, True
        return is_mine

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                try:
                    message()
                except Exception as error:
                    self._failed(error)
            except BaseException:  # an interrupt of this thread: others must be able to go on
                with self._lock:
                    self._at_it = False
                raise

    def _next(self) -> Message | None:
        """Return what to do next; None ends the turn of the thread that is at it."""
        with self._lock:
            if self._messages:
                return self._messages.popleft()
            if self._blocked or not self.is_open:
                more = self._when_still()
                if more is not None:
                    return more
            self._at_it = False
            return None


def _nothing() -> None:
    """Make a thread look whether there is anything to do."""
