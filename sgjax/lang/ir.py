"""The language's expressions: what `s += ...` takes. Imports errors only.

An expression is plain frozen data. The interpreter executes it on a stream, the tracer records it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sgjax.errors import ConfigError

if TYPE_CHECKING:
    from sgjax.lang.choices import ChoicesMethod

_IDS = itertools.count()


@dataclass(frozen=True)
class Expr:
    """Something that can be appended to a prompt; `+` puts expressions in a row.

    Attributes:
        id: unique in this process, whatever the kind of expression.
    """

    id: int = field(default_factory=lambda: next(_IDS), init=False, compare=False, repr=False)

    def __add__(self, other: object) -> "ExprList":
        return ExprList((self, as_expr(other)))

    def __radd__(self, other: object) -> "ExprList":
        return ExprList((as_expr(other), self))


@dataclass(frozen=True)
class ExprList(Expr):
    """Expressions in a row."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Text(Expr):
    """Constant text."""

    value: str


@dataclass(frozen=True)
class Gen(Expr):
    """Generate text, append it and store it.

    Attributes:
        name: the variable; None only appends.
        options: sampling parameters by their `SamplingParams` names; what is absent is the run's.
        dtype: `int`, `float`, `bool` or `str`: the text is the literal of such a value.
    """

    name: str | None
    options: tuple[tuple[str, Any], ...] = ()
    dtype: type | None = None


@dataclass(frozen=True)
class Select(Expr):
    """Choose one of several texts by the model's probabilities.

    Attributes:
        name: the variable; None only appends.
        choices: at least one, none empty.
        temperature: 0 takes the best; else a choice is drawn from softmax(scores / temperature).
        method: how choices are scored.
        append: append the winner to the prompt, or only store it.
    """

    name: str | None
    choices: tuple[str, ...]
    temperature: float
    method: "ChoicesMethod"
    append: bool = True


@dataclass(frozen=True)
class RoleBegin(Expr):
    """A chat message begins."""

    role: str


@dataclass(frozen=True)
class RoleEnd(Expr):
    """The open chat message ends."""

    role: str


@dataclass(frozen=True)
class ScopeBegin(Expr):
    """Text from here on becomes a variable."""

    name: str


@dataclass(frozen=True)
class ScopeEnd(Expr):
    """The variable's text ends."""

    name: str


@dataclass(frozen=True)
class SetVar(Expr):
    """Store a value without appending it."""

    name: str
    value: Any


@dataclass(frozen=True)
class Image(Expr):
    """An image: a path, the file's bytes, or a PIL image."""

    source: Any


@dataclass(frozen=True)
class Video(Expr):
    """A video file, of which `num_frames` evenly spaced frames are taken."""

    path: str
    num_frames: int


def as_expr(value: object) -> Expr:
    """Return what may stand on the right of `s +=` as an expression.

    Raises:
        ConfigError: it is neither text nor an expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, list | tuple):
        return ExprList(tuple(as_expr(part) for part in value))
    raise ConfigError(
        f"a {type(value).__name__} was appended to a prompt: {value!r}; append text, an expression "
        "such as sgl.gen(...), or a list of them"
    )


def flatten(expr: Expr) -> Iterator[Expr]:
    """Yield the simple expressions of a row, left to right."""
    if isinstance(expr, ExprList):
        for part in expr.parts:
            yield from flatten(part)
    else:
        yield expr


def written_by(expr: Expr) -> str | None:
    """Return the variable that a simple expression sets, or None."""
    match expr:
        case Gen(name=name) | Select(name=name) | ScopeEnd(name=name) | SetVar(name=name):
            return name
        case _:
            return None
