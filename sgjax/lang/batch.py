"""run_batch: many programs at once, their functions in a pool. Imports its neighbours."""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

from sgjax.errors import BatchError, ConfigError, RequestAborted
from sgjax.lang.backends.base import Prompt
from sgjax.lang.delivery import Delivery
from sgjax.lang.groups import Announcement
from sgjax.lang.program import Program, RunSettings, wait_for
from sgjax.lang.state import ProgramState

MAX_THREADS = 64
"""Threads of `num_threads="auto"`."""


@dataclass(frozen=True)
class Job:
    """A batch to run.

    Attributes:
        name: of the program.
        func: the user's function.
        rows: its arguments, one mapping a program.
        settings: how the programs execute.
        prefix: text that all prompts begin with; empty for none.
        num_threads: functions that run at once.
        progress_bar: show one.
    """

    name: str
    func: Callable[..., Any]
    rows: Sequence[Mapping[str, Any]]
    settings: RunSettings
    prefix: str
    num_threads: int | Literal["auto"]
    progress_bar: bool


def run_jobs(job: Job) -> Iterator[ProgramState]:
    """Start a batch and return an iterator over its states, in order, as they finish.

    Raises:
        BatchError: from the iterator, after the last state, if programs failed.
    """
    count = len(job.rows)
    workers = _workers(job.num_threads, count)
    if count == 0:
        return iter(())
    crew = _Crew(min(workers, count), count, job.settings.backend.active)
    try:
        announced = announce(job)
    except BaseException:
        crew.ended(count)
        raise
    delivery = Delivery(count, job.settings.backend.active)
    programs = [Program(job.settings, delivery, job.name, row, announced) for row in range(count)]
    states = [ProgramState(program.root) for program in programs]
    pool = ThreadPoolExecutor(workers, thread_name_prefix=job.name)
    functions = [
        functools.partial(program.run, functools.partial(job.func, state, **row))
        for program, state, row in zip(programs, states, job.rows, strict=True)
    ]
    pooled = [pool.submit(crew.run, function) for function in functions]
    pool.shutdown(wait=False)

    def abandon() -> None:
        # Whoever stops iterating wants no more: functions that have not begun never will.
        pool.shutdown(wait=False, cancel_futures=True)
        crew.ended(sum(future.cancelled() for future in pooled))
        for program in programs:
            if not program.has_begun:
                program.returned(RequestAborted("the batch was abandoned"))

    return _until_abandoned(results(job, programs, states), abandon)


def _until_abandoned(
    states: Iterator[ProgramState], abandon: Callable[[], None]
) -> Iterator[ProgramState]:
    try:
        yield from states
    finally:
        abandon()


def results(
    job: Job, programs: list[Program], states: list[ProgramState]
) -> Iterator[ProgramState]:
    """Yield states in order as their programs end.

    Raises:
        BatchError: after the last state, if programs failed.
    """
    failed = []
    with _progress(job, programs):
        for index, (program, state) in enumerate(zip(programs, states, strict=True)):
            wait_for(program.finished)
            if (error := program.error()) is not None:
                failed.append((index, error))
            yield state
    if failed:
        index, first = failed[0]
        raise BatchError(
            f"{len(failed)} of {len(programs)} programs failed, first number {index}: {first}",
            tuple(states),
        ) from first


@final
class _Crew:
    """Tell the backend how many threads of the pool are at work or about to be.

    Args:
        workers: threads of the pool, which all get something to do at once.
        jobs: how many functions they run, one after the other.
        active: the backend's.
    """

    def __init__(self, workers: int, jobs: int, active: Callable[[int], None]) -> None:
        self._left = jobs - workers
        self._active = active
        self._lock = threading.Lock()
        active(workers)

    def run(self, job: Callable[[], None]) -> None:
        """Run a function; whoever runs it goes on with one that is left, or rests."""
        try:
            job()
        finally:
            self.ended(1)

    def ended(self, jobs: int) -> None:
        """Note that so many functions are over, or will never be run."""
        with self._lock:
            rested = max(0, -self._left)
            self._left -= jobs
            rest = max(0, -self._left) - rested
        if rest:
            self._active(-rest)


def announce(job: Job) -> Announcement | None:
    """Announce the batch's constant prefix once."""
    if not job.prefix:
        return None
    hint = job.settings.backend.hint(Prompt(job.prefix), len(job.rows), None)
    if hint is None:
        return None
    return Announcement(hint, len(job.rows), False)


def _workers(num_threads: int | Literal["auto"], count: int) -> int:
    if num_threads == "auto":
        return max(1, min(count, MAX_THREADS))
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise ConfigError(f"num_threads={num_threads!r} must be 'auto' or an integer >= 1")
    return num_threads


@contextmanager
def _progress(job: Job, programs: list[Program]) -> Iterator[None]:
    if not job.progress_bar:
        yield
        return
    from rich.progress import Progress

    with Progress() as progress:
        task = progress.add_task(job.name, total=len(programs))
        for program in programs:
            program.finished.add_done_callback(lambda _: progress.advance(task))
        yield
