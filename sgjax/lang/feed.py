"""Feed: a stream's growing text for those who iterate over it. Imports errors.

Runs inside the program's messages; iterators get their pieces through queues of their own. Whoever
comes late first gets what is there already.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from sgjax.errors import ConfigError

if TYPE_CHECKING:
    from sgjax.lang.stream import Stream

Heard = str | Exception | None
"""A piece of text; at last None, or the error."""

Sink = Callable[[Heard], None]


@final
class Pieces:
    """What one thread that iterates has not taken yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: deque[Heard] = deque()
        self._awaited: Future[Heard] | None = None

    def put(self, piece: Heard) -> None:
        """Take in what is next; never blocks."""
        with self._lock:
            awaited, self._awaited = self._awaited, None
            if awaited is None:
                self._there.append(piece)
                return
        awaited.set_result(piece)

    def next(self) -> "Future[Heard]":
        """Return what comes next, which may be there already."""
        future: Future[Heard] = Future()
        with self._lock:
            if not self._there:
                self._awaited = future
                return future
            piece = self._there.popleft()
        future.set_result(piece)
        return future


@dataclass(eq=False)
class Watch:
    """Somebody who iterates.

    Attributes:
        name: the variable that is watched; None watches the whole text.
        number: the expression to wait for: the one that writes the variable, or the last one of
            the text. None waits for the variable's first writer, or for the end of the stream.
        sink: where pieces go.
        running: the variable's writer is at work.
    """

    name: str | None
    number: int | None
    sink: Sink
    running: bool = False


@final
class Feed:
    """Hand a stream's text to its watchers, piece by piece."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._watches: list[Watch] = []

    def watch(self, watch: Watch) -> None:
        """Begin to serve a watcher."""
        stream = self._stream
        self._watches.append(watch)
        if watch.name is None:
            if stream.visible_text:
                watch.sink(stream.visible_text)
        elif watch.name in stream.state.variables and watch.number is None:
            self._finish_variable(watch, stream.state.variables[watch.name])
        elif watch.name == stream.running_name and watch.number in (None, stream.done):
            watch.running = True
            if stream.partial:
                watch.sink(stream.partial)
        self.check()

    def text(self, piece: str) -> None:
        """Note that the whole text grew."""
        if self._watches and piece:
            for watch in self._watches:
                if watch.name is None:
                    watch.sink(piece)

    def begin(self, name: str) -> None:
        """Note that a generation starts to write a variable."""
        for watch in self._watches:
            if watch.name == name and watch.number in (None, self._stream.done):
                watch.running = True

    def piece(self, name: str, piece: str) -> None:
        """Note that the variable being generated grew."""
        for watch in self._watches:
            if watch.running and watch.name == name:
                watch.sink(piece)

    def end(self, name: str, value: Any) -> None:
        """Note that a variable got its value."""
        for watch in list(self._watches):
            if watch.name != name:
                continue
            if watch.running:
                self._remove(watch, None)
            elif watch.number in (None, self._stream.done):
                self._finish_variable(watch, value)

    def check(self) -> None:
        """End the watches that have nothing more to come."""
        stream = self._stream
        for watch in list(self._watches):
            decided = watch.number is not None and stream.has_started and stream.done > watch.number
            if stream.error is not None:
                self._remove(watch, stream.raised())
            elif not (decided or stream.over):
                continue
            elif watch.name is None:
                self._remove(watch, None)
            elif watch.name in stream.state.variables:
                self._finish_variable(watch, stream.state.variables[watch.name])
            else:
                self._remove(watch, stream.state.unknown(watch.name))

    def _finish_variable(self, watch: Watch, value: Any) -> None:
        if isinstance(value, str):
            watch.sink(value)
            self._remove(watch, None)
        else:
            self._remove(
                watch,
                ConfigError(
                    f"variable {watch.name!r} is a {type(value).__name__}, no text to iterate "
                    "over; read it with s[name]"
                ),
            )

    def _remove(self, watch: Watch, last: Exception | None) -> None:
        self._watches.remove(watch)
        watch.sink(last)
