"""run_unthreaded: a batch whose programs go on in the thread that answers them.

Imports its neighbours. A batch otherwise has threads for its functions and one for the answers, so
that neither holds up the other or the model. A simulated engine has nothing to hold up, its clock
stands still while programs think, and handing over between threads at each of its steps takes
longer than the steps, on a busy machine by orders of magnitude.
"""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from sgjax.lang.batch import Job, announce, results
from sgjax.lang.delivery import Delivery
from sgjax.lang.function import SglFunction
from sgjax.lang.program import Program
from sgjax.lang.spec import ForkSpec
from sgjax.lang.state import ProgramState


def run_unthreaded(
    program: SglFunction,
    rows: Sequence[Mapping[str, Any]],
    *,
    backend: object,
    fork: ForkSpec,
    at_once: int,
    **options: Any,
) -> list[ProgramState]:
    """Run programs that read nothing; return their final states.

    Args:
        program: its function must not wait for a value: nobody could bring it.
        rows: its arguments, one mapping a run.
        backend: a backend that answers in one thread.
        fork: how forks run.
        at_once: programs that run at once; the next begins when one has ended.
        **options: sampling defaults.

    Raises:
        BatchError: programs failed; raised when all have ended.
    """
    settings = program.settings(options, False, backend, fork)
    job = program.job(rows, settings, at_once)
    active = settings.backend.active
    # Nothing is answered before all that begin together have begun.
    active(1)
    try:
        announced = announce(job)
        delivery = Delivery(len(rows), active, at_once=True)
        programs = [Program(settings, delivery, job.name, i, announced) for i in range(len(rows))]
        states = [ProgramState(each.root) for each in programs]
        _Line(job, programs, states).begin(at_once)
    finally:
        active(-1)
    return list(results(job, programs, states))


@final
class _Line:
    """Programs that begin one after the other, as others end."""

    def __init__(
        self, job: Job, programs: Sequence[Program], states: Sequence[ProgramState]
    ) -> None:
        self._left: Iterator[tuple[Program, ProgramState, Mapping[str, Any]]] = iter(
            zip(programs, states, job.rows, strict=True)
        )
        self._func = job.func
        self._places = 0
        self._at_work = False
        self._lock = threading.Lock()

    def begin(self, places: int) -> None:
        """Let so many more programs run."""
        with self._lock:
            self._places += places
            if self._at_work:  # further up on this stack, or in another thread
                return
            self._at_work = True
        while (following := self._next()) is not None:
            program, state, row = following
            program.finished.add_done_callback(lambda _: self.begin(1))
            program.run(functools.partial(self._func, state, **row))

    def _next(self) -> tuple[Program, ProgramState, Mapping[str, Any]] | None:
        with self._lock:
            following = next(self._left, None) if self._places else None
            self._places -= following is not None
            self._at_work = following is not None
            return following
