"""How results came about, in words: which form, when, from which commit, on what.

Imports the lab's records. A run in short form, or one whose settings the command line changed, must
not be taken for the experiment.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sgjax.lab.records import Record

FULL, QUICK, CHANGED, UNKNOWN = "full", "quick", "changed", "form unknown"
DRAWN = ("data", "figure", "metrics")
"""Keys whose overrides leave it the same experiment."""


@dataclass(frozen=True)
class Made:
    """How the records of a run came about.

    Attributes:
        form: `QUICK` where any is of the short form, `CHANGED` where the command line changed what
            is run, `UNKNOWN` where old records do not say, or else `FULL`.
        overrides: what the command line changed.
        when: day and time of the first and last, UTC.
        commits: of the code; or its version.
        devices: on what, by arm.
        seeds: how many.
    """

    form: str
    overrides: tuple[str, ...]
    when: str
    commits: tuple[str, ...]
    devices: tuple[str, ...]
    seeds: int

    @property
    def words(self) -> tuple[str, ...]:
        """Return all of it, a phrase each."""
        form = {FULL: "full form", QUICK: "quick form", CHANGED: "changed"}.get(
            self.form, self.form
        )
        changed = (f"with {' '.join(self.overrides)}",) if self.overrides else ()
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return (form, *changed, seeds, self.when, ", ".join(self.commits), *self.devices)


def made(records: Sequence[Record]) -> Made:
    """Return how the records of one run came about, of all its arms."""
    overrides = tuple(dict.fromkeys(text for r in records for text in r.overrides))
    deciding = [text for text in overrides if re.split(r"[.=]", text)[0] not in DRAWN]
    if any(r.quick for r in records):
        form = QUICK
    elif deciding:
        form = CHANGED
    else:
        form = UNKNOWN if any(r.quick is None for r in records) else FULL
    return Made(
        form,
        overrides,
        _when([r.started for r in records]),
        tuple(dict.fromkeys(code(r.git_sha, r.versions.get("sgjax")) for r in records)),
        tuple(_devices(records)),
        len({r.seed for r in records}),
    )


def code(sha: str | None, version: str | None) -> str:
    """Return what code it was as people say it: the commit, or without a checkout the version."""
    name, plus, changes = (sha or "").partition("+")
    return f"commit {name[:12]}{plus}{changes}" if name else f"sgjax {version}, no checkout"


def _when(started: Sequence[str]) -> str:
    first, last = (datetime.fromisoformat(text) for text in (min(started), max(started)))
    begun, ended = (time.strftime("%Y-%m-%d %H:%M") for time in (first, last))
    if begun == ended:
        return f"{begun} UTC"
    return f"{begun} to {ended.removeprefix(begun[:11])} UTC"


def _devices(records: Sequence[Record]) -> Iterable[str]:
    ran = [r for r in records if r.error is None] or records
    for arm in dict.fromkeys(r.arm for r in ran):
        names = dict.fromkeys(r.device for r in ran if r.arm == arm)
        yield f"{arm} on {', '.join(names)}"
