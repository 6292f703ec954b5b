"""The script for a rented device, in its tiny form on the CPU, whole and with parts that fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def check(out, *arguments):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "device_check.py", "--quick", "--out", out, *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert out.with_suffix(".png").stat().st_size > 10_000
    return json.loads(out.read_text())


def test_every_part_is_measured_and_written(tmp_path):
    found = check(tmp_path / "device.json", "--attention", "cpu")
    assert not {"failed", "left out"} & set(found)
    assert max(v for k, v in found["parity"][0].items() if "float32" in k) < 1e-5
    assert max(v for k, v in found["parity"][0].items() if "bfloat16" in k) < 2e-2
    assert found["cascade"][0]["gain"] > 0
    assert {row["cache"] for row in found["engine"]} == {"tree", "none"}
    assert set(found["engine"][0]["output_tokens_per_s"]) == {"alone", "shared", "chat"}
    assert found["engine decode"][0]["mbu"] > 0
    assert found["engine prefill"][0]["mfu"] > 0
    assert found["logprobs"][0]["largest"] < 1e-4


def test_what_there_is_no_time_for_is_named_and_the_figure_is_drawn_all_the_same(tmp_path):
    found = check(tmp_path / "device.json", "--attention", "cpu", "--limit-s", "0")
    assert "parity" in found["left out"]
    assert "engine random:tiny none" in found["left out"]


def test_a_part_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from device_check import Session

    def broken():
        yield "one", 1
        raise MemoryError("the pool does not fit")

    session = Session(tmp_path / "device.json", 60, {"device": "none"})
    session.run("broken", broken)
    session.run("sound", lambda: [("two", 2)])
    found = json.loads((tmp_path / "device.json").read_text())
    assert found["one"] == [1]
    assert found["two"] == [2]
    assert found["failed"][0]["error"] == "MemoryError: the pool does not fit"
