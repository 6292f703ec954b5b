"""Redraw a run from its records alone: table, figure, report. Imports the lab."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sgjax.lab.figures.draw import draw
from sgjax.lab.records import read_records, write_atomically
from sgjax.lab.report import render_report
from sgjax.lab.summary import Summary, summarise_arms
from sgjax.lab.table import print_summary


def redraw(path: Path, console: Console) -> list[Path]:
    """Print a run's table and write figure.png, figure.svg and report.html beside its records.

    Args:
        path: a results folder, or its results.jsonl.
        console: where the table goes.

    Returns:
        The files written.

    Raises:
        ResultsError: there are no records, or a file cannot be written.
    """
    directory, records = read_records(path)
    arms = summarise_arms(records)
    for arm in arms:
        print_summary(arm, console)
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
