"""What an experiment knows of a workload: configuration, task, outcome, and the engine it needs.

Imports the language's EngineLike and spec, sim, theory, typed and `errors`. A workload is a frozen
dataclass with a `type` tag that YAML fills; `load` turns it into a `Task`, the programs in the
order in which they arrive.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sgjax.errors import ConfigError
from sgjax.lang.backends.local import EngineLike
from sgjax.lang.spec import LanguageSpec
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival
from sgjax.theory.visits import Visit
from sgjax.typed import FORBID_EXTRA


class LabEngine(EngineLike, Protocol):
    """The part of `sgjax.Engine` that experiments use."""

    def now(self) -> float:
        """Return the engine's clock in seconds: virtual where it is simulated."""
        ...

    def hold_clock_while(self, busy: Callable[[], bool] | None) -> None:
        """Let no simulated time pass while `busy()`; on a real engine nothing happens."""
        ...

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Serve a trace in virtual time; a real engine refuses it."""
        ...

    def shutdown(self) -> None:
        """Release the engine's threads and memory."""
        ...


@dataclass(frozen=True)
class DataSource:
    """Where a workload's data come from.

    Attributes:
        path: a folder with the workload's files under their usual names, or the files themselves
            in the workload's order; None takes what ships with the project.
    """

    __pydantic_config__ = FORBID_EXTRA
    path: str | tuple[str, ...] | None = None

    def check(self) -> None:
        """Refuse a path that is not there, also where no workload reads it.

        Raises:
            ConfigError: it is not.
        """
        missing = [str(path) for path in self._given() if not path.exists()]
        if missing:
            raise ConfigError(
                f"data.path={self.path!r} is not allowed; not found: {', '.join(missing)}; name a "
                "folder of data or the files"
            )

    def _given(self) -> list[Path]:
        given = (self.path,) if isinstance(self.path, str) else self.path or ()
        return [Path(path) for path in given]

    def find(self, names: Sequence[str]) -> list[Path] | None:
        """Return the files to read, or None for the shipped ones.

        Args:
            names: the workload's files under their usual names, in order.

        Raises:
            ConfigError: the path is neither such a folder nor that many files.
        """
        if self.path is None:
            return None
        given = self._given()
        paths = [given[0] / n for n in names] if len(given) == 1 and given[0].is_dir() else given
        missing = [str(p) for p in paths if not p.is_file()]
        if missing or len(paths) != len(names):
            raise ConfigError(
                f"data.path={self.path!r} is not allowed; it must be a folder that holds "
                f"{' and '.join(names)}, or a list of those {len(names)} files"
                + (f" (not found: {', '.join(missing)})" if missing else "")
            )
        return paths


@dataclass(frozen=True)
class Outcome:
    """How one program ended.

    Attributes:
        answer: what the program answered; equal answers are what variants must agree on.
        correct: whether that is right; None where the workload has no right answer.
        latency_s: seconds from submission to end, on the engine's clock.
        ttft_s: seconds to its first output token.
        completion_tokens: tokens generated.
        queued_s: seconds from arrival to admission; None where it is not known.
        family: whose it is, for fairness; empty where that means nothing.
    """

    answer: str
    correct: bool | None
    latency_s: float
    ttft_s: float
    completion_tokens: int
    queued_s: float | None = None
    family: str = ""


@dataclass(frozen=True)
class Ran:
    """What a run of a task brought.

    Attributes:
        outcomes: one a program, in order.
        prompts: every request that was really sent, hints and scored choices among them, with
            what was generated: what the optimal hit rate is about.
        metrics: what the workload measures beside the common metrics, by names of `METRICS`.
    """

    outcomes: tuple[Outcome, ...]
    prompts: tuple[Visit, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)


class Task(Protocol):
    """The programs of one run, in the order in which they arrive; immutable."""

    @property
    def num_programs(self) -> int:
        """Return the number of programs."""
        ...

    def first(self, count: int) -> "Task":
        """Return the task of the first programs alone; all of them where there are fewer."""
        ...

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Run all programs on an engine, at once unless `language` limits them.

        Raises:
            ConfigError: the task runs no programs of the language, and `language` asks for
                something.
            ProgramError: a program failed.
        """
        ...


class Workload(Protocol):
    """A kind of programs with its options; implementations are frozen dataclasses."""

    def load(self, data: DataSource, seed: int) -> Task:
        """Read the data and fix the programs and their order.

        Raises:
            ConfigError: the data or an option is not usable.
        """
        ...


def require(workload: object, *positive: str, **least: float) -> None:
    """Refuse numbers of a workload that are out of range; those that are None are not looked at.

    Args:
        workload: its configuration. If it draws lengths from `low` to `high`, they are checked too.
        positive: numbers that must be above 0.
        least: numbers with the least that each may be.

    Raises:
        ConfigError: one is too small or not finite, or `low` is above `high`.
    """
    kind = getattr(workload, "type", type(workload).__name__)
    for name in positive:
        if not 0 < getattr(workload, name) < math.inf:
            raise ConfigError(
                f"{kind}: {name}={getattr(workload, name)} is not allowed; it must be > 0"
            )
    lengths = ("low", "high") if hasattr(workload, "low") else ()
    for name, lowest in {**least, **dict.fromkeys(lengths, 1)}.items():
        value = getattr(workload, name)
        if value is not None and not lowest <= value < math.inf:
            raise ConfigError(f"{kind}: {name}={value} is not allowed; it must be >= {lowest:g}")
    if lengths:
        low, high = (getattr(workload, name) for name in lengths)
        if low > high:
            raise ConfigError(
                f"{kind}: low={low} is not allowed with high={high}; it must be <= high"
            )


def refuse_language(language: LanguageSpec, workload: str) -> None:
    """Refuse language options where no program of the language runs.

    Raises:
        ConfigError: there are some.
    """
    if language != LanguageSpec():
        raise ConfigError(
            f"{workload} sends its requests without the language; drop 'language' from the "
            "variant, or use a workload of programs"
        )
