"""From records to what is shown: medians over runs, verdicts, remarks.

Imports the lab. The terminal's table, the figure and the report all show the same summaries, one an
arm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import get_args

from sgjax.errors import ResultsError
from sgjax.lab.agreement import OVERALL, Ours, judge_agreement
from sgjax.lab.config import ANSWERS, Experiment, parse_experiment
from sgjax.lab.expect import Lookup, Name, Value, Verdict, judge, parse_expectation
from sgjax.lab.overrides import Override, override
from sgjax.lab.records import Record, read_records
from sgjax.lab.reference import Arm
from sgjax.lab.remarks import consistent, digests, remarks
from sgjax.lab.shown import Shown, read_shown

NOT_CHANGED: Mapping[str, Shown] = MappingProxyType({})


@dataclass(frozen=True)
class Stat:
    """A metric over the runs of one variant.

    Attributes:
        median, low, high: over all seeds and repeats.
        runs: how many there are.
    """

    median: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class Summary:
    """Everything that is shown of one arm of an experiment.

    Attributes:
        arm: how the numbers came about.
        experiment: what was run.
        records: the timed runs.
        stats: by (workload, variant), then by metric; none for a variant that failed.
        verdicts: by workload, one an expectation; then, under `OVERALL`, those that are judged once
            and those on the agreement with the paper's values.
        remarks: what a reader must know to trust the numbers.
    """

    arm: Arm
    experiment: Experiment
    records: tuple[Record, ...]
    stats: dict[tuple[str, str], dict[str, Stat]]
    verdicts: dict[str, tuple[Verdict, ...]]
    remarks: tuple[str, ...]

    @property
    def workloads(self) -> list[str]:
        """Return the workloads that were measured, in the experiment's order."""
        measured = {workload for workload, _ in self.stats}
        return [name for name in self.experiment.workloads if name in measured]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics of the table: those asked for, and what is achieved of the optimum."""
        asked, share = self.experiment.metrics, "share_of_optimal_hit_rate"
        known = "cache_hit_rate" in asked and any(share in stats for stats in self.stats.values())
        return (*asked, share) if known and share not in asked else asked

    def variants(self, workload: str) -> list[str]:
        """Return the variants measured on a workload, in the experiment's order."""
        return [name for name in self.experiment.variants if (workload, name) in self.stats]

    def relative(self, workload: str, variant: str, metric: str, to: str) -> Stat | None:
        """Return a metric as multiples of another variant's on the same workload and seed.

        None where either was not measured, or the other's is 0.
        """
        mine = self._by_seed(workload, variant, metric)
        others = {s: median(v) for s, v in self._by_seed(workload, to, metric).items()}
        ratios = [v / others[s] for s, values in mine.items() if others.get(s) for v in values]
        return _stat(ratios) if ratios else None

    def beside_paper(self, workload: str, variant: str, metric: str) -> Stat | None:
        """Return a metric in the terms of the paper's values: absolute, or relative as they are."""
        reference = self.experiment.reference.get(metric)
        if reference is not None and reference.relative_to is not None:
            return self.relative(workload, variant, metric, reference.relative_to)
        return self.stats.get((workload, variant), {}).get(metric)

    def _by_seed(self, workload: str, variant: str, metric: str) -> dict[int, list[float]]:
        values: dict[int, list[float]] = {}
        for r in self.records:
            if (r.workload, r.variant) == (workload, variant) and metric in r.metrics:
                values.setdefault(r.seed, []).append(r.metrics[metric])
        return values


def read_arms(path: Path, overrides: Sequence[Override] = ()) -> tuple[Path, tuple[Summary, ...]]:
    """Read and summarise a results folder, judged and shown as its file last said.

    Args:
        path: the folder, or its results.jsonl.
        overrides: dotted keys of the experiment, to show the results otherwise.

    Returns:
        The folder, and what `summarise_arms` gives.

    Raises:
        ResultsError: there are no records, they cannot be read, or are of different experiments.
        ConfigError: an override is not valid.
    """
    directory, records = read_records(path)
    return directory, summarise_arms(records, read_shown(directory), overrides)


def summarise_arms(
    records: Sequence[Record],
    shown: Mapping[str, Shown] = NOT_CHANGED,
    overrides: Sequence[Override] = (),
) -> tuple[Summary, ...]:
    """Summarise the records of one run, arm by arm, the simulated first.

    Args:
        records: of one experiment.
        shown: by `run_hash`, how they are judged and shown if not as they say.
        overrides: dotted keys of the experiment that change this again.

    Raises:
        ResultsError: the records are of different experiments.
        ConfigError: an override is not valid.
    """
    arms = [[r for r in records if r.arm == arm] for arm in get_args(Arm)]
    summaries = tuple(summarise(arm, shown, overrides) for arm in arms if arm)
    if len({summary.experiment.name for summary in summaries}) != 1:
        raise ResultsError("the records are of different experiments; draw them one by one")
    return summaries


def summarise(
    records: Sequence[Record],
    shown: Mapping[str, Shown] = NOT_CHANGED,
    overrides: Sequence[Override] = (),
) -> Summary:
    """Summarise the records of one arm; see `summarise_arms`."""
    if len({(r.experiment, r.arm) for r in records}) != 1:
        raise ResultsError("the records are of different experiments; draw them one by one")
    as_run, changed = records[0].config["experiment"], shown.get(records[0].run_hash)
    now = {**as_run, **(changed.keys if changed else {})}
    experiment = parse_experiment(override(now, overrides), "results")
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        runs.setdefault((record.workload, record.variant), []).append(record)
    stats = {key: _stats(group) for key, group in runs.items()}
    done = {key: [r for r in group if r.error is None] for key, group in runs.items()}
    workloads = dict.fromkeys(record.workload for record in records)
    expectations = [parse_expectation(source) for source in experiment.expect]
    verdicts = {
        workload: tuple(judge(e, _lookup(workload, done, stats)) for e in expectations if e.on_each)
        for workload in workloads
    }
    means, chosen = _means(tuple(workloads), stats), _lookup(None, done, stats)
    overall = [judge(e, means if e.on_means else chosen) for e in expectations if not e.on_each]
    summary = Summary(
        records[0].arm,
        experiment,
        tuple(records),
        stats,
        verdicts,
        tuple(remarks(experiment, as_run, changed, records)),
    )
    overall += _agreement(summary)
    return replace(summary, verdicts={**verdicts, OVERALL: tuple(overall)}) if overall else summary


def _agreement(summary: Summary) -> Iterable[Verdict]:
    for metric, reference in summary.experiment.reference.items():
        if reference.agreement is not None and summary.arm in reference.agreement.arms:
            ours = _beside_paper(summary, metric)
            yield from judge_agreement(metric, reference, reference.agreement, ours)


def _beside_paper(summary: Summary, metric: str) -> Ours:
    def ours(workload: str, variant: str) -> float | None:
        stat = summary.beside_paper(workload, variant, metric)
        return None if stat is None else stat.median

    return ours


def _stats(records: list[Record]) -> dict[str, Stat]:
    names = dict.fromkeys(name for record in records for name in record.metrics)
    return {name: _stat([r.metrics[name] for r in records if name in r.metrics]) for name in names}


def _stat(values: list[float]) -> Stat:
    return Stat(median(values), min(values), max(values), len(values))


def _lookup(
    workload: str | None,
    runs: dict[tuple[str, str], list[Record]],
    stats: dict[tuple[str, str], dict[str, Stat]],
) -> Lookup:
    """Look up what is measured on a workload, or on those that the names say."""

    def lookup(name: Name) -> Value | None:
        on = name.workload or workload
        assert on is not None
        if name.metric == ANSWERS:
            return _answers(name.variant, runs.get((on, name.variant), []))
        stat = stats.get((on, name.variant), {}).get(name.metric)
        return None if stat is None else stat.median

    return lookup


def _means(workloads: Sequence[str], stats: dict[tuple[str, str], dict[str, Stat]]) -> Lookup:
    def lookup(name: Name) -> Value | None:
        found = [stats.get((on, name.variant), {}).get(name.metric) for on in workloads]
        known = [stat.median for stat in found if stat is not None]
        return sum(known) / len(known) if len(known) == len(found) else None

    return lookup


def _answers(variant: str, records: list[Record]) -> str | None:
    """Return one text for a variant's answers; runs that disagree equal nothing."""
    if not records:
        return None
    if not consistent(records):
        return f"{variant}'s runs disagree"
    return "+".join(digest for _, digest in digests(records))
