"""Nodes: what a traced program does, one thing each. Imports ir, choices and options.

A node belongs to a stream; `prev` is its predecessor there (intra-stream edge), `deps` are the
nodes of other streams it needs (inter-stream edges).
"""

from dataclasses import dataclass
from typing import Any, final

from sgjax.lang import ir
from sgjax.lang.choices import METHODS
from sgjax.lang.options import PATTERNS


@dataclass(frozen=True)
class Node:
    """Something a stream does.

    Attributes:
        id: unique in the graph.
        stream: whose prompt it extends.
        prev: the node before it in the stream, None at the stream's start.
        deps: nodes of other streams (or the writer of a fetched variable) it waits for.
    """

    id: int
    stream: int
    prev: int | None
    deps: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Return the name under which JSON and pictures show it."""
        return type(self).__name__

    @property
    def label(self) -> str:
        """Return what a picture shows beside the kind."""
        return ""


@final
@dataclass(frozen=True)
class ConstantText(Node):
    """Append constant text."""

    text: str = ""

    @property
    def label(self) -> str:
        """Return the text, shortened."""
        return repr(self.text if len(self.text) <= 40 else self.text[:37] + "...")


@final
@dataclass(frozen=True)
class Argument(Node):
    """Append an argument of the program; `formatted` turns what is no text into text."""

    name: str = ""
    formatted: bool = False

    @property
    def label(self) -> str:
        """Return the argument's name."""
        return "{" + self.name + "}"


@final
@dataclass(frozen=True)
class Variable(Node):
    """Append a variable of some stream; `deps[0]` is what writes it."""

    source: int = 0
    name: str = ""
    formatted: bool = False

    @property
    def label(self) -> str:
        """Return stream and name."""
        return f"s{self.source}[{self.name!r}]"


@final
@dataclass(frozen=True)
class Gen(Node):
    """Generate; see `ir.Gen`."""

    name: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    dtype: str | None = None

    @property
    def label(self) -> str:
        """Return name and options."""
        return ", ".join([repr(self.name), *(f"{k}={v!r}" for k, v in self.options)])

    def expr(self) -> ir.Gen:
        """Return the expression it executes."""
        dtypes = {kind.__name__: kind for kind in PATTERNS}
        return ir.Gen(self.name, self.options, dtypes[self.dtype] if self.dtype else None)


@final
@dataclass(frozen=True)
class Select(Node):
    """Choose; see `ir.Select`."""

    name: str | None = None
    choices: tuple[str, ...] = ()
    temperature: float = 0.0
    method: str = "token_length_normalized"
    append: bool = True

    @property
    def label(self) -> str:
        """Return name and choices."""
        return f"{self.name!r}, {list(self.choices)}"

    def expr(self) -> ir.Select:
        """Return the expression it executes."""
        methods = {method.name: method for method in METHODS}
        return ir.Select(
            self.name, self.choices, self.temperature, methods[self.method], self.append
        )


@dataclass(frozen=True)
class _OfRole(Node):
    role: str = ""

    @property
    def label(self) -> str:
        """Return the role."""
        return self.role


@final
@dataclass(frozen=True)
class RoleBegin(_OfRole):
    """A chat message begins."""


@final
@dataclass(frozen=True)
class RoleEnd(_OfRole):
    """A chat message ends."""


@dataclass(frozen=True)
class _OfVariable(Node):
    name: str = ""

    @property
    def label(self) -> str:
        """Return the variable."""
        return self.name


@final
@dataclass(frozen=True)
class ScopeBegin(_OfVariable):
    """A variable's text begins."""


@final
@dataclass(frozen=True)
class ScopeEnd(_OfVariable):
    """A variable's text ends."""


@final
@dataclass(frozen=True)
class SetVar(Node):
    """Store a constant (a JSON value)."""

    name: str = ""
    value: Any = None

    @property
    def label(self) -> str:
        """Return name and value."""
        return f"{self.name} = {self.value!r}"


@dataclass(frozen=True)
class _OfMedium(Node):
    path: str | None = None
    argument: str | None = None

    @property
    def label(self) -> str:
        """Return where it comes from."""
        return self.path or "{" + str(self.argument) + "}"


@final
@dataclass(frozen=True)
class Image(_OfMedium):
    """Append an image: a path, or an argument that holds the image."""


@final
@dataclass(frozen=True)
class Video(_OfMedium):
    """Append frames of a video; see `Image`."""

    num_frames: int = 1


@final
@dataclass(frozen=True)
class Fork(Node):
    """Copy the stream; `children` are the copies' streams."""

    children: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Return the number of copies."""
        return str(len(self.children))


@final
@dataclass(frozen=True)
class GetForkItem(Node):
    """A copy begins: the first node of a child's stream; `deps[0]` is the Fork."""

    index: int = 0

    @property
    def label(self) -> str:
        """Return the index."""
        return str(self.index)


@final
@dataclass(frozen=True)
class Join(Node):
    """Copies end; `deps` are their last nodes."""

    children: tuple[int, ...] = ()
    mode: str = "gather_variable"

    @property
    def label(self) -> str:
        """Return the mode."""
        return self.mode


KINDS: dict[str, type[Node]] = {
    kind.__name__: kind
    for kind in (
        ConstantText,
        Argument,
        Variable,
        Gen,
        Select,
        RoleBegin,
        RoleEnd,
        ScopeBegin,
        ScopeEnd,
        SetVar,
        Image,
        Video,
        Fork,
        GetForkItem,
        Join,
    )
}
