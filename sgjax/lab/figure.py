"""The figure of a summary: panels of bars with their values written on them.

Imports matplotlib and the lab. Draws with the Figure object, so no global state is touched.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's palette: tell-apart for the colour-blind, and in grey."""
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "sgjax",
}
INK, BOUND_INK = "#222222", "#555555"


@dataclass(frozen=True)
class Bar:
    """One bar: where it stands and what it shows."""

    x: float
    label: str
    colour: str
    stat: Stat
    bound: float | None


def draw(summary: Summary) -> dict[str, bytes]:
    """Draw the experiment's figure.

    Returns:
        The files' contents by suffix, `png` and `svg`; the same summary gives the same bytes.
    """
    panels = summary.experiment.figure.panels
    with matplotlib.rc_context(STYLE):
        width = max(3.4, 0.9 * _num_bars(summary) + 1.0)
        figure = Figure(figsize=(width * len(panels), 3.9), layout="constrained")
        for axes, metric in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw_panel(axes, summary, metric)
        figure.suptitle(_title(summary), fontsize=11, color=INK, x=0.01, ha="left")
        return {suffix: _render(figure, suffix) for suffix in ("png", "svg")}


def _draw_panel(axes: Axes, summary: Summary, metric: str) -> None:
    bars = list(_bars(summary, metric))
    show = METRICS[metric].show
    scale = METRICS[metric].scale
    for bar in bars:
        axes.bar(bar.x, bar.stat.median * scale, width=0.72, color=bar.colour)
        if bar.stat.high > bar.stat.low:
            middle = bar.stat.median
            spread = [[(middle - bar.stat.low) * scale], [(bar.stat.high - middle) * scale]]
            axes.errorbar(bar.x, middle * scale, yerr=spread, color=INK, capsize=3, lw=1)
        axes.annotate(
            show(bar.stat.median),
            (bar.x, bar.stat.high * scale),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=INK,
            fontweight="bold",
        )
    _draw_bounds(axes, bars, metric)
    axes.set_title(METRICS[metric].heading, loc="left", fontsize=10, color=INK)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xticks([bar.x for bar in bars], [bar.label for bar in bars])
    axes.tick_params(axis="x", length=0)
    axes.tick_params(colors=INK)
    axes.grid(axis="y", color="#E5E5E5", lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(y=0.16)
    axes.set_ylim(bottom=0)
    if len(summary.workloads) > 1:
        _label_groups(axes, summary, bars)


def _draw_bounds(axes: Axes, bars: list[Bar], metric: str) -> None:
    """Draw each distinct bound as a dashed line over its bars, and name it above the panel."""
    scale, show = METRICS[metric].scale, METRICS[metric].show
    bounds: dict[float, list[float]] = {}
    for bar in bars:
        if bar.bound is not None:
            bounds.setdefault(bar.bound, []).append(bar.x)
    for bound, xs in bounds.items():
        ends = [min(xs) - 0.45, max(xs) + 0.45]
        axes.plot(ends, [bound * scale] * 2, "--", color=BOUND_INK, lw=1.2)
    if bounds:
        value = f" {show(next(iter(bounds)))}" if len(bounds) == 1 else ""
        axes.set_title(f"- - bound{value}", loc="right", fontsize=9, color=BOUND_INK)


def _bars(summary: Summary, metric: str) -> Iterator[Bar]:
    names = list(summary.experiment.variants)
    x = 0.0
    for workload in summary.workloads:
        for variant in summary.variants(workload):
            stats = summary.stats[workload, variant]
            if metric in stats:
                colour = COLOURS[names.index(variant) % len(COLOURS)]
                yield Bar(x, variant, colour, stats[metric], _bound(stats, metric))
            x += 1
        x += 0.6


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


def _label_groups(axes: Axes, summary: Summary, bars: list[Bar]) -> None:
    start = 0
    for workload in summary.workloads:
        group = bars[start : start + len(summary.variants(workload))]
        start += len(group)
        if group:
            centre = (group[0].x + group[-1].x) / 2
            axes.annotate(
                workload,
                (centre, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -28),
                textcoords="offset points",
                ha="center",
                va="top",
                color=INK,
            )


def _num_bars(summary: Summary) -> int:
    return sum(len(summary.variants(workload)) for workload in summary.workloads)


def _title(summary: Summary) -> str:
    first = summary.records[0]
    runs = {stat.runs for stats in summary.stats.values() for stat in stats.values()}
    spread = f", median of {max(runs)} runs" if max(runs) > 1 else ""
    return f"{first.experiment}: {first.model}, {first.dtype}, {first.device}{spread}"


def _render(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else None
    figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
    return buffer.getvalue()
