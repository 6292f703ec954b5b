"""What needs no compiler: targets, verdicts, the command line."""

import re
import subprocess

import pytest

from sgjax.aot import check
from sgjax.aot.job import Job
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
        (1, "Traceback\nValueError: RESOURCE_EXHAUSTED: shared memory", "rejected", "EXHAUSTED"),
        (check.ABSENT, "Error: no compiler for tpu", "absent", "no compiler for tpu"),
    ],
)
def test_a_compiler_that_refuses_or_dies_gives_a_verdict(monkeypatch, code, stderr, status, reason):
    done = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(check.subprocess, "run", lambda *a, **k: done)
    verdict = check.compile_job(Job("a10g", "tiny", "decode"))
    assert verdict.status == status
    assert re.search(reason, verdict.reason)
