"""Program: one run of a function; it owns the run's streams and everything that changes them.

Imports its neighbours and the Backend protocol. All changes are messages in its mailbox, so nothing
in a stream needs a lock, no stream needs a thread, and a backend that answers at once does not
recurse.
"""

import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from sgjax.errors import ProgramError
from sgjax.lang.backends.base import Answer, Backend, Call, GenCall, Hint, Piece, Prompt
from sgjax.lang.delivery import Delivery
from sgjax.lang.groups import Announcement, Ask
from sgjax.lang.mailbox import Mailbox
from sgjax.lang.options import Sampling
from sgjax.lang.spec import ForkSpec, ParallelFork
from sgjax.lang.stream import Stream


@dataclass(frozen=True)
class RunSettings:
    """How programs of one run execute.

    Attributes:
        backend: answers the calls.
        sampling: defaults of gens.
        stream: ask for pieces while a gen runs.
        fork: parallel or sequential, with or without hints.
    """

    backend: Backend
    sampling: Sampling
    stream: bool
    fork: ForkSpec

    @property
    def hints(self) -> bool:
        """Return whether prefixes are announced."""
        wanted = isinstance(self.fork, ParallelFork) and self.fork.hint
        return wanted and self.backend.takes_hints


_AUTHOR: contextvars.ContextVar["Program | None"] = contextvars.ContextVar("author", default=None)


def current_author() -> "Program | None":
    """Return the program whose function runs here, or None."""
    return _AUTHOR.get()


def wait_for(future: "Future[Any]") -> Any:
    """Block until a future has a result; the program whose function runs here rests meanwhile."""
    author = current_author()
    if author is None or future.done():
        return future.result()
    with author.resting(future):
        return future.result()


@final
class Program:
    """One run.

    Args:
        settings: how it executes.
        delivery: carries answers here.
        name: of the function, for error messages.
        row: index in a batch.
        announced: the hint that announced this program's constant prefix.
        shared: the state is handed out while the function still runs.
    """

    def __init__(
        self,
        settings: RunSettings,
        delivery: Delivery,
        name: str,
        row: int = 0,
        announced: Announcement | None = None,
        shared: bool = False,
    ) -> None:
        self.shared = shared
        self.settings = settings
        self.name = name
        self.finished: Future[None] = Future()
        self.has_begun = False
        """The user's function was entered."""
        self.author: int | None = None
        """The thread that runs the user's function, while it runs."""
        self.result: Any = None
        """What the user's function returned."""
        self._delivery = delivery
        self.mailbox = Mailbox(self._when_still, self._fail_all)
        self._groups: list[Announcement] = []
        self._waiting: deque[Ask] = deque()
        self._in_flight = 0
        self.streams: list[Stream] = []
        self.root = self.new_stream((row,), announced)

    # ---------------------------------------------------------------- from any thread

    @property
    def is_open(self) -> bool:
        """Return whether the user's function may still append."""
        return self.mailbox.is_open

    def wait(self, future: "Future[Any]") -> Any:
        """Block until something is there that this program brings."""
        if future.done():
            return future.result()
        with self.mailbox.blocking():
            return wait_for(future)

    @contextmanager
    def resting(self, until: "Future[Any]") -> Iterator[None]:
        """Let the thread of the user's function wait, or work for another program.

        Args:
            until: gets a result when the function goes on.
        """
        active = self.settings.backend.active
        with self.mailbox.blocking():
            # Whoever wakes this thread counts it, so that it is never idle in between.
            until.add_done_callback(lambda _: active(1))
            active(-1)
            yield

    def new_stream(self, place: tuple[int, ...], announced: Announcement | None) -> Stream:
        """Return a new stream of this program."""
        stream = Stream(self, place, announced)
        self.streams.append(stream)
        return stream

    def forget(self, streams: list[Stream]) -> None:
        """Wait no longer for the end of streams that will never start."""

        def leave_out() -> None:
            for stream in streams:
                self.streams.remove(stream)
            self.stream_ended()

        self.mailbox.post(leave_out)

    def run(self, function: Callable[[], Any]) -> None:
        """Run the user's function on this thread; what it raises is kept for `error`."""
        self.has_begun = True
        self.author = threading.get_ident()
        outer = _AUTHOR.set(self)
        try:
            self.result = function()
        except Exception as error:
            self.returned(error)
        except BaseException as error:  # an interrupt goes on, but must not leave readers hanging
            self.returned(error)
            raise
        else:
            self.returned(None)
        finally:
            _AUTHOR.reset(outer)

    def returned(self, error: BaseException | None) -> None:
        """Note that the user's function is over."""
        self.mailbox.close(lambda: self._close(error))
        self.author = None

    # ---------------------------------------------------------------- inside messages

    def request(self, stream: Stream, call: Call) -> None:
        """Send a stream's call, possibly together with those of its siblings."""
        if stream.announced is None:
            self._send([(stream, call)])
            return
        group, stream.announced = stream.announced, None
        self._send(group.ask(stream, call))

    def announce(self, parent: Stream, children: list[Stream]) -> None:
        """Send a fork's prefix once, before its children."""
        if not self.settings.hints or len(children) < 2:
            return
        group = parent.announced
        hint = self.hint(parent.state.prompt(), len(children), group.hint if group else None)
        if hint is None:
            return
        if group is not None:
            parent.announced = None
            self._send(group.leave())
        ours = Announcement(hint, len(children), True)
        self._groups.append(ours)
        for child in children:
            child.announced = ours

    def hint(self, prompt: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Announce a prefix to the backend, unless there is nothing in it."""
        if not prompt.text and not prompt.media:
            return None
        return self.settings.backend.hint(prompt, followers, after)

    def leave(self, stream: Stream) -> None:
        """Note that a stream asks for nothing more."""
        if stream.announced is not None:
            group, stream.announced = stream.announced, None
            self._send(group.leave())
            self.settings.backend.release(group.hint, 1)

    def stream_ended(self) -> None:
        """Note that a stream came to its end; the last one ends the program."""
        if self.is_open or self.finished.done():
            return
        if all(stream.over and stream.call_ended for stream in self.streams):
            self._delivery.program_ended()
            self.finished.set_result(None)

    def error(self) -> ProgramError | None:
        """Return what a finished program raises: the root's error, or one that nobody has read."""
        for stream in self.streams:
            if stream.error is not None and (stream is self.root or not stream.error_read):
                return self.wrap(stream.failed_at, stream.error)
        return None

    def wrap(self, where: str, cause: BaseException) -> ProgramError:
        """Return a new ProgramError that carries its cause."""
        if isinstance(cause, ProgramError):
            error = ProgramError(*cause.args)
            error.__cause__ = cause.__cause__ or cause
            return error
        place = f" in {where}" if where else ""
        error = ProgramError(
            f"program {self.name!r} failed{place}: {type(cause).__name__}: {cause}"
        )
        error.__cause__ = cause
        return error

    # ---------------------------------------------------------------- private

    def _close(self, error: BaseException | None) -> None:
        if error is not None:
            self.root.fail(error)
        for stream in list(self.streams):
            stream.close()
        self.stream_ended()

    def _when_still(self) -> Callable[[], None] | None:
        """Return how calls go out that wait for company: nobody will ask beside them."""
        if any(group.holds for group in self._groups):
            return self._flush
        if self._waiting and not self._in_flight:
            return self._send_samples
        return None

    def _fail_all(self, error: Exception) -> None:
        for stream in self.streams:
            stream.fail(error)

    def _flush(self) -> None:
        for group in self._groups:
            self._send(group.flush())
        self._groups = [group for group in self._groups if not group.complete]

    def _send(self, asks: list[Ask]) -> None:
        if not isinstance(self.settings.fork, ParallelFork):
            self._waiting.extend(asks)
            asks = []
            # Samples wait for each other, until nothing else is left to do.
            together = self.settings.fork.samples_together
            if self._waiting and self._in_flight == 0 and not together:
                asks = [self._waiting.popleft()]
        if asks:
            self._submit(asks)

    def _send_samples(self) -> None:
        """Send what is next in turn, with its siblings that ask the same."""
        first = self._waiting.popleft()
        same = [ask for ask in self._waiting if _are_samples(first, ask)]
        for ask in same:
            self._waiting.remove(ask)
        self._submit([first, *same])

    def _submit(self, asks: list[Ask]) -> None:
        self._in_flight += len(asks)
        streams = [stream for stream, _ in asks]

        def hear(index: int, answer: Answer) -> None:
            message = functools.partial(self._heard, streams[index], answer)
            self._delivery.put(lambda: self.mailbox.post(message))

        try:
            self.settings.backend.submit([call for _, call in asks], hear)
        except Exception as error:
            for index in range(len(asks)):
                hear(index, error)

    def _heard(self, stream: Stream, answer: Answer) -> None:
        last = not isinstance(answer, Piece)
        if last:
            self._in_flight -= 1
        stream.heard(answer)
        if last:
            self._send([])
            self.stream_ended()


def _are_samples(one: Ask, other: Ask) -> bool:
    """Return whether members of one fork generate from the same prompt."""
    (stream, call), (sibling, its_call) = one, other
    return (
        isinstance(call, GenCall)
        and isinstance(its_call, GenCall)
        and stream.place[:-1] == sibling.place[:-1]
        and call.prompt == its_call.prompt
    )
