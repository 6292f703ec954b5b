"""SimExecutor: run plans on a virtual clock instead of a device.

HOST, no jax. Imports schedule's protocol and fsm's masks. The same scheduler, cache and policies
run against it in property tests, in scheduling studies and at cluster scale; what it reports is
simulated time.
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from sgjax.fsm.vocabulary import unpack_ids
from sgjax.schedule import Plan, Sequence, StepOutput

Script = Callable[[Sequence], int]
Cost = Callable[[Plan], float]


class SimExecutor:
    """Answer plans from a script and charge their cost to a virtual clock.

    Args:
        script: gives the next token of a sequence whose tokens are all computed.
        cost: seconds one step takes.

    Attributes:
        stepped_s: when the last step ended.
    """

    kind = "sim"
    writes_first = True

    def __init__(self, script: Script, cost: Cost) -> None:
        self._script = script
        self._cost = cost
        self._clock_s = 0.0
        self.stepped_s = 0.0

    def say(self, script: Script) -> Script:
        """Answer from another script from now on; return the one before."""
        before, self._script = self._script, script
        return before

    def submit(self, plan: Plan) -> tuple[Plan, float]:
        """Run a step: its cost passes on the clock."""
        cost_s = self._cost(plan)
        self._clock_s += cost_s
        self.stepped_s = self._clock_s
        return plan, cost_s

    def wait(self, ticket: tuple[Plan, float]) -> StepOutput:
        """Return the script's answers to the step."""
        plan, cost_s = ticket
        X = sum(len(row.targets) for row in plan.rows if row.logprob_from >= 0)
        tokens: list[int] = []
        for row in plan.rows:
            if row.sample:
                tokens.append(self._script(row.seq))
                if row.guesses:
                    tokens.extend(map(self._script, row.guesses))
        B = len(tokens)
        return StepOutput(
            next_token=np.array(tokens, np.int32),
            logprob=np.zeros(B, np.float32),
            log_mass=np.zeros(B, np.float32),
            top_ids=np.zeros((B, 0), np.int32),
            top_logprobs=np.zeros((B, 0), np.float32),
            target_logprob=np.zeros(X, np.float32),
            target_top_ids=np.zeros((X, 0), np.int32),
            target_top_logprobs=np.zeros((X, 0), np.float32),
            device_s=cost_s,
        )

    def repeat(self, costs_s: Iterator[float], limit: int, until_s: float) -> int:
        """Let steps pass whose tokens the caller knows; return how many.

        Args:
            costs_s: seconds of each, in order.
            limit: steps at most, >= 1.
            until_s: only the first step begins when the clock is there.
        """
        steps = 0
        while steps < limit and (steps == 0 or self._clock_s < until_s):
            self._clock_s += next(costs_s)
            steps += 1
        self.stepped_s = self._clock_s
        return steps

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


def allowed_tokens(script: Script) -> Script:
    """Return a script that answers as `script` does, but within a sequence's constraint.

    The answer picks one of the allowed tokens.
    """

    def pick(seq: Sequence) -> int:
        token = script(seq)
        if seq.grammar is None:
            return token
        row = seq.grammar.mask_row(seq.grammar_state)
        allowed = unpack_ids(seq.grammar.rows[row])
        assert len(allowed), "a constraint left nothing to say"
        return int(allowed[token % len(allowed)])

    return pick


def linear_cost(step_s: float, token_s: float) -> Cost:
    """Return a cost of a constant a step and a constant a new token, in seconds."""
    return lambda plan: step_s + token_s * plan.num_tokens
