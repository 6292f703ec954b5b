"""The table of `sgjax compile-check`. HOST; imports rich."""

from rich.table import Column, Table

from sgjax.aot.job import Verdict


def table(verdicts: list[Verdict]) -> Table:
    """Return verdicts as rows; memory in GB a device."""
    right = [
        Column(name, justify="right")
        for name in ("weights", "K/V", "temp", "K/V tokens", "regs", "spill", "shared kB")
    ]
    found = Table("target", "step", "verdict", *right, "collectives a layer", "others", "s")
    for v in verdicts:
        sizes = [f"{x / 1e9:.2f}" for x in (v.weights_bytes, v.kv_bytes, v.temp_bytes)]
        shared = "-" if v.shared_bytes < 0 else f"{v.shared_bytes / 1e3:.1f}"
        kernel = [_known(x) for x in (v.registers, v.spills)]
        counts = v.layer_collectives.items()
        a_layer = ", ".join(f"{n / v.num_layers:g} {kind}" for kind, n in counts) or "-"
        found.add_row(
            v.job.target, v.job.step, f"{v.status} {v.reason}".strip(), *sizes,
            f"{v.kv_tokens:,}", *kernel, shared,
            a_layer, str(v.other_collectives), f"{v.seconds:.0f}",
        )  # fmt: skip
    return found


def _known(x: int) -> str:
    return "-" if x < 0 else str(x)
