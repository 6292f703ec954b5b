"""The paper's values beside the simulated and the measured ones. Imports matplotlib and the lab."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sgjax.lab.figures.spec import CompareFigure
from sgjax.lab.figures.style import (
    ARMS,
    FAINT_INK,
    GRID,
    INK,
    PAPER,
    heading,
    name_panel,
    scale,
    set_title,
)
from sgjax.lab.metrics import METRICS
from sgjax.lab.reference import Reference
from sgjax.lab.summary import Stat, Summary

COLUMNS = 3
ROW_INCHES, GAP = 0.23, 0.5
"""Height of a bar, and the space between variants in bars."""
BARS_INCHES, CHAR_INCHES = 4.3, 0.08
"""Width of a panel, and of a letter of the variants' names beside it."""
TEXT_ROOM = 2.3
"""The x axis is so many times as long as the longest bar: labels stand behind the bars."""


@dataclass(frozen=True)
class Row:
    """One bar: its place from the top, its length with its ends, and what is written behind it."""

    y: float
    colour: str
    middle: float
    low: float
    high: float
    text: str
    beside: str


def draw_compare(spec: CompareFigure, arms: Sequence[Summary]) -> Figure:
    """Draw a panel a metric and workload, with the sources of each variant one below another."""
    workloads = list(dict.fromkeys(w for arm in arms for w in arm.workloads))
    panels = [(metric, workload) for metric in spec.panels for workload in workloads]
    columns = 2 if len(panels) == 4 else min(COLUMNS, len(panels))
    variants = list(dict.fromkeys(v for arm in arms for v in arm.experiment.variants))
    height = len(variants) * ((len(arms) + 1) + GAP) * ROW_INCHES + 0.7
    rows = -(-len(panels) // columns)
    width = BARS_INCHES + CHAR_INCHES * max(map(len, variants))
    figure = Figure(figsize=(width * columns, height * rows + 1.1), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (metric, workload) in zip(grid, panels, strict=False):
        _draw_panel(axes, spec, arms, variants, metric, workload)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    set_title(figure, arms)
    sources: dict[str, str] = {arm.arm: ARMS[arm.arm] for arm in arms}
    if any(metric in arms[0].experiment.reference for metric in spec.panels):
        sources = {"paper": PAPER, **sources}
    figure.legend(
        [Patch(color=colour) for colour in sources.values()],
        list(sources),
        loc="outside lower left",
        ncols=3,
        frameon=False,
    )
    return figure


def _draw_panel(
    axes: Axes,
    spec: CompareFigure,
    arms: Sequence[Summary],
    variants: Sequence[str],
    metric: str,
    workload: str,
) -> None:
    reference = arms[0].experiment.reference.get(metric)
    centres: dict[str, float] = {}
    longest, y = 0.0, 0.0
    for variant in variants:
        rows = list(_rows(spec, arms, reference, metric, workload, variant, y))
        if not rows:
            continue
        centres[variant] = (rows[0].y + rows[-1].y) / 2
        y = rows[-1].y + 1 + GAP
        longest = max([longest, *(row.high for row in rows)])
        for row in rows:
            _draw_row(axes, row)
    name_panel(axes, f"{workload}: {heading(metric, reference)}")
    axes.set_yticks(list(centres.values()), list(centres))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(colors=INK)
    axes.set_ylim(y - GAP, -1)
    axes.set_xlim(0, (longest or 1) * TEXT_ROOM)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    axes.grid(axis="x", color=GRID, lw=0.8)
    axes.set_axisbelow(True)


def _draw_row(axes: Axes, row: Row) -> None:
    axes.barh(row.y, row.middle, height=0.86, color=row.colour)
    if row.high > row.low:
        spread = [[row.middle - row.low], [row.high - row.middle]]
        axes.errorbar(row.middle, row.y, xerr=spread, color=INK, capsize=2, lw=0.9)
    value = axes.annotate(
        row.text,
        (row.high, row.y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK,
        fontweight="bold",
    )
    if row.beside:
        axes.annotate(
            row.beside,
            xy=(1, 0),
            xycoords=value,
            xytext=(4, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=7,
            color=FAINT_INK,
        )


def _rows(
    spec: CompareFigure,
    arms: Sequence[Summary],
    reference: Reference | None,
    metric: str,
    workload: str,
    variant: str,
    y: float,
) -> Iterator[Row]:
    """Yield the bars of one variant: the paper's where it has a value, then the arms'."""
    relative = reference is not None and reference.relative_to is not None
    factor = scale(metric, reference)
    span = reference.span(workload, variant) if reference is not None else None
    middle = reference.middle(workload, variant) if reference is not None else None
    if span is not None and middle is not None:
        low, high = span[0] * factor, span[1] * factor
        text = f"{low:.3g}" if low == high else f"{low:.3g}–{high:.3g}"
        yield Row(y, PAPER, middle * factor, low, high, text, "")
        y += 1
    for arm in arms:
        stat = arm.beside_paper(workload, variant, metric)
        if stat is None and (workload, variant) in arm.stats:
            yield Row(y, ARMS[arm.arm], 0, 0, 0, "not known", "")
            y += 1
        if stat is not None:
            stats = arm.stats[workload, variant]
            listed = [m for m in spec.beside if m in stats and (relative or m != metric)]
            beside = " · ".join(_absolute(m, stats[m]) for m in listed)
            text = f"{stat.median:.3g}" if relative else METRICS[metric].show(stat.median)
            ends = (stat.median * factor, stat.low * factor, stat.high * factor)
            yield Row(y, ARMS[arm.arm], *ends, text, beside)
            y += 1


def _absolute(metric: str, stat: Stat) -> str:
    """Return a value with its unit, and what it is, if the unit does not say it."""
    shown = f"{METRICS[metric].show(stat.median)} {METRICS[metric].unit}".strip()
    return shown if metric == "throughput_programs_per_s" else f"{METRICS[metric].label} {shown}"
