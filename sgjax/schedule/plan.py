"""What the scheduler hands to an executor and gets back: Plan, StepOutput, the Executor protocol.

Imports types and numpy. Everything that ever runs on the device is one `Plan`: some new tokens of
some sequences, given the pages they already have.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sgjax.schedule.sequence import Sequence


class PlanRow(NamedTuple):
    """Extend one sequence by the tokens [start, end).

    Attributes:
        seq: the sequence; the executor reads its tokens, pages and parameters, never writes.
        start: index of the first token to compute; all before it have K/V.
        end: one past the last token to compute.
        sample: whether the logits of token end-1 are to be sampled.
        logprob_from: first *target* index in (start, end] whose log-probability is wanted, or -1;
            the logits of token t-1 give the log-probability of token t, for t < len(prompt).
    """

    seq: "Sequence"
    start: int
    end: int
    sample: bool
    logprob_from: int = -1

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
    """What comes back from one step; rows in plan order.

    Attributes:
        next_token: i32[B] sampled ids, -1 where the row asked for none.
        logprob: f32[B] raw log-probability of each sampled id.
        log_mass: f32[B] log of the raw probability that a constraint's mask left to it; 0 unless
            the row has one and wants log-probabilities.
        top_ids: i32[B, K] likeliest ids at the sampled position; K = 0 unless asked.
        top_logprobs: f32[B, K] their log-probabilities.
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
