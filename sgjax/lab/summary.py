"""From records to what is shown: medians over runs, verdicts, remarks.

Imports the lab. The terminal's table, the figure and the report all show one `Summary`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from sgjax.errors import ResultsError
from sgjax.lab.config import ANSWERS, Experiment, parse_experiment
from sgjax.lab.expect import Value, Verdict, judge, parse_expectation
from sgjax.lab.metrics import METRICS
from sgjax.lab.records import Record


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
    """Everything that is shown of a run of an experiment.

    Attributes:
        experiment: what was run.
        records: the timed runs.
        stats: by (workload, variant), then by metric.
        verdicts: by workload, one an expectation.
        remarks: what a reader must know to trust the numbers.
    """

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

    def variants(self, workload: str) -> list[str]:
        """Return the variants measured on a workload, in the experiment's order."""
        return [name for name in self.experiment.variants if (workload, name) in self.stats]


def summarise(records: Sequence[Record]) -> Summary:
    """Summarise the records of one run.

    Raises:
        ResultsError: the records are of different experiments.
    """
    if len({r.experiment for r in records}) != 1:
        raise ResultsError("the records are of different experiments; draw them one by one")
    experiment = parse_experiment(records[0].config["experiment"], "results")
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        runs.setdefault((record.workload, record.variant), []).append(record)
    stats = {key: _stats(group) for key, group in runs.items()}
    workloads = dict.fromkeys(record.workload for record in records)
    expectations = [parse_expectation(source) for source in experiment.expect]
    verdicts = {
        workload: tuple(judge(e, _lookup(workload, runs, stats)) for e in expectations)
        for workload in workloads
    }
    return Summary(experiment, tuple(records), stats, verdicts, tuple(_remarks(experiment, runs)))


def _stats(records: list[Record]) -> dict[str, Stat]:
    names = dict.fromkeys(name for record in records for name in record.metrics)
    return {name: _stat([r.metrics[name] for r in records if name in r.metrics]) for name in names}


def _stat(values: list[float]) -> Stat:
    return Stat(median(values), min(values), max(values), len(values))


def _lookup(
    workload: str,
    runs: dict[tuple[str, str], list[Record]],
    stats: dict[tuple[str, str], dict[str, Stat]],
) -> Callable[[str, str], Value | None]:
    def lookup(variant: str, metric: str) -> Value | None:
        if metric == ANSWERS:
            return _answers(variant, runs.get((workload, variant), []))
        stat = stats.get((workload, variant), {}).get(metric)
        return None if stat is None else stat.median

    return lookup


def _answers(variant: str, records: list[Record]) -> str | None:
    """Return one text for a variant's answers; runs that disagree equal nothing."""
    if not records:
        return None
    if not _consistent(records):
        return f"{variant}'s runs disagree"
    return "+".join(digest for _, digest in _digests(records))


def _consistent(records: list[Record]) -> bool:
    return len(_digests(records)) == len({r.seed for r in records})


def _digests(records: list[Record]) -> list[tuple[int, str]]:
    return sorted({(r.seed, r.answers_digest) for r in records})


def _remarks(experiment: Experiment, runs: dict[tuple[str, str], list[Record]]) -> Iterable[str]:
    planned = experiment.repeats * len(experiment.seeds)
    for workload in experiment.workloads:
        for variant in experiment.variants:
            group = runs.get((workload, variant), [])
            if len(group) < planned:
                yield f"{workload}, {variant}: {len(group)} of {planned} timed runs were made."
            compiled = sum(1 for r in group if r.metrics.get("compilations"))
            if compiled:
                yield (
                    f"{workload}, {variant}: {compiled} of {len(group)} timed runs compiled "
                    "programs; their times include it."
                )
            if group and not _consistent(group):
                yield f"{workload}, {variant}: answers differ between runs of one seed."
        yield from _remark_on_equal_prompts(
            workload, [r for (name, _), group in runs.items() if name == workload for r in group]
        )


def _remark_on_equal_prompts(workload: str, records: list[Record]) -> Iterable[str]:
    name = "reachable_cache_hit_rate"
    if any(r.metrics[name] < r.metrics["optimal_cache_hit_rate"] for r in records):
        reachable = METRICS[name].show(max(r.metrics[name] for r in records))
        yield (
            f"{workload}: some prompts are equal, and the last token of each is computed: "
            f"{reachable} % is the highest hit rate that can be reached."
        )
