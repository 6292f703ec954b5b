"""The constant prefix of a batch: what all its prompts begin with. Imports ir and ChatFormat.

Found by running the function once on a state that only listens, until it does anything else than
append constant text. Arguments that are equal in all rows are constants.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self, final

from sgjax.lang import ir
from sgjax.lang.appendable import Appendable
from sgjax.lang.backends.base import ChatFormat


class _PrefixEnds(BaseException):
    """Leave the user's function: no `except Exception` of his may catch it."""


_END = "\ue000…\ue001"
"""Stands for an unknown text inside a formatted one; from the private use area."""


@final
class _Unknown:
    """An argument that differs from row to row: the prefix ends where it is appended or used."""

    def _end(self, *_: object) -> NoReturn:
        raise _PrefixEnds

    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __call__ = __enter__ = _end
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __int__ = __float__ = _end
    __index__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _end

    def __getattr__(self, name: str) -> NoReturn:
        raise _PrefixEnds

    def __str__(self) -> str:
        return _END

    def __format__(self, spec: str) -> str:
        return _END

    def __add__(self, other: object) -> ir.Expr:
        return ir.Text(_END) + other

    def __radd__(self, other: object) -> ir.Expr:
        return ir.as_expr(other) + ir.Text(_END)


@final
class _Listener(Appendable):
    """Stands for the prompt state; collects constant text."""

    def __init__(self, chat: ChatFormat) -> None:
        self.text = ""
        self._chat = chat
        self._role: str | None = None

    def __iadd__(self, other: object) -> Self:
        if isinstance(other, _Unknown):
            raise _PrefixEnds
        return super().__iadd__(other)

    def _append(self, exprs: Sequence[ir.Expr]) -> None:
        for expr in exprs:
            match expr:
                case ir.Text(value=value):
                    known, unknown, _ = value.partition(_END)
                    self.text += known
                    if unknown:
                        raise _PrefixEnds
                case ir.RoleBegin(role=role):
                    self.text += self._chat.role_prefix(role, self._role)
                case ir.RoleEnd(role=role):
                    self.text += self._chat.role_suffix(role)
                    self._role = role
                case _:
                    raise _PrefixEnds

    def __getattr__(self, name: str) -> NoReturn:
        raise _PrefixEnds

    def __getitem__(self, name: str) -> NoReturn:
        raise _PrefixEnds

    def __setitem__(self, name: str, value: object) -> NoReturn:
        raise _PrefixEnds

    def __contains__(self, name: str) -> NoReturn:
        raise _PrefixEnds


def constant_prefix(
    func: Callable[..., Any], rows: Sequence[Mapping[str, Any]], chat: ChatFormat
) -> str:
    """Return text that the prompts of all rows begin with.

    Args:
        func: the user's function; it runs up to the first thing that is not constant text.
        rows: its arguments, at least one mapping.
        chat: how messages become text.
    """
    listener = _Listener(chat)
    try:
        func(listener, **{name: _common(name, rows) for name in rows[0]})
    except _PrefixEnds:
        pass
    except Exception:
        # The function fails on stand-ins; what it appended before is constant all the same.
        pass
    return listener.text


def _common(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    first = rows[0][name]
    if isinstance(first, str | int | float | bool | None) and all(
        name in row and type(row[name]) is type(first) and row[name] == first for row in rows
    ):
        return first
    return _Unknown()
