"""Panels of bars with their values written on them. Imports matplotlib and the lab."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import StrMethodFormatter

from sgjax.lab.figures.spec import BarsFigure
from sgjax.lab.figures.style import (
    FAINT_INK,
    GRID,
    INK,
    colour_and_hatch,
    groups,
    name_panel,
    set_title,
)
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary

FEW_BARS = 7
"""So many are named below; more have a legend, and their panels stand one above another."""
LONG_NAME = 11
WIDE_CHARS = 150
"""Characters that fit below a wide panel."""
LEGEND_CHARS = 9
"""Characters that a name in the legend takes beside its own."""
GAP = 0.6


@dataclass(frozen=True)
class Bar:
    """One bar: where it stands and what it shows; `stat` is None where nothing was measured."""

    x: float
    variant: str
    colour: str
    hatch: str
    stat: Stat | None
    bound: float | None


def draw_bars(spec: BarsFigure, arms: Sequence[Summary]) -> Figure:
    """Draw bars: a panel a metric, a group of bars a workload and arm."""
    first = list(_bars(arms, spec.panels[0]))
    names = list(dict.fromkeys(bar.variant for bar in first))
    wide = len(first) > FEW_BARS or max(map(len, names)) > LONG_NAME
    count = len(spec.panels)
    if wide:
        figure = Figure(figsize=(11.5, 2.9 * count + 1.2), layout="constrained")
        rows = figure.subplots(count, 1, squeeze=False)[:, 0]
    else:
        width = max(3.4, 0.9 * len(first) + 1.0)
        figure = Figure(figsize=(width * count, 3.9), layout="constrained")
        rows = figure.subplots(1, count, squeeze=False)[0]
    for axes, metric in zip(rows, spec.panels, strict=True):
        _draw_panel(axes, arms, metric, wide)
    set_title(figure, arms)
    if wide:
        legend = {bar.variant: Patch(fc=bar.colour, hatch=bar.hatch, ec="white") for bar in first}
        columns = WIDE_CHARS // (max(map(len, legend)) + LEGEND_CHARS)
        figure.legend(
            list(legend.values()),
            list(legend),
            loc="outside lower left",
            ncols=max(1, min(len(legend), 7, columns)),
            frameon=False,
        )
    return figure


def _draw_panel(axes: Axes, arms: Sequence[Summary], metric: str, wide: bool) -> None:
    bars = list(_bars(arms, metric))
    scale, show = METRICS[metric].scale, METRICS[metric].show
    for bar in bars:
        if bar.stat is None:
            _write(axes, bar.x, 0.0, "none", wide)
            continue
        middle, low, high = (v * scale for v in (bar.stat.median, bar.stat.low, bar.stat.high))
        axes.bar(bar.x, middle, width=0.76, color=bar.colour, hatch=bar.hatch, ec="white", lw=0)
        if high > low:
            spread = [[middle - low], [high - middle]]
            axes.errorbar(bar.x, middle, yerr=spread, color=INK, capsize=3, lw=1)
        _write(axes, bar.x, high, show(bar.stat.median), wide)
    name_panel(axes, METRICS[metric].heading, _draw_bounds(axes, bars, metric))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    # One variant on several workloads: their names tell the bars apart.
    unnamed = wide or len({bar.variant for bar in bars}) < 2 <= len(bars)
    axes.set_xticks([bar.x for bar in bars], ["" if unnamed else bar.variant for bar in bars])
    axes.tick_params(axis="x", length=0)
    axes.tick_params(colors=INK)
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(y=0.3 if wide else 0.16)
    axes.set_xlim(bars[0].x - 0.5, bars[-1].x + 0.5)  # room also for what has no bar
    axes.set_ylim(bottom=0)
    if METRICS[metric].unit == "%":  # the room above is for labels
        axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100 or tick == 0])
    _label_groups(axes, arms, wide, -6 if unnamed else -28)


def _write(axes: Axes, x: float, y: float, text: str, wide: bool) -> None:
    axes.annotate(
        text,
        (x, y),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=INK,
        rotation=90 if wide else 0,
        fontsize=7.5 if wide else 10,
        fontweight="normal" if wide else "bold",
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _draw_bounds(axes: Axes, bars: list[Bar], metric: str) -> str:
    """Draw each distinct bound as a dashed line over its bars; return what to say of it."""
    scale, show = METRICS[metric].scale, METRICS[metric].show
    bounds: dict[float, list[float]] = {}
    for bar in bars:
        if bar.bound is not None:
            bounds.setdefault(bar.bound, []).append(bar.x)
    for bound, xs in bounds.items():
        ends = [min(xs) - 0.45, max(xs) + 0.45]
        axes.plot(ends, [bound * scale] * 2, "--", color=FAINT_INK, lw=1.2, zorder=1.5)
    value = f" {show(next(iter(bounds)))}" if len(bounds) == 1 else ""
    return f"- - bound{value}" if bounds else ""


def _bars(arms: Sequence[Summary], metric: str) -> Iterator[Bar]:
    x = 0.0
    for group in groups(arms):
        for variant in group.arm.variants(group.workload):
            stats = group.arm.stats[group.workload, variant]
            colour, hatch = colour_and_hatch(group.arm, variant)
            yield Bar(x, variant, colour, hatch, stats.get(metric), _bound(stats, metric))
            x += 1
        x += GAP


def _bound(stats: dict[str, Stat], metric: str) -> float | None:
    """Return what no cache can better: the hit rate's bound, or the tokens that it leaves."""
    if "optimal_cache_hit_rate" not in stats:
        return None
    optimal = stats["optimal_cache_hit_rate"].median
    if metric == "cache_hit_rate":
        return optimal
    if metric == "computed_tokens":
        return stats["prompt_tokens"].median * (1 - optimal)
    return None


def _label_groups(axes: Axes, arms: Sequence[Summary], wide: bool, below: int) -> None:
    found = groups(arms)
    counts = [len(group.arm.variants(group.workload)) for group in found]
    if len(found) == 1:
        return
    start = 0.0
    chars = int(WIDE_CHARS / (sum(counts) + GAP * len(counts)) * (min(counts) + GAP))
    for group, count in zip(found, counts, strict=True):
        label = group.label.replace(", ", "\n")
        axes.annotate(
            _broken(label, chars) if wide else label,
            (start + (count - 1) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, below),
            textcoords="offset points",
            ha="center",
            va="top",
            color=INK,
            fontsize=8.5 if wide else 10,
        )
        start += count + GAP


def _broken(label: str, chars: int) -> str:
    """Return a label in lines of so many characters, broken behind underscores."""
    lines = [
        wrap(line.replace("_", "_ "), chars, break_long_words=False) for line in label.split("\n")
    ]
    return "\n".join(line.replace("_ ", "_") for own in lines for line in own)
