"""Run an experiment: arms x workloads x seeds x variants x repeats, one record a timed run.

Imports the lab and the engine's configuration. Engines come from a function that is passed in, so
that tests need no model.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from sgjax.engine.config import resolve
from sgjax.errors import ConfigError, ResultsError, SgjaxError
from sgjax.lab.bar import Bar
from sgjax.lab.cluster import Cluster
from sgjax.lab.config import Experiment
from sgjax.lab.metrics import measure
from sgjax.lab.provenance import digest, git_sha, run_hash, versions
from sgjax.lab.records import Asked, Record, RecordWriter
from sgjax.lab.reference import Arm
from sgjax.lab.resume import Case, open_results, recorded, take_up
from sgjax.lab.workloads import LabEngine, Ran, Task
from sgjax.theory.bound import HitRateBound, hit_rate_bound

BuildEngine = Callable[[dict[str, Any]], LabEngine]
"""Build an engine from its settings."""

NOTHING = Asked()
RETRIES = 2
"""How often a timed run is made again because the engine compiled something meanwhile."""


@dataclass(frozen=True)
class Failure:
    """Why an arm of an experiment did not run to its end."""

    arm: Arm
    error: SgjaxError


@dataclass(frozen=True)
class Finished:
    """How a run of an experiment ended.

    Attributes:
        directory: its results folder; there is none without records.
        num_records: timed runs that were written, now and before.
        interrupted: whether it was ended from the keyboard.
        failures: the arms that could not run or stopped at an error.
    """

    directory: Path
    num_records: int
    interrupted: bool
    failures: tuple[Failure, ...]


def run_experiment(
    arms: Sequence[Experiment],
    out: Path,
    build_engine: BuildEngine,
    console: Console,
    resume: bool = False,
    title: str = "",
    asked: Asked = NOTHING,
) -> Finished:
    """Run all variants of an experiment, arm by arm, and write their records.

    Args:
        arms: what to run, all of one experiment.
        out: the folder that holds all results.
        build_engine: builds an engine for a variant.
        console: where the progress bar is drawn.
        resume: go on in the newest results folder of the same arms, if there is one; what it
            holds is not run again, and is judged and shown as they now say.
        title: stands before the progress.
        asked: what the command line asked of the file, for the records.

    Returns:
        Where the records are. Ctrl-C ends the run early, an error only its arm; the records so
        far are kept.

    Raises:
        SgjaxError: no arm gave any record; the first one's reason.
        ResultsError: the results cannot be written, or another run writes to them.
    """
    loaded, failures = _load(arms)
    with open_results(arms, out, resume) as writer, Bar(console, title) as bar:
        if resume and not writer.num_records:
            console.print(f"nothing to resume: {out} has no results of just this; they begin anew")
        done = take_up(writer, arms)
        names = [arm.arm for arm in arms]
        runs = [
            _Run(arm, names, tasks, build_engine, writer, bar, done, asked) for arm, tasks in loaded
        ]
        bar.expect(sum(run.num_programs() for run in runs))
        interrupted = False
        try:
            for run in runs:
                try:
                    run.measure()
                except ResultsError:
                    raise
                except SgjaxError as error:
                    failures.append(Failure(run.experiment.arm, error))
        except KeyboardInterrupt:
            interrupted = True
    if failures and not writer.num_records and not interrupted:
        raise failures[0].error
    return Finished(writer.directory, writer.num_records, interrupted, tuple(failures))


Tasks = dict[tuple[str, int], Task]
"""By workload and seed."""


def _load(arms: Sequence[Experiment]) -> tuple[list[tuple[Experiment, Tasks]], list[Failure]]:
    """Read the data of all arms and check their engines' settings, before anything runs."""
    loaded, failures = [], []
    for arm in arms:
        try:
            for variant in arm.variants:
                _check_settings(arm, variant)
            arm.data.check()
            tasks: Tasks = {
                (name, seed): _load_task(arm, name, seed)
                for name in arm.workloads
                for seed in arm.seeds
            }
            loaded.append((arm, tasks))
        except SgjaxError as error:
            failures.append(Failure(arm.arm, error))
    if not loaded:
        raise failures[0].error
    return loaded, failures


def _check_settings(arm: Experiment, variant: str) -> None:
    if arm.peer(variant) is None:
        try:
            resolve(None, arm.engine_settings(variant, arm.seeds[0]))
        except ConfigError as error:
            raise ConfigError(f"{arm.name}, variant {variant!r}: {error}") from None


def _load_task(arm: Experiment, name: str, seed: int) -> Task:
    try:
        task = arm.workloads[name].load(arm.data, seed)
    except SgjaxError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        if arm.data.path is None:  # no data but ours: a mistake of ours
            raise
        raise ConfigError(
            f"workload {name!r} cannot use data.path={arm.data.path!r}: a row is not in the form "
            f"that docs/workloads.md names ({type(error).__name__}: {error})"
        ) from error
    if not task.num_programs:
        raise ConfigError(f"workload {name!r} has no programs; loosen what it leaves out")
    return task


class _Run:
    """One arm's run: where its engines come from and its records go."""

    def __init__(
        self,
        experiment: Experiment,
        arms: Sequence[Arm],
        tasks: Tasks,
        build_engine: BuildEngine,
        writer: RecordWriter,
        bar: Bar,
        done: Set[tuple[str, Case]],
        asked: Asked,
    ) -> None:
        self.experiment = experiment
        self.arms = arms
        self.tasks = tasks
        self.build_engine = build_engine
        self.writer = writer
        self.bar = bar
        self.asked = asked
        self.config = recorded(experiment)
        self.run_hash = run_hash(self.config)
        self.done = {case for of, case in done if of == self.run_hash}
        self.git_sha = git_sha()
        self.versions = versions()

    def num_programs(self) -> int:
        """Return how many programs are still to run, if nothing is made again."""
        return sum(
            bool(cases) * task.first(self.experiment.warmup).num_programs
            + len(cases) * task.num_programs
            for (workload, seed), task in self.tasks.items()
            for cases in (self.missing(workload, v, seed) for v in self.experiment.variants)
        )

    def missing(self, workload: str, variant: str, seed: int) -> list[Case]:
        """Return the timed runs of a variant that are not done, in order."""
        cases = (Case(workload, variant, seed, repeat) for repeat in range(self.experiment.repeats))
        return [case for case in cases if case not in self.done]

    def measure(self) -> None:
        """Measure all that is not done."""
        names = list(self.experiment.variants)
        # Those of a group are alive together.
        groups = [names] if self.experiment.interleave else [[name] for name in names]
        for (workload, seed), task in self.tasks.items():
            for variants in groups:
                cases = {v: self.missing(workload, v, seed) for v in variants}
                self._measure_variants(task, {v: c for v, c in cases.items() if c}, seed)

    def _measure_variants(self, task: Task, cases: dict[str, list[Case]], seed: int) -> None:
        """Build the variants' engines, warm them up, and time them in turns."""
        warmup = task.first(self.experiment.warmup)
        repeats = self.experiment.repeats
        with ExitStack() as alive:
            engines: dict[str, LabEngine] = {}
            for variant, (case, *_) in cases.items():
                self.bar.say(f"{case.workload} · {variant} · loading")
                settings = self.experiment.engine_settings(variant, seed)
                cluster = self.experiment.cluster(variant)
                build = self.build_engine if cluster is None else partial(Cluster, cluster)
                with self._excused(case):
                    engines[variant] = alive.enter_context(_engine(build, settings))
            for variant, engine in list(engines.items()):
                self.bar.say(f"{cases[variant][0].workload} · {variant} · warm-up")
                with self._excused(cases[variant][0], engines):
                    warmup.run(engine, self.experiment.language(variant))
                self.bar.advance(warmup.num_programs)
            for case in _in_turns(cases):
                if case.variant in engines:
                    self.bar.say(
                        f"{case.workload} · {case.variant} · {case.repeat + 1} of {repeats}"
                    )
                    with self._excused(case, engines):
                        self.writer.write(self._measure(case, task, engines[case.variant]))

    @contextmanager
    def _excused(self, case: Case, engines: dict[str, LabEngine] | None = None) -> Iterator[None]:
        """Record why a peer fails, and run it no more; our own failures pass."""
        try:
            yield
        except SgjaxError as error:
            if self.experiment.peer(case.variant) is None:
                raise
            if engines is not None:
                del engines[case.variant]
            self.writer.write(self._failed(case, error))

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
        metrics = measure(ran, before, after, elapsed_s, _bound(ran))
        known = after.get("known_metrics", metrics)
        record = self._record(case, after, started)
        return dataclasses.replace(
            record,
            wall_s=wall_s,
            answers_digest=digest([outcome.answer for outcome in ran.outcomes]),
            metrics={name: metrics[name] for name in metrics if name in known},
        )

    def _failed(self, case: Case, error: SgjaxError) -> Record:
        settings = self.experiment.engine_settings(case.variant, case.seed)
        info = {"config": settings, "executor": "cpu", "device": "none"}
        record = self._record(case, info, datetime.now(UTC).isoformat(timespec="seconds"))
        return dataclasses.replace(record, error=str(error))

    def _record(self, case: Case, info: dict[str, Any], started: str) -> Record:
        """Return the record of a case without what was measured."""
        config = {**self.config, "engine": info["config"]}
        return Record(
            experiment=self.experiment.name,
            claim=self.experiment.claim,
            workload=case.workload,
            variant=case.variant,
            seed=case.seed,
            repeat=case.repeat,
            executor=info["executor"],
            device=info["device"],
            model=_model(info["config"]),
            dtype=info["config"].get("dtype", "none"),
            config=config,
            config_hash=digest(config),
            git_sha=self.git_sha,
            versions=self.versions,
            started=started,
            wall_s=0.0,
            answers_digest="",
            metrics={},
            run_hash=self.run_hash,
            quick=self.asked.quick,
            overrides=list(self.asked.overrides),
            arms=list(self.arms),
        )


def _model(config: Mapping[str, Any]) -> str:
    """Return the model of an engine's configuration: a simulated device may name its own."""
    executor = config.get("executor") or {}
    return str(executor.get("model") or config.get("model", "none"))


def _bound(ran: Ran) -> HitRateBound:
    return hit_rate_bound([v.prompt for v in ran.prompts], [v.output for v in ran.prompts])


def _in_turns(cases: dict[str, list[Case]]) -> list[Case]:
    """Return all cases, the first of each variant, then the second of each, and so on."""
    ordered = [case for own in cases.values() for case in own]
    return sorted(ordered, key=lambda case: case.repeat)


@contextmanager
def _engine(build_engine: BuildEngine, settings: dict[str, Any]) -> Iterator[LabEngine]:
    engine = build_engine(settings)
    try:
        yield engine
    finally:
        engine.shutdown()
