"""Published traces of services, replayed with their arrivals (simulated engines only).

Imports sim's trace loaders and the workload protocol. The files are the user's; none is shipped.
"""

from dataclasses import dataclass, replace
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource
from sgjax.lab.workloads.replayed import ReplayTask
from sgjax.sim.trace import read_azure, read_mooncake
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class TraceWorkload:
    """The requests of a trace.

    Attributes:
        type: the tag.
        file: the trace's name in the data folder.
        form: `mooncake` (hashes of 512-token blocks: prompts share) or `azure` (lengths alone).
        num_requests: take the first so many; None takes all.
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
        """Read the trace; the seed changes nothing."""
        del seed
        if self.speed <= 0:
            raise ConfigError(f"trace: speed={self.speed} is not allowed; it must be > 0")
        if self.tile < 1 or (self.tile > 1 and self.form != "mooncake"):
            raise ConfigError(
                f"trace: tile={self.tile} with form {self.form!r} is not allowed; it must be >= 1, "
                "and above 1 the blocks' hashes are needed that form 'mooncake' has"
            )
        paths = data.find((self.file,))
        if paths is None:
            raise ConfigError(
                f"trace: {self.file} does not ship with sgjax; say where with data.path=FOLDER"
            )
        read = read_mooncake if self.form == "mooncake" else read_azure
        fitting = [
            arrival
            for arrival in read(paths[0])
            if self.max_tokens is None
            or len(arrival.tokens) + arrival.output_tokens <= self.max_tokens
        ]
        taken = fitting[: self.num_requests]
        sped = tuple(replace(a, time_s=a.time_s / self.speed) for a in taken)
        return ReplayTask(sped, self.tile)
