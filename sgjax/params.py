"""What a user may ask of a generation: sampling parameters, constraints, log-probabilities.

Owns their names, defaults and checks. Imports the standard library and `errors` only.
"""

import dataclasses
import difflib
import enum
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgjax.errors import ConfigError


class ConstraintKind(enum.Enum):
    """The notation a constraint is written in."""

    REGEX = "regex"
    JSON_SCHEMA = "json_schema"
    CHOICES = "choices"


@dataclass(frozen=True)
class Constraint:
    """A pattern the output must match in full; compiled and cached by the engine.

    Attributes:
        kind: the notation of `source`.
        source: the regex, the JSON text of a schema, or the JSON text of a list of choices.
    """

    kind: ConstraintKind
    source: str


@dataclass(frozen=True)
class SamplingParams:
    """How one request samples and when it ends; validated on construction.

    Attributes:
        max_new_tokens: tokens to generate at most, >= 1.
        min_new_tokens: until so many tokens are out, end ids and stop ids are masked and stop
            strings do not end the output.
        stop: strings that end the output when they appear in its text.
        stop_token_ids: ids that end the output, beside the model's own end ids.
        temperature: 0 is greedy; else logits are divided by it, up to 1e6.
        top_p: keep the smallest set of tokens whose probability reaches it, in (0, 1].
        top_k: keep the k likeliest tokens; None keeps all.
        min_p: keep tokens with at least this share of the likeliest one's probability, [0, 1].
        frequency_penalty: subtract it per earlier occurrence in the output.
        presence_penalty: subtract it once for each id that occurred in the output.
        repetition_penalty: divide positive and multiply negative logits of ids seen in prompt or
            output, in [0.01, 100].
        ignore_eos: do not stop at the model's end ids.
        regex: the output matches this pattern in full (`re` syntax).
        json_schema: the output is a JSON text valid under this schema (its JSON text).
        choices: the output is one of these strings.
        logit_bias: (token id, bias) pairs added to the logits.
        seed: the sample's seed, < 2**64; None derives one from the engine's seed and the arrival
            number.
        n: outputs per prompt.
        skip_special_tokens: leave control tokens out of the text.
        no_stop_trim: keep the stop string or stop token's text at the end of the output.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    regex: str | None = None
    json_schema: str | None = None
    choices: tuple[str, ...] | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    n: int = 1
    skip_special_tokens: bool = True
    no_stop_trim: bool = False

    def __post_init__(self) -> None:
        _check_int("max_new_tokens", self.max_new_tokens, low=1)
        _check_int("min_new_tokens", self.min_new_tokens, low=0)
        _check_int("n", self.n, low=1)
        # What a device adds up in float32 must stay finite there.
        _check_float("temperature", self.temperature, low=0.0, high=1e6)
        _check_float("top_p", self.top_p, low=0.0, high=1.0, open_low=True)
        _check_float("min_p", self.min_p, low=0.0, high=1.0)
        _check_float("frequency_penalty", self.frequency_penalty, low=-1e9, high=1e9)
        _check_float("presence_penalty", self.presence_penalty, low=-1e9, high=1e9)
        _check_float("repetition_penalty", self.repetition_penalty, low=0.01, high=100.0)
        if self.top_k is not None:
            _check_int("top_k", self.top_k, low=1)
        if self.seed is not None:
            _check_int("seed", self.seed, low=0)
            _check(self.seed < 2**64, "seed", self.seed, "an integer below 2**64")
        for name in ("ignore_eos", "skip_special_tokens", "no_stop_trim"):
            _check(isinstance(getattr(self, name), bool), name, getattr(self, name), "a bool")
        strings = all(isinstance(s, str) and s for s in self.stop)
        _check(isinstance(self.stop, tuple) and strings, "stop", self.stop, "non-empty strings")
        for stop in self.stop:
            _check(_has_utf8(stop), "stop", stop, "text without lone surrogates")
        for token_id in self.stop_token_ids:
            _check_int("stop_token_ids", token_id, low=0)
        for pair in self.logit_bias:
            _check_int("logit_bias", pair[0], low=0)
            _check_float("logit_bias", pair[1], low=-1e9, high=1e9)
        twice = len({token for token, _ in self.logit_bias}) < len(self.logit_bias)
        _check(not twice, "logit_bias", self.logit_bias, "pairs that name no token id twice")
        for name in ("regex", "json_schema"):
            value = getattr(self, name)
            _check(value is None or isinstance(value, str), name, value, "a string")
        if self.choices is not None:
            ok = bool(self.choices) and all(isinstance(c, str) for c in self.choices)
            _check(ok, "choices", self.choices, "a non-empty list of strings")
        given = [n for n in ("regex", "json_schema", "choices") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ConfigError(
                f"sampling parameters {' and '.join(given)} were given together; a request takes "
                "one constraint, so drop all but one"
            )
        if self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                f"min_new_tokens={self.min_new_tokens} exceeds max_new_tokens="
                f"{self.max_new_tokens}; raise max_new_tokens or lower min_new_tokens"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SamplingParams":
        """Build parameters from what a user wrote.

        Args:
            values: keys of `design: sampling_params`; `stop` may be one string, `logit_bias` a
                mapping, `json_schema` a mapping, a pydantic model or JSON text, `top_k` -1 for
                "all". None means the default.

        Returns:
            The validated parameters.

        Raises:
            ConfigError: a key is unknown (the message names the nearest) or a value is not
                allowed.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"sampling_params must be a dict of options, got {type(values).__name__}"
            )
        known = {f.name for f in dataclasses.fields(cls)}
        out: dict[str, Any] = {}
        for key, value in values.items():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"allowed: {sorted(known)}"
                raise ConfigError(f"unknown sampling parameter {key!r}; {hint}")
            if value is None:
                continue
            if key == "stop":
                texts = "a text or a list of texts"
                value = (value,) if isinstance(value, str) else _as_tuple(key, value, texts)
            elif key in ("stop_token_ids", "choices"):
                value = (value,) if isinstance(value, int) else _as_tuple(key, value)
            elif key == "logit_bias":
                value = _as_pairs(key, value)
            elif key == "json_schema" and isinstance(value, Mapping | type):
                value = _as_json(key, _schema_of(key, value))
            elif key == "top_k" and value == -1:
                continue
            out[key] = value
        return cls(**out)

    @property
    def constraint(self) -> Constraint | None:
        """Return the constraint these parameters ask for, or None."""
        if self.regex is not None:
            return Constraint(ConstraintKind.REGEX, self.regex)
        if self.json_schema is not None:
            return Constraint(ConstraintKind.JSON_SCHEMA, self.json_schema)
        if self.choices is not None:
            return Constraint(ConstraintKind.CHOICES, json.dumps(list(self.choices)))
        return None


@dataclass(frozen=True)
class Reports:
    """Which log-probabilities come back, in a user's words; validated on construction.

    Attributes:
        return_logprob: those of the output tokens.
        logprob_start_len: with it, those of the prompt's tokens from this index on; -1: none.
        top_logprobs_num: with it, how many likeliest alternatives beside each.
    """

    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.return_logprob, bool):
            raise ConfigError(
                f"return_logprob={self.return_logprob!r} is not allowed; it must be True or False"
            )
        for name, none in (("logprob_start_len", -1), ("top_logprobs_num", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < none:
                raise ConfigError(
                    f"{name}={number!r} is not allowed; it must be an integer >= {none}"
                )
            if number > none and not self.return_logprob:
                raise ConfigError(
                    f"{name}={number} reports nothing without return_logprob=True; set it"
                )

    @property
    def logprob_start(self) -> int | None:
        """Return the first prompt index that is reported, or None."""
        return None if self.logprob_start_len < 0 else self.logprob_start_len


def _check(ok: bool, name: str, got: object, allowed: str) -> None:
    if not ok:
        raise ConfigError(f"sampling parameter {name}={got!r} is not allowed; it must be {allowed}")


def _check_int(name: str, value: object, low: int) -> None:
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
    _check(ok, name, value, f"an integer >= {low}")


def _check_float(name: str, value: object, low: float, high: float, open_low: bool = False) -> None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    ok = ok and not (open_low and value == low)
    _check(ok, name, value, f"a number in {'(' if open_low else '['}{low:g}, {high:g}]")


def _has_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _as_tuple(name: str, value: object, allowed: str = "a list") -> tuple[Any, ...]:
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    raise ConfigError(f"sampling parameter {name}={value!r} is not allowed; it must be {allowed}")


def _as_pairs(name: str, value: object) -> tuple[tuple[int, Any], ...]:
    pairs = tuple(value.items()) if isinstance(value, Mapping) else _as_tuple(name, value)
    for pair in pairs:
        ok = isinstance(pair, list | tuple) and len(pair) == 2
        _check(ok, name, pair, "a mapping, or a list of (token id, bias) pairs")
    return tuple((_as_int(name, token), bias) for token, bias in pairs)


def _as_int(name: str, value: object) -> int:
    try:
        # Keys of a JSON object are strings.
        return int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigError(
            f"sampling parameter {name}: {value!r} is no token id; it must be an integer"
        ) from None


def _schema_of(name: str, value: "Mapping[str, Any] | type") -> Mapping[str, Any]:
    if not isinstance(value, type):
        return value
    from pydantic import BaseModel

    if not issubclass(value, BaseModel):
        raise ConfigError(
            f"sampling parameter {name}={value.__name__} is not allowed; give a pydantic model, a "
            "dict or JSON text"
        )
    return value.model_json_schema()


def _as_json(name: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"sampling parameter {name} cannot be written as JSON ({error}); give plain dicts, "
            "lists, strings and numbers"
        ) from None
