"""Sampling options: a run's defaults, a gen's own, and the parameters they make together.

Imports types, errors and ir.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang.ir import Gen
from sgjax.types import SamplingParams

CONSTRAINTS = frozenset({"regex", "json_schema", "dtype"})

PATTERNS: Mapping[type, str] = {
    int: r"[-+]?[0-9]+",
    float: r"[-+]?[0-9]+\.[0-9]+",
    bool: r"(True|False)",
    str: r'"[\w\d\s]*"',
}
"""What `dtype` asks for, as a regex."""

REPORTS = {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0}
"""Options that ask for log-probabilities, with their defaults."""

OPTIONS = frozenset(
    {
        "max_new_tokens",
        "min_new_tokens",
        "stop",
        "stop_token_ids",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "ignore_eos",
        "seed",
        *CONSTRAINTS,
        *REPORTS,
    }
)
"""What `run` takes for the sampling of all of a program's gens."""


def frozen_options(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return options as hashable pairs, without those that are None ("the run's default")."""
    return tuple((k, _freeze(k, v)) for k, v in sorted(values.items()) if v is not None)


@final
class Sampling:
    """A run's sampling defaults.

    Args:
        defaults: keys of `OPTIONS`; None means the library's default.

    Raises:
        ConfigError: a value is not allowed.
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = frozen_options(defaults)
        self._cache: dict[Any, SamplingParams] = {}
        self.seed: int | None = dict(self._defaults).get("seed")
        self.params(Gen(None), (), ())

    def params(self, gen: Gen, stop: tuple[str, ...], place: tuple[int, ...]) -> SamplingParams:
        """Return a gen's parameters.

        Args:
            gen: its options win over the run's; a constraint of its own replaces the run's.
            stop: strings that end the output beside those the options name.
            place: which gen of which stream it is. With a seed in the run, each place gets its own
                draw, so that forks do not repeat one another.
        """
        key = (gen.options, gen.dtype, stop)
        params = self._cache.get(key)
        if params is None:
            params = self._cache[key] = self._merge(gen, stop)
        if params.seed is None:
            return params
        return dataclasses.replace(params, seed=_mix(params.seed, place))

    def report(self, gen: Gen) -> dict[str, Any]:
        """Return which log-probabilities a gen reports: the keys of `REPORTS`."""
        chosen = {**REPORTS, **dict(self._defaults), **dict(gen.options)}
        return {key: chosen[key] for key in REPORTS}

    def _merge(self, gen: Gen, stop: tuple[str, ...]) -> SamplingParams:
        own = dict(gen.options)
        if gen.dtype is not None:
            own["dtype"] = gen.dtype
        merged = dict(self._defaults)
        if CONSTRAINTS & own.keys():
            merged = {k: v for k, v in merged.items() if k not in CONSTRAINTS}
        merged.update(own)
        for key in REPORTS:
            merged.pop(key, None)
        dtype = merged.pop("dtype", None)
        if dtype is not None:
            if CONSTRAINTS & merged.keys():
                raise ConfigError("dtype was given with regex or json_schema; drop all but one")
            merged["regex"] = _pattern(dtype)
        stops = merged.pop("stop", ())
        stops = (stops,) if isinstance(stops, str) else tuple(stops)
        merged["stop"] = (*stops, *(s for s in stop if s not in stops))
        return SamplingParams.from_dict(merged)


def _pattern(dtype: object) -> str:
    if isinstance(dtype, type) and dtype in PATTERNS:
        return PATTERNS[dtype]
    raise ConfigError(f"dtype={dtype!r} is not allowed; it must be int, float, bool or str")


def _freeze(key: str, value: Any) -> Any:
    if key == "json_schema" and isinstance(value, Mapping):
        return json.dumps(value)
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _mix(seed: int, place: tuple[int, ...]) -> int:
    digest = hashlib.blake2b(repr((seed, place)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1
