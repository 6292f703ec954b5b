"""Two runs beside each other: what changed, and whether by more than they spread.

Imports rich and the lab.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgjax.errors import ResultsError
from sgjax.lab.made import made
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary, read_arms
from sgjax.lab.table import show_stat


@dataclass(frozen=True)
class Change:
    """A metric of a variant in two runs."""

    metric: str
    variant: str
    before: Stat
    after: Stat

    @property
    def factor(self) -> float | None:
        """Return the second median over the first; None if that is 0."""
        return self.after.median / self.before.median if self.before.median else None

    @property
    def is_apart(self) -> bool:
        """Return whether no value of one run lies within the range of the other."""
        return self.after.low > self.before.high or self.after.high < self.before.low


def changes(before: Summary, after: Summary, workload: str) -> Iterator[Change]:
    """Yield the metrics of the first run's table for every variant that both have measured."""
    for metric in before.metrics:
        for variant in before.variants(workload):
            old = before.stats[workload, variant].get(metric)
            new = after.stats.get((workload, variant), {}).get(metric)
            if old is not None and new is not None:
                yield Change(metric, variant, old, new)


def print_comparison(paths: Sequence[Path], console: Console) -> None:
    """Print two runs beside each other, a table a workload and arm.

    Raises:
        ResultsError: one cannot be read, or they have no variant on a workload in common.
    """
    first, second = ({arm.arm: arm for arm in read_arms(path)[1]} for path in paths)
    printed = 0
    for name in (arm for arm in first if arm in second):
        for workload in first[name].workloads:
            found = list(changes(first[name], second[name], workload))
            if found:
                console.print(_table(f"{workload} · {name}", found))
                printed += 1
    if not printed:
        raise ResultsError(
            f"{paths[0]} and {paths[1]} have no variant on a workload in common; compare two runs "
            "of an experiment"
        )
    for path, arms in zip(paths, (first, second), strict=True):
        records = [record for arm in arms.values() for record in arm.records]
        words = " · ".join(made(records).words)
        console.print(f"{path}: {words}", style="dim", markup=False, highlight=False)
    console.print("* apart by more than the runs of either spread", highlight=False)


def _table(title: str, found: Sequence[Change]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", "variant"):
        table.add_column(heading)
    for heading in ("first", "second", "second / first"):
        table.add_column(heading, justify="right")
    for change in found:
        factor = "–" if change.factor is None else f"{change.factor:.3g}"
        table.add_row(
            METRICS[change.metric].heading,
            change.variant,
            show_stat(change.metric, change.before),
            show_stat(change.metric, change.after),
            f"{factor} *" if change.is_apart else factor,
        )
    return table
