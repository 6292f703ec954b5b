"""ProgramState: what a user's function holds.

Imports its neighbours and errors. Appending numbers the expressions and returns; reading waits
for the number of the expression that decides what is read.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar, final

from sgjax.errors import ProgramError
from sgjax.lang import ir
from sgjax.lang.appendable import Appendable
from sgjax.lang.backends.base import Message
from sgjax.lang.feed import Heard, Pieces, Sink, Watch
from sgjax.lang.forks import ForkGroup, check_copies
from sgjax.lang.ops import FetchOp, ForkOp, JoinOp, Op
from sgjax.lang.stream import Stream

T = TypeVar("T")


@final
class ProgramState(Appendable):
    """A prompt in the making, and its variables.

    `s += expr` returns at once; what is read is waited for. A failure is raised, chained to its
    cause, where the state is read.
    """

    def __init__(self, stream: Stream, inherited: Iterable[str] = ()) -> None:
        self._stream = stream
        self._program = stream.program
        self._queued = 0
        # Who writes each variable last; what a fork's child inherits is there when it starts.
        self._writers = dict.fromkeys(inherited, -1)
        self._last_join = -1
        self._ended = ""

    # ---------------------------------------------------------------- appending

    def set_var(self, name: str, value: Any) -> None:
        """Store a value under a name, without appending it."""
        self._append([ir.SetVar(name, value)])

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def fork(self, n: int = 1) -> "ForkGroup[ProgramState]":
        """Return n copies of this state that go on independently, and at once.

        Args:
            n: at least 1.
        """
        check_copies(n)
        children = []
        for index in range(n):
            child = self._program.new_stream((*self._stream.place, self._queued, index), None)
            child.await_start()
            children.append(child)
        try:
            self._append([ForkOp(children)])
        except ProgramError:
            self._program.forget(children)
            raise
        states = [ProgramState(child, self._writers) for child in children]

        def join(gather: bool) -> None:
            self._append([JoinOp(children, gather)])
            for state in states:
                state._ended = "the fork it belongs to was joined"

        return ForkGroup(states, join)

    @contextmanager
    def copy(self) -> Iterator["ProgramState"]:
        """Give a copy of this state to a `with` block; its variables come back as at a join."""
        group = self.fork(1)
        yield group[0]
        group.join()

    # ---------------------------------------------------------------- reading

    def __getitem__(self, name: str) -> Any:
        """Return a variable; wait for what is queued to set it.

        Raises:
            KeyError: nothing sets it.
            ProgramError: the program failed before it was set.
        """
        return self._read_variable(name, lambda: self._stream.state.value_of(name))

    def get_var(self, name: str) -> Any:
        """Return a variable, like `s[name]`."""
        return self[name]

    def get_meta_info(self, name: str) -> Any:
        """Return how a variable came about: finish reason, token counts, log-probabilities."""

        def value() -> Any:
            self._stream.state.value_of(name)
            return self._stream.state.meta[name]

        return self._read_variable(name, value)

    def __contains__(self, name: str) -> bool:
        """Return whether a variable is set or queued to be set; wait for joins only."""
        if name in self._writers:
            return True
        stream = self._stream
        return self._read(self._decided(self._last_join), lambda: name in stream.state.variables)

    def text(self) -> str:
        """Return the whole prompt once everything queued is done."""
        return self._read_all(lambda: self._stream.state.text)

    def messages(self) -> list[Message]:
        """Return the finished chat messages once everything queued is done."""
        return self._read_all(lambda: [dict(m) for m in self._stream.state.messages])

    def sync(self) -> None:
        """Wait until everything queued is done."""
        self._read_all(lambda: None)

    def error(self) -> BaseException | None:
        """Wait like `sync`, and return what made this state fail, or None."""
        try:
            self.sync()
        except ProgramError:
            pass
        return self._stream.error

    @property
    def ret_value(self) -> Any:
        """Return what the user's function returned; wait for it.

        Raises:
            ProgramError: it failed, or reads this itself.
        """
        if self._inside:
            raise ProgramError("ret_value is there once the function has returned, not within it")
        self._program.wait(self._program.finished)
        if (error := self._program.error()) is not None:
            raise error
        return self._program.result

    def text_iter(self, var: str | None = None) -> Iterator[str]:
        """Yield text as it comes: the whole prompt, or one variable; pieces add up to it.

        Inside the program it ends with what is queued so far, outside with the program.
        """
        pieces = Pieces()
        self._watch(var, pieces.put)
        while (piece := self._program.wait(pieces.next())) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def text_async_iter(self, var: str | None = None) -> AsyncIterator[str]:
        """Yield text as it comes, like `text_iter`, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Heard] = asyncio.Queue()
        self._watch(var, lambda piece: _hand_over(loop, inbox, piece))
        with self._program.mailbox.blocking():
            while (piece := await inbox.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece

    # ---------------------------------------------------------------- for compiled programs

    def new_root(self) -> "ProgramState":
        """Return an empty prompt of the same program."""
        place = (*self._stream.place, self._queued, -1)
        return ProgramState(self._program.new_stream(place, None))

    def append_variable(self, source: "ProgramState", name: str, formatted: bool) -> None:
        """Append another state's variable when it is there, without waiting for it.

        Args:
            source: whose variable.
            name: the variable.
            formatted: append `str(value)`; else the value as `+=` would.
        """
        number = source._number(name)
        self._append([FetchOp(source._stream, name, number, formatted)])

    # ---------------------------------------------------------------- private

    @property
    def _inside(self) -> bool:
        """Return whether the reader runs within the user's function.

        A helper thread of a function that nobody streams from is inside too: nobody else can have
        the state.
        """
        if not self._program.is_open:
            return False
        return not self._program.shared or self._program.author == threading.get_ident()

    def _append(self, ops: Sequence[Op]) -> None:
        if self._ended:
            raise ProgramError(f"nothing can be appended: {self._ended}")
        self._program.mailbox.append(lambda: self._stream.accept(ops))
        for op in ops:
            name = ir.written_by(op) if isinstance(op, ir.Expr) else None
            if name is not None:
                self._writers[name] = self._queued
            if isinstance(op, JoinOp):
                self._last_join = self._queued
            self._queued += 1

    def _number(self, name: str) -> int:
        """Return the number of the expression that decides a variable's value, -1 for none."""
        return max(self._writers.get(name, -1), self._last_join)

    def _decided(self, number: int) -> Callable[[], bool]:
        """Return the test that an expression is executed; outside, that the program is over."""
        stream = self._stream
        if self._inside:
            return lambda: stream.has_started and stream.done > number
        return lambda: stream.over and stream.error is None

    def _read_variable(self, name: str, value: Callable[[], T]) -> T:
        if self._inside:
            return self._read(self._decided(self._number(name)), value)
        return self._read(lambda: name in self._stream.state.variables, value)

    def _read_all(self, value: Callable[[], T]) -> T:
        return self._read(self._decided(self._queued - 1), value)

    def _read(self, ready: Callable[[], bool], value: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._program.mailbox.post(lambda: self._stream.read(ready, value, future))
        result: T = self._program.wait(future)
        return result

    def _watch(self, var: str | None, sink: Sink) -> None:
        number: int | None = None
        if self._inside:
            number = self._queued - 1 if var is None else self._number(var)
        watch = Watch(var, number, sink)
        self._program.mailbox.post(lambda: self._stream.feed.watch(watch))


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    inbox: "asyncio.Queue[Heard]",
    piece: Heard,
) -> None:
    try:
        loop.call_soon_threadsafe(inbox.put_nowait, piece)
    except RuntimeError:
        pass  # the loop is closed: nobody listens any more
