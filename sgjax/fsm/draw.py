"""Drawing the compressed automaton as in the paper's Figure 4, as self-contained SVG.

HOST. Imports compress and utf8. Runs of forced bytes are one thick edge; states are laid out in
columns by their distance from the start.
"""

from html import escape

from sgjax.fsm.compress import CompressedFsm
from sgjax.fsm.utf8 import ByteDfa

Edge = tuple[int, int, str, bool]
"""Source, target, label, whether its text is forced."""

_COLUMN, _ROW, _RADIUS, _CHAR = 70, 64, 15, 7.3


def draw_svg(dfa: ByteDfa, max_states: int = 60) -> str:
    """Return an SVG picture of an automaton with its forced runs as single edges.

    Args:
        dfa: the automaton.
        max_states: states drawn at most; what lies behind them is cut off and said so.
    """
    edges, order = _edges(dfa, max_states)
    columns = _columns(edges, order)
    x, width = _column_places(edges, columns)
    rows: dict[int, int] = {}
    place: dict[int, tuple[float, float]] = {}
    for state in order:
        row = rows.get(columns[state], 0)
        rows[columns[state]] = row + 1
        place[state] = (x[columns[state]], 40 + _ROW * row + (12 if columns[state] % 2 else 0))
    height = max(y for _, y in place.values()) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="monospace" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    parts += [_draw_edge(edge, place) for edge in edges]
    parts += [_draw_state(state, place[state], bool(dfa.table.accepting[state])) for state in order]
    if any(target not in place for _, target, _, _ in edges):
        parts.append(f'<text x="10" y="{height - 8}">cut off after {max_states} states</text>')
    return "\n".join([*parts, "</svg>"])


def _edges(dfa: ByteDfa, max_states: int) -> tuple[list[Edge], list[int]]:
    """Return the edges among the states that no run passes over, and these states in order."""
    fsm = CompressedFsm(dfa)
    order, edges = [0], []
    seen = {0}
    for state in order:
        if len(order) >= max_states:
            break
        data, end = fsm.forced(state)
        if data:
            found = [(state, end, _show(data), True)]
        else:
            by_target: dict[int, list[int]] = {}
            for byte, target in enumerate(dfa.targets(state).tolist()):
                if target >= 0:
                    by_target.setdefault(target, []).append(byte)
            found = [(state, t, _show_set(bs), False) for t, bs in by_target.items()]
        for edge in found:
            edges.append(edge)
            if edge[1] not in seen:
                seen.add(edge[1])
                order.append(edge[1])
    return edges, order


def _columns(edges: list[Edge], order: list[int]) -> dict[int, int]:
    columns = {0: 0}
    for source, target, _, _ in edges:  # in breadth-first order
        columns.setdefault(target, columns[source] + 1)
    return {state: columns.get(state, 0) for state in order}


def _column_places(edges: list[Edge], columns: dict[int, int]) -> tuple[list[float], float]:
    """Return where each column stands, wide enough for the labels before it."""
    widest = [0] * (max(columns.values()) + 2)
    for source, target, label, _ in edges:
        if target in columns and columns[target] == columns[source] + 1:
            widest[columns[target]] = max(widest[columns[target]], len(label))
    x = [40.0]
    for size in widest[1:-1]:
        x.append(x[-1] + _COLUMN + _CHAR * size)
    return x, x[-1] + 60


def _draw_edge(edge: Edge, place: dict[int, tuple[float, float]]) -> str:
    source, target, label, is_forced = edge
    if target not in place:
        return ""
    (x1, y1), (x2, y2) = place[source], place[target]
    style = 'stroke="#c0392b" stroke-width="2.5"' if is_forced else 'stroke="#555"'
    shown = escape(label)
    if source == target:
        path = f"M{x1 - 6} {y1 - 14}C{x1 - 22} {y1 - 44} {x1 + 22} {y1 - 44} {x1 + 6} {y1 - 14}"
        at = (x1, y1 - 38)
    elif x2 > x1:
        path = f"M{x1 + _RADIUS} {y1}L{x2 - _RADIUS} {y2}"
        at = ((x1 + x2) / 2, (y1 + y2) / 2 - 5)
    else:
        low = max(y1, y2) + 34
        path = f"M{x1} {y1 + _RADIUS}Q{(x1 + x2) / 2} {low + 14} {x2} {y2 + _RADIUS}"
        at = ((x1 + x2) / 2, low + 4)
    return (
        f'<path d="{path}" fill="none" {style} marker-end="url(#tip)"/>'
        f'<text x="{at[0]:.0f}" y="{at[1]:.0f}" text-anchor="middle" xml:space="preserve">'
        f"{shown}</text>"
    )


def _draw_state(state: int, at: tuple[float, float], accepts: bool) -> str:
    x, y = at
    ring = (
        f'<circle cx="{x}" cy="{y}" r="{_RADIUS - 4}" fill="none" stroke="#222"/>'
        if accepts
        else ""
    )
    return (
        f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="#fff" stroke="#222"/>{ring}'
        f'<text x="{x}" y="{y + 4}" text-anchor="middle">{state}</text>'
    )


def _show(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\n", "⏎").replace("\t", "⇥")


def _show_set(codes: list[int]) -> str:
    """Return bytes as ranges, at most a few of them."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    shown = [_byte(a) if a == b else f"{_byte(a)}-{_byte(b)}" for a, b in runs]
    text = "".join(shown[:4]) + ("…" if len(shown) > 4 else "")
    return text if len(codes) == 1 else f"[{text}]"


def _byte(code: int) -> str:
    return _show(bytes((code,))) if 0x20 <= code < 0x7F or code in (9, 10) else f"{code:02X}"
