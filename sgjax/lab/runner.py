"""Run an experiment: variants x workloads x seeds x repeats, one record a timed run.

Imports the lab. Engines come from a function that is passed in, so that tests need no model.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from sgjax.errors import ResultsError
from sgjax.lab.config import Experiment
from sgjax.lab.metrics import measure
from sgjax.lab.provenance import digest, git_sha, versions
from sgjax.lab.records import Record, RecordWriter
from sgjax.lab.workloads import LabEngine, Outcome, Task
from sgjax.theory.bound import HitRateBound, hit_rate_bound

BuildEngine = Callable[[dict[str, Any]], LabEngine]
"""Build an engine from its settings."""


@dataclass(frozen=True)
class Finished:
    """How a run of an experiment ended.

    Attributes:
        directory: its results folder.
        num_records: timed runs that were written.
        interrupted: whether it was ended from the keyboard.
    """

    directory: Path
    num_records: int
    interrupted: bool


def run_experiment(
    experiment: Experiment, out: Path, build_engine: BuildEngine, console: Console
) -> Finished:
    """Run all variants of an experiment and write their records.

    Args:
        experiment: what to run.
        out: the folder that holds all results.
        build_engine: builds an engine for a variant.
        console: where the progress bar is drawn.

    Returns:
        Where the records are. Ctrl-C ends the run early; the records so far are kept.

    Raises:
        ConfigError: the data or an engine setting is not usable.
        ResultsError: a record cannot be written; the records before it are kept.
    """
    tasks = {
        (name, seed): workload.load(experiment.data, seed)
        for name, workload in experiment.workloads.items()
        for seed in experiment.seeds
    }
    passes = experiment.repeats + experiment.warmup
    total = passes * len(experiment.variants) * sum(t.num_programs for t in tasks.values())
    with RecordWriter(out, experiment.name) as writer, _progress(console) as progress:
        run = _Run(experiment, build_engine, writer, progress, progress.add_task("", total=total))
        try:
            for (workload, seed), task in tasks.items():
                for variants in run.groups():
                    run.measure_variants(workload, seed, task, variants)
        except KeyboardInterrupt:
            return Finished(writer.directory, run.num_records, interrupted=True)
    return Finished(writer.directory, run.num_records, interrupted=False)


class _Run:
    """One run of an experiment: where its engines come from and its records go."""

    def __init__(
        self,
        experiment: Experiment,
        build_engine: BuildEngine,
        writer: RecordWriter,
        progress: Progress,
        bar: Any,
    ) -> None:
        self.experiment = experiment
        self.build_engine = build_engine
        self.writer = writer
        self.progress = progress
        self.bar = bar
        self.num_records = 0
        self.resolved = dataclasses.asdict(experiment)
        self.git_sha = git_sha()
        self.versions = versions()

    def groups(self) -> list[list[str]]:
        """Return the variants whose engines are alive together."""
        names = list(self.experiment.variants)
        return [names] if self.experiment.interleave else [[name] for name in names]

    def measure_variants(self, workload: str, seed: int, task: Task, variants: list[str]) -> None:
        """Build the variants' engines, warm them up, and time them in turns."""
        with ExitStack() as alive:
            engines = {}
            for variant in variants:
                self._say(f"{workload} · {variant} · building the engine")
                settings = self.experiment.engine_settings(variant, seed)
                engines[variant] = alive.enter_context(_engine(self.build_engine, settings))
            if self.experiment.warmup:
                for variant, engine in engines.items():
                    self._say(f"{workload} · {variant} · warm-up")
                    task.run(engine)
                    self.progress.advance(self.bar, task.num_programs)
            for repeat in range(self.experiment.repeats):
                for variant, engine in engines.items():
                    self._say(
                        f"{workload} · {variant} · run {repeat + 1} of {self.experiment.repeats}"
                    )
                    record = self._time(workload, variant, seed, repeat, task, engine)
                    self.writer.write(record)
                    self.num_records += 1
                    self.progress.advance(self.bar, task.num_programs)

    def _time(
        self, workload: str, variant: str, seed: int, repeat: int, task: Task, engine: LabEngine
    ) -> Record:
        if not engine.flush_cache():
            raise ResultsError(f"{variant}: the cache could not be emptied before a timed run")
        bound = _bound(task, engine)
        before = engine.get_server_info()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        begin = time.perf_counter()
        outcomes = task.run(engine)
        wall_s = time.perf_counter() - begin
        after = engine.get_server_info()
        config = {"experiment": self.resolved, "engine": after["config"]}
        return Record(
            experiment=self.experiment.name,
            claim=self.experiment.claim,
            workload=workload,
            variant=variant,
            seed=seed,
            repeat=repeat,
            executor=after["executor"],
            device=after["device"],
            model=after["config"]["model"],
            dtype=after["config"]["dtype"],
            config=config,
            config_hash=digest(config),
            git_sha=self.git_sha,
            versions=self.versions,
            started=started,
            wall_s=wall_s,
            answers_digest=_answers_digest(outcomes),
            metrics=measure(outcomes, before, after, wall_s, bound),
        )

    def _say(self, text: str) -> None:
        self.progress.update(self.bar, description=text)


@contextmanager
def _engine(build_engine: BuildEngine, settings: dict[str, Any]) -> Iterator[LabEngine]:
    engine = build_engine(settings)
    try:
        yield engine
    finally:
        engine.shutdown()


def _bound(task: Task, engine: LabEngine) -> HitRateBound:
    return hit_rate_bound(task.prompts(engine.tokenizer))


def _answers_digest(outcomes: list[Outcome]) -> str:
    return digest([outcome.answer for outcome in outcomes])


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("programs"),
        TimeElapsedColumn(),
        console=console,
    )
