"""Dotted keys with values, as the command line and a file's `arms` and `quick` give them; sweeps.

Imports typed and `errors`. All of it works on plain data, before an experiment is made of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from sgjax.errors import ConfigError
from sgjax.typed import nearest, say_yaml_error

Override = tuple[str, Any]
"""A dotted key and its value."""
NAMED = {"workloads": "workload", "variants": "variant"}
"""Keys whose own keys are names that the file gives."""
WORKLOAD = "workload."
"""What a swept key of workloads begins with, as in a figure's `x`."""


def parse_override(text: str) -> Override:
    """Read `dotted.key=value`, the value in YAML.

    Raises:
        ConfigError: it is not written so.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"override {text!r} is not allowed; write key=value or a.b=value")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"override {text!r}: the value is not valid YAML: {say_yaml_error(error)}"
        ) from None


def override(data: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """Return data with the values of dotted keys replaced; what was given is not changed.

    It may not be: YAML's anchors make one mapping appear in several places.

    Raises:
        ConfigError: a key reaches into what is no mapping, or into a workload or variant that is
            not there.
    """
    for key, value in overrides:
        parts = key.split(".")
        if not all(parts):
            raise ConfigError(f"override {key!r} is not allowed; write key=value or a.b=value")
        if problem := _unknown_name(data, key):
            raise ConfigError(problem)
        data = _replace(data, parts, value, key)
    return dict(data)


def override_what_is_there(
    data: Mapping[str, Any], overrides: Iterable[Override]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Do as `override`, but pass over keys of workloads and variants that are not there.

    Returns:
        The data, and by key why it was passed over.
    """
    passed_over = {}
    for key, value in overrides:
        if problem := _unknown_name(data, key):
            passed_over[key] = problem
        else:
            data = override(data, [(key, value)])
    return dict(data), passed_over


def sweep(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data without the key `sweep`, and with what it asks for.

    `sweep: {kv_tokens: [1000, 2000]}` adds a variant of every variant for each value, named
    `lru_kv_tokens_1000`; `workload.rate_per_s` does so with workloads. What was there stays.
    Several keys multiply.

    Raises:
        ConfigError: a swept key has no list of values, or a name is taken.
    """
    swept = dict(data)
    for key, values in _flat(swept.pop("sweep", {}), "sweep"):
        kind = "workloads" if key.startswith(WORKLOAD) else "variants"
        objects = swept.get(kind)
        if isinstance(objects, Mapping):
            swept[kind] = _multiplied(objects, key.removeprefix(WORKLOAD), values)
    return swept


def _flat(found: Any, where: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield dotted keys with their lists of values; keys may be nested, as overrides make them."""
    if isinstance(found, Mapping):
        for key, value in found.items():
            for rest, values in _flat(value, f"{where}.{key}"):
                yield f"{key}.{rest}" if rest else str(key), values
    elif isinstance(found, list) and found and where != "sweep":
        yield "", found
    else:
        raise ConfigError(
            f"{where}: got {found!r}; a list of values is needed, as in sweep.kv_tokens=[1, 2]"
        )


def _multiplied(objects: Mapping[str, Any], key: str, values: Sequence[Any]) -> dict[str, Any]:
    more = dict(objects)
    for name, own in objects.items():
        for value in values:
            new = f"{name}_{_word(key.split('.')[-1])}_{_word(value)}"
            if new in more:
                raise ConfigError(f"sweep: the name {new!r} is taken; leave out equal values")
            settings = own if isinstance(own, Mapping) else {}  # if it is none, that is said later
            more[new] = _replace(settings, key.split("."), value, key)
    return more


def _word(value: Any) -> str:
    """Return a value as a part of a name."""
    said = value.get("type", "other") if isinstance(value, Mapping) else value
    return re.sub(r"\W+", "_", str(said)).strip("_")


def _unknown_name(data: Mapping[str, Any], key: str) -> str | None:
    """Return what is wrong with a key that reaches into a workload or variant; None if nothing."""
    kind, *rest = key.split(".")
    found = data.get(kind)
    if kind not in NAMED or len(rest) < 2 or not isinstance(found, Mapping) or rest[0] in found:
        return None
    return (
        f"override {key!r}: there is no {NAMED[kind]} {rest[0]!r}; {nearest(rest[0], list(found))} "
        f"(to add one, give it as a whole: {kind}.{rest[0]}={{...}})"
    )


def _replace(data: Mapping[str, Any], parts: list[str], value: Any, key: str) -> dict[str, Any]:
    head, *rest = parts
    if not rest:
        return {**data, head: value}
    inner = data.get(head, {})
    if not isinstance(inner, Mapping):
        raise ConfigError(f"override {key!r}: {head!r} is {inner!r} and has no keys")
    return {**data, head: _replace(inner, rest, value, key)}
