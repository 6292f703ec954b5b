"""Redraw a run from its records alone: table, figure, report. Imports the lab."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sgjax.errors import ConfigError
from sgjax.lab.figures.draw import draw
from sgjax.lab.made import made
from sgjax.lab.overrides import parse_override
from sgjax.lab.records import write_atomically
from sgjax.lab.report import render_report
from sgjax.lab.summary import Summary, read_arms
from sgjax.lab.table import print_summary

REDRAWN = ("figure", "metrics")
"""Keys of an experiment that say how results are shown, not how they came about."""


def redraw(path: Path, console: Console, overrides: Sequence[str] = ()) -> list[Path]:
    """Print a run's table and write figure.png, figure.svg and report.html beside its records.

    Args:
        path: a results folder, or its results.jsonl.
        console: where the table goes.
        overrides: `figure...=value` or `metrics=value`, to show the results otherwise.

    Returns:
        The files written.

    Raises:
        ResultsError: there are no records, or a file cannot be written.
        ConfigError: an override is not valid, or is about what was run.
    """
    shown = [parse_override(text) for text in overrides]
    if wrong := [key for key, _ in shown if key.split(".")[0] not in REDRAWN]:
        raise ConfigError(
            f"override {wrong[0]!r} is not allowed: the results are there, and of {REDRAWN} alone "
            "can it be said anew how they are shown; run the experiment again for the rest"
        )
    directory, arms = read_arms(path, shown)
    for arm in arms:
        print_summary(arm, console)
    words = made([record for arm in arms for record in arm.records]).words
    console.print(" · ".join(words), style="dim", markup=False, highlight=False)
    return write_figures(directory, arms)


def write_figures(directory: Path, arms: Sequence[Summary]) -> list[Path]:
    """Write figure.png, figure.svg and report.html into a results folder; return their paths.

    Raises:
        ResultsError: a file cannot be written.
    """
    images = draw(arms)
    files = {f"figure.{suffix}": content for suffix, content in images.items()}
    files["report.html"] = render_report(arms, images["svg"].decode()).encode()
    for name, content in files.items():
        write_atomically(directory / name, content)
    return [directory / name for name in files]
