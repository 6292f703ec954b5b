"""All experiments of a folder, one after another, and an index over them.

Imports the lab. One that cannot run here, or fails, is an entry with its reason; the others go on.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgjax.errors import ConfigError, ResultsError, SgjaxError
from sgjax.lab.config import load_arms
from sgjax.lab.index import Entry, write_index
from sgjax.lab.plot import write_figures
from sgjax.lab.records import RESULTS, make_folder
from sgjax.lab.runner import Finished
from sgjax.lab.summary import Summary, read_arms

COLOURS = {"holds": "green", "does not hold": "red", "not run here": "yellow", "not judged": "dim"}
Run = Callable[[Path, str], Finished]
"""Run the experiment of a file; the text stands before its progress."""


@dataclass(frozen=True)
class Campaign:
    """How all experiments of a folder ended.

    Attributes:
        entries: one an experiment.
        index: the page over all of them.
        interrupted: whether it was ended from the keyboard.
    """

    entries: tuple[Entry, ...]
    index: Path
    interrupted: bool


def run_all(
    files: Sequence[Path], out: Path, run: Run, console: Console, budget_s: float | None
) -> Campaign:
    """Run experiments, whatever becomes of each, and keep an index of them up to date.

    Args:
        files: their YAML files, at least one.
        out: the folder that holds all results; the index is written into it.
        run: runs one.
        console: where progress and the final table go.
        budget_s: seconds after which no other experiment is begun; None for no end.

    Raises:
        ResultsError: the folder or the index cannot be written.
    """
    assert files
    make_folder(out)
    begin, entries, interrupted = time.monotonic(), [], False
    for number, file in enumerate(files, 1):
        spent_s = time.monotonic() - begin
        if interrupted:
            entries.append(_not_begun(file, "the campaign was stopped before"))
        elif budget_s is not None and spent_s >= budget_s:
            entries.append(_not_begun(file, f"the {budget_s / 60:g} minutes were spent before"))
        else:
            title = f"{number} of {len(files)} · {file.stem}"
            console.rule(f"{title} · {_minutes(spent_s, budget_s)}", align="left")
            entry, interrupted = _run_one(file, title, run, console)
            entries.append(entry)
        index = write_index(out, entries)
    _print_table(entries, _minutes(time.monotonic() - begin, budget_s), console)
    return Campaign(tuple(entries), index, interrupted)


def index_of(out: Path) -> Path:
    """Write the index over the newest run of every experiment that has results in a folder.

    Raises:
        ResultsError: there are none.
    """
    entries = []
    for folder in sorted(out.glob("*/")):
        # A run that was killed before its first record left an empty file.
        runs = sorted(file.parent for file in folder.glob(f"*/{RESULTS}") if file.stat().st_size)
        if runs:
            arms = read_arms(runs[-1])[1]
            write_figures(runs[-1], arms)
            entries.append(_entry_of(runs[-1], arms, tuple(left_out(arms)), 0.0))
    if not entries:
        raise ResultsError(f"{out} holds no results; give a results folder, or a folder of them")
    return write_index(out, entries)


def left_out(arms: Sequence[Summary]) -> Iterator[str]:
    """Yield what results lack of all that was to be run, arm by arm."""
    made = {arm.arm for arm in arms}
    for name in arms[0].records[0].arms:
        if name not in made:
            yield f"{name}: there are no runs of it"
    for arm in arms:
        run = arm.experiment
        planned = len(run.workloads) * len(run.variants) * len(run.seeds) * run.repeats
        if len(arm.records) < planned:
            yield f"{arm.arm}: {len(arm.records)} of {planned} timed runs were made"


def _run_one(file: Path, title: str, run: Run, console: Console) -> tuple[Entry, bool]:
    """Run an experiment; return its entry, and whether it was interrupted."""
    begin = time.monotonic()
    try:
        finished = run(file, title)
        reasons = [f"{failure.arm}: {failure.error}" for failure in finished.failures]
        if finished.interrupted:
            reasons.append("stopped from the keyboard")
        if not finished.num_records:
            return _not_begun(file, *reasons), finished.interrupted
        arms = read_arms(finished.directory)[1]
        write_figures(finished.directory, arms)
        wall_s = time.monotonic() - begin
        return _entry_of(finished.directory, arms, tuple(reasons), wall_s), finished.interrupted
    except SgjaxError as error:
        console.print(f"[yellow]not run here:[/] {error}", highlight=False)
        return _not_begun(file, str(error)), False
    except Exception as error:  # a mistake in one experiment must not take the others with it
        console.print_exception()
        reason = f"it failed: {type(error).__name__}: {error}"
        return _not_begun(file, reason, crash=traceback.format_exc()), False


def _entry_of(
    directory: Path, arms: Sequence[Summary], reasons: tuple[str, ...], wall_s: float
) -> Entry:
    first = arms[0].experiment
    return Entry(first.name, first.claim, directory, tuple(arms), reasons, wall_s)


def _not_begun(file: Path, *reasons: str, crash: str = "") -> Entry:
    try:
        claim = load_arms(file, [])[0].claim
    except ConfigError:
        claim = ""
    return Entry(file.stem, claim, None, (), reasons, 0.0, crash)


def _minutes(spent_s: float, budget_s: float | None) -> str:
    of = "" if budget_s is None else f" of {budget_s / 60:g}"
    return f"{spent_s / 60:.1f}{of} minutes"


def _print_table(entries: Sequence[Entry], spent: str, console: Console) -> None:
    table = Table(
        "experiment", "claim", "form", "minutes", title=f"All in {spent}", title_justify="left"
    )
    for entry in entries:
        word = f"[{COLOURS[entry.word]}]{entry.word}[/]"
        table.add_row(entry.name, word, entry.form, f"{entry.wall_s / 60:.1f}")
    console.print(table)
