"""Between the language's records and those of OpenAI's API. Imports types and the records."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lang.backends.base import (
    ChoiceLogprobs,
    GenCall,
    Media,
    Prompt,
    SelectCall,
    SelectOutput,
)
from sgjax.lang.backends.media import image_part
from sgjax.types import SamplingParams

_TAKEN = frozenset(
    {
        "max_new_tokens",
        "stop",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "seed",
        "n",
        "json_schema",
    }
)
"""Sampling parameters that the API has; any other one must be at its default."""


def generation_arguments(call: GenCall) -> tuple[bool, dict[str, Any]]:
    """Return whether a call goes to the chat API, and the API's arguments.

    Raises:
        UnsupportedBackend: the API cannot do what the call asks for.
        ConfigError: a chat generation stands outside an assistant's message.
    """
    params = call.params
    _refuse_foreign(params)
    if call.logprob_start >= 0 and call.return_logprob:
        raise UnsupportedBackend(
            "logprob_start_len: an API reports no prompt log-probabilities; use sgl.Engine"
        )
    arguments: dict[str, Any] = {
        "max_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "n": params.n,
    }
    if params.stop:
        arguments["stop"] = list(params.stop)
    if params.seed is not None:
        arguments["seed"] = params.seed
    if params.logit_bias:
        arguments["logit_bias"] = {str(token): bias for token, bias in params.logit_bias}
    wants_tokens = call.pieces or call.return_logprob
    chat = bool(call.prompt.messages) or call.prompt.role is not None
    if not chat:
        if params.json_schema is not None or call.prompt.media:
            raise UnsupportedBackend(
                "json_schema and images need the chat API; use sgl.user and sgl.assistant"
            )
        if wants_tokens:
            arguments["logprobs"] = max(1, call.top_logprobs)
        return False, {"prompt": call.prompt.text, **arguments}
    if wants_tokens:
        arguments["logprobs"] = True
        if call.top_logprobs:
            arguments["top_logprobs"] = call.top_logprobs
    if params.json_schema is not None:
        schema = {"name": call.name or "answer", "schema": json.loads(params.json_schema)}
        arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
    return True, {"messages": chat_messages(call.prompt), **arguments}


def chat_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Return a prompt's messages, the assistant's open one being what is asked for."""
    if prompt.role != "assistant":
        raise ConfigError(
            "a chat API generates assistant messages only; write s += sgl.assistant(sgl.gen(...))"
        )
    if prompt.open_text:
        raise UnsupportedBackend(
            f"a chat API cannot continue the message {prompt.open_text!r}; begin the message with "
            "gen, or use @sgl.function(num_api_spec_tokens=...)"
        )
    messages = []
    for index, message in enumerate(prompt.messages):
        media = [each for each in prompt.media if each.message == index]
        messages.append({"role": message["role"], "content": _content(message["content"], media)})
    return messages


def _content(text: str, media: Sequence[Media]) -> Any:
    """Return a message's content: its text, cut where images stand in it."""
    if not media:
        return text
    parts: list[dict[str, Any]] = []
    cuts = [0, *(each.at for each in media), len(text)]
    for place, (start, end) in enumerate(itertools.pairwise(cuts)):
        if end > start:
            parts.append({"type": "text", "text": text[start:end]})
        if place < len(media):
            parts.append(image_part(media[place]))
    return parts


def finish_reason(reason: str | None) -> dict[str, Any]:
    """Return an API's finish reason in the engine's form; which stop matched is not told."""
    if reason == "stop":
        return {"type": "stop", "matched": None}
    return {"type": reason or "stop"}


@dataclass(frozen=True)
class OutputToken:
    """A token of an output, as an API tells it.

    Attributes:
        text: its text.
        logprob: its log-probability, None where it is not told.
        top: (log-probability, text) of the likeliest ones there, best first.
    """

    text: str
    logprob: float | None
    top: tuple[tuple[float, str], ...]


def output_tokens(choice: Any, chat: bool) -> list[OutputToken] | None:
    """Return the tokens of an output or of a piece of it, None where the API did not tell."""
    logprobs = choice.logprobs
    if logprobs is None:
        return None
    if chat:
        return [
            OutputToken(e.token, e.logprob, _best((t.logprob, t.token) for t in e.top_logprobs))
            for e in logprobs.content or ()
        ]
    texts = logprobs.tokens or ()
    values = logprobs.token_logprobs or [None] * len(texts)
    tops = logprobs.top_logprobs or [{}] * len(texts)
    return [
        OutputToken(text, value, _best((lp, other) for other, lp in (top or {}).items()))
        for text, value, top in zip(texts, values, tops, strict=True)
    ]


def logprob_meta(call: GenCall, tokens: Sequence[OutputToken]) -> dict[str, Any]:
    """Return what a call's meta info tells of log-probabilities: as the engine, without ids."""
    if not call.return_logprob:
        return {}
    meta: dict[str, Any] = {"output_token_logprobs": [(t.logprob, None, t.text) for t in tokens]}
    if call.top_logprobs:
        # The completions API adds the token itself where it is not among them.
        meta["output_top_logprobs"] = [
            [(logprob, None, text) for logprob, text in t.top[: call.top_logprobs]] for t in tokens
        ]
    return meta


def _best(entries: Iterable[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    return tuple(sorted(entries, key=lambda entry: -entry[0]))


def refuse_select(call: SelectCall) -> None:
    """Refuse a select that the completions API cannot score.

    Raises:
        UnsupportedBackend: on a chat prompt, or with a method that needs a tokenizer.
    """
    if call.prompt.messages or call.prompt.role is not None:
        raise UnsupportedBackend(
            "select: a chat API gives no log-probabilities of a given text; use sgl.Engine, or ask "
            "for the choice with gen"
        )
    if call.unconditional or call.tokenisations:
        raise UnsupportedBackend(
            "select: an API scores token_length_normalized and greedy_token_selection only; use "
            "one of them, or sgl.Engine"
        )


def echoed_logprobs(call: SelectCall, choices: Sequence[Any]) -> SelectOutput:
    """Return the scores of a select from echoed prompts with log-probabilities.

    The choices' region begins where the first token of any of them leaves the prompt's text.

    Raises:
        UnsupportedBackend: the endpoint does not echo log-probabilities.
    """
    prompt = len(call.prompt.text)
    regions: list[list[tuple[int, float | None]]] = []
    start = prompt
    for choice, text in zip(sorted(choices, key=lambda c: c.index), call.choices, strict=True):
        logprobs = choice.logprobs
        if logprobs is None or not logprobs.tokens or not logprobs.text_offset:
            raise UnsupportedBackend(
                "select: this endpoint does not echo log-probabilities of the prompt; use "
                "sgl.Engine, or ask for the choice with gen"
            )
        places = zip(logprobs.text_offset, logprobs.tokens, logprobs.token_logprobs, strict=True)
        tokens = [
            (offset, offset + len(token), value)
            for offset, token, value in places
            if offset < prompt + len(text)
        ]
        start = min(start, next(begin for begin, end, _ in tokens if end > prompt))
        regions.append([(begin, value) for begin, _, value in tokens])
    scores = []
    for region in regions:
        values = [value for begin, value in region if begin >= start]
        if None in values:
            raise ConfigError("select needs at least one token of prompt before its choices")
        scores.append(ChoiceLogprobs(tuple(float(v) for v in values if v is not None)))
    return SelectOutput(tuple(scores))


def _refuse_foreign(params: SamplingParams) -> None:
    for spec in dataclasses.fields(params):
        if spec.name not in _TAKEN and getattr(params, spec.name) != spec.default:
            raise UnsupportedBackend(
                f"{spec.name}={getattr(params, spec.name)!r}: OpenAI's API has no such parameter; "
                "drop it, or use sgl.Engine"
            )
