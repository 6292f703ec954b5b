"""Where a run begins or goes on: the results folder, and what of it is done already.

Imports the lab's configuration, records and provenance.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgjax.lab.config import Experiment
from sgjax.lab.provenance import own_files, run_hash
from sgjax.lab.records import RecordWriter, find_results, read_records
from sgjax.lab.shown import show_as


@dataclass(frozen=True)
class Case:
    """One timed run: which variant on which workload, for the how manieth time."""

    workload: str
    variant: str
    seed: int
    repeat: int


def recorded(arm: Experiment) -> dict[str, Any]:
    """Return what records hold of an arm, beside the engine's configuration."""
    resolved = dataclasses.asdict(arm)
    said = [arm.said_of(variant) for variant in arm.variants]
    return {"experiment": resolved, "files": own_files([resolved["workloads"], said])}


def open_results(arms: Sequence[Experiment], out: Path, resume: bool) -> RecordWriter:
    """Open a new results folder, or the newest whose rows are all of these arms.

    Args:
        arms: what is to be run, all of one experiment.
        out: the folder that holds all results.
        resume: whether to look for one that is there.

    Raises:
        ResultsError: it cannot be written, or another run writes to it.
    """
    name = arms[0].name
    if resume:
        found = find_results(out, name, {run_hash(recorded(arm)) for arm in arms})
        if found is not None:
            return RecordWriter(found)
    return RecordWriter.create(out, name)


def take_up(writer: RecordWriter, arms: Sequence[Experiment]) -> set[tuple[str, Case]]:
    """Return the timed runs that a results folder holds, each behind its `run_hash`.

    They are from now on judged and shown as the arms say.

    Raises:
        ResultsError: that cannot be written down.
    """
    if not writer.num_records:
        return set()
    configs = [recorded(arm) for arm in arms]
    show_as(writer.directory, {run_hash(config): config["experiment"] for config in configs})
    return {
        (r.run_hash, Case(r.workload, r.variant, r.seed, r.repeat))
        for r in read_records(writer.directory)[1]
        if r.error is None
    }
