"""Requests that are ways down a deep tree of prefixes (simulated engines only).

Imports sim's trace and the task that replays. Made up, to see what queue and tree cost the host.
"""

import random
from dataclasses import dataclass
from typing import Literal

from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.families import FIRST_TOKEN
from sgjax.lab.workloads.replayed import ReplayTask
from sgjax.schedule.policies import mix
from sgjax.sim.trace import Arrival
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class NestedWorkload:
    """Prompts of `depth` segments, each one of `branches` that follow the segments before.

    Attributes:
        type: the tag.
        num_requests: all of them wait from the beginning.
        depth: segments of a prompt.
        step: tokens of a segment.
        branches: segments that may follow each.
    """

    __pydantic_config__ = FORBID_EXTRA
    num_requests: int
    depth: int
    step: int
    branches: int = 3
    type: Literal["nested"] = "nested"

    def load(self, data: DataSource, seed: int) -> ReplayTask:
        """Draw the ways; `data` is not used."""
        del data
        require(self, num_requests=1, depth=1, step=1, branches=1)
        rng = random.Random(seed)
        return ReplayTask(
            tuple(Arrival(0.0, (*self._way(rng), at), 1) for at in range(self.num_requests))
        )

    def _way(self, rng: random.Random) -> list[int]:
        """Return a prompt; its own last token apart, equal ways have equal tokens."""
        way: list[int] = []
        place = 0
        for _ in range(self.depth):
            place = mix(place, rng.randrange(self.branches)) % 2**40
            way += [FIRST_TOKEN + place + at for at in range(self.step)]
        return way
