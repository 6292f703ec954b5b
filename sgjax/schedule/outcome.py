"""What steps' outputs tell of sequences: log-probabilities, news, the Completion, what went wrong.

Imports types, errors, plan and sequence.
"""

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import OutOfPages, SgjaxError
from sgjax.schedule.plan import PlanRow, StepOutput
from sgjax.schedule.sequence import Sequence
from sgjax.types import Completion, Delta, FinishKind, FinishReason, TokenLogprob


def take_logprob(seq: Sequence, token: int, out: StepOutput, index: int) -> None:
    """Note the log-probability of a sampled token, the output's `index`-th, if it is wanted."""
    request = seq.request
    if request.return_logprob:
        top = _top(out.top_logprobs[index], out.top_ids[index], request.top_logprobs)
        logprob, mass = float(out.logprob[index]), float(out.log_mass[index])
        seq.output_logprobs.append(TokenLogprob(logprob, token, top, mass))


def take_prompt_logprobs(row: PlanRow, out: StepOutput, offset: int) -> int:
    """Note a row's prompt log-probabilities from the output's target `offset` on.

    Returns:
        The offset of the next row's.
    """
    seq = row.seq
    for at, index in enumerate(row.targets, start=offset):
        top = _top(out.target_top_logprobs[at], out.target_top_ids[at], seq.request.top_logprobs)
        token = seq.request.tokens[index]
        seq.input_logprobs.append(TokenLogprob(float(out.target_logprob[at]), token, top))
    return offset + len(row.targets)


def news(seq: Sequence) -> Delta:
    """Return what the listener of a running sequence has not heard of its output yet."""
    assert seq.output is not None
    start, seq.delivered = seq.delivered, seq.num_output
    token_ids = tuple(seq.tokens.view(seq.num_prompt + start).tolist())
    return Delta(seq.request.id, seq.output.take(), token_ids, start=start)


def last_news(seq: Sequence, completion: Completion) -> Delta:
    """Return what the listener of an ended sequence has not heard yet."""
    rest = seq.output.take() if seq.output is not None else ""
    token_ids = completion.output_ids[seq.delivered :]
    return Delta(seq.request.id, rest, token_ids, completion, seq.delivered)


def build_completion(seq: Sequence, reason: FinishReason, now_s: float) -> Completion:
    """Return all that is known of a sequence that ended.

    Args:
        seq: the sequence; its output text is finished here.
        reason: why it ended.
        now_s: the scheduler's clock, seconds.
    """
    request = seq.request
    matched = reason.matched if reason.kind is FinishKind.STOP else None
    return Completion(
        id=request.id,
        text=seq.output.finish(matched) if seq.output is not None else "",
        output_ids=tuple(seq.tokens.view(seq.num_prompt).tolist()),
        prompt_tokens=seq.num_prompt,
        cached_tokens=max(seq.cached_tokens, 0),
        forced_tokens=seq.forced,
        finish=reason,
        input_logprobs=None if request.logprob_start is None else tuple(seq.input_logprobs),
        output_logprobs=tuple(seq.output_logprobs) if request.return_logprob else None,
        queued_s=max(seq.admitted_s - seq.arrived_s, 0.0),
        ttft_s=max(seq.first_token_s - seq.arrived_s, 0.0),
        e2e_s=now_s - seq.arrived_s,
        top_logprobs=request.top_logprobs,
    )


def out_of_pages(seq: Sequence, capacity_tokens: int) -> OutOfPages:
    """Return the error of a sequence for which a pool of so many tokens is too small."""
    return OutOfPages(
        f"request {seq.request.id!r} needs pages for {seq.num_tokens} tokens, the pool holds "
        f"{capacity_tokens} and nothing else is left to evict or retract; raise kv_tokens or lower "
        "max_new_tokens"
    )


def no_distribution(seq: Sequence, token: int) -> SgjaxError:
    """Return the error of a sequence for which the device returned `token`, which is none."""
    return SgjaxError(
        f"request {seq.request.id!r}: no token could be sampled (got {token}), because the logits "
        "were not finite or all tokens were forbidden; check the weights, stop_token_ids with "
        "min_new_tokens, or try dtype: float32"
    )


def _top(
    logprobs: NDArray[np.float32], ids: NDArray[np.int32], count: int
) -> tuple[tuple[float, int], ...]:
    return tuple(zip(logprobs[:count].tolist(), ids[:count].tolist(), strict=True))
