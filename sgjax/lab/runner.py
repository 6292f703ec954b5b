"""Run an experiment: variants x workloads x seeds x repeats, one record a timed run.

Imports the lab and the engine's configuration. Engines come from a function that is passed in, so
that tests need no model.
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

from sgjax.engine.config import resolve
from sgjax.errors import ResultsError
from sgjax.lab.bar import Bar
from sgjax.lab.config import Experiment
from sgjax.lab.metrics import measure
from sgjax.lab.provenance import digest, git_sha, versions
from sgjax.lab.records import Record, RecordWriter
from sgjax.lab.workloads import LabEngine, Ran, Task
from sgjax.theory.bound import HitRateBound, hit_rate_bound

BuildEngine = Callable[[dict[str, Any]], LabEngine]
"""Build an engine from its settings."""

RETRIES = 2
"""How often a timed run is made again because the engine compiled something meanwhile."""


@dataclass(frozen=True)
class Finished:
    """How a run of an experiment ended.

    Attributes:
        directory: its results folder; there is none without records.
        num_records: timed runs that were written.
        interrupted: whether it was ended from the keyboard.
    """

    directory: Path
    num_records: int
    interrupted: bool


@dataclass(frozen=True)
class Case:
    """One timed run: which variant on which workload, for the how manieth time."""

    workload: str
    variant: str
    seed: int
    repeat: int


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
        ConfigError: the data or an engine setting is not usable; nothing has run then.
        ResultsError: a record cannot be written; the records before it are kept.
    """
    tasks = {
        (name, seed): workload.load(experiment.data, seed)
        for name, workload in experiment.workloads.items()
        for seed in experiment.seeds
    }
    for variant in experiment.variants:
        resolve(None, experiment.engine_settings(variant, experiment.seeds[0]))
    with RecordWriter(out, experiment.name) as writer, Bar(console) as bar:
        run = _Run(experiment, build_engine, writer, bar)
        bar.expect(sum(run.num_programs(task) for task in tasks.values()))
        interrupted = False
        try:
            for (workload, seed), task in tasks.items():
                for variants in run.groups():
                    run.measure_variants(workload, seed, task, variants)
        except KeyboardInterrupt:
            interrupted = True
    return Finished(writer.directory, run.num_records, interrupted)


class _Run:
    """One run of an experiment: where its engines come from and its records go."""

    def __init__(
        self, experiment: Experiment, build_engine: BuildEngine, writer: RecordWriter, bar: Bar
    ) -> None:
        self.experiment = experiment
        self.build_engine = build_engine
        self.writer = writer
        self.bar = bar
        self.num_records = 0
        self.resolved = dataclasses.asdict(experiment)
        self.git_sha = git_sha()
        self.versions = versions()

    def num_programs(self, task: Task) -> int:
        """Return how many programs all variants run, if nothing is made again."""
        warmup = task.first(self.experiment.warmup).num_programs
        each = warmup + self.experiment.repeats * task.num_programs
        return each * len(self.experiment.variants)

    def groups(self) -> list[list[str]]:
        """Return the variants whose engines are alive together."""
        names = list(self.experiment.variants)
        return [names] if self.experiment.interleave else [[name] for name in names]

    def measure_variants(self, workload: str, seed: int, task: Task, variants: list[str]) -> None:
        """Build the variants' engines, warm them up, and time them in turns."""
        warmup = task.first(self.experiment.warmup)
        repeats = self.experiment.repeats
        with ExitStack() as alive:
            engines = {}
            for variant in variants:
                self.bar.say(f"{workload} · {variant} · loading")
                settings = self.experiment.engine_settings(variant, seed)
                engines[variant] = alive.enter_context(_engine(self.build_engine, settings))
            for variant, engine in engines.items():
                self.bar.say(f"{workload} · {variant} · warm-up")
                warmup.run(engine, self.experiment.language(variant))
                self.bar.advance(warmup.num_programs)
            for repeat in range(repeats):
                for variant, engine in engines.items():
                    self.bar.say(f"{workload} · {variant} · run {repeat + 1} of {repeats}")
                    case = Case(workload, variant, seed, repeat)
                    self.writer.write(self._measure(case, task, engine))
                    self.num_records += 1

    def _measure(self, case: Case, task: Task, engine: LabEngine) -> Record:
        """Time a run; make it again if the engine compiled something meanwhile."""
        record = self._time(case, task, engine)
        for _ in range(RETRIES):
            if not record.metrics["compilations"]:
                break
            self.bar.expect(task.num_programs)
            record = self._time(case, task, engine)
        return record

    def _time(self, case: Case, task: Task, engine: LabEngine) -> Record:
        if not engine.flush_cache():
            raise ResultsError(f"{case.variant}: the cache could not be emptied before a timed run")
        language = self.experiment.language(case.variant)
        before = engine.get_server_info()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        begin, begin_s = time.perf_counter(), engine.now()
        ran = task.run(engine, language)
        wall_s, elapsed_s = time.perf_counter() - begin, engine.now() - begin_s
        after = engine.get_server_info()
        self.bar.advance(task.num_programs)
        config = {"experiment": self.resolved, "engine": after["config"]}
        return Record(
            experiment=self.experiment.name,
            claim=self.experiment.claim,
            workload=case.workload,
            variant=case.variant,
            seed=case.seed,
            repeat=case.repeat,
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
            answers_digest=digest([outcome.answer for outcome in ran.outcomes]),
            metrics=measure(ran, before, after, elapsed_s, _bound(ran)),
        )


def _bound(ran: Ran) -> HitRateBound:
    return hit_rate_bound([v.prompt for v in ran.prompts], [v.output for v in ran.prompts])


@contextmanager
def _engine(build_engine: BuildEngine, settings: dict[str, Any]) -> Iterator[LabEngine]:
    engine = build_engine(settings)
    try:
        yield engine
    finally:
        engine.shutdown()
