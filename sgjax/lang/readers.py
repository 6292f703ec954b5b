"""Readers: who waits for a value of a stream. Imports the standard library.

Runs inside the program's messages, like the stream that owns it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, final


@dataclass(frozen=True)
class _Reader:
    ready: Callable[[], bool]
    value: Callable[[], Any]
    future: "Future[Any]"

    def answer(self) -> None:
        try:
            self.future.set_result(self.value())
        except Exception as error:
            self.future.set_exception(error)


@final
class Readers:
    """Give values to futures when they are there."""

    def __init__(self) -> None:
        self._waiting: list[_Reader] = []

    def add(
        self, ready: Callable[[], bool], value: Callable[[], Any], future: "Future[Any]"
    ) -> None:
        """Owe `value()` to a future once `ready()`."""
        self._waiting.append(_Reader(ready, value, future))

    def serve(self, over: bool, error: Callable[[], Exception] | None) -> None:
        """Answer those who need not wait any longer.

        Args:
            over: nothing will change any more, so that values are what they are.
            error: makes the error for who waits for what will never be; None while there is none.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if reader.ready():
                reader.answer()
            elif error is not None:
                reader.future.set_exception(error())
            elif over:
                reader.answer()
            else:
                self._waiting.append(reader)
