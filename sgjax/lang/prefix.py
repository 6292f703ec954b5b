"""The constant prefix of a batch: what all its prompts begin with. Imports ir and ChatFormat.

Found by running the function once on a state that only listens, until it does anything else than
append constant text. Arguments that are equal in all rows are constants.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, final

from sgjax.lang import ir
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
class _Listener:
    """Stands for the prompt state; collects constant text."""

    def __init__(self, chat: ChatFormat) -> None:
        self.text = ""
        self._chat = chat
        self._role: str | None = None

    def __iadd__(self, other: object) -> "_Listener":
        if isinstance(other, _Unknown):
            raise _PrefixEnds
        for expr in ir.flatten(ir.as_expr(other)):
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
        return self

    def system(self, expr: object = None) -> Any:
        return self._message("system", expr)

    def user(self, expr: object = None) -> Any:
        return self._message("user", expr)

    def assistant(self, expr: object = None) -> Any:
        return self._message("assistant", expr)

    def _message(self, role: str, expr: object) -> Any:
        if expr is None:
            return self._block(role)
        self.__iadd__([ir.RoleBegin(role), expr, ir.RoleEnd(role)])
        return None

    @contextmanager
    def _block(self, role: str) -> Iterator[None]:
        self.__iadd__(ir.RoleBegin(role))
        yield
        self.__iadd__(ir.RoleEnd(role))

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
