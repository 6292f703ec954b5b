"""Variants as points of two metrics, with the Pareto front. Imports matplotlib and the lab."""

from collections.abc import Sequence
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgjax.lab.figures.spec import ScatterFigure
from sgjax.lab.figures.style import (
    COLOURS,
    FAINT_INK,
    GRID,
    INK,
    MARKERS,
    Group,
    Point,
    colour_and_hatch,
    groups,
    label_points,
    name_panel,
    set_title,
)
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary

Found = tuple[str, Stat, Stat]
"""A variant with its two metrics."""


def draw_scatter(spec: ScatterFigure, arms: Sequence[Summary]) -> Figure:
    """Draw a row of panels a workload and arm, a panel a pair of metrics."""
    rows = groups(arms)
    size = (5.2 * len(spec.panels), 4.0 * len(rows) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(spec.panels), squeeze=False)
    drawn = [
        (axes, _draw_panel(axes, group, *pair))
        for line, group in zip(grid, rows, strict=True)
        for axes, pair in zip(line, spec.panels, strict=True)
    ]
    set_title(figure, arms)
    figure.draw_without_rendering()  # labels are placed where the layout has put the points
    for axes, points in drawn:
        label_points(figure, axes, points)
    figure.set_layout_engine("none")
    return figure


def _draw_panel(axes: Axes, group: Group, x_metric: str, y_metric: str) -> list[Point]:
    """Draw a panel; return its points, which need labels."""
    found = [
        (variant, stats[x_metric], stats[y_metric])
        for variant in group.arm.variants(group.workload)
        if {x_metric, y_metric} <= set(stats := group.arm.stats[group.workload, variant])
    ]
    xs, ys = METRICS[x_metric].scale, METRICS[y_metric].scale
    front = pareto_front(found, x_metric, y_metric)
    line = [(x.median * xs, y.median * ys) for _, x, y in front]
    axes.plot(*zip(*line, strict=True), color=FAINT_INK, lw=1.2, ls="--", zorder=1)
    points = []
    for at, (variant, x, y) in enumerate(found):
        colour, _ = colour_and_hatch(group.arm, variant)
        point = Point(_ends(x, xs), _ends(y, ys), variant, colour)
        axes.errorbar(
            point.x[1],
            point.y[1],
            xerr=[[point.x[1] - point.x[0]], [point.x[2] - point.x[1]]],
            yerr=[[point.y[1] - point.y[0]], [point.y[2] - point.y[1]]],
            marker=MARKERS[at // len(COLOURS) % len(MARKERS)],
            ms=7,
            color=colour,
            lw=0.8,
            mec="white",
            mew=0.7,
        )
        points.append(point)
    known = {variant for variant, *_ in found}
    unknown = [name for name in group.arm.variants(group.workload) if name not in known]
    without = f" (no value: {', '.join(unknown)})" if unknown else ""
    name_panel(axes, f"{group.label}{without}", "- - Pareto front")
    axes.set_xlabel(_axis(x_metric), color=INK)
    axes.set_ylabel(_axis(y_metric), color=INK)
    axes.tick_params(colors=INK)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(0.18)
    axes.locator_params(axis="x", nbins=6)
    return points


def pareto_front(points: Sequence[Found], x_metric: str, y_metric: str) -> list[Found]:
    """Return the points that no other point beats in one metric and equals in the other, by x."""

    def good(point: Found) -> tuple[float, float]:
        x, y = point[1].median, point[2].median
        return (
            -x if METRICS[x_metric].lower_is_better else x,
            -y if METRICS[y_metric].lower_is_better else y,
        )

    def beaten(point: Found) -> bool:
        x, y = good(point)
        return any(
            a >= x and b >= y and (a, b) != (x, y) for a, b in (good(other) for other in points)
        )

    return sorted((p for p in points if not beaten(p)), key=lambda p: p[1].median)


def _axis(metric: str) -> str:
    better = "lower" if METRICS[metric].lower_is_better else "higher"
    return f"{fill(METRICS[metric].heading, 36)}\n{better} is better"


def _ends(stat: Stat, scale: float) -> tuple[float, float, float]:
    return stat.low * scale, stat.median * scale, stat.high * scale
