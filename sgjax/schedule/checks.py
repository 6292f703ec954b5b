"""Limits of an engine, and the check of a request against them. Imports types, cache and errors.

What is wrong with a request whatever its neighbours are is found here, before it is enqueued;
later only the pool can fail it.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from sgjax.cache import Keys
from sgjax.errors import ConfigError, PromptTooLong, UnsupportedBackend
from sgjax.types import MAX_TOP_LOGPROBS, Request, Wants


@dataclass(frozen=True)
class Limits:
    """What one step and one sequence may take.

    Attributes:
        max_running: sequences that hold pages at once.
        token_budget: new tokens a step, padding to `block_tokens` counted.
        block_tokens: an extend of n > 1 tokens is charged as ceil(n / block) blocks, because the
            executor cuts it so.
        max_context_len: prompt and output tokens of one sequence.
        vocab_size: ids from 0 to below it are tokens; by default all that fit into int32.
        logprobs: whether the executor can say how likely a token is.
        top_logprobs: how many alternatives it can name beside a token.
    """

    max_running: int
    token_budget: int
    block_tokens: int
    max_context_len: int
    vocab_size: int = 2**31
    logprobs: bool = True
    top_logprobs: int = MAX_TOP_LOGPROBS

    def charge(self, num_tokens: int) -> int:
        """Return what so many new tokens of one sequence take of the budget."""
        blocks = -(-num_tokens // self.block_tokens)
        return 1 if num_tokens == 1 else blocks * self.block_tokens


def check_request(request: Request, keys: Keys, limits: Limits, capacity: int) -> None:
    """Verify that a request could run if it were alone.

    Args:
        request: what is asked.
        keys: its tokens, i64[n].
        limits: of the engine.
        capacity: tokens the K/V pool holds.

    Raises:
        PromptTooLong: the prompt leaves no room for a token in the context or in the pool.
        ConfigError: an empty prompt, a token id that is not in the vocabulary, or
            log-probabilities that cannot be reported.
        UnsupportedBackend: it asks for what this engine does not do.
    """
    length, start, params = len(request.tokens), request.logprob_start, request.params
    if length == 0:
        raise ConfigError("the prompt is empty; give it at least one token")
    if request.media:
        raise UnsupportedBackend("this engine takes no images or video; use a text prompt")
    if start is not None and not 0 <= start < length:
        raise ConfigError(
            f"logprob_start_len={start} is outside the prompt of {length} tokens; allowed: 0 to "
            f"{length - 1}"
        )
    if request.wants is Wants.LOGPROBS and start is None:
        raise ConfigError("a request that wants log-probabilities must say logprob_start")
    scores = request.wants is Wants.LOGPROBS
    if not limits.logprobs and (scores or request.return_logprob or start is not None):
        asked = "scores of a text, as select needs them" if scores else "log-probabilities"
        raise UnsupportedBackend(
            f"the request wants {asked}, but this engine has no model to take them from; allowed: "
            "requests for tokens alone. Leave them out, run on executor: {type: jax}, or let every "
            "log-probability be 0 (select then takes its first choice): "
            "executor: {type: sim, logprobs: zero}"
        )
    if not 0 <= request.top_logprobs <= limits.top_logprobs:
        raise ConfigError(
            f"top_logprobs_num={request.top_logprobs} is not allowed; at most "
            f"{limits.top_logprobs} alternatives are reported beside a token"
        )
    if keys.min() < 0 or keys.max() >= limits.vocab_size:
        _check_ids("the prompt", keys.tolist(), limits.vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, limits.vocab_size)
    _check_ids("logit_bias", [token for token, _ in params.logit_bias], limits.vocab_size)
    new = 1 if request.wants is Wants.TOKENS else 0
    for limit, name, remedy in (
        (limits.max_context_len, "max_context_len", "shorten the prompt"),
        (capacity, "the K/V pool (kv_tokens)", "raise kv_tokens or shorten the prompt"),
    ):
        if length + new > limit:
            raise PromptTooLong(
                f"the prompt has {length} tokens, but {name} is {limit}"
                f"{' and one token must be generated' if new else ''}; {remedy}"
            )


def prompt_keys(request: Request, limits: Limits) -> Keys:
    """Return a request's tokens as an array, i64[n].

    Raises:
        ConfigError: a token id is not in the vocabulary; not all such are found here.
    """
    try:
        return np.asarray(request.tokens, np.int64)
    except OverflowError:
        _check_ids("the prompt", request.tokens, limits.vocab_size)
        raise


def _check_ids(name: str, ids: Collection[int], vocab_size: int) -> None:
    if len(ids) and not (min(ids) >= 0 and max(ids) < vocab_size):
        wrong = next(token for token in ids if not 0 <= token < vocab_size)
        raise ConfigError(
            f"{name} names token id {wrong}, which the model does not have; allowed: 0 to "
            f"{vocab_size - 1}"
        )
