"""Metrics over a number that varies. Imports matplotlib and the lab."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from sgjax.errors import ConfigError
from sgjax.lab.figures.spec import LinesFigure
from sgjax.lab.figures.style import (
    COLOURS,
    FAINT_INK,
    GRID,
    INK,
    MARKERS,
    Group,
    groups,
    heading,
    name_panel,
    scale,
    set_title,
)
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat, Summary

WORKLOAD = "workload."
VARIANT = "variant"
DASHES = ("-", "--", ":", "-.")
FEW_TICKS = 6
"""So many values of x are written as they are; of more, matplotlib chooses."""

Name = tuple[str, str]
"""What a line is of, which is its colour, and on which workloads, which is its dashes."""


@dataclass
class Line:
    """The points of a line, (x, y), and what the paper reports for the same variants."""

    points: list[tuple[float, Stat]] = field(default_factory=list)
    paper: list[tuple[float, float]] = field(default_factory=list)


def draw_lines(spec: LinesFigure, arms: Sequence[Summary]) -> Figure:
    """Draw a panel a metric, with a line a workload or whatever `lines` names."""
    count = len(spec.panels)
    figure = Figure(figsize=(4.6 * count, 4.3), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes, metric in zip(panels, spec.panels, strict=True):
        _draw_panel(axes, spec, arms, metric)
    set_title(figure, arms)
    shown = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if not shown:  # nothing was measured
        return figure
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower left",
        ncols=min(len(shown), 6),
        frameon=False,
    )
    return figure


def setting(settings: Any, key: str) -> Any:
    """Return the value of a dotted key in plain data, or None."""
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings


def x_value(spec: LinesFigure, arm: Summary, workload: str, variant: str) -> float:
    """Return where a variant stands on the x axis.

    Raises:
        ConfigError: the settings do not say, or it is no number.
    """
    if spec.x in METRICS:
        return arm.stats[workload, variant][spec.x].median * METRICS[spec.x].scale
    if spec.x.startswith(WORKLOAD):
        value = setting(asdict(arm.experiment.workloads[workload]), spec.x.removeprefix(WORKLOAD))
    else:
        value = setting(_engine_of(arm, variant), spec.x)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            f"figure: x={spec.x!r} is {value!r} for {variant} on {workload}; a number is needed"
        )
    return float(value)


def _draw_panel(axes: Axes, spec: LinesFigure, arms: Sequence[Summary], metric: str) -> None:
    reference = arms[0].experiment.reference.get(metric)
    factor = scale(metric, reference)
    lines = _lines(spec, arms, metric)
    hues, places = (list(dict.fromkeys(name[part] for name in lines)) for part in (0, 1))
    for (hue, place), line in lines.items():
        name = ", ".join(part for part in (hue, place) if part)
        at = hues.index(hue)
        colour, marker = COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)]
        dashes = DASHES[places.index(place) % len(DASHES)]
        points = sorted(line.points, key=lambda point: point[0])
        xs = [x for x, _ in points]
        middle = [y.median * factor for _, y in points]
        axes.plot(xs, middle, color=colour, marker=marker, ms=5, lw=1.5, ls=dashes, label=name)
        low, high = [y.low * factor for _, y in points], [y.high * factor for _, y in points]
        if low != high:
            axes.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)
        if line.paper:
            paper = sorted(line.paper)
            axes.plot(
                [x for x, _ in paper],
                [y * factor for _, y in paper],
                color=FAINT_INK,
                marker=marker,
                mfc="white",
                ls=":",
                label=f"{name}, paper",
            )
    name_panel(axes, heading(metric, reference))
    axes.set_xlabel(METRICS[spec.x].heading if spec.x in METRICS else spec.x, color=INK)
    if spec.log:
        axes.set_xscale("log")
    ticks = sorted({x for line in lines.values() for x, _ in line.points})
    if spec.x not in METRICS and len(ticks) <= FEW_TICKS:
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.tick_params(colors=INK)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # room for the markers of the highest


def _lines(spec: LinesFigure, arms: Sequence[Summary], metric: str) -> dict[Name, Line]:
    lines: dict[Name, Line] = {}
    for group in groups(arms):
        reference = group.arm.experiment.reference.get(metric)
        for variant in group.arm.variants(group.workload):
            stat = group.arm.beside_paper(group.workload, variant, metric)
            if stat is None:
                continue
            line = lines.setdefault(_line_of(spec, arms, group, variant), Line())
            x = x_value(spec, group.arm, group.workload, variant)
            line.points.append((x, stat))
            paper = reference.middle(group.workload, variant) if reference is not None else None
            if paper is not None:
                line.paper.append((x, paper))
    return lines


def _line_of(spec: LinesFigure, arms: Sequence[Summary], group: Group, variant: str) -> Name:
    """Return the name of the line that a variant on a workload is on."""
    arm, of_workloads = group.arm, spec.x.startswith(WORKLOAD)
    if of_workloads:
        place = ", ".join([*_other_keys(spec, group), *[arm.arm][: len(arms) - 1]])
    else:
        place = group.label if len(groups(arms)) > 1 else ""
    if spec.lines == VARIANT:
        return _first_alike(spec, arm, variant), place
    if spec.lines is not None:
        return str(setting(_engine_of(arm, variant), spec.lines)), place
    return (variant, place) if of_workloads else (group.label, "")


def _engine_of(arm: Summary, variant: str) -> dict[str, Any]:
    record = next(r for r in arm.records if r.variant == variant)
    return dict(record.config["engine"])


def _first_alike(spec: LinesFigure, arm: Summary, variant: str) -> str:
    """Return the first variant that is set as this one is, apart from x: they are on one line."""

    def rest(name: str) -> dict[str, Any]:
        return _without(_engine_of(arm, name), spec.x.split("."))

    known = {record.variant for record in arm.records}
    return next(
        name for name in arm.experiment.variants if name in known and rest(name) == rest(variant)
    )


def _without(settings: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    head, *deeper = parts
    inner = settings.get(head)
    left = {key: value for key, value in settings.items() if key != head}
    return {**left, head: _without(inner, deeper)} if deeper and isinstance(inner, dict) else left


def _other_keys(spec: LinesFigure, group: Group) -> list[str]:
    """Return what, beside x, tells a workload from the others: they are on other lines."""
    swept = spec.x.removeprefix(WORKLOAD).split(".")[0]
    experiment = group.arm.experiment
    own, *others = [
        asdict(experiment.workloads[name])
        for name in (group.workload, *(w for w in group.arm.workloads if w != group.workload))
    ]
    return [
        f"{key} {value}"
        for key, value in own.items()
        if key != swept and any(other.get(key) != value for other in others)
    ]
