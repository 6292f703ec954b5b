"""What a scheduler refuses at the door. Imports types and errors."""

from sgjax.errors import ConfigError, PromptTooLong, UnsupportedBackend
from sgjax.types import Request, Wants


def check_request(request: Request, max_context_len: int, capacity_tokens: int) -> None:
    """Refuse a request that could never run.

    Args:
        request: what was asked.
        max_context_len: tokens of one sequence.
        capacity_tokens: tokens the whole K/V pool holds.

    Raises:
        PromptTooLong: the prompt leaves no room for a token in the context or in the pool.
        ConfigError: an empty prompt or a logprob_start outside it.
        UnsupportedBackend: media or a constraint, where there is nothing that honours it.
    """
    length, start = len(request.tokens), request.logprob_start
    if length == 0:
        raise ConfigError("the prompt is empty; give it at least one token")
    if request.media:
        raise UnsupportedBackend("this engine takes no images or video; use a text prompt")
    if request.constraint is not None:
        raise UnsupportedBackend("this engine has no grammar; drop regex, json_schema, choices")
    if start is not None and not 0 <= start < length:
        raise ConfigError(
            f"logprob_start={start} is outside the prompt of {length} tokens; allowed: 0 to "
            f"{length - 1}"
        )
    new = 1 if request.wants is Wants.TOKENS else 0
    for limit, name, remedy in (
        (max_context_len, "max_context_len", "shorten the prompt"),
        (capacity_tokens, "the K/V pool (kv_tokens)", "raise kv_tokens or shorten the prompt"),
    ):
        if length + new > limit:
            raise PromptTooLong(
                f"the prompt has {length} tokens, but {name} is {limit}"
                f"{' and one token must be generated' if new else ''}; {remedy}"
            )
