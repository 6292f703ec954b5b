"""The table of `sgjax compile-check`, and below it why not. HOST; imports rich."""

from rich.console import Console, JustifyMethod
from rich.table import Table

from sgjax.aot.job import Verdict

LABELS = ("target", "step", "verdict")
"""Columns of words; all others are numbers, or absent where no verdict has one."""


def show(verdicts: list[Verdict], console: Console) -> None:
    """Print verdicts as rows, memory in GB a device, and a line for each that does not fit."""
    rows = [_cells(verdict) for verdict in verdicts]
    names = dict.fromkeys(name for row in rows for name, cell in row.items() if cell)
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in names:
        side: JustifyMethod = "left" if name in LABELS else "right"
        whole = name in (*LABELS, "K/V tokens")
        table.add_column(name, justify=side, overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(row.get(name, "") or "-" for name in names))
    console.print(table)
    for verdict in verdicts:
        if verdict.reason:
            told = f"{verdict.job.target} {verdict.job.step}: {verdict.reason}"
            console.print(told, markup=False, highlight=False)


def _cells(v: Verdict) -> dict[str, str]:
    """Return what is known, by the column's name."""
    cells = {"target": v.job.target, "step": v.job.step, "verdict": v.status}
    if v.status in ("fits", "too big"):
        sizes = {"weights": v.weights_bytes, "K/V": v.kv_bytes, "temp": v.temp_bytes}
        cells |= {f"{name} GB": f"{size / 1e9:.2f}" for name, size in sizes.items()}
        cells["K/V tokens"] = f"{v.kv_tokens:,}"
    cells |= {"regs": _known(v.registers), "spill B": _known(v.spills)}
    cells["shared kB"] = "" if v.shared_bytes < 0 else f"{v.shared_bytes / 1e3:.1f}"
    for kind, count in v.layer_collectives.items():
        cells[f"{kind} / layer"] = f"{count / v.num_layers:g}"
    cells["others"] = str(v.other_collectives or "")
    return cells | {"s": f"{v.seconds:.0f}"}


def _known(x: int) -> str:
    return "" if x < 0 else str(x)
