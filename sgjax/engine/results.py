"""From what a call's requests hear to what `Engine.generate` returns.

HOST, no jax. Imports inputs, types and tokens.
"""

import dataclasses
from typing import Any

from sgjax.engine.inputs import Call
from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, Delta, FinishKind, FinishReason, Request, TokenLogprob

Result = dict[str, Any]


class Results:
    """The results of one call while they come in.

    Args:
        call: what was asked.
        tokenizer: of the model.

    Attributes:
        alive: requests that have not ended.
    """

    def __init__(self, call: Call, tokenizer: Tokenizer) -> None:
        self.alive = len(call.requests)
        self._call = call
        self._tokenizer = tokenizer
        self._ended: list[Result] = [{} for _ in call.requests]
        self._texts = [""] * len(call.requests)
        self._ids: list[list[int]] = [[] for _ in call.requests]

    def hear(self, index: int, heard: Delta | Exception) -> Result:
        """Take in what a request heard.

        Returns:
            Its result so far, or the last one; of several, with the request's `index` in the call.

        Raises:
            Exception: the call's only request failed with it.
        """
        place = {"index": index} if self._call.batched else {}
        if isinstance(heard, Delta) and heard.completion is None:
            return {**self._so_far(index, heard), **place}
        self.alive -= 1
        self._ended[index] = self._last(heard)
        return {**self._ended[index], **place}

    def whole(self) -> Result | list[Result]:
        """Return the last result of each request, in order; the only one alone."""
        return self._ended if self._call.batched else self._ended[0]

    def _so_far(self, index: int, delta: Delta) -> Result:
        request = self._call.requests[index]
        assert isinstance(request, Request)
        self._texts[index] += delta.text
        self._ids[index] = [*self._ids[index][: delta.start], *delta.token_ids]
        meta = {
            "id": delta.id,
            "prompt_tokens": len(request.tokens),
            "completion_tokens": len(self._ids[index]),
            "finish_reason": None,
        }
        return {"text": self._texts[index], "output_ids": self._ids[index], "meta_info": meta}

    def _last(self, heard: Delta | Exception) -> Result:
        error: Exception | None = heard if isinstance(heard, Exception) else None
        completion = heard.completion if isinstance(heard, Delta) else None
        if completion is not None and completion.finish.kind is FinishKind.ABORT:
            error = completion.finish.error
        if error is not None and not self._call.batched:
            raise error
        if completion is None:
            assert error is not None
            return refusal(error)
        return result_of(completion, self._tokenizer)


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
