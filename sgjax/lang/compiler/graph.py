"""Graph: a traced program as data (paper appendix D.1). Imports nodes and errors.

Nodes stand in an order in which they can be executed.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang.compiler.nodes import KINDS, Node


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
