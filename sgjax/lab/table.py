"""An arm's summary in the terminal: a table a workload, then its verdicts.

Imports rich and the lab.
"""

from rich.console import Console
from rich.table import Table

from sgjax.lab.agreement import OVERALL
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary

BORDER = 3
"""Columns of a terminal that a table's column takes beside its text."""
MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]?[/]"}


def print_summary(summary: Summary, console: Console) -> None:
    """Print what an arm of a run found."""
    for workload in summary.workloads:
        for variants in _fitting(summary, workload, console.width):
            console.print(_table(summary, workload, variants))
        _print_verdicts(summary, workload, console)
    if OVERALL in summary.verdicts:
        console.print(f"{summary.experiment.name} · {OVERALL} · {summary.arm}", style="italic")
        _print_verdicts(summary, OVERALL, console)
    for remark in summary.remarks:
        console.print(f"[yellow]note:[/] {remark}", highlight=False)


def _print_verdicts(summary: Summary, workload: str, console: Console) -> None:
    for verdict in summary.verdicts[workload]:
        console.print(f"{MARKS[verdict.holds]} {verdict.word}: ", end="")
        console.print(verdict.source, markup=False, highlight=False)
        console.print(f"    {summary.arm}: {verdict.detail}", style="dim", highlight=False)


def show_stat(metric: str, stat: Stat | None) -> str:
    """Return a median, with its range where runs differ visibly."""
    if stat is None:
        return "–"
    show = METRICS[metric].show
    middle, low, high = show(stat.median), show(stat.low), show(stat.high)
    return middle if low == high else f"{middle} ({low}–{high})"


def _fitting(summary: Summary, workload: str, width: int) -> list[list[str]]:
    """Return a workload's variants in as many tables as a terminal of so many columns needs."""
    names = max(len(METRICS[metric].heading) for metric in summary.metrics)
    tables: list[list[str]] = []
    left = 0
    for variant in summary.variants(workload):
        shown = [show_stat(m, s) for m, s in summary.stats[workload, variant].items()]
        needed = BORDER + max(map(len, (variant, *shown)))
        if not tables or needed > left:
            tables.append([])
            left = width - names - BORDER - 1
        tables[-1].append(variant)
        left -= needed
    return tables


def _table(summary: Summary, workload: str, variants: list[str]) -> Table:
    # Variants are columns: they are few, or fill several tables.
    table = Table(
        title=f"{summary.experiment.name} · {workload} · {summary.arm}", title_justify="left"
    )
    table.add_column("", no_wrap=True)
    for variant in variants:
        table.add_column(variant, justify="right")
    for metric in summary.metrics:
        stats = [summary.stats[workload, variant].get(metric) for variant in variants]
        table.add_row(METRICS[metric].heading, *(show_stat(metric, stat) for stat in stats))
    return table
