"""Graph: a traced program as data (paper appendix D.1). Imports ir, choices and errors.

A node belongs to a stream; `prev` is its predecessor there (intra-stream edge), `deps` are the
nodes of other streams it needs (inter-stream edges). Nodes stand in an order in which they can be
executed.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from sgjax.errors import ConfigError
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


@final
@dataclass(frozen=True)
class RoleBegin(Node):
    """A chat message begins."""

    role: str = ""

    @property
    def label(self) -> str:
        """Return the role."""
        return self.role


@final
@dataclass(frozen=True)
class RoleEnd(Node):
    """A chat message ends."""

    role: str = ""

    @property
    def label(self) -> str:
        """Return the role."""
        return self.role


@final
@dataclass(frozen=True)
class ScopeBegin(Node):
    """A variable's text begins."""

    name: str = ""

    @property
    def label(self) -> str:
        """Return the variable."""
        return self.name


@final
@dataclass(frozen=True)
class ScopeEnd(Node):
    """A variable's text ends."""

    name: str = ""

    @property
    def label(self) -> str:
        """Return the variable."""
        return self.name


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


@final
@dataclass(frozen=True)
class Image(Node):
    """Append an image: a path, or an argument that holds the image."""

    path: str | None = None
    argument: str | None = None

    @property
    def label(self) -> str:
        """Return where it comes from."""
        return self.path or "{" + str(self.argument) + "}"


@final
@dataclass(frozen=True)
class Video(Node):
    """Append frames of a video; see `Image`."""

    path: str | None = None
    argument: str | None = None
    num_frames: int = 1

    @property
    def label(self) -> str:
        """Return where it comes from."""
        return self.path or "{" + str(self.argument) + "}"


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


@final
@dataclass(frozen=True)
class Graph:
    """A program as a graph.

    Attributes:
        name: of the program.
        arguments: names of its arguments, in order.
        defaults: (name, value) of arguments that may be left out.
        streams: name of each stream, by its number; 0 is the program's own.
        nodes: in an executable order.
    """

    name: str
    arguments: tuple[str, ...]
    defaults: tuple[tuple[str, Any], ...]
    streams: tuple[str, ...]
    nodes: tuple[Node, ...]

    def stream_nodes(self, stream: int) -> list[Node]:
        """Return a stream's nodes in order."""
        return [node for node in self.nodes if node.stream == stream]

    def edges(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (from, to, within one stream)."""
        for node in self.nodes:
            if node.prev is not None:
                yield node.prev, node.id, True
            for dep in node.deps:
                yield dep, node.id, False

    def check(self) -> None:
        """Verify that the nodes stand in an executable order.

        Raises:
            ConfigError: a node is unknown, doubled, or stands before what it needs.
        """
        seen: set[int] = set()
        for node in self.nodes:
            needed = {*node.deps, *([] if node.prev is None else [node.prev])}
            if node.id in seen or not needed <= seen:
                raise ConfigError(
                    f"graph {self.name!r}: node {node.id} ({node.kind}) stands before what it "
                    "needs, or twice"
                )
            if not 0 <= node.stream < len(self.streams):
                raise ConfigError(f"graph {self.name!r}: node {node.id} is in no stream")
            seen.add(node.id)

    def __str__(self) -> str:
        """Return one line a node, by stream."""
        lines = [f"{self.name}({', '.join(self.arguments)})"]
        for stream, name in enumerate(self.streams):
            lines.append(f"  stream {stream}: {name}")
            for node in self.stream_nodes(stream):
                needs = f"  <- {', '.join(f'%{d}' for d in node.deps)}" if node.deps else ""
                lines.append(f"    %{node.id} = {node.kind}({node.label}){needs}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the graph as JSON text, of which `from_json` makes an equal graph.

        Raises:
            ConfigError: a stored constant has no JSON form.
        """
        nodes = [{"kind": node.kind, **dataclasses.asdict(node)} for node in self.nodes]
        data = {
            "name": self.name,
            "arguments": self.arguments,
            "defaults": self.defaults,
            "streams": self.streams,
            "nodes": nodes,
        }
        try:
            return json.dumps(data, indent=1)
        except TypeError as error:
            raise ConfigError(f"graph {self.name!r} has no JSON form: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> "Graph":
        """Return the graph that `to_json` wrote.

        Raises:
            ConfigError: the text is no such graph.
        """
        try:
            data = json.loads(text)
            nodes = tuple(
                KINDS[node.pop("kind")](
                    **{k: _tupled(v) if k != "value" else v for k, v in node.items()}
                )
                for node in data.pop("nodes")
            )
            graph = cls(nodes=nodes, **{key: _tupled(value) for key, value in data.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"the text is no graph of a program: {error!r}") from None
        graph.check()
        return graph


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list) else value
