"""Run compile jobs, each in a process of its own. HOST: it starts jax, but never imports it.

A compiler may end its process (LLVM's fatal errors), and jax must be told of platforms before it is
imported; so a signal means "rejected", and what a job needs in its environment is set here.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sgjax.aot.job import Job, Verdict
from sgjax.aot.targets import load_target
from sgjax.models.presets import load_preset

ABSENT = 3
"""Exit code of a worker that finds no compiler for its target."""


def compile_job(job: Job, timeout_s: float = 900) -> Verdict:
    """Compile one program and return what the compiler said.

    Raises:
        ConfigError: the target or the model is unknown, or there are no such machines.
    """
    load_target(job.target).topology(job.tensor)
    load_preset(job.model)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as dump:
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "TPU_SKIP_MDS_QUERY": "1",
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            # PTX is dumped unasked by jaxlib 0.10 alone.
            "XLA_FLAGS": f"--xla_dump_to={dump} --xla_dump_hlo_as_text --xla_dump_emitter_re=ptx",
        }
        worker = [
            sys.executable,
            "-m",
            "sgjax.aot.worker",
            json.dumps(dataclasses.asdict(job)),
            dump,
        ]
        try:
            done = subprocess.run(
                worker,
                env=environment, capture_output=True, text=True, check=False, timeout=timeout_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Verdict(job, "rejected", f"no end after {timeout_s:.0f} s")
    seconds = time.monotonic() - started
    if done.returncode == 0:
        found = json.loads(done.stdout.splitlines()[-1])
        return Verdict(job, **found, seconds=seconds)
    absent = done.returncode == ABSENT
    return Verdict(job, "absent" if absent else "rejected", _reason(done), seconds=seconds)


def ptxas() -> str | None:
    """Return NVIDIA's assembler, which reports registers: of the `aot` extra, or on the path."""
    for folder in map(Path, sys.path):
        for path in folder.glob("nvidia/*/bin/ptxas"):
            return str(path)
    for folder in map(Path, os.get_exec_path()):
        if (folder / "ptxas").is_file():
            return str(folder / "ptxas")
    return None


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        fatal = [line for line in done.stderr.splitlines() if "LLVM ERROR" in line]
        return f"the compiler ended its process ({name}) {' '.join(fatal[:1])}".strip()
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return (lines or ["no message"])[-1][:500]
