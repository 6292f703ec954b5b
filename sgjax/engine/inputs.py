"""From the arguments of `Engine.generate` to requests. Imports types, tokens and errors."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sgjax.errors import ConfigError, SgjaxError
from sgjax.schedule.policies import mix
from sgjax.tokens.base import Tokenizer
from sgjax.types import Reports, Request, SamplingParams


@dataclass(frozen=True)
class Call:
    """One call of `generate`, normalised.

    Attributes:
        batched: whether a list comes back.
        requests: one per output, or the error that refuses it; `n` outputs of a prompt in a row.
        ids: of the requests among them.
    """

    batched: bool
    requests: tuple[Request | SgjaxError, ...]
    ids: tuple[str, ...]


class RequestIds:
    """Number requests, for one engine."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> str:
        """Return a new id."""
        return f"r{next(self._numbers)}"


def read_call(
    tokenizer: Tokenizer,
    ids: RequestIds,
    prompt: object,
    sampling_params: object,
    input_ids: object,
    return_logprob: bool,
    logprob_start_len: int,
    top_logprobs_num: int,
    stream: bool,
) -> Call:
    """Return the requests that a call asks for.

    A prompt or a parameter that is wrong refuses its own request only, where there are several.

    Raises:
        ConfigError: the call as a whole makes no sense, or its only request is refused.
    """
    prompts, batched = _prompts(prompt, input_ids)
    params = _params(sampling_params, len(prompts))
    reports = Reports(return_logprob, logprob_start_len, top_logprobs_num)
    if not isinstance(stream, bool):
        raise ConfigError(f"stream={stream!r} is not allowed; it must be True or False")
    requests: list[Request | SgjaxError] = []
    for one, raw in zip(prompts, params, strict=True):
        try:
            sampling = SamplingParams.from_dict(raw)
            tokens = _tokens(tokenizer, one)
        except SgjaxError as error:
            requests.append(error)
            continue
        for index in range(sampling.n):
            requests.append(
                Request(
                    id=ids.next(),
                    tokens=tokens,
                    params=dataclasses.replace(
                        sampling, n=1, seed=sample_seed(sampling.seed, index)
                    ),
                    constraint=sampling.constraint,
                    return_logprob=reports.return_logprob,
                    logprob_start=reports.logprob_start,
                    top_logprobs=reports.top_logprobs_num,
                    stream=stream,
                )
            )
    first = requests[0] if requests else None
    if isinstance(first, SgjaxError) and not batched:
        raise first
    given = tuple(r.id for r in requests if isinstance(r, Request))
    return Call(batched or len(requests) != 1, tuple(requests), given)


def sample_seed(seed: int | None, index: int) -> int | None:
    """Return the seed of the index-th of n samples: the first is the one the user gave."""
    return seed if seed is None or index == 0 else mix(seed, index)


def _prompts(prompt: object, input_ids: object) -> tuple[list[object], bool]:
    """Return the prompts (a str or a list of ids each) and whether a list was given."""
    if (prompt is None) == (input_ids is None):
        raise ConfigError("give either prompt or input_ids, and not both")
    if prompt is not None:
        if isinstance(prompt, list | tuple):
            return list(prompt), True
        return [prompt], False
    if not isinstance(input_ids, list | tuple):
        raise ConfigError(
            f"input_ids is a {type(input_ids).__name__}; give a list of token ids, or a list of "
            "such lists"
        )
    if input_ids and isinstance(input_ids[0], list | tuple):
        return [list(ids) if isinstance(ids, tuple) else ids for ids in input_ids], True
    return [list(input_ids)], False


def _params(given: object, count: int) -> list[Mapping[str, Any]]:
    if given is None:
        return [{}] * count
    if isinstance(given, Mapping):
        return [given] * count
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(
            f"sampling_params is a {type(given).__name__}; give a dict, or a list of one per prompt"
        )
    if len(given) != count:
        raise ConfigError(
            f"{len(given)} sampling_params for {count} prompts; give one dict, or one per prompt"
        )
    return list(given)


def _tokens(tokenizer: Tokenizer, prompt: object) -> tuple[int, ...]:
    if isinstance(prompt, str):
        if not prompt:
            raise ConfigError("the prompt is an empty string; give it at least one character")
        return tuple(tokenizer.encode(prompt, add_bos=True))
    if not isinstance(prompt, list):
        raise ConfigError(
            f"a prompt is a {type(prompt).__name__}; it must be a string, or a list of token ids "
            "in input_ids"
        )
    if not prompt:
        raise ConfigError("input_ids is empty; give at least one token id")
    for token in prompt:
        if not isinstance(token, Integral) or isinstance(token, bool):
            raise ConfigError(f"input_ids holds {token!r}; token ids are integers")
    return tuple(map(int, prompt))
