"""What needs no compiler: targets, verdicts, the command line."""

import io
import re
import subprocess

import pytest
from rich.console import Console

from sgjax.aot import check
from sgjax.aot.job import Job, Verdict
from sgjax.aot.report import show
from sgjax.aot.targets import load_target, target_names
from sgjax.errors import ConfigError


@pytest.mark.parametrize("name", [*target_names(), "sm_80", "sm_86", "sm_90"])
def test_every_target_is_described(name):
    target = load_target(name)
    assert target.memory_bytes > 1e10
    assert ("gpu_device_info" in target.description) == (target.platform == "cuda")
    assert target.topology(8)


def test_unknown_targets_and_too_many_chips_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'v5"):
        load_target("v5")
    with pytest.raises(ConfigError, match="1 to 8"):
        load_target("v5e").topology(9)


@pytest.mark.parametrize(
    ("code", "stderr", "status", "reason"),
    [
        (-6, "x\nLLVM ERROR: Cannot select", "rejected", "SIGABRT.*LLVM ERROR: Cannot select"),
        (1, "noise\nModuleNotFoundError: no sgjax", "rejected", "ModuleNotFoundError: no sgjax"),
        (check.ABSENT, "Error: no compiler for tpu", "absent", "no compiler for tpu"),
    ],
)
def test_a_compiler_that_refuses_or_dies_gives_a_verdict(monkeypatch, code, stderr, status, reason):
    done = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(check.subprocess, "run", lambda *a, **k: done)
    verdict = check.compile_job(Job("a10g", "tiny", "decode"))
    assert verdict.status == status
    assert re.search(reason, verdict.reason)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"step": "train"}, "step='train' is not allowed; use kernel, decode, extend, prefill"),
        ({"tensor": 0}, "tensor=0 is not allowed; it must be at least 1"),
        ({"context": -5}, "context=-5"),
        ({"model": "llama-9"}, "unknown preset 'llama-9'; did you mean 'llama-"),
        ({"target": "v5e", "tensor": 16}, "16 chips are asked for; allowed: 1 to 8"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_before_anything_is_compiled(job, message):
    with pytest.raises(ConfigError, match=message):
        check.compile_job(Job(**{"target": "a10g", "model": "tiny", "step": "decode", **job}))


def test_a_narrow_terminal_shows_every_number_and_in_full_why_something_does_not_fit():
    job = Job("a10g", "tiny", "decode")
    fits = Verdict(
        job, "fits", weights_bytes=2 * 10**9, kv_bytes=70 * 10**9, temp_bytes=10**7,
        kv_tokens=4_480_992, num_layers=2, registers=168, spills=0, shared_bytes=81920,
    )  # fmt: skip
    absent = Verdict(job, "absent", "no compiler for cuda; install sgjax[aot]")
    console = Console(width=80, file=io.StringIO())
    show([fits, absent], console)
    said = console.file.getvalue()
    for shown in ("a10g", "decode", "fits", "2.00", "70.00", "0.01", "4,480,992", "168", "81.9"):
        assert f"{shown} " in said
    assert "a10g decode: no compiler for cuda; install sgjax[aot]" in said
    assert "all-reduce" not in said, "a column that nobody fills is not shown"
