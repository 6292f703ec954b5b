"""Check an accelerator in six minutes: parity, decode bandwidth, cascade, engine throughput.

Every part runs in a process of its own that is ended when its time is over: a share of what is
left, so that parts that end early leave theirs to the others, and the whole never takes longer than
its limit. Each result is written into a JSON file as it comes, a figure is drawn at the end, and
both say what failed and what was left out. Programs once compiled are kept beside the JSON file,
for other parts and for another run. Ready for any CUDA machine with jax >= 0.10.2; it never ran on
one. --quick is for trying the script itself on a CPU.

    python benchmarks/device_check.py --bandwidth 4.8e12 --out device.json
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from device_results import Results

PART = Path(__file__).with_name("device_part.py")


@dataclass(frozen=True)
class Step:
    """What is measured at once.

    Attributes:
        name: in what is done, failed or left out.
        measure: one of device_part.MEASURES.
        settings: its arguments.
    """

    name: str
    measure: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Steps of one process, the most valuable first.

    Attributes:
        share: of the time, compared with the other parts'.
        steps: in their order.
    """

    share: float
    steps: list[Step]


def plan(args: argparse.Namespace) -> list[Part]:
    """Return what to measure; shares are seconds of 330."""
    quick, device = args.quick, {"bandwidth": args.bandwidth}
    kernels = {"attention": args.attention}
    alone = [Step("parity", "parity", kernels)]
    for batch, context in [(2, 64)] if quick else itertools.product((1, 32, 128), (2048, 8192)):
        settings = {**kernels, **device, "batch": batch, "context": context}
        alone.append(Step(f"decode {batch}x{context}", "decode", settings))
    for shared in (64,) if quick else (1024, 8192):
        settings = {**kernels, "batch": 4 if quick else 64, "shared": shared}
        alone.append(Step(f"cascade {shared}", "cascade", settings))
    whole = {
        **device,
        "peak": args.peak,
        "grid": [(2, 64)] if quick else [(1, 2048), (32, 2048)],
        "size": (4, 64, 4) if quick else (64, 640, 64),
    }
    engines = [
        [
            Step(f"engine {model} {cache}", "engine", {**whole, "model": model, "cache": cache})
            for cache in ("tree", "none")
        ]
        for model in (["random:tiny"] if quick else args.models)
    ]
    parity = "random:tiny" if quick else args.parity_model
    first, *others = engines
    return [
        Part(45, alone),
        Part(60, [Step("logprobs", "logprobs", {"model": parity})]),
        Part(135, first),
        *(Part(90, steps) for steps in others),
    ]


def measure(parts: list[Part], results: Results, limit_s: float) -> None:
    """Run parts one after the other, for `limit_s` at most."""
    ends = time.monotonic() + limit_s
    for i, part in enumerate(parts):
        left = max(0.0, ends - time.monotonic())
        run(part, results, left * part.share / sum(p.share for p in parts[i:]))


def run(part: Part, results: Results, limit_s: float) -> None:
    """Run one part, end it when its time is over, and write which steps gave nothing, and why."""
    reason = f"its process was ended after {limit_s:.0f} s"
    if limit_s < 1:
        code, reason = None, "no time was left"
    else:
        code = _run(part, results, limit_s)
    found = results.read()
    known = {*found.get("done", []), *(row["step"] for row in found.get("failed", []))}
    for step in part.steps:
        if step.name in known:
            continue
        if code is None:
            results.add("left out", {"step": step.name, "reason": reason})
        else:
            told = f"its process ended with code {code}"
            results.add("failed", {"step": step.name, "error": told})


def _run(part: Part, results: Results, limit_s: float) -> int | None:
    """Return the exit code of the part's process, or None if it had to be ended."""
    cache = results.path.with_suffix(".cache")
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache.absolute()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    steps = json.dumps([asdict(step) for step in part.steps])
    process = subprocess.Popen(
        [sys.executable, PART, results.path, steps], env=environment, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw what there is of bandwidth, of what sharing a prefix gains, and of throughput."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    for name, label in (("decode", "attention"), ("engine decode", "whole step")):
        for model, rows in itertools.groupby(results.get(name, []), lambda r: r.get("model", "")):
            found = [(f"{r['batch']}x{r['context']}", r["mbu"]) for r in rows]
            left.plot(*zip(*found, strict=True), "o-", label=f"{label} {model}".strip())
    left.set(title="decode", xlabel="batch x context", ylabel="share of bandwidth")
    runs = results.get("cascade", [])
    middle.plot([r["shared"] for r in runs], [r["gain"] for r in runs], "o-")
    middle.set(title="cascade", xlabel="tokens shared", ylabel="times faster")
    engines = itertools.groupby(results.get("engine", []), lambda r: f"{r['model']} {r['cache']}")
    for label, rows in engines:
        rates = {r["workload"]: r["output_tokens_per_s"] for r in rows}
        right.plot(list(rates), list(rates.values()), "o", label=label)
    right.set(title="engine", ylabel="output tokens a second")
    for axes in (left, right):
        if axes.lines:
            axes.legend(fontsize=7)
    for axes in (left, middle, right):
        axes.set_ylim(bottom=0)
    missing = len(results.get("failed", [])) + len(results.get("left out", []))
    title = results.get("device", "device unknown")
    figure.suptitle(title + (f", {missing} steps missing" if missing else ""))
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes a second, peak")
    parser.add_argument("--peak", type=float, default=989e12, help="flops a second in bfloat16")
    parser.add_argument("--attention", default="auto", help="of the kernels by themselves")
    parser.add_argument("--models", nargs="+", default=["random:llama-2-7b", "smollm2-135m"])
    parser.add_argument("--parity-model", default="random:qwen2-1.5b")
    parser.add_argument("--limit-s", type=float, default=330, help="end everything after that")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--out", type=Path, default=Path("device_check.json"))
    args = parser.parse_args()
    args.out.unlink(missing_ok=True)
    results = Results(args.out)
    measure(plan(args), results, args.limit_s)
    draw(results.read(), args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
