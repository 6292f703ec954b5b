"""sgjax beside transformers, vLLM and llama.cpp: same weights, same token ids, greedy.

Every engine runs in a process and Python of its own and stays alive; repeats take turns
(A B C A B C ...), so that a noisy minute hurts all alike. Each workload runs untimed before it is
measured, as a whole where programs are compiled. Engines that cannot run are listed with the
reason.

    python benchmarks/peers.py --peer transformers=/venv-a/bin/python --peer vllm=/venv-b/bin/python

A peer without --peer is looked for in this Python. With `--dtype float32` the column `same tokens`
of the JSON file tells whether engines agree; in bfloat16 long texts drift apart by rounding.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from peer.report import Cell, Column, Table, as_json, is_ours, markdown
from peer.work import WORKLOADS, Job, Texts, Workload, question_texts, small_part

from sgjax.lab.peers import checkpoints
from sgjax.lab.peers.process import PeerProcess
from sgjax.lab.peers.spec import PEERS
from sgjax.lab.peers.start import FORMS
from sgjax.lab.provenance import git_sha
from sgjax.models.gguf_file import GgufFile
from sgjax.models.pull import default_cache_dir, pull
from sgjax.tokens.gguf import tokenizer_from_gguf

OURS = {"page_size": 16, "max_running": 32, "kv_tokens": 40_000, "max_context_len": 2048}
"""sgjax's settings: as many sequences as the largest batch, room for them all."""
NATIVE = {**OURS, "attention": "cpu_native", "page_size": 8}
"""With the C++ kernels small pages cost nothing, and prompts share prefixes in whole pages."""


@dataclass(frozen=True)
class Engine:
    """How to start an engine.

    Attributes:
        module: its adapter, sgjax/lab/peers/remote/run_<module>.py.
        model: from the source GGUF file, the dtype and a cache folder to what it reads.
        options: passed to it.
    """

    module: str
    model: Callable[[Path, str, Path], Path]
    options: dict[str, Any] = field(default_factory=dict)


def as_it_is(source: Path, dtype: str, cache: Path) -> Path:
    """Return the source: sgjax dequantises by itself."""
    return source


ENGINES = {
    "sgjax": Engine("sgjax", as_it_is, {**OURS, "attention": "cpu"}),
    "sgjax_native": Engine("sgjax", as_it_is, NATIVE),
    "sgjax_int8": Engine("sgjax", as_it_is, {**NATIVE, "weights": {"type": "int8"}}),
    **{
        name: Engine(peer.module, FORMS[peer.reads], peer.options)
        for name, peer in PEERS.items()
        if name in ("transformers", "vllm", "llama_cpp")
    },
}
SETTLE_S = 0.3
"""Pause before a run: threads of the engine before may spin for 0.2 s after their work."""
LIMIT_HELP = "seconds after which an engine does not repeat a workload again"
TRIES = 3
"""Runs at most until one compiles nothing."""


class Worker:
    """An engine's process and its column.

    Args:
        name: of ENGINES.
        python: the interpreter that has it.
        settings: the adapter's module, and what its `load` takes.
        log: what the engine prints goes here.
    """

    def __init__(self, name: str, python: str, settings: dict[str, Any], log: TextIO) -> None:
        process = PeerProcess(python, settings, log)
        self.column = Column(name, process.about, process.error)
        self.ask, self.close = process.ask, process.close


def compare(workers: list[Worker], names: list[str], repeats: int, limit_s: float) -> Table:
    """Measure workloads one after another."""
    texts = question_texts(tokenizer_from_gguf(GgufFile(model_file()).metadata))
    table: Table = {}
    for workload in (w for w in WORKLOADS if w.name in names):
        cells = table[workload.name] = compare_on(workload, texts, workers, repeats, limit_s)
        shown = {n: c.error or [round(r, 2) for r in c.rates] for n, c in cells.items()}
        print(f"{workload.title}: {shown}", file=sys.stderr, flush=True)
    return table


def compare_on(
    workload: Workload, texts: Texts, workers: list[Worker], repeats: int, limit_s: float
) -> dict[str, Cell]:
    """Warm all engines up, then measure them in turns."""
    cells = {w.column.name: Cell() for w in workers}
    spent = dict.fromkeys(cells, 0.0)
    first = workload.make(texts)
    for worker in workers:
        warm_up = first if is_ours(worker.column.name) else small_part(first)
        cells[worker.column.name].error = worker.ask(warm_up).get("error")
    for repeat in range(repeats):
        job = workload.make(texts) if workload.fresh else first
        for worker in workers:
            name = worker.column.name
            # The first repeat is for all; a slow engine has fewer of the others.
            if cells[name].error is None and (repeat == 0 or spent[name] < limit_s):
                started = time.perf_counter()
                measure(worker, job, lambda: workload.make(texts), cells[name])
                spent[name] += time.perf_counter() - started
    return cells


def measure(worker: Worker, job: Job, other: Callable[[], Job], cell: Cell) -> None:
    """Run a job, or others like it, until one compiles nothing; enter it into the cell."""
    for _ in range(TRIES):
        time.sleep(SETTLE_S)
        answer = worker.ask(job)
        cell.error = answer.get("error")
        if cell.error is not None:
            return
        if not answer["compiled"]:
            cell.rates.append(answer["count"] / answer["seconds"])
            cell.outputs = answer["outputs"]
            return
        job = other()  # the same one would be in the engine's cache by now
    cell.error = f"it still compiled in run {TRIES}"


def model_file() -> Path:
    """Return the GGUF file all weights come from; it is pulled on first use."""
    return pull("smollm2-135m", default_cache_dir(), lambda line: print(line, file=sys.stderr))


def machine() -> dict[str, Any]:
    """Return what a reader needs to know about where this ran."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "load_before": os.getloadavg()[0],
    }


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workloads", nargs="+", default=[w.name for w in WORKLOADS])
    parser.add_argument("--dtype", choices=list(checkpoints.KINDS), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=20.0, help=LIMIT_HELP)
    parser.add_argument("--options", action="append", default=[], metavar="NAME={JSON}")
    parser.add_argument("--cache", type=Path, default=default_cache_dir() / "peers")
    parser.add_argument("--json", type=Path, default=None, help="file for everything measured")
    parser.add_argument("--log", type=Path, default=None, help="file for what engines print")
    args = parser.parse_args()
    args.peer = dict(item.split("=", 1) for item in args.peer)
    args.options = {
        name: json.loads(text) for name, text in (item.split("=", 1) for item in args.options)
    }
    known = {w.name for w in WORKLOADS}
    for given, allowed in ((args.workloads, known), ([*args.peer, *args.options], {*ENGINES})):
        if unknown := set(given) - set(allowed):
            parser.error(f"unknown: {', '.join(unknown)}; allowed: {', '.join(sorted(allowed))}")
    return args


def start(args: argparse.Namespace, log: TextIO) -> list[Worker]:
    """Start all engines, one after another."""
    source, workers = model_file(), []
    for name in args.engines:
        print(f"loading {name}", file=sys.stderr, flush=True)
        engine = ENGINES[name]
        settings = {
            "engine": engine.module,
            "model": str(engine.model(source, args.dtype, args.cache)),
            "dtype": args.dtype,
            "threads": len(os.sched_getaffinity(0)),
            "options": engine.options | args.options.get(name, {}),
        }
        workers.append(Worker(name, args.peer.get(name, sys.executable), settings, log))
    return workers


def main() -> None:
    """Load the engines, measure, print the table and save everything."""
    args = parse()
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    where = machine()
    log_path = args.log or Path(tempfile.gettempdir()) / f"sgjax-peers-{os.getpid()}.log"
    with log_path.open("w", encoding="utf-8") as log:
        print(f"what engines print goes to {log_path}", file=sys.stderr)
        workers = start(args, log)
        try:
            running = [w for w in workers if w.column.error is None]
            table = compare(running, args.workloads, args.repeats, args.limit_s)
        finally:
            for worker in workers:
                worker.close()
    columns = [worker.column for worker in workers]
    print(markdown(columns, table, {w.name: w.title for w in WORKLOADS}))
    if args.json:
        record = {
            "started": started.isoformat(timespec="seconds"),
            "wall_s": round(time.perf_counter() - clock, 1),
            "git_sha": git_sha(),
            "dtype": args.dtype,
            "machine": where,
            **as_json(columns, table),
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
