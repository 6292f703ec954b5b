"""What all workloads share whose requests arrive over time: a task that replays a trace.

Imports sim's trace, errors and the workload protocol. Such tasks run on simulated engines only.
"""

from dataclasses import dataclass

import numpy as np

from sgjax.errors import ProgramError
from sgjax.lab.workloads.base import LabEngine, Outcome
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival, BlockTokens
from sgjax.tokens.base import Tokenizer


@dataclass(frozen=True)
class ReplayTask:
    """Requests with their arrivals."""

    arrivals: tuple[Arrival, ...]

    @property
    def num_programs(self) -> int:
        """Return the number of requests."""
        return len(self.arrivals)

    def first(self, count: int) -> "ReplayTask":
        """Return the task of the first requests alone."""
        return ReplayTask(self.arrivals[:count])

    def prompts(self, tokenizer: Tokenizer) -> list[list[int]]:
        """Return each prompt; one that is known by its blocks as their hashes, a block a token."""
        del tokenizer
        return [
            list(a.tokens.blocks if isinstance(a.tokens, BlockTokens) else a.tokens)
            for a in self.arrivals
        ]

    def run(self, engine: LabEngine) -> list[Outcome]:
        """Replay the requests on the engine's virtual clock."""
        served = engine.replay(self.arrivals)
        if served.refused:
            at = int(np.flatnonzero(np.isnan(served.e2e_s))[0])
            raise ProgramError(
                f"{served.refused} requests of the trace do not fit, the first with "
                f"{served.prompt_tokens[at]} tokens; raise kv_tokens and max_context_len, or drop "
                "long requests (max_tokens)"
            )
        return _outcomes(served)


def _outcomes(served: Served) -> list[Outcome]:
    return [
        Outcome(
            answer="",
            correct=None,
            latency_s=float(served.e2e_s[i]),
            ttft_s=float(served.ttft_s[i]),
            completion_tokens=int(served.output_tokens[i]),
            queued_s=float(served.queued_s[i]),
            family=family,
        )
        for i, family in enumerate(served.families)
    ]
