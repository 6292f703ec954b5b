"""Stream: the state of one prompt, and the machine that executes what is appended to it.

Imports ir, choices, calls, feed, readers, waits and the backend's records. Everything here runs
inside its program's messages. Expressions are numbered as they are queued; `done` counts those that
are executed, so a reader waits for a number.

    queue -> execute -+-> at once (text, roles, scopes)      -> done += 1 -> next
                      +-> busy until the backend answers     -> done += 1 -> next
                      +-> busy until the children are there  -> done += 1 -> next
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, final

from sgjax.errors import ConfigError, ProgramError
from sgjax.lang import ir
from sgjax.lang.backends.base import (
    Answer,
    Call,
    ChatFormat,
    GenOutput,
    Piece,
    SelectOutput,
)
from sgjax.lang.calls import gen_call, select_call
from sgjax.lang.choices import decide
from sgjax.lang.feed import Feed
from sgjax.lang.ops import FetchOp, ForkOp, JoinOp, Op, describe, fail_forks
from sgjax.lang.prompt_state import PromptState
from sgjax.lang.readers import Readers
from sgjax.lang.waits import begin_fetch, begin_join

if TYPE_CHECKING:
    from sgjax.lang.groups import Announcement
    from sgjax.lang.program import Program

_IDS = itertools.count()


@final
class Stream:
    """One prompt of a program.

    Attributes:
        state: text, messages, variables.
        done: number of executed expressions.
        announced: the hint that this stream's first request shall name.
        has_started: false while it is the child of a fork that is still queued.
        error: what made it fail, or None; `failed_at` says where.
        error_read: somebody has been told of the error.
        closed: nothing more will be appended.
        call_ended: the last answer was the last one of its call.
    """

    def __init__(
        self,
        program: "Program",
        place: tuple[int, ...],
        announced: "Announcement | None",
    ) -> None:
        self.program = program
        self.id = next(_IDS)
        self.place = place
        self.state = PromptState()
        self.done = 0
        self.announced = announced
        self.error: BaseException | None = None
        self.failed_at = ""
        self.error_read = False
        self.closed = False
        self.call_ended = True
        self.forked_at = 0
        self.written: dict[str, None] = {}
        self.feed = Feed(self)
        self._queue: deque[Op] = deque()
        self._current: Op | None = None
        self.has_started = True
        self._gens = 0
        self.partial = ""
        self._readers = Readers()
        self._on_idle: list[Callable[[], None]] = []

    # ---------------------------------------------------------------- what comes in

    def accept(self, ops: Sequence[Op]) -> None:
        """Queue expressions."""
        if self.error is not None:
            fail_forks(ops, self.error)
            return
        self._queue.extend(ops)
        self._advance()

    def await_start(self) -> None:
        """Execute nothing before `start`: this is the child of a fork that is still queued."""
        self.has_started = False

    def start(self, parent: PromptState) -> None:
        """Begin with a copy of the parent's state."""
        self.state = parent.copy()
        self.forked_at = len(parent.text)
        self.feed.text(parent.text)
        self.has_started = True
        self._advance()

    def close(self) -> None:
        """Note that nothing more will be appended."""
        self.closed = True
        self._settle()

    def heard(self, answer: Answer) -> None:
        """Take the backend's answer to the call in flight."""
        self.call_ended = not isinstance(answer, Piece)
        op = self._current
        if self.error is not None or op is None:
            return
        try:
            if isinstance(answer, Piece):
                self._take_piece(op, answer.text)
                return
            if isinstance(answer, Exception):
                raise answer
            if isinstance(op, ir.Gen) and isinstance(answer, GenOutput):
                self._finish_gen(op, answer)
            elif isinstance(op, ir.Select) and isinstance(answer, SelectOutput):
                self._finish_select(op, answer)
        except Exception as error:
            self.fail(error, describe(op))
            return
        self.proceed()

    def fail(self, error: BaseException, where: str = "") -> None:
        """End the stream with an error; whoever reads it is told.

        Args:
            error: the cause.
            where: the expression that failed, for the message.
        """
        if self.error is not None:
            return
        self.error = error
        self.failed_at = where
        # The fork under way too: what fails it may come before its children have begun.
        dropped = [*self._queue] if self._current is None else [self._current, *self._queue]
        self._current = None
        self._queue.clear()
        fail_forks(dropped, error)
        self._settle()

    def read(
        self, ready: Callable[[], bool], value: Callable[[], Any], future: "Future[Any]"
    ) -> None:
        """Give `value()` to a future once `ready()`, or the error that prevents it."""
        self._readers.add(ready, value, future)
        self._serve()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once all queued expressions are executed or the stream has failed."""
        self._on_idle.append(callback)
        self._settle()

    # ---------------------------------------------------------------- what is known

    @property
    def idle(self) -> bool:
        """Return whether nothing is queued or in flight."""
        if self.error is not None:
            return True
        return self.has_started and self._current is None and not self._queue

    @property
    def over(self) -> bool:
        """Return whether the stream will never change again."""
        return self.closed and self.idle

    @property
    def visible_text(self) -> str:
        """Return the text with what is there of the generation in flight."""
        return self.state.text + self.partial

    @property
    def running_name(self) -> str | None:
        """Return the variable that is being generated, or None."""
        return self._current.name if isinstance(self._current, ir.Gen) else None

    def awaits(self, op: Op) -> bool:
        """Return whether an expression is under way here."""
        return self._current is op and self.error is None

    def raised(self) -> ProgramError:
        """Return the stream's error for a reader; it counts as delivered."""
        assert self.error is not None
        self.error_read = True
        return self.program.wrap(self.failed_at, self.error)

    # ---------------------------------------------------------------- execution

    @property
    def _chat(self) -> ChatFormat:
        return self.program.settings.backend.chat

    def _advance(self) -> None:
        while self.has_started and self._current is None and self._queue and self.error is None:
            self._current = self._queue.popleft()
            try:
                finished = self.execute(self._current)
            except Exception as error:
                self.fail(error, describe(self._current))
                return
            if finished:
                self._complete()
        self._settle()

    def execute(self, op: Op) -> bool:
        """Do one thing; return False if it is still under way.

        Raises:
            Exception: it cannot be done; the caller fails the stream.
        """
        match op:
            case ir.Text(value=value):
                self.append(value)
            case ir.Gen():
                self._gen(op)
                return False
            case ir.Select():
                self._ask(select_call(self, op))
                return False
            case ir.RoleBegin(role=role):
                self.feed.text(self.state.begin_role(role, self._chat))
            case ir.RoleEnd(role=role):
                self.feed.text(self.state.end_role(role, self._chat))
            case ir.ScopeBegin(name=name):
                self.state.scopes.append((name, len(self.state.text)))
            case ir.ScopeEnd(name=name):
                self.assign(name, self.state.end_scope(name), None)
            case ir.SetVar(name=name, value=value):
                self.assign(name, value, None)
            case ir.Image() | ir.Video():
                self.state.add_media(op)
            case ForkOp(children=children):
                self.program.announce(self, children)
                for child in children:
                    child.start(self.state)
            case JoinOp():
                begin_join(self, op)
                return False
            case FetchOp():
                begin_fetch(self, op)
                return False
            case _:
                raise ConfigError(f"a {type(op).__name__} cannot be appended to a prompt")
        return True

    def proceed(self) -> None:
        """Go on behind the expression that was under way."""
        self._complete()
        self._advance()

    def append(self, text: str) -> None:
        """Append text to the prompt."""
        self.state.text += text
        self.feed.text(text)

    def assign(self, name: str, value: Any, meta: Any) -> None:
        """Give a variable its value."""
        self.state.variables[name] = value
        self.state.meta[name] = meta
        self.written[name] = None
        self.feed.end(name, value)

    def _complete(self) -> None:
        self._current = None
        self.done += 1
        self._serve()

    def _gen(self, op: ir.Gen) -> None:
        call = gen_call(self, op, self._gens)
        self._gens += 1
        if op.name is not None:
            self.feed.begin(op.name)
        self._ask(call)

    def _ask(self, call: Call) -> None:
        self.call_ended = False
        self.program.request(self, call)

    def _take_piece(self, op: Op, text: str) -> None:
        self.partial += text
        self.feed.text(text)
        if isinstance(op, ir.Gen) and op.name is not None:
            self.feed.piece(op.name, text)

    def _finish_gen(self, op: ir.Gen, output: GenOutput) -> None:
        text = output.texts[0]
        if not text.startswith(self.partial):
            raise ProgramError(
                f"the backend streamed {self.partial!r}, but the output is {text!r}; "
                "this is a defect of the backend"
            )
        if rest := text[len(self.partial) :]:
            self._take_piece(op, rest)
        self.state.text += text
        self.partial = ""
        if op.name is not None:
            several = len(output.texts) > 1
            self.assign(
                op.name,
                list(output.texts) if several else text,
                list(output.meta) if several else output.meta[0],
            )

    def _finish_select(self, op: ir.Select, output: SelectOutput) -> None:
        seed = self.program.settings.sampling.seed
        place = None if seed is None else repr((seed, self.place, self.done))
        decision = decide(op.method, op.choices, output.logprobs, op.temperature, place)
        choice = op.choices[decision.index]
        if op.append:
            self.append(choice)
        if op.name is not None:
            self.assign(op.name, choice, {**output.meta, **decision.meta})

    # ---------------------------------------------------------------- readers

    def _settle(self) -> None:
        """Tell whoever waits for the stream to become idle or to end."""
        self._serve()
        if not self.idle:
            return
        if self._on_idle:
            callbacks, self._on_idle = self._on_idle, []
            for callback in callbacks:
                callback()
        if self.closed or self.error is not None:
            self.program.leave(self)
            self.program.stream_ended()

    def _serve(self) -> None:
        self.feed.check()
        self._readers.serve(self.over, None if self.error is None else self.raised)
