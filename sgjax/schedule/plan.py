"""What the scheduler hands to an executor and gets back: Plan, StepOutput, the Executor protocol.

Imports cache's types and numpy. Everything that ever runs on the device is one `Plan`: some new
tokens of some sequences, given the pages they already have.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sgjax.cache.base import Keys

if TYPE_CHECKING:
    from sgjax.schedule.sequence import Sequence


class PlanRow(NamedTuple):
    """Extend one sequence by the tokens [start, end).

    Attributes:
        seq: the sequence; the executor reads its tokens, pages and parameters, never writes.
        start: index of the first token to compute; all before it have K/V.
        end: one past the last token to compute, guesses included.
        sample: whether what follows the row's tokens is to be sampled: behind the sequence as it
            is, and behind each guess.
        logprob_from: first *target* index in (start, end] whose log-probability is wanted, or -1;
            the logits of token t-1 give the log-probability of token t, for t < len(prompt).
        guesses: the sequence with one guessed token more each (see schedule.guess); those tokens
            are the row's last.
    """

    seq: "Sequence"
    start: int
    end: int
    sample: bool
    logprob_from: int = -1
    guesses: "tuple[Sequence, ...]" = ()

    @property
    def whole(self) -> "Sequence":
        """Return the sequence with all its guesses."""
        return self.guesses[-1] if self.guesses else self.seq

    @property
    def tokens(self) -> Keys:
        """Return the tokens to compute, i64[num_tokens]."""
        return self.whole.tokens.view(self.start, self.end)

    @property
    def sampled(self) -> "tuple[Sequence, ...]":
        """Return the sequences, as they are and as they are guessed, whose next token to sample."""
        return (self.seq, *self.guesses) if self.sample else ()

    @property
    def num_tokens(self) -> int:
        """Return the number of new tokens of the row."""
        return self.end - self.start

    @property
    def targets(self) -> range:
        """Return the token indices whose prompt log-probabilities this row yields."""
        if self.logprob_from < 0:
            return range(0)
        last = min(self.end + 1, self.seq.num_prompt)
        return range(max(self.logprob_from, self.start + 1), last)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step of the device.

    Attributes:
        step: step number, counting from 1.
        rows: single-token rows (decode) first, then longer extends.
        num_tokens: new tokens over all rows.
    """

    step: int
    rows: tuple[PlanRow, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What comes back from one step; samples are the rows' `sampled`, concatenated.

    Attributes:
        next_token: i32[R] sampled ids.
        logprob: f32[R] raw log-probability of each sampled id.
        log_mass: f32[R] log of the raw probability that a constraint's mask left to it; 0 unless
            the row has one and wants log-probabilities.
        top_ids: i32[R, K] likeliest ids at the sampled position; K = 0 unless asked.
        top_logprobs: f32[R, K] their log-probabilities.
        target_logprob: f32[X] prompt log-probabilities: rows' `targets`, concatenated.
        target_top_ids: i32[X, K].
        target_top_logprobs: f32[X, K].
        device_s: seconds the step took, on the executor's clock.
    """

    next_token: NDArray[np.int32]
    logprob: NDArray[np.float32]
    log_mass: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]
    target_logprob: NDArray[np.float32]
    target_top_ids: NDArray[np.int32]
    target_top_logprobs: NDArray[np.float32]
    device_s: float


class Executor(Protocol):
    """Run plans. The only owner of weights, K/V arrays, masks and compiled steps."""

    @property
    def kind(self) -> str:
        """Return `sim`, `cpu`, `gpu` or `tpu`."""
        ...

    def submit(self, plan: Plan) -> Any:
        """Start a step and return its ticket; steps run in the order of submission."""
        ...

    def wait(self, ticket: Any) -> StepOutput:
        """Return the step's output when it is done."""
        ...

    def now(self) -> float:
        """Return seconds on the executor's clock (virtual for `sim`)."""
        ...
