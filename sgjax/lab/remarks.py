"""What a reader must know to trust an arm's numbers.

Imports the lab's configuration, metrics and records.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgjax.lab.config import Experiment
from sgjax.lab.metrics import METRICS
from sgjax.lab.records import Record
from sgjax.lab.shown import Shown


def remarks(
    experiment: Experiment,
    as_run: Mapping[str, Any],
    changed: Shown | None,
    records: Sequence[Record],
) -> Iterable[str]:
    """Yield remarks, a sentence each.

    Args:
        experiment: as it is shown.
        as_run: as the first record has it, in plain data.
        changed: how it is shown otherwise; None where it is not.
        records: of the arm.
    """
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        runs.setdefault((record.workload, record.variant), []).append(record)
    done = {key: [r for r in group if r.error is None] for key, group in runs.items()}
    yield from _on_judging_anew(as_run, changed)
    yield from _on_runs(experiment, done)
    yield from _on_failures(runs)
    yield from _on_commits(records)


def consistent(records: Sequence[Record]) -> bool:
    """Return whether all runs of one seed gave the same answers."""
    return len(digests(records)) == len({r.seed for r in records})


def digests(records: Sequence[Record]) -> list[tuple[int, str]]:
    """Return the different answers by seed, in order."""
    return sorted({(r.seed, r.answers_digest) for r in records})


def _on_runs(experiment: Experiment, runs: dict[tuple[str, str], list[Record]]) -> Iterable[str]:
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
            if group and not consistent(group):
                yield f"{workload}, {variant}: answers differ between runs of one seed."
        own = [group for (name, _), group in runs.items() if name == workload]
        yield from _on_seeds(workload, own, experiment.metrics)
        yield from _on_known_prompts(workload, [r for group in own for r in group])


def _on_judging_anew(as_run: Mapping[str, Any], changed: Shown | None) -> Iterable[str]:
    judged = changed.judged_anew(as_run) if changed else []
    if changed and judged:
        before, now = (list(said.get("expect", ())) for said in (as_run, changed.keys))
        gone = [f"no longer expected: {source}" for source in before if source not in now]
        new = [f"expected since: {source}" for source in now if source not in before]
        yield (
            f"The runs are older than {', '.join(judged)} of the file, and are judged as it stood "
            f"at {changed.since}" + "".join(f"; {said}" for said in gone + new) + "."
        )


def _on_seeds(
    workload: str, groups: Sequence[Sequence[Record]], metrics: Sequence[str]
) -> Iterable[str]:
    """Say where several seeds are one run, so that no spread is no certainty."""
    seeds = {r.seed for group in groups for r in group}
    shown = [{tuple(r.metrics.get(name) for name in metrics) for r in group} for group in groups]
    if len(seeds) > 1 and all(len(different) <= 1 for different in shown):
        yield f"{workload}: nothing in it depends on the seed; the {len(seeds)} seeds are one run."


def _on_known_prompts(workload: str, records: list[Record]) -> Iterable[str]:
    name = "reachable_cache_hit_rate"
    records = [r for r in records if name in r.metrics]
    if any(r.metrics[name] < r.metrics["optimal_cache_hit_rate"] for r in records):
        reachable = METRICS[name].show(max(r.metrics[name] for r in records))
        yield (
            f"{workload}: some prompts are known in full, and the last token of each is computed: "
            f"{reachable} % is the highest hit rate that can be reached."
        )


def _on_failures(runs: dict[tuple[str, str], list[Record]]) -> Iterable[str]:
    for (workload, variant), records in runs.items():
        if records[-1].error is not None:
            yield f"{workload}, {variant} could not run here: {records[-1].error}"


def _on_commits(records: Sequence[Record]) -> Iterable[str]:
    commits = dict.fromkeys(record.git_sha or "no checkout" for record in records)
    if len(commits) > 1:
        yield f"The runs are of different versions of the code: {', '.join(commits)}."
