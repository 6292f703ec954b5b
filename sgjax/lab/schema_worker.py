"""A compiler of JSON schemas in a process of its own, which ends where a schema takes too long.

Imports the lab's schema judge and compilers. Nothing else stops another package that takes minutes
for a schema, or that crashes. Parent and child speak in pickles: a job, then schemas one by one.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.lab.schema_compilers import Name, load_compiler
from sgjax.lab.schema_judge import Judged, Schema, judge
from sgjax.models.pull import default_cache_dir
from sgjax.tokens.base import Tokenizer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Job:
    """What a worker is for.

    Attributes:
        compiler: who compiles.
        tokenizer: whose vocabulary the masks are over.
        spec: options.
        budget_s: seconds of processor time for a schema and its instances, to the next whole one.
    """

    compiler: Name
    tokenizer: Tokenizer
    spec: GrammarSpec
    budget_s: float


class SchemaWorker:
    """Judge schemas in a process, which is started again after one that it did not survive.

    Args:
        job: what it does.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "SchemaWorker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """Return the process's number; None before its first schema, and after its end."""
        return self._process.pid if self._process else None

    def judge(self, schema: Schema) -> Judged:
        """Compile a schema and judge its instances; who dies of it has refused it."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(schema, process.stdin)
            process.stdin.flush()
            judged: Judged = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError):
            return self._buried(process)
        return judged

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)
        assert self._process.stdin is not None
        pickle.dump(self._job, self._process.stdin)
        return self._process

    def _buried(self, process: "subprocess.Popen[bytes]") -> Judged:
        """Return what became of a schema that ended the process."""
        status = process.wait()
        self._end()
        budget_s = self._job.budget_s
        if status == -signal.SIGXCPU:
            reason = f"more than {budget_s:g} s of processor time (budget_s)"
            return Judged(False, budget_s, reason=reason, over_budget=True)
        return Judged(False, 0.0, reason=f"the compiler's process ended with status {status}")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    """Judge what comes in."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what packages print must not get between
    job: Job = pickle.load(sys.stdin.buffer)
    kernels = load_kernels(job.spec.kernels, default_cache_dir() / "native")
    compiler = load_compiler(job.compiler, job.tokenizer, kernels, job.spec)
    compiler('{"type": "boolean"}')  # what is built once is not the first schema's
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    while True:
        try:
            schema: Schema = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        end_s = used.ru_utime + used.ru_stime + job.budget_s
        resource.setrlimit(resource.RLIMIT_CPU, (int(end_s) + 1, most))
        pickle.dump(judge(schema, compiler, job.tokenizer, job.spec), answers)
        answers.flush()
