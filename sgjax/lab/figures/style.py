"""What all figures share: colours, files, titles, groups, and labels that do not overlap.

Imports matplotlib and the lab. Draws with Figure objects, so no global state is touched.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from sgjax.lab.metrics import METRICS
from sgjax.lab.reference import Reference
from sgjax.lab.summary import Summary

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's palette: tell-apart for the colour-blind, and in grey."""
HATCHES = ("", "///", "...")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, FAINT_INK, GRID = "#222222", "#555555", "#E5E5E5"
PAPER = "#BBBBBB"
ARMS = {"simulated": COLOURS[0], "measured": COLOURS[1]}
TITLE_CHAR_INCHES = 0.092
"""Width of a letter of a title, on average and a little more."""
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "sgjax",
}


@dataclass(frozen=True)
class Group:
    """A workload in an arm: what stands together in a figure."""

    arm: Summary
    workload: str
    label: str


def groups(arms: Sequence[Summary]) -> list[Group]:
    """Return the workloads of all arms; the arm is named where there are several."""
    return [
        Group(arm, workload, f"{workload}, {arm.arm}" if len(arms) > 1 else workload)
        for arm in arms
        for workload in arm.workloads
    ]


def colour_and_hatch(arm: Summary, variant: str) -> tuple[str, str]:
    """Return how a variant is told apart from up to twenty others."""
    at = list(arm.experiment.variants).index(variant)
    return COLOURS[at % len(COLOURS)], HATCHES[at // len(COLOURS) % len(HATCHES)]


def heading(metric: str, reference: Reference | None) -> str:
    """Return what a metric's panel is called; what is relative to a variant has no unit."""
    if reference is None or reference.relative_to is None:
        return METRICS[metric].heading
    return f"{METRICS[metric].label}, {reference.relative_to} = 1"


def scale(metric: str, reference: Reference | None) -> float:
    """Return what values are multiplied by to be drawn; what is relative is drawn as it is."""
    relative = reference is not None and reference.relative_to is not None
    return 1.0 if relative else METRICS[metric].scale


def set_title(figure: Figure, arms: Sequence[Summary]) -> None:
    """Write above a figure what ran where."""
    lines = []
    for arm in arms:
        first = arm.records[0]
        runs = max(stat.runs for stats in arm.stats.values() for stat in stats.values())
        spread = f", median and range of {runs} runs" if runs > 1 else ""
        ran = [record.device for record in arm.records if record.error is None]
        devices = ", ".join(dict.fromkeys(ran or [first.device]))
        lines.append(f"{arm.arm}: {first.model}, {first.dtype}, {devices}{spread}")
    chars = int(figure.get_figwidth() / TITLE_CHAR_INCHES)
    text = "\n".join(fill(line, chars) for line in (arms[0].experiment.name, *lines))
    figure.suptitle(text, fontsize=11, color=INK, x=0.01, ha="left")


def name_panel(axes: Axes, text: str, note: str = "") -> None:
    """Write a panel's name above it, and a note about its dashed line at the other end."""
    axes.set_title(text, loc="left", fontsize=10, color=INK)
    axes.set_title(note, loc="right", fontsize=9, color=FAINT_INK)


def render(figure: Figure) -> dict[str, bytes]:
    """Return a figure's files by suffix; the same figure gives the same bytes."""
    files = {}
    for suffix in ("png", "svg"):
        buffer = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
        files[suffix] = buffer.getvalue()
    return files


ANGLES = (0, 180, 45, 135, -45, -135, 90, -90)
ALONG = 0.1
"""A text stands beside, above or below its point where its direction is more than so far there."""
RADII_PT = (8, 14, 22, 32, 44, 58, 74)
SAME_PT = 3
"""Points this near to each other look like one and share a label."""
LABEL_CHARS = 30
"""A shared label is broken into lines of so many characters."""


@dataclass(frozen=True)
class Point:
    """A point with its error bars, (low, middle, high) in data coordinates, and its label."""

    x: tuple[float, float, float]
    y: tuple[float, float, float]
    label: str
    colour: str


def label_points(figure: Figure, axes: Axes, points: Sequence[Point]) -> list[Text]:
    """Write a label beside each point so that it covers no other and no point, if there is room.

    Points that look like one have one label.

    Args:
        figure: with its layout done.
        axes: of the figure, with all points drawn.
        points: what to label.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()
    near = SAME_PT * figure.dpi / 72
    points = [_shared(alike) for alike in _alike(axes, points, near)]
    taken = [box for point in points for box in _boxes(axes, point, 4 * figure.dpi / 72)]
    inside = axes.get_window_extent(renderer)
    texts = []
    for point in points:
        # Laying a text out takes time; where else it would stand is arithmetic.
        text = _beside(axes, point, 0, 0)
        first = text.get_window_extent(renderer).padded(1)
        text.remove()
        best, place, least = first, (RADII_PT[0], ANGLES[0]), math.inf
        for radius, angle in ((r, a) for r in RADII_PT for a in ANGLES):
            box = _moved(first, radius * figure.dpi / 72, angle)
            overlap = sum(_overlap(box, other) for other in taken) + _outside(box, inside)
            if overlap < least:
                best, place, least = box, (radius, angle), overlap
            if least == 0:
                break
        texts.append(_beside(axes, point, *place))
        taken.append(best)
    return texts


def _alike(axes: Axes, points: Sequence[Point], near: float) -> list[list[Point]]:
    """Return the points in groups that stand within so many pixels of their first."""
    found: list[list[Point]] = []
    for point in points:
        at = axes.transData.transform((point.x[1], point.y[1]))
        for group in found:
            first = axes.transData.transform((group[0].x[1], group[0].y[1]))
            if math.dist(at, first) <= near:
                group.append(point)
                break
        else:
            found.append([point])
    return found


def _shared(alike: Sequence[Point]) -> Point:
    """Return one point for several: where the first is, with the error bars and names of all."""
    first = alike[0]
    names = fill(", ".join(point.label for point in alike), LABEL_CHARS)
    ends = [
        (min(p[0] for p in axis), mine[1], max(p[2] for p in axis))
        for mine, axis in ((first.x, [p.x for p in alike]), (first.y, [p.y for p in alike]))
    ]
    return Point(ends[0], ends[1], names, first.colour)


def _moved(box: Bbox, radius: float, angle: float) -> Bbox:
    """Return where a text would stand whose box at radius 0, angle 0 is `box`, in pixels."""
    dx, dy = _direction(angle)
    x = box.x0 + radius * dx - (0 if dx > ALONG else box.width if dx < -ALONG else box.width / 2)
    up = 0 if dy > ALONG else -box.height if dy < -ALONG else -box.height / 2
    y = (box.y0 + box.y1) / 2 + radius * dy + up
    return Bbox([[x, y], [x + box.width, y + box.height]])


def _direction(angle: float) -> tuple[float, float]:
    return math.cos(math.radians(angle)), math.sin(math.radians(angle))


def _beside(axes: Axes, point: Point, radius: float, angle: float) -> Text:
    dx, dy = _direction(angle)
    line = {"arrowstyle": "-", "color": point.colour, "lw": 0.6}
    return axes.annotate(
        point.label,
        (point.x[1], point.y[1]),
        xytext=(radius * dx, radius * dy),
        textcoords="offset points",
        ha="left" if dx > ALONG else "right" if dx < -ALONG else "center",
        va="bottom" if dy > ALONG else "top" if dy < -ALONG else "center",
        fontsize=8,
        color=INK,
        arrowprops=line if radius > RADII_PT[0] else None,
    )


def _boxes(axes: Axes, point: Point, half: float) -> list[Bbox]:
    """Return what a point covers: its marker of so many pixels, and its two error bars."""
    x, y = axes.transData.transform((point.x[1], point.y[1]))
    (left, bottom), (right, top) = axes.transData.transform(
        [(point.x[0], point.y[0]), (point.x[2], point.y[2])]
    )
    return [
        Bbox([[x - half, y - half], [x + half, y + half]]),
        Bbox([[left, y - 1], [right, y + 1]]),
        Bbox([[x - 1, bottom], [x + 1, top]]),
    ]


def _overlap(one: Bbox, other: Bbox) -> float:
    common = Bbox.intersection(one, other)
    return 0.0 if common is None else float(common.width * common.height)


def _outside(box: Bbox, inside: Bbox) -> float:
    return float(box.width * box.height) - _overlap(box, inside)
