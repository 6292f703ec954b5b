"""Passes over graphs that keep every prompt as it is. Imports graph, nodes and ChatFormat.

`code movement`, which changes prompts, has a file of its own.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lang.backends.base import ChatFormat
from sgjax.lang.compiler import nodes as g
from sgjax.lang.compiler.graph import Graph


def fold_constants(graph: Graph, arguments: Mapping[str, Any] | None = None) -> Graph:
    """Build arguments in, and make one node of constant texts that follow one another.

    Args:
        graph: the program.
        arguments: values of arguments that become constants.

    Raises:
        ConfigError: the graph has no such argument.
    """
    known = dict(arguments or {})
    for name in known:
        if name not in graph.arguments:
            raise ConfigError(f"graph {graph.name!r} has no argument {name!r}")
    folded: list[g.Node] = []
    merged: dict[int, int] = {}
    last: dict[int, g.Node] = {}
    for original in graph.nodes:
        node = _redirect(_build_in(original, known), merged)
        before = last.get(node.stream)
        if isinstance(node, g.ConstantText) and isinstance(before, g.ConstantText):
            both = dataclasses.replace(before, text=before.text + node.text)
            folded[folded.index(before)] = both
            merged[node.id] = both.id
            last[node.stream] = both
            continue
        folded.append(node)
        last[node.stream] = node
    return dataclasses.replace(
        graph,
        arguments=tuple(n for n in graph.arguments if n not in known),
        defaults=tuple(d for d in graph.defaults if d[0] not in known),
        nodes=tuple(folded),
    )


def remove_dead(graph: Graph, outputs: Collection[str] | None = None) -> Graph:
    """Remove what no output needs.

    Args:
        graph: the program.
        outputs: variables of the program's own stream that the caller will read; then its text
            after the last of them is dead too. None keeps the whole of that stream.

    Returns:
        The graph without scopes and constants that nobody reads, and without generations, forks
        and calls whose results reach no output.

    Raises:
        ConfigError: the program does not set an output.
    """
    own = graph.stream_nodes(0)
    if outputs is None:
        wanted = [node.id for node in own]
    else:
        wanted = [_writer(graph, own, name) for name in outputs]
    needed: set[int] = set()
    by_id = {node.id: node for node in graph.nodes}
    read = _read_names(graph)
    stack = list(wanted)
    while stack:
        node = by_id[stack.pop()]
        if node.id not in needed:
            needed.add(node.id)
            stack += [*node.deps, *([] if node.prev is None else [node.prev])]
    silent = {
        node.id
        for node in graph.nodes
        if isinstance(node, g.ScopeBegin | g.ScopeEnd | g.SetVar)
        and (node.stream, node.name) not in read
        and (node.stream != 0 or (outputs is not None and node.name not in outputs))
    }
    return _without(graph, {n.id for n in graph.nodes} - needed | silent)


def constant_prefix(graph: Graph, chat: ChatFormat) -> str:
    """Return the constant text with which every prompt of the program begins.

    Args:
        graph: the program; fold it first where arguments are known.
        chat: how messages become text.
    """
    text, previous = "", None
    for node in graph.stream_nodes(0):
        match node:
            case g.ConstantText(text=more):
                text += more
            case g.RoleBegin(role=role):
                text += chat.role_prefix(role, previous)
            case g.RoleEnd(role=role):
                text += chat.role_suffix(role)
                previous = role
            case g.ScopeBegin() | g.ScopeEnd() | g.SetVar():
                pass
            case _:
                break
    return text


def _build_in(node: g.Node, known: Mapping[str, Any]) -> g.Node:
    place = (node.id, node.stream, node.prev, node.deps)
    match node:
        case g.Argument(name=name, formatted=formatted) if name in known:
            value = known[name]
            if not formatted and not isinstance(value, str):
                raise ConfigError(
                    f"argument {name!r} is a {type(value).__name__}; only text can be built in"
                )
            return g.ConstantText(*place, text=str(value))
        case g.Image(argument=str(name)) | g.Video(argument=str(name)) if name in known:
            return dataclasses.replace(node, path=str(known[name]), argument=None)
    return node


def _redirect(node: g.Node, merged: Mapping[int, int]) -> g.Node:
    prev = node.prev if node.prev is None else merged.get(node.prev, node.prev)
    deps = tuple(merged.get(dep, dep) for dep in node.deps)
    return dataclasses.replace(node, prev=prev, deps=deps)


def _writer(graph: Graph, own: Sequence[g.Node], name: str) -> int:
    """Return the last node of the program's own stream that sets a variable."""
    for node in reversed(own):
        if name in _written(graph, node):
            return node.id
    raise ConfigError(f"graph {graph.name!r} sets no variable {name!r}")


def _written(graph: Graph, node: g.Node) -> set[str]:
    match node:
        case g.Gen(name=name) | g.Select(name=name):
            return set() if name is None else {name}
        case g.ScopeEnd(name=name) | g.SetVar(name=name):
            return {name}
        case g.Join(children=children, mode="gather_variable"):
            inside = (n for child in children for n in graph.stream_nodes(child))
            return {name for n in inside for name in _written(graph, n)}
    return set()


def _read_names(graph: Graph) -> set[tuple[int, str]]:
    """Return (stream, variable) pairs that somebody reads; a gathering join reads all."""
    read: set[tuple[int, str]] = set()
    for node in graph.nodes:
        match node:
            case g.Variable(source=source, name=name):
                read.add((source, name))
            case g.Join(children=children, mode="gather_variable"):
                for child in children:
                    for inside in graph.stream_nodes(child):
                        read |= {(child, name) for name in _written(graph, inside)}
    return read | _inherited(graph, read)


def _inherited(graph: Graph, read: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the parents' side of what forks' children read."""
    parents = {
        child: node.stream
        for node in graph.nodes
        if isinstance(node, g.Fork)
        for child in node.children
    }
    found: set[tuple[int, str]] = set()
    for stream, name in read:
        while stream in parents:
            stream = parents[stream]
            found.add((stream, name))
    return found


def _without(graph: Graph, dead: Collection[int]) -> Graph:
    """Return the graph without some nodes, their neighbours linked; and without unused streams."""
    heir: dict[int, int | None] = {}
    kept: list[g.Node] = []
    for node in graph.nodes:
        prev = node.prev
        while prev is not None and prev in dead:
            prev = heir[prev]
        if node.id in dead:
            heir[node.id] = prev
            continue
        deps = tuple(_alive(dep, dead, heir) for dep in node.deps)
        kept.append(dataclasses.replace(node, prev=prev, deps=deps))
    return dataclasses.replace(graph, nodes=tuple(kept))


def _alive(node: int, dead: Collection[int], heir: Mapping[int, int | None]) -> int:
    found: int | None = node
    while found is not None and found in dead:
        found = heir[found]
    assert found is not None, "a stream starts with a node that is alive"
    return found
