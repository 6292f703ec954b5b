"""serve_together: several schedulers on one virtual clock serve one trace (data parallelism).

HOST. Imports schedule, sim.replay and sim.trace. Who gets a request is somebody else's choice.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sgjax.schedule import SchedulerStats
from sgjax.sim.replay import Served, Station
from sgjax.sim.trace import Arrival

Dispatch = Callable[[Arrival], int]
"""Choose the station of a request; it is asked when all have come to the time of its arrival."""

COLUMNS = (
    "arrived_s",
    "queued_s",
    "ttft_s",
    "e2e_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
)
"""The arrays of `Served`."""


def serve_together(
    trace: Iterable[Arrival], stations: Sequence[Station], dispatch: Dispatch
) -> Served:
    """Serve a trace on several stations that have nothing else to do.

    Args:
        trace: requests by time of arrival.
        stations: the schedulers, their clocks at the same time.
        dispatch: chooses one for each request.

    Returns:
        What became of all requests; counters are sums, the time is that of the last to end.
    """
    places: list[tuple[int, int]] = []
    counts = [0] * len(stations)
    for arrival in trace:
        for station in stations:
            station.run_until(arrival.time_s)
        chosen = dispatch(arrival)
        stations[chosen].add(arrival)
        places.append((chosen, counts[chosen]))
        counts[chosen] += 1
    for station in stations:
        station.run_until(math.inf)
    return _merge([station.served() for station in stations], places)


def _merge(parts: Sequence[Served], places: Sequence[tuple[int, int]]) -> Served:
    """Return what stations served in the trace's order; places name station and number there."""
    starts = np.cumsum([0, *(len(part.families) for part in parts)])
    order = np.array([starts[station] + number for station, number in places], np.int64)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])[order] for name in COLUMNS
    }
    families = [family for part in parts for family in part.families]
    totals = zip(*(dataclasses.astuple(part.stats) for part in parts), strict=True)
    return Served(
        stats=SchedulerStats(*map(sum, totals)),
        elapsed_s=max(part.elapsed_s for part in parts),
        families=[families[at] for at in order],
        refused=sum(part.refused for part in parts),
        **columns,
    )
