"""What all workloads of programs share: a task that runs one program over rows of arguments.

Imports the language, its local backend, the witnesses and the workload protocol. The same task runs
on a real engine and on a simulated one: rows say how many tokens each generation has, so that
every variant, and every executor, does the same work.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.lab.workloads.base import LabEngine, Outcome, Ran
from sgjax.lab.workloads.witness import Course, RequestLog, Witness
from sgjax.lang.backends.local import LocalBackend
from sgjax.lang.backends.speculative import SpeculativeBackend
from sgjax.lang.function import SglFunction
from sgjax.lang.spec import LanguageSpec
from sgjax.lang.state import ProgramState
from sgjax.lang.unthreaded import run_unthreaded
from sgjax.tokens.base import Tokenizer

Measure = Callable[[Sequence[ProgramState], Tokenizer], Mapping[str, float]]
"""Return metrics of a workload's own from a batch's final states."""


@dataclass(frozen=True)
class ProgramsTask:
    """A program and the arguments of each of its runs.

    What a program answers is the text of its prompt, or of the forks that it returns, or the
    variable that `answer` names.

    Attributes:
        program: the program; it reads no variable, so that all of a batch can be in flight.
        rows: its arguments, one mapping a run.
        seed: of sampling; each generation of each run gets its own draw.
        answer: the variable that holds the answer, spaces around it apart; None takes texts.
        expected: the right answers, where there are any.
        measure: what the workload reads off the finished programs, by names of `METRICS`.
        at_once: runs at once at most, whatever the language allows; None sets no limit.
    """

    program: SglFunction
    rows: tuple[Mapping[str, Any], ...]
    seed: int
    answer: str | None = None
    expected: tuple[str, ...] | None = None
    measure: Measure | None = None
    at_once: int | None = None

    @property
    def num_programs(self) -> int:
        """Return the number of runs."""
        return len(self.rows)

    def first(self, count: int) -> "ProgramsTask":
        """Return the task of the first runs alone."""
        expected = None if self.expected is None else self.expected[:count]
        return dataclasses.replace(self, rows=self.rows[:count], expected=expected)

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Run the programs as one batch; as many at once as `language` and the task allow."""
        log = RequestLog(engine)
        witness = Witness(LocalBackend(log), engine.now, len(self.rows))
        speculative = None
        if language.num_api_spec_tokens is not None:
            speculative = SpeculativeBackend(witness, language.num_api_spec_tokens)
        limits = [n for n in (language.programs, self.at_once) if n is not None]
        options: dict[str, Any] = {"fork": language.fork, "seed": self.seed, "temperature": 0.0}
        engine.hold_clock_while(lambda: witness.busy)
        try:
            if speculative is None and engine.get_server_info()["executor"] == "sim":
                states = run_unthreaded(
                    self.program,
                    self.rows,
                    backend=witness,
                    at_once=min(limits, default=self.num_programs),
                    **options,
                )
            else:
                states = (_blocking(self.program) if limits else self.program).run_batch(
                    self.rows,
                    backend=speculative or witness,
                    num_threads=min(limits) if limits else "auto",
                    **options,
                )
        finally:
            engine.hold_clock_while(None)
        ended = zip(states, witness.courses, strict=True)
        outcomes = tuple(self._outcome(i, state, course) for i, (state, course) in enumerate(ended))
        metrics = dict(self.measure(states, engine.tokenizer)) if self.measure else {}
        if speculative is not None:
            usage = speculative.usage
            metrics |= {"reused_tokens": usage.reused_tokens, "wasted_tokens": usage.wasted_tokens}
        return Ran(outcomes, tuple(log.visits), metrics)

    def _outcome(self, index: int, state: ProgramState, course: Course) -> Outcome:
        answer = _text(state) if self.answer is None else str(state[self.answer]).strip()
        return Outcome(
            answer=answer,
            correct=None if self.expected is None else answer == self.expected[index],
            latency_s=course.ended_s - course.asked_s,
            ttft_s=course.spoke_s - course.asked_s,
            completion_tokens=course.completion_tokens,
        )


def _text(state: ProgramState) -> str:
    """Return all that a program wrote."""
    return "\n".join(written.text() for written in _states(state, state.ret_value))


def _states(state: ProgramState, returned: Iterable[ProgramState] | None) -> list[ProgramState]:
    return [state] if returned is None else list(returned)


def _blocking(program: SglFunction) -> SglFunction:
    """Return the program as one whose function ends with its last generation.

    It then holds its thread as long as it runs, so the number of threads limits the programs.
    """

    @functools.wraps(program.func)
    def func(s: ProgramState, **arguments: Any) -> Any:
        returned = program.func(s, **arguments)
        for written in _states(s, returned):
            written.sync()
        return returned

    return SglFunction(func)
