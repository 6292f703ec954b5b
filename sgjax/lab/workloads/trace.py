"""Published traces of services, replayed with their arrivals (simulated engines only).

Imports sim's trace loaders and the workload protocol. The files are the user's; without
any, traces of the same structure are made up.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.replayed import ReplayTask
from sgjax.schedule.policies import mix
from sgjax.sim.made_up import make_conversations, make_lengths
from sgjax.sim.trace import Arrival, read_azure, read_mooncake
from sgjax.typed import FORBID_EXTRA

MADE_UP = 4000
"""Requests of a made-up trace, unless it is said otherwise."""


@dataclass(frozen=True)
class TraceWorkload:
    """The requests of a trace; without data, of a made-up one of the same form.

    Attributes:
        type: the tag.
        file: the trace's name in the data folder. Made-up traces of other names are others.
        form: `mooncake` (hashes of 512-token blocks: prompts share) or `azure` (lengths alone).
        num_requests: take the first so many; None takes all, of a made-up trace 4,000.
        max_tokens: leave out requests of more tokens, prompt and output; None keeps all.
        speed: divide the times of arrival by this.
        tile: serve the trace so often in a row, with hashes that no other copy has: synthetic
            traffic of the trace's structure and load, not of its diversity (Mooncake's form only).
    """

    __pydantic_config__ = FORBID_EXTRA
    file: str
    type: Literal["trace"] = "trace"
    form: Literal["mooncake", "azure"] = "mooncake"
    num_requests: int | None = None
    max_tokens: int | None = None
    speed: float = 1.0
    tile: int = 1

    def load(self, data: DataSource, seed: int) -> ReplayTask:
        """Read the trace, which the seed does not change; or make one up by the seed."""
        require(self, "speed", num_requests=1, max_tokens=1, tile=1)
        if self.tile > 1 and self.form != "mooncake":
            raise ConfigError(
                f"trace: tile={self.tile} is not allowed with form={self.form!r}; copies need the "
                "blocks' hashes that form 'mooncake' has"
            )
        fitting = [
            arrival
            for arrival in self._arrivals(data, seed)
            if self.max_tokens is None
            or len(arrival.tokens) + arrival.output_tokens <= self.max_tokens
        ]
        taken = fitting[: self.num_requests]
        sped = tuple(replace(a, time_s=a.time_s / self.speed) for a in taken)
        return ReplayTask(sped, self.tile)

    def _arrivals(self, data: DataSource, seed: int) -> list[Arrival]:
        shares, paths = self.form == "mooncake", data.find((self.file,))
        if paths is not None:
            return read_mooncake(paths[0]) if shares else read_azure(paths[0])
        make = make_conversations if shares else make_lengths
        return make(self.num_requests or MADE_UP, mix(seed, zlib.crc32(self.file.encode())))
