"""Results on disk: what stays when writing stops, and that runs do not collide."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sgjax.errors import ResultsError
from sgjax.lab.records import RESULTS, Record, RecordWriter, read_records, write_atomically

RECORD = Record(
    experiment="e", claim="c", workload="w", variant="v", seed=0, repeat=0, executor="cpu",
    device="d", model="m", dtype="float32", config={"experiment": {}, "engine": {}},
    config_hash="h", git_sha=None, versions={"python": "3"}, started="now", wall_s=1.0,
    answers_digest="a", metrics={"accuracy": 0.5},
)  # fmt: skip


def test_records_come_back_as_they_were_written(tmp_path):
    records = [replace(RECORD, repeat=i) for i in range(3)]
    with RecordWriter.create(tmp_path, "e") as writer:
        for record in records:
            writer.write(record)
    assert read_records(writer.directory) == (writer.directory, records)
    assert read_records(writer.directory / RESULTS) == (writer.directory, records)


def test_each_line_is_on_disk_before_the_next_run(tmp_path):
    with RecordWriter.create(tmp_path, "e") as writer:
        writer.write(RECORD)
        assert read_records(writer.directory)[1] == [RECORD]


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        writers = list(pool.map(lambda _: RecordWriter.create(tmp_path, "e"), range(16)))
    assert len({w.directory for w in writers}) == 16
    for writer in writers:
        with writer:
            writer.write(RECORD)
    assert all(len(read_records(w.directory)[1]) == 1 for w in writers)


def test_a_run_without_records_leaves_no_folder(tmp_path):
    with RecordWriter.create(tmp_path, "e") as writer:
        pass
    assert not writer.directory.exists()


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    with RecordWriter.create(tmp_path, "e") as writer:
        writer.write(RECORD)
    with open(writer.directory / RESULTS, "a") as file:
        file.write('{"experiment": "e", "cl')
    assert read_records(writer.directory)[1] == [RECORD]


def test_a_full_disk_ends_in_a_clean_error_and_keeps_the_lines_before(tmp_path):
    program = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from dataclasses import replace
        from sgjax.errors import ResultsError
        from sgjax.lab.records import RecordWriter
        from tests.lab.test_records import RECORD
        with RecordWriter.create(Path(sys.argv[1]), "e") as writer:
            writer.write(RECORD)
            resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))  # the next line fits in part
            try:
                writer.write(replace(RECORD, claim="c" * 4000))
            except ResultsError as error:
                print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the results before are kept" in done.stdout
    [directory] = (tmp_path / "e").iterdir()
    assert read_records(directory)[1] == [RECORD]


def test_an_output_folder_that_cannot_be_made_is_a_clean_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot create results"):
        RecordWriter.create(tmp_path / "file", "e")


@pytest.mark.parametrize("text", ["", '{"experiment": "e', '{"experiment": "e"}\n', "[]\n", "x\n"])
def test_files_that_are_no_results_are_refused(tmp_path, text):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(ResultsError):
        read_records(tmp_path)


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    write_atomically(tmp_path / "f", b"one")
    write_atomically(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_an_atomic_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(ResultsError, match="cannot write"):
        write_atomically(tmp_path / "f", b"one")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
