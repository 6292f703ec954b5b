"""Appendable: what a user's function may write into a prompt, whoever takes it. Imports ir."""

import abc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from sgjax.lang import ir


class Appendable(abc.ABC):
    """A prompt that runs, is traced, or is only listened to."""

    @abc.abstractmethod
    def _append(self, exprs: Sequence[ir.Expr]) -> None:
        """Take simple expressions in a row."""

    def __iadd__(self, other: object) -> Self:
        """Append text or an expression.

        Raises:
            ConfigError: it is neither.
            ProgramError: the state takes nothing more.
        """
        self._append(list(ir.flatten(ir.as_expr(other))))
        return self

    def system(self, expr: object = None) -> Any:
        """Append a system message, or open one for a `with` block."""
        return self._message("system", expr)

    def user(self, expr: object = None) -> Any:
        """Append a user message, or open one for a `with` block."""
        return self._message("user", expr)

    def assistant(self, expr: object = None) -> Any:
        """Append an assistant message, or open one for a `with` block."""
        return self._message("assistant", expr)

    def var_scope(self, name: str) -> Any:
        """Store the text that is appended inside a `with` block as a variable."""
        return self._block(ir.ScopeBegin(name), ir.ScopeEnd(name))

    def _message(self, role: str, expr: object) -> Any:
        begin, end = ir.RoleBegin(role), ir.RoleEnd(role)
        if expr is None:
            return self._block(begin, end)
        self._append([begin, *ir.flatten(ir.as_expr(expr)), end])
        return None

    @contextmanager
    def _block(self, begin: ir.Expr, end: ir.Expr) -> Iterator[None]:
        self._append([begin])
        yield
        self._append([end])
