"""The language's public functions that make expressions. Imports ir, choices and options."""

from collections.abc import Sequence
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lang import ir
from sgjax.lang.choices import METHODS, ChoicesMethod, token_length_normalized
from sgjax.lang.options import frozen_options


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    stop: str | list[str] | None = None,
    stop_token_ids: list[int] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    dtype: type | None = None,
    choices: list[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: str | dict[str, Any] | None = None,
    n: int | None = None,
) -> ir.Expr:
    """Generate text, append it to the prompt and store it under `name`.

    None means the run's default. With `choices` it is `select`. With `n` samples the variable is a
    list and the first one is appended. The text ends at a stop string, which is not appended.

    Args:
        name: variable; None only appends.
        max_tokens, min_tokens: bounds of the output in tokens.
        stop, stop_token_ids: what ends it, beside the model's end ids.
        temperature, top_p, top_k, min_p, frequency_penalty, presence_penalty: sampling.
        ignore_eos: go on past the model's end ids.
        return_logprob, logprob_start_len, top_logprobs_num: log-probabilities in the meta info.
        dtype: `int`, `float`, `bool` or `str`: the output is such a literal.
        choices, choices_method: see `select`.
        regex, json_schema: the output matches it; at most one of these and `dtype`.
        n: number of samples.

    Raises:
        ConfigError: two constraints were given, `choices_method` without `choices`, or a name that
            is no text.
    """
    _check_name("gen", name)
    constraints = {"regex": regex, "json_schema": json_schema, "dtype": dtype, "choices": choices}
    given = [key for key, value in constraints.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"gen({name!r}): {' and '.join(given)} were given; drop all but one")
    options = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": min_tokens,
        "stop": stop,
        "stop_token_ids": stop_token_ids,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "ignore_eos": ignore_eos,
        "return_logprob": return_logprob,
        "logprob_start_len": logprob_start_len,
        "top_logprobs_num": top_logprobs_num,
        "regex": regex,
        "json_schema": json_schema,
        "n": n,
    }
    if choices is not None:
        _refuse_beside_choices(name, options)
        return select(name, choices, temperature or 0.0, choices_method or token_length_normalized)
    if choices_method is not None:
        raise ConfigError(f"gen({name!r}): choices_method needs choices")
    return ir.Gen(name, frozen_options(options), dtype)


def gen_int(name: str | None = None, **options: Any) -> ir.Expr:
    """Generate an integer literal; takes the arguments of `gen`."""
    return gen(name, dtype=int, **options)


def gen_string(name: str | None = None, **options: Any) -> ir.Expr:
    """Generate a quoted string; takes the arguments of `gen`."""
    return gen(name, dtype=str, **options)


def select(
    name: str | None,
    choices: Sequence[str],
    temperature: float = 0.0,
    choices_method: ChoicesMethod = token_length_normalized,
    append: bool = True,
) -> ir.Expr:
    """Choose one of several texts by the model's probabilities, and store it under `name`.

    Args:
        name: variable; None only appends.
        choices: at least one text, none empty.
        temperature: 0 takes the best; else a choice is drawn from softmax(scores / temperature).
        choices_method: turns log-probabilities into scores.
        append: append the winner to the prompt; False only stores it.

    Raises:
        ConfigError: the name, the choices or the method are not allowed.
    """
    _check_name("select", name)
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise ConfigError(
            f"select({name!r}): choices={choices!r} must be a list of texts, at least one"
        )
    if not isinstance(append, bool):
        raise ConfigError(f"select({name!r}): append={append!r} must be True or False")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise ConfigError(f"select({name!r}): choice {choice!r} must be a text, not empty")
    if not isinstance(choices_method, ChoicesMethod):
        allowed = ", ".join(f"sgl.{method.name}" for method in METHODS)
        raise ConfigError(
            f"select({name!r}): choices_method={choices_method!r} is not allowed; use {allowed}"
        )
    return ir.Select(name, tuple(choices), temperature, choices_method, append)


def system(expr: object) -> ir.Expr:
    """Return a system message."""
    return _message("system", expr)


def user(expr: object) -> ir.Expr:
    """Return a user message."""
    return _message("user", expr)


def assistant(expr: object) -> ir.Expr:
    """Return an assistant message."""
    return _message("assistant", expr)


def system_begin() -> ir.Expr:
    """Begin a system message."""
    return ir.RoleBegin("system")


def system_end() -> ir.Expr:
    """End a system message."""
    return ir.RoleEnd("system")


def user_begin() -> ir.Expr:
    """Begin a user message."""
    return ir.RoleBegin("user")


def user_end() -> ir.Expr:
    """End a user message."""
    return ir.RoleEnd("user")


def assistant_begin() -> ir.Expr:
    """Begin an assistant message."""
    return ir.RoleBegin("assistant")


def assistant_end() -> ir.Expr:
    """End an assistant message."""
    return ir.RoleEnd("assistant")


def image(source: Any) -> ir.Expr:
    """Append an image: a path, the bytes of a file, or a PIL image."""
    return ir.Image(source)


def video(path: str, num_frames: int) -> ir.Expr:
    """Append evenly spaced frames of a video file."""
    if not isinstance(num_frames, int) or num_frames < 1:
        raise ConfigError(f"video: num_frames={num_frames!r} must be an integer >= 1")
    return ir.Video(path, num_frames)


def _check_name(what: str, name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{what}({name!r}): the first argument names a variable; give a text")


def _message(role: str, expr: object) -> ir.Expr:
    return ir.ExprList((ir.RoleBegin(role), ir.as_expr(expr), ir.RoleEnd(role)))


def _refuse_beside_choices(name: str | None, options: dict[str, Any]) -> None:
    useless = [k for k, v in options.items() if v is not None and k != "temperature"]
    if useless:
        raise ConfigError(
            f"gen({name!r}, choices=...) is a select, which takes no {', '.join(useless)}; drop "
            "them, or use regex for a generation among alternatives"
        )
