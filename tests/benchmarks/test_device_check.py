"""The script for a rented device, in its tiny form on the CPU, whole and with steps that fail."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


@pytest.fixture
def device_check(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import device_check

    return device_check


@pytest.mark.slow
def test_every_step_is_measured_and_written(tmp_path):
    found = check(tmp_path / "device.json", "--attention", "cpu", "--limit-s", "270")
    assert not {"failed", "left out"} & set(found)
    for row in found["parity"]:
        assert row["largest"] < {"float32": 1e-5, "bfloat16": 2e-2}[row["dtype"]]
    assert {row["runs"] for row in found["parity"]} == {"plain", "cascade"}
    assert found["cascade"][0]["gain"] > 0
    measured = [(row["cache"], row["workload"]) for row in found["engine"]]
    kinds = ("alone", "shared", "chat")
    assert measured == [(cache, kind) for cache in ("tree", "none") for kind in kinds]
    assert found["engine decode"][0]["mbu"] > 0
    assert found["engine prefill"][0]["mfu"] > 0
    assert found["logprobs"][0]["largest"] < 1e-4
    assert list((tmp_path / "device.cache").iterdir()), "nothing compiled was kept"


def test_what_there_is_no_time_for_is_named_and_the_figure_is_drawn_all_the_same(tmp_path):
    found = check(tmp_path / "device.json", "--limit-s", "0")
    left_out = {row["step"]: row["reason"] for row in found["left out"]}
    assert left_out["parity"] == "no time was left"
    assert "engine random:tiny none" in left_out


def part(device_check, share, *names):
    return device_check.Part(share, [device_check.Step(n, "decode", {}) for n in names])


def stand_in(device_check, monkeypatch, tmp_path, code):
    """Have parts run this code instead; its arguments are the results' file and the steps."""
    script = tmp_path / "part.py"
    script.write_text(f"import json, os, sys, time\n{code}\n")
    monkeypatch.setattr(device_check, "PART", script)
    return device_check.Results(tmp_path / "device.json")


def test_a_process_that_hangs_is_ended_and_its_time_is_all_it_took(
    device_check, monkeypatch, tmp_path
):
    results = stand_in(device_check, monkeypatch, tmp_path, "time.sleep(600)")
    started = time.monotonic()
    parts = [part(device_check, 1, "a", "b"), part(device_check, 3, "c")]
    device_check.measure(parts, results, limit_s=5)
    assert time.monotonic() - started < 15
    assert results.read()["left out"] == [
        {"step": "a", "reason": "its process was ended after 1 s"},
        {"step": "b", "reason": "its process was ended after 1 s"},
        {"step": "c", "reason": "its process was ended after 4 s"},
    ]


def test_time_that_a_part_does_not_need_is_the_others(device_check, monkeypatch, tmp_path):
    results = device_check.Results(tmp_path / "device.json")
    given = []
    monkeypatch.setattr(device_check, "_run", lambda part, results, limit: given.append(limit) or 0)
    device_check.measure([part(device_check, n, f"s{n}") for n in (1, 1, 2)], results, 100)
    assert given == pytest.approx([25, 100 / 3, 100], rel=0.01)


def test_a_process_that_dies_fails_the_steps_it_had_not_done(device_check, monkeypatch, tmp_path):
    code = 'open(sys.argv[1], "w").write(json.dumps({"done": ["a"]})); os.abort()'
    results = stand_in(device_check, monkeypatch, tmp_path, code)
    device_check.measure([part(device_check, 1, "a", "b")], results, limit_s=60)
    assert results.read()["failed"] == [{"step": "b", "error": "its process ended with code -6"}]


def test_a_step_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import device_part

    def broken():
        yield "one", 1
        raise MemoryError("the pool does not fit")

    measures = {"broken": broken, "sound": lambda: [("two", 2)]}
    monkeypatch.setattr(device_part, "MEASURES", measures)
    results = device_part.Results(tmp_path / "device.json")
    asked = [{"name": name, "measure": name, "settings": {}} for name in measures]
    device_part.measure(results, asked)
    error = "MemoryError: the pool does not fit"
    failed = [{"step": "broken", "error": error}]
    assert results.read() == {"one": [1], "two": [2], "failed": failed, "done": ["sound"]}
