"""Delivery: the one thread of a run that carries backends' answers into its programs.

Imports the standard library. A backend's own thread only enqueues, so that tokenising the next
prompt never holds up the model. Where no model can be held up, it may carry them itself.
"""

import queue
import threading
from collections.abc import Callable
from typing import final

Message = Callable[[], None]


@final
class Delivery:
    """Run messages in order on one thread, which ends after the last of the run's programs.

    Args:
        programs: how many programs will call `program_ended`.
        active: hears of each message as of something to do, from `put` until it was run.
        at_once: run each message within `put`, and have no thread.
    """

    def __init__(self, programs: int, active: Callable[[int], None], at_once: bool = False) -> None:
        self._active = active
        self._at_once = at_once
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._left = programs
        self._started = False
        self._lock = threading.Lock()

    def put(self, message: Message) -> None:
        """Enqueue a message, or run it; never blocks."""
        self._active(1)
        if self._at_once:
            message()
            self._active(-1)
            return
        self._inbox.put(message)
        if not self._started:
            self._start()

    def program_ended(self) -> None:
        """Note that a program expects no more messages."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._inbox.put(None)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._main, name="sgjax-delivery", daemon=True).start()

    def _main(self) -> None:
        while (message := self._inbox.get()) is not None:
            message()
            self._active(-1)
