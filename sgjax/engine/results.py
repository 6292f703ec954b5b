"""From completions to what `Engine.generate` returns. Imports types and tokens."""

import dataclasses
from typing import Any

from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, FinishKind, FinishReason, TokenLogprob

Result = dict[str, Any]


def result_of(completion: Completion, tokenizer: Tokenizer) -> Result:
    """Return the public form of a completion (api.md section 2)."""
    meta: Result = {
        "id": completion.id,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": len(completion.output_ids),
        "cached_tokens": completion.cached_tokens,
        "forced_tokens": completion.forced_tokens,
        "finish_reason": completion.finish.as_dict(),
        "e2e_latency_s": completion.e2e_s,
        "ttft_s": completion.ttft_s,
    }
    if completion.exact is not None:
        meta["exact"] = dataclasses.asdict(completion.exact)
    for side, entries in (
        ("input", completion.input_logprobs),
        ("output", completion.output_logprobs),
    ):
        if entries is not None:
            meta[f"{side}_token_logprobs"] = [
                (e.logprob, e.token_id, tokenizer.decode([e.token_id], skip_special=False))
                for e in entries
            ]
            if completion.top_logprobs:
                meta[f"{side}_top_logprobs"] = [_top(e, tokenizer) for e in entries]
    return {"text": completion.text, "output_ids": list(completion.output_ids), "meta_info": meta}


def refusal(error: Exception) -> Result:
    """Return the result that stands for a refused request of a batch."""
    reason = FinishReason(FinishKind.ABORT, error=error)
    meta = {
        "id": None,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "forced_tokens": 0,
        "finish_reason": reason.as_dict(),
        "e2e_latency_s": 0.0,
        "ttft_s": 0.0,
    }
    return {"text": "", "output_ids": [], "meta_info": meta}


def _top(entry: TokenLogprob, tokenizer: Tokenizer) -> list[tuple[float, int, str]] | None:
    if entry.logprob is None:
        return None
    return [(lp, t, tokenizer.decode([t], skip_special=False)) for lp, t in entry.top]
