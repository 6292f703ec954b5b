"""What of an experiment decides its results, and what only how they are judged and shown.

Imports the lab's records and provenance. Rows stay as they were written. Where an experiment's file
says otherwise of them by now, `--resume` keeps that beside them, in shown.json.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgjax.errors import ResultsError
from sgjax.lab.provenance import SHOWN, digest
from sgjax.lab.records import read_records, write_atomically

FILE = "shown.json"
JUDGED = ("claim", "expect", "reference")
"""Those of `SHOWN` that change what is said of the results, not only what is drawn."""


@dataclass(frozen=True)
class Shown:
    """How an arm's rows are judged and shown since its file changed.

    Attributes:
        since: UTC, ISO 8601.
        keys: the keys `SHOWN` of the experiment.
    """

    since: str
    keys: dict[str, Any]

    def judged_anew(self, experiment: Mapping[str, Any]) -> list[str]:
        """Return which of `JUDGED` are others than when an experiment's rows were begun."""
        return [key for key in JUDGED if not _equal(self.keys.get(key), experiment.get(key))]


def show_as(directory: Path, experiments: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep beside a folder's rows how experiments want them judged and shown, where that is new.

    Args:
        directory: the results.
        experiments: resolved, by their `run_hash`.

    Raises:
        ResultsError: the rows cannot be read, or the file cannot be written.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for record in read_records(directory)[1]:
        first.setdefault(record.run_hash, record.config["experiment"])
    changed = {
        run_hash: {key: experiment[key] for key in SHOWN}
        for run_hash, experiment in experiments.items()
        if run_hash in first
        and any(not _equal(experiment[key], first[run_hash].get(key)) for key in SHOWN)
    }
    before = {run_hash: shown.keys for run_hash, shown in read_shown(directory).items()}
    if not changed:
        (directory / FILE).unlink(missing_ok=True)
    elif not _equal(changed, before):
        since = datetime.now(UTC).isoformat(timespec="seconds")
        content = {run_hash: {"since": since, "keys": keys} for run_hash, keys in changed.items()}
        write_atomically(directory / FILE, json.dumps(content, indent=1).encode())


def read_shown(directory: Path) -> dict[str, Shown]:
    """Return, by `run_hash`, how a folder's rows are judged and shown otherwise than they say.

    Raises:
        ResultsError: shown.json cannot be read.
    """
    file = directory / FILE
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {run_hash: Shown(**shown) for run_hash, shown in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"cannot read {file}: {error}; without it the rows are shown as they were run"
        ) from None


def _equal(a: Any, b: Any) -> bool:
    """Compare plain data, whether or not it was JSON in between."""
    return digest(a) == digest(b)
