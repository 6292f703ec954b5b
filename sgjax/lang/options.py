"""Sampling options: a run's defaults, a gen's own, and the parameters they make together.

Imports types, errors and ir.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang.ir import Expr, Gen
from sgjax.types import Reports, SamplingParams

CONSTRAINTS = frozenset({"regex", "json_schema", "dtype"})

PATTERNS: Mapping[type, str] = {
    int: r"[-+]?[0-9]+",
    float: r"[-+]?[0-9]+\.[0-9]+",
    bool: r"(True|False)",
    str: r'"[\w\d\s]*"',
}
"""What `dtype` asks for, as a regex."""

REPORTS = frozenset(field.name for field in dataclasses.fields(Reports))
"""Options that ask for log-probabilities."""

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
        # Numbers without `return_logprob` are for those gens that ask for it themselves.
        reports = self._reports(dict(self._defaults))
        Reports(**{**reports, "return_logprob": reports.get("return_logprob", True)})

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

    def report(self, gen: Gen) -> Reports:
        """Return which log-probabilities a gen reports.

        Raises:
            ConfigError: a value is not allowed, or the gen's own would report nothing.
        """
        run, own = self._reports(dict(self._defaults)), self._reports(dict(gen.options))
        chosen = {**run, **own}
        return Reports(**(chosen if chosen.get("return_logprob") else own))

    @staticmethod
    def _reports(options: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in options.items() if key in REPORTS}

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
        merged["stop"] = (*stops, *(s for s in stop if s not in stops))
        return SamplingParams.from_dict(merged)


def _pattern(dtype: object) -> str:
    if isinstance(dtype, type) and dtype in PATTERNS:
        return PATTERNS[dtype]
    raise ConfigError(f"dtype={dtype!r} is not allowed; it must be int, float, bool or str")


def _freeze(key: str, value: Any) -> Any:
    parts = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    if any(isinstance(part, Expr) for part in parts):
        return value  # a stand-in of a trace, which says so itself
    if key in ("stop", "stop_token_ids", "json_schema"):
        return getattr(SamplingParams.from_dict({key: value}), key)
    try:
        hash(value)
    except TypeError:
        raise ConfigError(f"{key}={value!r} is not allowed; give one value") from None
    return value


def _mix(seed: int, place: tuple[int, ...]) -> int:
    digest = hashlib.blake2b(repr((seed, place)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1
