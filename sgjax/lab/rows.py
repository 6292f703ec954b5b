"""Results as plain rows, one a timed run, for numpy, pandas and spreadsheets. Imports the lab.

pandas.DataFrame(rows(Path("results/starvation/20261130-101500")))
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgjax.lab.records import RESULTS, Record, read_records

SAID = (
    "experiment", "arm", "workload", "variant", "seed", "repeat", "executor", "device", "model",
    "dtype", "quick", "run_hash", "git_sha", "started", "wall_s", "answers_digest", "error",
)  # fmt: skip
"""What every row says of its run, before settings and metrics."""


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the timed runs of a results folder, or of all results below a folder, as flat rows.

    Returns:
        Per run: `SAID`; the settings that are not the same in all rows, as `engine.kv_tokens` or
        `workload.rate_per_s`; and its metrics. A row leaves out what its run has not.

    Raises:
        ResultsError: there are no records, or a line is no record.
    """
    found = [path] if path.is_file() or (path / RESULTS).exists() else sorted(path.rglob(RESULTS))
    records = [record for part in found or [path] for record in read_records(part)[1]]
    settings = [dict(_settings(record)) for record in records]
    names = dict.fromkeys(name for own in settings for name in own)
    varied = [name for name in sorted(names) if len({repr(own.get(name)) for own in settings}) > 1]
    return [
        {name: getattr(record, name) for name in SAID}
        | {name: own[name] for name in varied if name in own}
        | record.metrics
        for record, own in zip(records, settings, strict=True)
    ]


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated values, with every column that any of them has."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in table for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _settings(record: Record) -> Iterator[tuple[str, Any]]:
    yield from _flat("engine", {k: v for k, v in record.config["engine"].items() if k != "seed"})
    yield from _flat("workload", record.config["experiment"]["workloads"][record.workload])


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    else:
        yield name, value
