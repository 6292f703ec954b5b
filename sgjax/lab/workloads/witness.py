"""What a run of programs looks like from outside: which requests were sent, when programs ended.

Imports the language's backend protocol, its local backend, theory and types. Two wrappers, one
below the language (requests, as the engine sees them) and one above its backend (calls, which know
their program); neither changes what passes through it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from sgjax.lang.backends.base import (
    Answer,
    Backend,
    Call,
    GenOutput,
    Hear,
    Piece,
)
from sgjax.lang.backends.forwarding import ForwardingBackend
from sgjax.lang.backends.local import EngineLike, Heard
from sgjax.theory.visits import Visit
from sgjax.tokens.base import Tokenizer
from sgjax.types import Delta, FinishKind, Request


@final
class RequestLog:
    """An engine that notes every request that ends well; implements `EngineLike`.

    Attributes:
        visits: prompts with what was generated, in the order in which they ended.
    """

    def __init__(self, engine: EngineLike) -> None:
        self.visits: list[Visit] = []
        self._engine = engine

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the engine's tokenizer."""
        return self._engine.tokenizer

    def submit(self, requests: list[Request], hear: Callable[[int, Heard], None]) -> None:
        """Enqueue requests together, and note them when they end."""

        def listen(index: int, heard: Heard) -> None:
            completion = heard.completion if isinstance(heard, Delta) else None
            if completion is not None and completion.finish.kind is not FinishKind.ABORT:
                self.visits.append(Visit(tuple(requests[index].tokens), completion.output_ids))
            hear(index, heard)

        self._engine.submit(requests, listen)

    def new_id(self) -> str:
        """Return a request id."""
        return self._engine.new_id()

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Stop expecting so many followers of a hint."""
        self._engine.release_hint(hint_id, followers)

    def flush_cache(self) -> bool:
        """Drop the engine's cached prefixes."""
        return self._engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """Return the engine's configuration and counters."""
        return self._engine.get_server_info()


@dataclass
class Course:
    """How a program went, on the engine's clock; infinities before anything happened.

    Attributes:
        asked_s: its first call was sent.
        spoke_s: its first output token came; a choice counts when it is made.
        ended_s: its last answer came.
        completion_tokens: tokens generated.
    """

    asked_s: float = float("inf")
    spoke_s: float = float("inf")
    ended_s: float = float("-inf")
    completion_tokens: int = 0


@final
class Witness(ForwardingBackend):
    """A backend that notes how each program of a batch went.

    Args:
        inner: answers what is asked.
        now: the engine's clock, in seconds.
        programs: how many programs the batch has.

    Attributes:
        courses: one a program, in order.
    """

    def __init__(self, inner: Backend, now: Callable[[], float], programs: int) -> None:
        self.courses = [Course() for _ in range(programs)]
        super().__init__(inner)
        self._now = now
        self._lock = threading.Lock()
        self._active = 0

    @property
    def busy(self) -> bool:
        """Return whether any thread of the run has something to do."""
        return self._active > 0

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Pass calls on; note when they were sent and answered."""
        now = self._now()
        with self._lock:
            for call in calls:
                course = self.courses[call.program]
                course.asked_s = min(course.asked_s, now)

        def listen(index: int, answer: Answer) -> None:
            if not isinstance(answer, Piece | Exception):
                with self._lock:
                    _note(self.courses[calls[index].program], answer, self._now())
            hear(index, answer)

        self._inner.submit(calls, listen)

    def active(self, change: int) -> None:
        """Count the threads that have something to do."""
        with self._lock:
            self._active += change


def _note(course: Course, answer: Answer, now: float) -> None:
    spoke = now
    if isinstance(answer, GenOutput):
        for meta in answer.meta:
            spoke = min(spoke, now - meta["e2e_latency_s"] + meta["ttft_s"])
            course.completion_tokens += meta["completion_tokens"]
    course.spoke_s = min(course.spoke_s, spoke)
    course.ended_s = max(course.ended_s, now)
