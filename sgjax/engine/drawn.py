"""Outputs that are drawn as a whole: what may be asked of them, their weight, their completion.

HOST, no jax. Imports types, tokens and errors.
"""

from sgjax.errors import ConfigError
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.detokenize import OutputText
from sgjax.types import Completion, ExactReport, FinishKind, FinishReason, Request


def check_exact(request: Request) -> None:
    """Refuse what has no meaning for the model's own distribution over whole outputs.

    Raises:
        ConfigError: names what was given.
    """
    params = request.params
    given = {
        "top_p": params.top_p != 1,
        "top_k": params.top_k is not None,
        "min_p": params.min_p != 0,
        "frequency_penalty": params.frequency_penalty != 0,
        "presence_penalty": params.presence_penalty != 0,
        "repetition_penalty": params.repetition_penalty != 1,
        "logit_bias": bool(params.logit_bias),
        "stop": bool(params.stop),
        "stop_token_ids": bool(params.stop_token_ids),
        "logprob_start_len": request.logprob_start is not None,
    }
    refused = [name for name, is_given in given.items() if is_given]
    if refused:
        raise ConfigError(
            f"{', '.join(refused)}: not with grammar.sampler: exact, which draws whole outputs "
            "from the model's own distribution; drop it or use sampler: local"
        )


def log_probability(scored: Completion) -> float:
    """Return the log-probability of all tokens that a request scored."""
    assert scored.input_logprobs is not None
    return sum(entry.logprob for entry in scored.input_logprobs if entry.logprob is not None)


def log_proposal(candidate: Completion) -> float:
    """Return the log-probability with which the local sampler wrote a candidate.

    Tokens that a jump appended could not have been others.
    """
    assert candidate.output_logprobs is not None
    return sum(
        entry.logprob - entry.log_mass
        for entry in candidate.output_logprobs
        if entry.logprob is not None
    )


def completion_of(
    request: Request,
    output: tuple[int, ...],
    tokenizer: Tokenizer,
    hint: Completion,
    scored: Completion,
    report: ExactReport,
    took_s: float,
) -> Completion:
    """Return a drawn output as the answer to a request.

    Args:
        request: what was asked.
        output: the chosen tokens, with the end id that ends them, if one does.
        tokenizer: of the model.
        hint: completion of the prompt alone, which was computed first.
        scored: completion of prompt and output, with the output's log-probabilities.
        report: how it was chosen.
        took_s: seconds from arrival to end; no token is known before.
    """
    matched = output[-1] if output and output[-1] in tokenizer.end_ids else None
    text = OutputText(tokenizer, request.params)
    for token in output:
        text.append(token)
    assert scored.input_logprobs is not None
    return Completion(
        id=request.id,
        text=text.finish(matched),
        output_ids=output,
        prompt_tokens=len(request.tokens),
        cached_tokens=hint.cached_tokens,
        forced_tokens=0,
        finish=FinishReason(FinishKind.STOP, matched),
        input_logprobs=None,
        output_logprobs=scored.input_logprobs[1:] if request.return_logprob else None,
        queued_s=hint.queued_s,
        ttft_s=took_s,
        e2e_s=took_s,
        top_logprobs=request.top_logprobs,
        exact=report,
    )
