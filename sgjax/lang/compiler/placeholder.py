"""Placeholders: stand for values that are not known while a program is traced. Imports ir, errors.

A placeholder can be appended, added to text and formatted into it. Everything else would make the
trace depend on data; it is refused with the line that did it.
"""

import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, final

from sgjax.errors import ProgramError
from sgjax.lang import ir

_OWN = str(Path(__file__).parents[1])
_MARK = re.compile("\ue000sGx([0-9]+)Xgs\ue001")
_REMAINS = re.compile("[\ue000\ue001]")


@final
class Placeholder(ir.Expr):
    """A value of later.

    Args:
        what: shown in messages: "argument 'x'", "variable 'y'".
        ref: what the tracer knows it by.
        mark: text that stands for it inside formatted text.
    """

    def __init__(self, what: str, ref: Any, mark: str) -> None:
        super().__init__()
        for name, value in (("what", what), ("ref", ref), ("mark", mark)):
            object.__setattr__(self, name, value)

    what: str
    ref: Any
    mark: str

    def __str__(self) -> str:
        return self.mark

    def __format__(self, spec: str) -> str:
        return self.mark if not spec else self.refuse(f"is formatted with {spec!r}")

    def __repr__(self) -> str:
        return f"<{self.what}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse(f"is asked for .{name}")

    def refuse(self, how: str) -> NoReturn:
        """Raise the error of a use that would need the value."""
        raise ProgramError(
            f"{user_line()}: {self.what} {how}, but its value is not known while tracing; a graph "
            "has no control flow that depends on data: pass the value to trace or bind, or run the "
            "program instead of compiling it"
        )


def _refusing(how: str) -> Callable[..., NoReturn]:
    def method(self: Placeholder, *_: object) -> NoReturn:
        self.refuse(how)

    return method


for _names, _how in (
    (("__bool__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), "decides a branch"),
    (("__iter__", "__len__", "__contains__", "__getitem__"), "is looked into"),
    (("__int__", "__float__", "__index__"), "is used as a number"),
    (("__mul__", "__rmul__", "__mod__", "__rmod__", "__call__", "__hash__"), "is computed with"),
):
    for _name in _names:
        setattr(Placeholder, _name, _refusing(_how))


@final
class Marks:
    """Give out marks, and find placeholders by their marks in text."""

    def __init__(self) -> None:
        self._placeholders: list[Placeholder] = []

    def placeholder(self, what: str, ref: Any) -> Placeholder:
        """Return a new placeholder."""
        new = Placeholder(what, ref, f"\ue000sGx{len(self._placeholders)}Xgs\ue001")
        self._placeholders.append(new)
        return new

    def split(self, text: str) -> Iterator[str | Placeholder]:
        """Yield the constant texts and placeholders of which a formatted text is made.

        Raises:
            ProgramError: a mark was changed by a function of text.
        """
        at = 0
        for found in _MARK.finditer(text):
            if found.start() > at:
                yield _whole(text[at : found.start()])
            yield self._placeholders[int(found[1])]
            at = found.end()
        if at < len(text):
            yield _whole(text[at:])

    def refuse_in(self, value: Any, where: str) -> None:
        """Refuse a placeholder, or its mark, in something that must be constant.

        Raises:
            ProgramError: there is one.
        """
        if isinstance(value, Placeholder):
            value.refuse(f"is {where}")
        if isinstance(value, str):
            for part in self.split(value):
                if isinstance(part, Placeholder):
                    part.refuse(f"is {where}")
        elif isinstance(value, tuple | list):
            for item in value:
                self.refuse_in(item, where)


def user_line() -> str:
    """Return file and line of the innermost frame outside the language."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def failed_line(error: BaseException) -> str:
    """Return file and line of the innermost frame outside the language that an error left."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if not f.filename.startswith(_OWN)), frames[-1])
    return f"{last.filename}:{last.lineno}"


def _whole(text: str) -> str:
    if _REMAINS.search(text):
        raise ProgramError(
            f"{user_line()}: a text that holds an argument or a variable was cut or changed, but "
            "its value is not known while tracing; pass the value to trace or bind"
        )
    return text
