"""Fairness and starvation: how waits spread, and how evenly families or clients are served.

Imports numpy.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

K = TypeVar("K")


@dataclass(frozen=True)
class WaitSpread:
    """How the waits of a group of requests spread, in seconds.

    Attributes:
        count: requests.
        mean_s, p50_s, p99_s, p999_s, max_s: of their waits; NaN for an empty group.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float


def wait_spread(waits_s: Sequence[float]) -> WaitSpread:
    """Return the spread of waits (arrival to admission, or to the first token), in seconds."""
    if not len(waits_s):
        return WaitSpread(0, *[float("nan")] * 5)
    waits = np.asarray(waits_s, np.float64)
    p50, p99, p999 = np.percentile(waits, (50, 99, 99.9))
    return WaitSpread(
        len(waits), float(waits.mean()), float(p50), float(p99), float(p999), float(waits.max())
    )


def by_family(waits_s: Iterable[float], families: Iterable[K]) -> dict[K, WaitSpread]:
    """Return the spread of waits in each family (or of each client).

    Args:
        waits_s: one a request.
        families: whose the request is, in the same order.
    """
    groups: dict[K, list[float]] = defaultdict(list)
    for wait, name in zip(waits_s, families, strict=True):
        groups[name].append(wait)
    return {name: wait_spread(waits) for name, waits in groups.items()}


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 where all get the same, 1/n where one gets everything.

    Args:
        shares: what each got of something good, such as tokens per second; not negative.

    Returns:
        (sum x)^2 / (n sum x^2); 1 for nobody, or where nobody got anything.

    Source:
        Jain, Chiu, Hawe: A quantitative measure of fairness (1984).
    """
    x = np.asarray(shares, np.float64)
    squares = float((x * x).sum())
    return float(x.sum()) ** 2 / (len(x) * squares) if squares else 1.0
