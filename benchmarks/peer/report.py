"""From measurements to the table and the JSON file. Standard library only."""

import statistics
from dataclasses import dataclass, field
from typing import Any

Outputs = list[list[int]]
"""Token ids, by prompt."""


@dataclass
class Column:
    """One engine.

    Attributes:
        name: the engine's.
        about: versions and settings.
        error: why it did not run at all, or None.
    """

    name: str
    about: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass
class Cell:
    """One engine's answers to one workload.

    Attributes:
        rates: units a second, by repeat.
        outputs: token ids of the last repeat.
        error: why there are none, or None.
    """

    rates: list[float] = field(default_factory=list)
    outputs: Outputs = field(default_factory=list)
    error: str | None = None

    def median(self) -> float | None:
        """Return the median rate."""
        return statistics.median(self.rates) if self.rates else None

    def text(self) -> str:
        """Return the median and half the range in per cent of it."""
        median = self.median()
        if median is None:
            return "failed" if self.error else "–"
        spread = (max(self.rates) - min(self.rates)) / 2 / median
        return f"{median:.3g} ±{spread:.0%}" if median < 100 else f"{median:.0f} ±{spread:.0%}"


Table = dict[str, dict[str, Cell]]
"""Cells by workload and engine."""


def markdown(columns: list[Column], table: Table, titles: dict[str, str]) -> str:
    """Return the table; its last columns divide each of ours by the best peer of the row."""
    ran = [c.name for c in columns if c.error is None]
    ours = [name for name in ran if is_ours(name)]
    lines = [["", *ran, *(f"{name} ÷ best peer" for name in ours)]]
    lines.append(["-", *("-:" for _ in lines[0][1:])])
    for workload, cells in table.items():
        best = best_peer(cells)
        ratios = [_ratio(cells[name].median(), best) for name in ours]
        shown = ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        lines.append([titles[workload], *(cells[name].text() for name in ran), *shown])
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    for c in columns:
        about = c.error or ", ".join(f"{k} {v}" for k, v in c.about.items())
        rows += ["", f"{c.name}: not run, {about}" if c.error else f"{c.name}: {about}"]
    failed = [(w, n, c.error) for w, cells in table.items() for n, c in cells.items() if c.error]
    rows += [f"\n{titles[w]}: {name} failed, {error}" for w, name, error in failed]
    return "\n".join(rows)


def is_ours(name: str) -> bool:
    """Return whether an engine is a form of sgjax."""
    return name.startswith("sgjax")


def best_peer(cells: dict[str, Cell]) -> float | None:
    """Return the highest median among the engines that are not ours."""
    medians = [cell.median() for name, cell in cells.items() if not is_ours(name)]
    return max((m for m in medians if m is not None), default=None)


def agreement(a: Outputs, b: Outputs) -> float | None:
    """Return the share of tokens before each sequence's first difference."""
    total = sum(len(x) for x in a)
    if not total or len(a) != len(b):
        return None
    same = 0
    for x, y in zip(a, b, strict=True):
        differs = (i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q)
        same += next(differs, min(len(x), len(y)))
    return same / total


def as_json(columns: list[Column], table: Table) -> dict[str, Any]:
    """Return everything measured as plain data; agreement is with the first engine."""
    engines = {c.name: {"about": c.about, "error": c.error} for c in columns}
    results: dict[str, Any] = {}
    for workload, cells in table.items():
        best, first = best_peer(cells), next(iter(cells.values()))
        results[workload] = {
            name: {
                "median": cell.median(),
                "rates": cell.rates,
                "over_best_peer": _ratio(cell.median(), best),
                "same_tokens_as_first": agreement(first.outputs, cell.outputs),
                "error": cell.error,
            }
            for name, cell in cells.items()
        }
    return {"engines": engines, "results": results}


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
