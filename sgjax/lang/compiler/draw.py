"""Pictures of graphs: DOT text, and SVG without any other program. Imports graph."""

from html import escape

from sgjax.lang.compiler.graph import Graph
from sgjax.lang.compiler.nodes import Node

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 230, 34, 60, 18, 24
_FILL = {
    "Gen": "#cfe8ff",
    "Select": "#cfe8ff",
    "Argument": "#fff1c9",
    "Variable": "#e4dcff",
    "Fork": "#d9f2d9",
    "GetForkItem": "#d9f2d9",
    "Join": "#d9f2d9",
}


def to_dot(graph: Graph) -> str:
    """Return a graph in Graphviz's language; a cluster a stream, dashed edges between streams."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box, style=filled];"]
    for stream, name in enumerate(graph.streams):
        lines.append(f"  subgraph cluster_{stream} {{")
        lines.append(f"    label={_quoted(f'stream {stream}: {name}')};")
        for node in graph.stream_nodes(stream):
            fill = _FILL.get(node.kind, "#f4f4f4")
            lines.append(
                f"    n{node.id} [label={_quoted(_caption(node))}, fillcolor={_quoted(fill)}];"
            )
        lines.append("  }")
    for start, end, inside in graph.edges():
        lines.append(f"  n{start} -> n{end}{'' if inside else ' [style=dashed]'};")
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(graph: Graph) -> str:
    """Return a graph as an SVG picture: a column a stream, each node below all it needs."""
    rows = _rows(graph)
    place = {
        node.id: (
            _MARGIN + node.stream * (_WIDTH + _GAP_X),
            2 * _MARGIN + rows[node.id] * (_HEIGHT + _GAP_Y),
        )
        for node in graph.nodes
    }
    width = 2 * _MARGIN + len(graph.streams) * (_WIDTH + _GAP_X) - _GAP_X
    height = 3 * _MARGIN + (max(rows.values(), default=0) + 1) * (_HEIGHT + _GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for stream, name in enumerate(graph.streams):
        x = _MARGIN + stream * (_WIDTH + _GAP_X)
        parts.append(
            f'<text x="{x}" y="{_MARGIN}" font-weight="bold">{escape(f"stream {stream}: {name}")}'
            "</text>"
        )
    for start, end, inside in graph.edges():
        parts.append(_edge(place[start], place[end], inside))
    for node in graph.nodes:
        x, y = place[node.id]
        fill = _FILL.get(node.kind, "#f4f4f4")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{fill}" '
            f'stroke="#555"/><text x="{x + 8}" y="{y + _HEIGHT / 2 + 4}">'
            f"{escape(_shortened(_caption(node)))}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows(graph: Graph) -> dict[int, int]:
    """Return each node's row: one below the lowest of what it needs."""
    rows: dict[int, int] = {}
    for node in graph.nodes:
        needed = [*node.deps, *([] if node.prev is None else [node.prev])]
        rows[node.id] = max((rows[n] + 1 for n in needed), default=0)
    return rows


def _edge(start: tuple[int, int], end: tuple[int, int], inside: bool) -> str:
    if inside:
        middle = start[0] + _WIDTH / 2
        line = f"M{middle} {start[1] + _HEIGHT}L{middle} {end[1]}"
        return f'<path d="{line}" stroke="#333" marker-end="url(#end)"/>'
    right = end[0] >= start[0]
    x1, y1 = start[0] + (_WIDTH if right else 0), start[1] + _HEIGHT / 2
    x2, y2 = end[0] + (0 if right else _WIDTH), end[1] + _HEIGHT / 2
    bend = _GAP_X * (0.6 if right else -0.6)
    return (
        f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" fill="none" '
        'stroke="#a33" stroke-dasharray="5 3" marker-end="url(#end)"/>'
    )


def _caption(node: Node) -> str:
    return f"{node.kind} {node.label}".rstrip()


def _shortened(text: str) -> str:
    return text if len(text) <= 38 else text[:37] + "…"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
