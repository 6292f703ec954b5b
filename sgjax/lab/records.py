"""Results on disk: one JSON object a timed run, one folder an experiment's run.

Imports `errors`, provenance and the arms' names. Lines are written one by one; whatever stops a
run, the lines before it are kept. Who writes a results file holds a lock on it, which the operating
system drops with the process, however that ends: a lock is never stale.
"""

import dataclasses
import fcntl
import json
import os
import tempfile
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from sgjax.errors import ResultsError
from sgjax.lab.provenance import run_hash
from sgjax.lab.reference import Arm

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Asked:
    """What the command line asked of an experiment's file.

    Attributes:
        quick: whether for its short form, which is another one than its full form.
        overrides: `dotted.key=value`.
    """

    quick: bool = False
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Record:
    """One timed run of one variant; a line of results.jsonl.

    Attributes:
        experiment, claim, workload, variant, seed, repeat: what was run.
        executor: sim, cpu, gpu or tpu.
        device, model, dtype: what it ran on.
        config: the resolved experiment, the resolved engine configuration, and the digests of the
            user's own files that it runs.
        config_hash: digest of `config`.
        git_sha: commit of the project, or None outside a checkout.
        versions: of Python and packages.
        started: UTC, ISO 8601.
        wall_s: seconds the run took.
        answers_digest: digest of all programs' answers in order.
        metrics: by name; empty where it failed.
        error: why another engine could not run it.
        run_hash: digest of what of `config` decides the results of the whole experiment; by it a
            run is resumed.
        quick: whether the short form was asked for; None where that was not recorded.
        overrides: what the command line changed.
        arms: all that were to be run; empty where that was not recorded.
    """

    experiment: str
    claim: str
    workload: str
    variant: str
    seed: int
    repeat: int
    executor: str
    device: str
    model: str
    dtype: str
    config: dict[str, Any]
    config_hash: str
    git_sha: str | None
    versions: dict[str, str]
    started: str
    wall_s: float
    answers_digest: str
    metrics: dict[str, float]
    error: str | None = None
    run_hash: str = ""
    quick: bool | None = None
    overrides: list[str] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)

    @property
    def arm(self) -> Arm:
        """Return how the numbers came about."""
        return "simulated" if self.executor == "sim" else "measured"


class RecordWriter:
    """Append records to the results.jsonl of a folder that nobody else writes to meanwhile.

    Attributes:
        directory: the folder; it goes again if no record was written.
        num_records: records that it holds.
    """

    def __init__(self, directory: Path) -> None:
        """Open a folder's results, made if there are none; a last line that was cut off goes.

        Raises:
            ResultsError: another run writes to them, or they cannot be written.
        """
        self.directory = directory
        try:
            self._file: IO[bytes] = open(directory / RESULTS, "a+b", buffering=0)  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ResultsError(
                f"another run writes to {directory}; wait until it ends, or start one of its own "
                "without --resume"
            ) from None
        except OSError as error:
            raise ResultsError(f"cannot write results to {directory}: {error}") from None
        self._file.seek(0)
        content = self._file.read()
        self.num_records = content.count(b"\n")
        self._file.truncate(content.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)

    @classmethod
    def create(cls, out: Path, experiment: str) -> "RecordWriter":
        """Open `out/experiment/<stamp>/`; runs that start at once get different folders.

        Raises:
            ResultsError: it cannot be made.
        """
        try:
            directory = _new_directory(out / experiment)
        except OSError as error:
            raise ResultsError(
                f"cannot create results under {out}: {error}; choose another --out"
            ) from None
        return cls(directory)

    def write(self, record: Record) -> None:
        """Append one line and hand it to the operating system at once.

        Raises:
            ResultsError: it cannot be written in full (disk full, for one); the lines before it
                stay as they are.
        """
        line = json.dumps(dataclasses.asdict(record)).encode() + b"\n"
        end = self._file.tell()
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError("only a part of the line could be written; the disk may be full")
        except OSError as error:
            self._file.truncate(end)
            self._file.seek(end)
            raise ResultsError(
                f"cannot write to {self.directory / RESULTS}: {error}; the results before are "
                "kept, and --resume goes on from them when there is room"
            ) from None
        self.num_records += 1

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.num_records:
            (self.directory / RESULTS).unlink()
            self.directory.rmdir()
        self._file.close()


def read_records(path: Path) -> tuple[Path, list[Record]]:
    """Read a results folder, or its results.jsonl.

    Returns:
        The folder and its records. A last line without an end (the run was killed while it was
        written) is left out.

    Raises:
        ResultsError: there are no records, or a line is no record.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read results: {error}; give a results folder") from None
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    if not lines:
        raise ResultsError(f"{file} holds no complete record, so there is nothing to draw")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            # Results from before there were such hashes have none.
            records.append(Record(**{"run_hash": run_hash(row["config"]), **row}))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ResultsError(f"{file}, line {number} is no record: {error}") from None
    return file.parent, records


def find_results(out: Path, experiment: str, hashes: Set[str]) -> Path | None:
    """Return the newest folder of an experiment's runs whose records are all of some arms.

    Args:
        out: the folder that holds all results.
        experiment: its name.
        hashes: `run_hash` of the arms.
    """
    for directory in sorted((out / experiment).glob("*/"), reverse=True):
        try:
            records = read_records(directory)[1]
        except ResultsError:  # nothing there yet, or not ours
            continue
        if {record.run_hash for record in records} <= hashes:
            return directory
    return None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there.

    Raises:
        ResultsError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"cannot make the folder {path}: {error}; choose another --out"
        ) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there in full or not at all.

    Raises:
        ResultsError: it cannot be written; what was there before stays.
    """
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise ResultsError(f"cannot write {path}: {error}") from None


def _new_directory(parent: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        directory = parent / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise FileExistsError(f"{parent / stamp} and 998 more exist")
