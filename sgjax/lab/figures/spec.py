"""The kinds of figures that an experiment can ask for, chosen by `type`.

Imports pydantic and typed. What each looks like is in the module of its name.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class BarsFigure:
    """A panel a metric, a bar a variant; hit rates and computed tokens with their bound.

    Attributes:
        type: the tag.
        panels: metrics, from left to right or top to bottom.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["bars"] = "bars"
    panels: tuple[str, ...] = ("throughput_programs_per_s", "cache_hit_rate", "computed_tokens")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that it draws."""
        return self.panels


@dataclass(frozen=True)
class CompareFigure:
    """The paper's value, the simulated and the measured one side by side, a panel a workload.

    Where the experiment's `reference` of the metric is relative to a variant, so are the bars.

    Attributes:
        type: the tag.
        panels: metrics, one block of panels each.
        beside: metrics whose absolute values are written beside each of our bars.
    """

    __pydantic_config__ = FORBID_EXTRA
    panels: tuple[str, ...]
    type: Literal["compare"] = "compare"
    beside: tuple[str, ...] = ("throughput_programs_per_s", "peak_kv_bytes")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that it draws."""
        return (*self.panels, *self.beside)


@dataclass(frozen=True)
class ScatterFigure:
    """Two metrics against each other, a point a variant, with the Pareto front; rows: workloads.

    Attributes:
        type: the tag.
        panels: pairs of metrics (x, y), from left to right.
    """

    __pydantic_config__ = FORBID_EXTRA
    panels: tuple[tuple[str, str], ...]
    type: Literal["scatter"] = "scatter"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that it draws."""
        return tuple(metric for pair in self.panels for metric in pair)


@dataclass(frozen=True)
class LinesFigure:
    """Metrics over a number that varies: a sweep.

    Attributes:
        type: the tag.
        panels: metrics, from left to right.
        x: what varies: a metric, a dotted key of the engine's settings (`kv_tokens`, `cache.keep`),
            or `workload.` and a key of the workloads (`workload.rate_per_s`).
        lines: a dotted key of the engine's settings, one line a value (`eviction.type`), or
            `variant`: those that differ in `x` alone are one line. None: one line a workload, or
            one a variant if `x` is the workloads'.
        log: whether `x` is drawn logarithmically.
    """

    __pydantic_config__ = FORBID_EXTRA
    panels: tuple[str, ...]
    x: str
    type: Literal["lines"] = "lines"
    lines: str | None = None
    log: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that it draws."""
        return self.panels


FigureConfig = Annotated[
    BarsFigure | CompareFigure | ScatterFigure | LinesFigure, Field(discriminator="type")
]
"""What YAML can choose by `type`."""
