"""What the paper reports: the values that a figure shows beside what was run here.

Imports `errors` and typed. Values are copied into the experiment file before anything is compared.
"""

import math
from dataclasses import dataclass
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.typed import FORBID_EXTRA

Arm = Literal["simulated", "measured"]
"""How numbers come about: on a virtual clock, or on the device at hand."""


@dataclass(frozen=True)
class Range:
    """A value of which only the ends of a range are known; written `{range: [low, high]}`."""

    __pydantic_config__ = FORBID_EXTRA
    range: tuple[float, float]

    def __post_init__(self) -> None:
        if not 0 < self.range[0] <= self.range[1]:
            raise ConfigError(f"range={list(self.range)} is not allowed; give 0 < low <= high")


@dataclass(frozen=True)
class Agreement:
    """When a run agrees with the paper's values, judged over all of them together.

    Attributes:
        arms: the runs that are judged; the others' values are shown alone.
        order: on every workload, variants whose values differ in the paper differ the same way.
        mean_within: the geometric mean of the values is the paper's, to this share (0.15: 15 %);
            a range counts as the geometric mean of its ends.
        bars_within: how near a single value must be to count as near; within a range is near.
        bars_share: so large a share of the values is near.
    """

    __pydantic_config__ = FORBID_EXTRA
    arms: tuple[Arm, ...] = ("simulated",)
    order: bool = True
    mean_within: float = 0.15
    bars_within: float = 0.25
    bars_share: float = 0.60

    def __post_init__(self) -> None:
        for name in ("mean_within", "bars_within", "bars_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not allowed; it must be a share in [0, 1]"
                )


@dataclass(frozen=True)
class Reference:
    """The paper's values of one metric.

    Attributes:
        values: by workload, then by variant: a number, or `{range: [low, high]}`; in the metric's
            own unit, or as multiples of `relative_to`.
        relative_to: the variant that counts as 1.0 on its workload (SGLang, in the paper's bars);
            it needs no value of its own. None: the values are absolute.
        source: the figure or table, and how the values were read off.
        agreement: what makes a run agree with them; None shows them and judges nothing.
    """

    __pydantic_config__ = FORBID_EXTRA
    values: dict[str, dict[str, float | Range]]
    relative_to: str | None = None
    source: str = ""
    agreement: Agreement | None = None

    def __post_init__(self) -> None:
        for workload, values in self.values.items():
            for variant, value in values.items():
                if not isinstance(value, Range) and value <= 0:
                    raise ConfigError(
                        f"reference: {workload}.{variant}={value} is not allowed; it must be > 0"
                    )

    def span(self, workload: str, variant: str) -> tuple[float, float] | None:
        """Return the ends between which the paper's value lies; None where it has none."""
        if variant == self.relative_to and workload in self.values:
            return 1.0, 1.0
        value = self.values.get(workload, {}).get(variant)
        if isinstance(value, Range):
            return value.range
        return None if value is None else (value, value)

    def middle(self, workload: str, variant: str) -> float | None:
        """Return the paper's value, for a range the geometric mean of its ends."""
        span = self.span(workload, variant)
        return None if span is None else math.sqrt(span[0] * span[1])
