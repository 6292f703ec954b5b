"""Plain data (YAML, dicts) to frozen dataclasses, with errors a person can act on.

Owns the one place where pydantic validates; below it nothing sees a dict. Imports pydantic, yaml
and `errors`. A variant is a dataclass with a `type: Literal[...]` field, a choice among variants
is a tagged union over `type`. Unknown keys are errors that name the nearest valid key.
"""

import dataclasses
import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sgjax.errors import ConfigError

T = TypeVar("T")

FORBID_EXTRA = ConfigDict(extra="forbid", strict=False, allow_inf_nan=False)
"""Set as `__pydantic_config__` on every dataclass that YAML may fill."""


def validate(kind: type[T], data: object, where: str) -> T:
    """Build a frozen dataclass (or tagged union of them) from plain data.

    Args:
        kind: the dataclass or annotated union to build.
        data: mappings, lists and scalars, as YAML gives them.
        where: what the data is, for error messages ("engine config", a file name).

    Returns:
        An instance of `kind`.

    Raises:
        ConfigError: with one line per problem: place, value, what is allowed, nearest key.
    """
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        problems = [_explain(kind, dict(e)) for e in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(dict.fromkeys(problems))) from None


def refuse_negative(**values: float | None) -> None:
    """Refuse a setting that is below 0; None is none.

    Args:
        values: settings by name.

    Raises:
        ConfigError: one is negative.
    """
    for name, value in values.items():
        if value is not None and value < 0:
            raise ConfigError(f"{name}={value} is negative; allowed: 0 or more")


def load_yaml(path: Path) -> Any:
    """Read one YAML file.

    Raises:
        ConfigError: the file is missing or is no YAML; the message says where.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {say_yaml_error(error)}") from None


class _Loader(yaml.SafeLoader):
    """Refuse keys that stand twice in a mapping: the first would be lost without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


def say_yaml_error(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    problem = getattr(error, "problem", None) or getattr(error, "context", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def nearest(key: str, allowed: list[str]) -> str:
    """Return a hint that names the nearest allowed key, or all of them."""
    near = difflib.get_close_matches(key, allowed, n=1)
    return f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(sorted(allowed))}"


def _explain(kind: Any, error: dict[str, Any]) -> str:
    # Pydantic puts the tag of a union into the location; keep it for finding the class, and show
    # the user the keys he wrote.
    location = [str(part) for part in error["loc"]]
    owner, shown = _walk(kind, location)
    place = ".".join(shown) or "the top level"
    if error["type"] == "unexpected_keyword_argument":
        fields = [f.name for f in dataclasses.fields(owner)] if owner else []
        return f"unknown key {place!r}; {nearest(location[-1], fields)}"
    if error["type"] == "missing":
        return f"missing key {place!r}"
    if error["type"] == "union_tag_invalid":
        tag, allowed = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        names = [name.strip(" '") for name in allowed.split(",")]
        return f"{place}: unknown type {tag!r}; {nearest(tag, names)}"
    if error["type"] in ("union_tag_not_found", "model_attributes_type"):
        given = error["input"]
        example = f", as {{type: {given}}}" if isinstance(given, str) else ""
        return f"{place}: got {given!r}, but an object with a 'type' key is needed{example}"
    if error["type"] == "value_error":  # one of our own, which names key, value and remedy
        said = str(error["ctx"]["error"])
        return f"{place}: {said}" if shown else said
    needed = {"tuple_type": "a list is needed, as in [1, 2]", "dict_type": "a mapping is needed"}
    return f"{place}: got {error['input']!r}; {needed.get(error['type'], error['msg'])}"


def _walk(kind: Any, location: list[str]) -> tuple[Any, list[str]]:
    """Follow an error's location; return the dataclass that owns its last key, and the keys."""
    shown: list[str] = []
    owner: Any = None
    current: Any = kind
    for part in location:
        if get_origin(current) is dict:
            shown.append(part)
            current = get_args(current)[1]
            continue
        options = _dataclasses_in(current)
        tagged = [c for c in options if _tag_of(c) == part]
        if tagged and len(options) > 1:
            current = tagged[0]
            continue
        shown.append(part)
        owner = options[0] if len(options) == 1 else None
        types = {f.name: f.type for f in dataclasses.fields(owner)} if owner else {}
        current = types.get(part, current if part.isdigit() else None)
    return owner, shown


def _dataclasses_in(kind: Any) -> list[Any]:
    if dataclasses.is_dataclass(kind):
        return [kind]
    return [c for arg in get_args(kind) for c in _dataclasses_in(arg)]


def _tag_of(kind: Any) -> str | None:
    for f in dataclasses.fields(kind):
        if f.name == "type":
            values = get_args(f.type)
            return str(values[0]) if values else None
    return None
