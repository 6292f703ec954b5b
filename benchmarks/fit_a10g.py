"""Fit the A10G's memory efficiency to the paper's 74.3 s for 100 ShareGPT requests (section 6.3).

    python benchmarks/fit_a10g.py sharegpt_turn_lengths.jsonl

The file holds one conversation a line, {"h": [...], "a": [...]}: characters of each human and each
assistant turn. A request is a conversation's first turn, at four characters a token and at most
1,024 tokens of prompt and of output; all arrive at once. Nothing is shared, so only the cost model
is fitted. The other free constants stay as configs/hardware/a10g.yaml has them.
"""

import dataclasses
import json
import random
import sys
from pathlib import Path

from sgjax.models.presets import load_preset
from sgjax.sim import Hardware, Roofline, fitting_kv_tokens, load_hardware
from sgjax.sim.replay import ReplayConfig, replay
from sgjax.sim.trace import Arrival

PAPER_S, REQUESTS, SEEDS = 74.3, 100, 5
LLAMA = load_preset("llama-2-7b").config


def sample(rows: list[dict[str, list[int]]], seed: int) -> list[Arrival]:
    """Return 100 requests whose prompts share nothing."""
    fresh = iter(range(1000, 10**9))
    arrivals = []
    for row in random.Random(seed).sample(rows, REQUESTS):
        prompt, output = (max(4, min(1024, row[side][0] // 4)) for side in ("h", "a"))
        arrivals.append(Arrival(0.0, tuple(next(fresh) for _ in range(prompt)), output))
    return arrivals


def simulated_s(hardware: Hardware, samples: list[list[Arrival]]) -> float:
    """Return the mean time to serve a sample."""
    cost = Roofline(LLAMA, hardware, "bfloat16", "bfloat16")
    room = fitting_kv_tokens(LLAMA, hardware, "bfloat16", "bfloat16")
    config = ReplayConfig(room, page_size=1, max_running=64, token_budget=2048)
    return sum(replay(trace, config, cost).elapsed_s for trace in samples) / len(samples)


def main() -> None:
    """Bisect for the efficiency and print it."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    samples = [sample(rows, seed) for seed in range(SEEDS)]
    hardware, low, high = load_hardware("a10g"), 0.3, 1.0
    print(f"as committed: {simulated_s(hardware, samples):.1f} s, paper {PAPER_S} s")
    while high - low > 0.002:
        middle = (low + high) / 2
        fitted = dataclasses.replace(hardware, memory_efficiency=middle)
        low, high = (low, middle) if simulated_s(fitted, samples) < PAPER_S else (middle, high)
    print(f"memory_efficiency: {high:.3f}")


if __name__ == "__main__":
    main()
