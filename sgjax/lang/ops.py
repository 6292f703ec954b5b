"""What a stream executes: expressions, and what only states queue. Imports ir."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgjax.lang import ir

if TYPE_CHECKING:
    from sgjax.lang.stream import Stream


@dataclass(frozen=True)
class ForkOp:
    """Children start from the stream's state here."""

    children: list["Stream"]


@dataclass(frozen=True)
class JoinOp:
    """Children end; their variables or their texts come back.

    Attributes:
        children: in the order of the fork.
        gather: take variables; else append texts.
    """

    children: list["Stream"]
    gather: bool


@dataclass(frozen=True)
class FetchOp:
    """Append a variable of another stream, once it is there.

    Attributes:
        source: whose variable.
        name: the variable.
        number: the expression of `source` that decides its value.
        formatted: append `str(value)`; else the value as `+=` would.
    """

    source: "Stream"
    name: str
    number: int
    formatted: bool


Op = ir.Expr | ForkOp | JoinOp | FetchOp


def fail_forks(ops: Sequence[Op], error: BaseException) -> None:
    """Fail the children of forks that will never be executed."""
    for op in ops:
        if isinstance(op, ForkOp):
            for child in op.children:
                child.fail(error)


def describe(op: Op | None) -> str:
    match op:
        case ir.Gen(name=name):
            return f"gen({name!r})"
        case ir.Select(name=name):
            return f"select({name!r})"
        case JoinOp():
            return "join()"
        case FetchOp(name=name):
            return f"the use of {name!r}"
        case None:
            return ""
        case _:
            return type(op).__name__
