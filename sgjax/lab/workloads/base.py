"""What an experiment knows of a workload: configuration, task, outcome, and the engine it needs.

Imports tokens, typed and `errors`. A workload is a frozen dataclass with a `type` tag that YAML
fills; `load` turns it into a `Task`, the programs in the order in which they arrive.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sgjax.errors import ConfigError
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA


class LabEngine(Protocol):
    """The part of `sgjax.Engine` that experiments use."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        ...

    def generate(self, *, input_ids: Any, sampling_params: Any) -> Any:
        """Run a list of prompts, given as token ids; return one result a prompt, in order."""
        ...

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Serve a trace in virtual time; a real engine refuses it."""
        ...

    def flush_cache(self) -> bool:
        """Empty the cache; return whether that was possible."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """Return the resolved configuration, the device and the counters."""
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

    def find(self, names: Sequence[str]) -> list[Path] | None:
        """Return the files to read, or None for the shipped ones.

        Args:
            names: the workload's files under their usual names, in order.

        Raises:
            ConfigError: the path is neither such a folder nor that many files.
        """
        if self.path is None:
            return None
        given = [Path(p) for p in ((self.path,) if isinstance(self.path, str) else self.path)]
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


class Task(Protocol):
    """The programs of one run, in the order in which they arrive; immutable."""

    @property
    def num_programs(self) -> int:
        """Return the number of programs."""
        ...

    def first(self, count: int) -> "Task":
        """Return the task of the first programs alone; all of them where there are fewer."""
        ...

    def prompts(self, tokenizer: Tokenizer) -> list[list[int]]:
        """Return the token ids of every prompt that the run sends."""
        ...

    def run(self, engine: LabEngine) -> list[Outcome]:
        """Run all programs at once on an engine; return their outcomes in order."""
        ...


class Workload(Protocol):
    """A kind of programs with its options; implementations are frozen dataclasses."""

    def load(self, data: DataSource, seed: int) -> Task:
        """Read the data and fix the programs and their order.

        Raises:
            ConfigError: the data or an option is not usable.
        """
        ...
