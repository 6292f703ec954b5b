"""Expectations: comparisons such as `full.accuracy >= 1.2 * fcfs.accuracy`, parsed, never evaled.

Imports `errors`. The language is Python's comparison chains over numbers, + - * /, parentheses
and `variant.metric`, judged on each workload; or, judged once, over `workload.variant.metric` or
`mean(variant.metric)`, the mean over all workloads. Everything else is refused when the experiment
is loaded.
"""

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sgjax.errors import ConfigError


class Name(NamedTuple):
    """What an expectation calls a value.

    Attributes:
        variant, metric: whose, and of what.
        workload: on which; None on each in turn, or on all where means are asked for.
    """

    variant: str
    metric: str
    workload: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.workload, self.variant, self.metric) if part)


Value = float | str
Lookup = Callable[[Name], Value | None]
"""Give a value (the median over its runs), or None where it was not measured.

Where means are asked for, it gives those.
"""

ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Value, Value], bool]]] = {
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}


@dataclass(frozen=True)
class Expectation:
    """A comparison that a claim implies.

    Attributes:
        source: as written.
        tree: the parsed comparison.
        names: the values it reads.
    """

    source: str
    tree: ast.Compare
    names: tuple[Name, ...]

    @property
    def on_means(self) -> bool:
        """Return whether it is about means over all workloads."""
        return any(isinstance(node, ast.Call) for node in ast.walk(self.tree))

    @property
    def on_each(self) -> bool:
        """Return whether it is judged on each workload, not once."""
        return not self.on_means and not any(name.workload for name in self.names)

    @property
    def only_equates(self) -> bool:
        """Return whether it compares bare values by == and !=, as texts allow."""
        sides = (self.tree.left, *self.tree.comparators)
        return all(isinstance(side, ast.Attribute) for side in sides) and all(
            isinstance(op, ast.Eq | ast.NotEq) for op in self.tree.ops
        )


@dataclass(frozen=True)
class Verdict:
    """Whether an expectation holds.

    Attributes:
        source: the expectation as written.
        holds: None where a value that it needs was not measured.
        detail: the comparison with the measured values in place.
    """

    source: str
    holds: bool | None
    detail: str

    @property
    def word(self) -> str:
        """Return the verdict in words."""
        return {True: "holds", False: "does not hold", None: "not measured"}[self.holds]


def parse_expectation(source: str) -> Expectation:
    """Parse one expectation.

    Raises:
        ConfigError: it is no comparison, or uses more than the small language.
    """
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ConfigError(f"expect: {source!r} is no expression: {error.msg}") from None
    if not isinstance(tree, ast.Compare):
        raise ConfigError(
            f"expect: {source!r} compares nothing; write a comparison such as "
            "'full.accuracy >= 0.9 * plain.accuracy'"
        )
    names = [name for side in (tree.left, *tree.comparators) for name in _names(side, source)]
    for op in tree.ops:
        if type(op) not in COMPARISONS:
            raise _refused(source, op)
    expectation = Expectation(source, tree, tuple(dict.fromkeys(names)))
    means = sum(isinstance(node, ast.Call) for node in ast.walk(tree))
    chosen = sum(name.workload is not None for name in names)
    if not {means, chosen} <= {0, len(names)}:
        raise ConfigError(
            f"expect: {source!r} mixes means, values of a workload and values of each; compare "
            "like with like"
        )
    return expectation


def judge(expectation: Expectation, lookup: Lookup) -> Verdict:
    """Decide whether an expectation holds for measured values."""
    missing = [str(name) for name in expectation.names if lookup(name) is None]
    if missing:
        return Verdict(expectation.source, None, f"no value of {', '.join(missing)}")
    tree = expectation.tree
    try:
        sides = [_value(side, lookup) for side in (tree.left, *tree.comparators)]
    except ZeroDivisionError:
        return Verdict(expectation.source, None, "division by zero")
    holds, detail = True, _show(sides[0])
    for op, left, right in zip(tree.ops, sides, sides[1:], strict=False):
        symbol, compare = COMPARISONS[type(op)]
        holds = holds and compare(left, right)
        detail += f" {symbol} {_show(right)}"
    return Verdict(expectation.source, holds, detail)


def _names(node: ast.expr, source: str) -> list[Name]:
    match node:
        case ast.Attribute() if (name := _name(node)) is not None:
            return [name]
        case ast.Call(func=ast.Name(id="mean"), args=[ast.Attribute() as inner], keywords=[]):
            if (name := _name(inner)) is not None and name.workload is None:
                return [name]
        case ast.Constant(value=bool()):
            raise _refused(source, node)
        case ast.Constant(value=int() | float()):
            return []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return _names(left, source) + _names(right, source)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _names(operand, source)
    raise _refused(source, node)


def _name(node: ast.Attribute) -> Name | None:
    match node:
        case ast.Attribute(value=ast.Name(id=variant), attr=metric):
            return Name(variant, metric)
        case ast.Attribute(
            value=ast.Attribute(value=ast.Name(id=workload), attr=variant), attr=metric
        ):
            return Name(variant, metric, workload)
    return None


def _value(node: ast.expr, lookup: Lookup) -> Value:
    match node:
        case ast.Attribute():
            name = _name(node)
            assert name is not None
            value = lookup(name)
            assert value is not None
            return value
        case ast.Call(args=[inner]):
            return _value(inner, lookup)
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](_number(left, lookup), _number(right, lookup))
        case ast.UnaryOp(operand=operand):
            return -_number(operand, lookup)
    raise AssertionError(ast.dump(node))


def _number(node: ast.expr, lookup: Lookup) -> float:
    value = _value(node, lookup)
    assert not isinstance(value, str)
    return value


def _show(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _refused(source: str, node: ast.AST) -> ConfigError:
    what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    return ConfigError(
        f"expect: {source!r} uses {what!r}; allowed are numbers, + - * /, parentheses, "
        "comparisons, variant.metric, workload.variant.metric and mean(variant.metric)"
    )
