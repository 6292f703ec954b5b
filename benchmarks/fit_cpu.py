"""Fit a CPU's profile to what our own engine does on it, and test it on what was not fitted.

    python benchmarks/fit_cpu.py [--model smollm2-135m] [--repeats 3] [--write NAME]

The real engine serves made-up requests; the simulator serves the same ones with the constants under
trial. Fitted are the efficiencies of products and of memory and the constant of a step, on two
workloads, decoding and prefill, at two sizes each. Tested are workloads of other kinds: their
throughput must come out within 15 %. `--write NAME` writes configs/hardware/NAME.yaml. Run it on a
quiet machine: whatever else runs is fitted, too.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path
from typing import Any

import yaml

import sgjax as sgl
from sgjax.models.presets import load_preset
from sgjax.shipped import shipped
from sgjax.sim import Hardware, Roofline, load_hardware
from sgjax.sim.replay import ReplayConfig, replay
from sgjax.sim.trace import Arrival

SIZES: dict[str, Any] = {
    "page_size": 16,
    "kv_tokens": 24_000,
    "max_running": 32,
    "token_budget": 1024,
}
CONTEXT, WITHIN = 2048, 0.15
Requests = list[tuple[tuple[int, ...], int]]
"""Prompts with the lengths of their outputs; all are there from the beginning."""


@dataclass(frozen=True)
class Measured:
    """A workload, and the seconds that the real engine takes for it."""

    name: str
    fitted: bool
    requests: Requests
    seconds: float


def workloads(vocab: int) -> Iterator[tuple[str, bool, Requests]]:
    """Yield names, whether they are fitted, and requests."""
    rng = random.Random(0)

    def words(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(1000, vocab) for _ in range(length))

    yield "decode, 1 sequence", True, [(words(32), 64)]
    yield "decode, 32 sequences", True, [(words(32), 64) for _ in range(32)]
    yield "prefill, 1 prompt", True, [(words(512), 1)]
    yield "prefill, 8 prompts", True, [(words(512), 1) for _ in range(8)]
    yield (
        "mixed lengths",
        False,
        [(words(rng.randrange(16, 256)), rng.randrange(8, 64)) for _ in range(24)],
    )
    stem = words(600)
    yield "few shots, one answer token", False, [(stem + words(60), 1) for _ in range(32)]
    turns, said = [], words(100)
    for _ in range(16):
        said += words(40)
        turns.append((said, 24))
    yield "growing chats", False, turns
    yield "long contexts", False, [(words(1500), 32) for _ in range(8)]


def measure(model: str, repeats: int) -> list[Measured]:
    """Serve every workload on the real engine: once to compile, then so often by the clock."""
    measured = []
    with sgl.Engine(model, max_context_len=CONTEXT, **SIZES) as engine:
        vocab = engine.tokenizer.vocab_size
        for name, fitted, requests in workloads(vocab):
            prompts = [list(prompt) for prompt, _ in requests]
            params: list[Mapping[str, Any]] = [
                {"max_new_tokens": new, "temperature": 0, "ignore_eos": True} for _, new in requests
            ]
            times: list[float] = []
            while len(times) < repeats:
                assert engine.flush_cache()
                compiled = engine.get_server_info()["compilations"]
                begin_s = engine.now()
                engine.generate(input_ids=prompts, sampling_params=params)
                seconds = engine.now() - begin_s
                if engine.get_server_info()["compilations"] == compiled:
                    times.append(seconds)
            measured.append(Measured(name, fitted, requests, statistics.median(times)))
            print(f"{name:30} {measured[-1].seconds:8.3f} s", flush=True)
    return measured


def simulated_s(work: Measured, model: str, hardware: Hardware) -> float:
    """Return the seconds that a device of these constants takes."""
    cost = Roofline(load_preset(model).config, hardware, "bfloat16", "bfloat16")
    trace = [Arrival(0.0, prompt, new) for prompt, new in work.requests]
    return replay(trace, ReplayConfig(**SIZES, max_context_len=CONTEXT), cost).elapsed_s


def error(work: Measured, model: str, hardware: Hardware) -> float:
    """Return by how much the simulated throughput is off, as a share of the real one."""
    return work.seconds / simulated_s(work, model, hardware) - 1


def fit(measured: list[Measured], model: str, hardware: Hardware) -> Hardware:
    """Return the constants whose worst error on the fitted workloads is least.

    A coarse grid, then finer ones around its best point.
    """
    known = [work for work in measured if work.fitted]

    def worst(constants: Hardware) -> float:
        return max(abs(error(work, model, constants)) for work in known)

    best, width = replace(hardware, matmul_efficiency=0.3, memory_efficiency=0.5, step_s=2e-3), 3.0
    for _ in count():
        factors = (1 / width, width**-0.5, 1.0, width**0.5, width)
        best = min(
            (
                replace(
                    best,
                    matmul_efficiency=min(1.0, best.matmul_efficiency * a),
                    memory_efficiency=min(1.0, best.memory_efficiency * b),
                    step_s=best.step_s * c,
                )
                for a, b, c in product(factors, repeat=3)
            ),
            key=worst,
        )
        width **= 0.6
        if width < 1.01:
            break
    return best


def write(hardware: Hardware, name: str) -> Path:
    """Write the profile beside the shipped ones."""
    path = shipped("hardware") / f"{name}.yaml"
    head = "# Fitted to our own engine by benchmarks/fit_cpu.py; sources of the others: cpu.yaml.\n"
    path.write_text(head + yaml.safe_dump(vars(hardware), sort_keys=False), encoding="utf-8")
    return path


def main() -> int:
    """Measure, fit, print the errors; return 1 if a tested workload is off by more than 15 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="a preset whose weights are here")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", metavar="NAME", help="configs/hardware/NAME.yaml")
    options = parser.parse_args()
    measured = measure(options.model, options.repeats)
    fitted = fit(measured, options.model, load_hardware("cpu"))
    for name in ("matmul_efficiency", "memory_efficiency", "step_s"):
        print(f"{name}: {getattr(fitted, name):.4g}")
    missed = 0
    for work in measured:
        off = error(work, options.model, fitted)
        missed += not work.fitted and abs(off) > WITHIN
        print(f"{work.name:30} {'fitted' if work.fitted else 'tested'} throughput {off:+.1%}")
    if options.write:
        print(write(fitted, options.write))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
