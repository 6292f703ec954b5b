"""Families of requests that share a prefix each and arrive mixed (simulated engines only).

Imports sim's trace and the workload protocol. Made up, not measured: small structures in which one
policy or eviction order must lose.
"""

import random
from dataclasses import dataclass
from itertools import count
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.replayed import ReplayTask
from sgjax.sim.trace import Arrival
from sgjax.typed import FORBID_EXTRA

FIRST_TOKEN = 1000
"""Tokens are made up from here on; no two prefixes or suffixes share one."""


@dataclass(frozen=True)
class Family:
    """Requests with a common prefix.

    Attributes:
        share: of all requests; shares need not add up to 1. Copies divide it.
        prefix: tokens of the common prefix; 0 for requests that share nothing.
        own: tokens of each request behind it.
        output: tokens each generates.
        copies: so many families of this kind, each with a prefix of its own.
    """

    __pydantic_config__ = FORBID_EXTRA
    share: float
    prefix: int
    own: int
    output: int
    copies: int = 1

    def __post_init__(self) -> None:
        require(self, "share", prefix=0, own=1, output=1, copies=1)


@dataclass(frozen=True)
class FamiliesWorkload:
    """Requests of several families.

    Attributes:
        type: the tag.
        families: by name; a request's name of family is what fairness is measured over.
        num_requests: of all families together.
        rate_per_s: mean arrivals a second.
        arrivals: `poisson`, or `even` spacing.
        order: `mixed` draws each request's family at random; `cycle` takes turns in the order of
            the names, whatever their shares.
    """

    __pydantic_config__ = FORBID_EXTRA
    families: dict[str, Family]
    num_requests: int
    rate_per_s: float
    type: Literal["families"] = "families"
    arrivals: Literal["poisson", "even"] = "poisson"
    order: Literal["mixed", "cycle"] = "mixed"

    def load(self, data: DataSource, seed: int) -> ReplayTask:
        """Draw the requests; `data` is not used."""
        del data
        require(self, "rate_per_s", num_requests=1)
        if not self.families:
            raise ConfigError("families: there are none; name at least one under 'families'")
        rng, fresh, now = random.Random(seed), count(FIRST_TOKEN), 0.0
        families = {
            name if family.copies == 1 else f"{name} {copy}": family
            for name, family in self.families.items()
            for copy in range(family.copies)
        }
        prefixes = {n: [next(fresh) for _ in range(f.prefix)] for n, f in families.items()}
        names = list(families)
        shares = [family.share / family.copies for family in families.values()]
        requests = []
        for at in range(self.num_requests):
            gap = rng.expovariate(self.rate_per_s) if self.arrivals == "poisson" else None
            now += 1 / self.rate_per_s if gap is None else gap
            drawn = rng.choices(names, shares)[0]
            name = drawn if self.order == "mixed" else names[at % len(names)]
            own = [next(fresh) for _ in range(families[name].own)]
            tokens = (*prefixes[name], *own)
            requests.append(Arrival(now, tokens, families[name].output, name))
        return ReplayTask(tuple(requests))
