"""An engine over two processes (jax.distributed on gloo) beside one in a single process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sgjax as sgl
from sgjax.engine import hosts
from sgjax.engine.build import follow
from sgjax.errors import ConfigError
from tests.engine.host_checks import texts

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.slow
def test_two_processes_give_the_text_of_one():
    port = str(free_port())
    flags = "--xla_force_host_platform_device_count=2"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.engine.host_checks", str(rank), port],
            cwd=ROOT, env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=280) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, said, strict=True):
        assert process.returncode == 0, errors[-3000:]
    assert json.loads(said[0][0].splitlines()[-1]) == texts(mesh={"tensor": 1})


def test_settings_in_which_processes_would_differ_are_refused(monkeypatch):
    monkeypatch.setattr(hosts.jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts.jax, "device_count", lambda: 8)
    with pytest.raises(ConfigError, match=r"tensor=4 leaves out devices.*must be all 8"):
        hosts.check_processes(4, 100)
    with pytest.raises(ConfigError, match="kv_tokens=None"):
        hosts.check_processes(8, None)
    hosts.check_processes(8, 100)


def test_only_processes_after_the_first_follow():
    with pytest.raises(ConfigError, match="which has the Engine"):
        follow(model="random:tiny")


def test_an_engine_alone_can_be_shut_down_twice():
    engine = sgl.Engine("random:tiny", max_context_len=64)
    engine.shutdown()
    engine.shutdown()
