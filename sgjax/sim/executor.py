"""SimExecutor: run plans on a virtual clock instead of a device.

HOST, no jax. Imports schedule's protocol. The same scheduler, cache and policies run against it in
property tests, in scheduling studies and at cluster scale; what it reports is simulated time.
"""

import zlib
from collections.abc import Callable

import numpy as np

from sgjax.schedule import Plan, Sequence, StepOutput

Script = Callable[[Sequence], int]
Cost = Callable[[Plan], float]


class SimExecutor:
    """Answer plans from a script and charge their cost to a virtual clock.

    Args:
        script: gives the next token of a sequence whose tokens are all computed.
        cost: seconds one step takes.
    """

    kind = "sim"
    writes_first = True

    def __init__(self, script: Script, cost: Cost) -> None:
        self._script = script
        self._cost = cost
        self._clock_s = 0.0

    def submit(self, plan: Plan) -> Plan:
        """Run a step: its cost passes on the clock."""
        self._clock_s += self._cost(plan)
        return plan

    def wait(self, ticket: Plan) -> StepOutput:
        """Return the script's answers to the step."""
        B, X = len(ticket.rows), sum(len(row.targets) for row in ticket.rows)
        tokens = [self._script(row.seq) if row.sample else -1 for row in ticket.rows]
        return StepOutput(
            next_token=np.array(tokens, np.int32),
            logprob=np.zeros(B, np.float32),
            top_ids=np.zeros((B, 0), np.int32),
            top_logprobs=np.zeros((B, 0), np.float32),
            target_logprob=np.zeros(X, np.float32),
            target_top_ids=np.zeros((X, 0), np.int32),
            target_top_logprobs=np.zeros((X, 0), np.float32),
            device_s=self._cost(ticket),
        )

    def now(self) -> float:
        """Return the virtual clock in seconds."""
        return self._clock_s

    def advance_to(self, time_s: float) -> None:
        """Let time pass until `time_s` (the next arrival), if it is not past already."""
        self._clock_s = max(self._clock_s, time_s)


def hashed_tokens(vocab_size: int, reserved: int = 0) -> Script:
    """Return a script whose token depends on the sequence's tokens alone, like greedy decoding.

    Args:
        vocab_size: tokens are below it.
        reserved: tokens below this are never produced (end ids, for example).
    """

    def script(seq: Sequence) -> int:
        digest = zlib.crc32(seq.tokens.view().tobytes())
        return reserved + digest % (vocab_size - reserved)

    return script


def linear_cost(step_s: float, token_s: float) -> Cost:
    """Return a cost of a constant a step and a constant a new token, in seconds."""
    return lambda plan: step_s + token_s * plan.num_tokens
