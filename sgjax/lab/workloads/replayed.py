"""What all workloads share whose requests arrive over time: a task that replays a trace.

Imports sim's trace, errors and the workload protocol. Such tasks run on simulated engines only.
"""

from dataclasses import dataclass

import numpy as np

from sgjax.errors import ProgramError
from sgjax.lab.workloads.base import LabEngine, Outcome, Ran, refuse_language
from sgjax.lang.spec import LanguageSpec
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival, BlockTokens
from sgjax.theory.visits import Visit


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

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Replay the requests on the engine's virtual clock; `language` must say nothing."""
        refuse_language(language, "a trace")
        served = engine.replay(self.arrivals)
        if served.refused:
            at = int(np.flatnonzero(np.isnan(served.e2e_s))[0])
            raise ProgramError(
                f"{served.refused} requests of the trace do not fit, the first with "
                f"{served.prompt_tokens[at]} tokens; raise kv_tokens and max_context_len, or drop "
                "long requests (max_tokens)"
            )
        return Ran(_outcomes(served), tuple(_visit(arrival) for arrival in self.arrivals))


def _visit(arrival: Arrival) -> Visit:
    """Return a request's prompt; one that is known by its blocks as their hashes, a block a token.

    Answers are made up and lead into no other prompt, so they are left out.
    """
    tokens = arrival.tokens
    return Visit(tuple(tokens.blocks if isinstance(tokens, BlockTokens) else tokens))


def _outcomes(served: Served) -> tuple[Outcome, ...]:
    return tuple(
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
    )
