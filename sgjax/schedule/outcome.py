"""From a finished sequence to its Completion. Imports types and sequence."""

from sgjax.schedule.sequence import Sequence
from sgjax.types import Completion, FinishKind, FinishReason


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
