"""What attending once to a shared prefix saves, and what planning it costs where nothing is shared.

Times one layer's attention of sequences below a common prefix, plain and with the prefix as one
run, in turns; then the host's planning of runs for steps in which there are none. CPU time, of all
threads, also means something while the machine is busy.

    python benchmarks/cascade.py --attention cpu_native --batch 32 --shared 1500 --heads 32 32 128
"""

import argparse
import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from device_kernels import S, arrays, attend, decode_layout, with_run

from sgjax.engine.runs import Member, plan_runs
from sgjax.kernels.select import select_attention

Times = tuple[float, float]
"""Seconds by the clock, and of CPU time."""


def in_turns(calls: tuple[Callable[[], Any], ...], repeats: int) -> list[Times]:
    """Return the median times of each call, taken in turns after one to compile."""
    taken: list[list[Times]] = [[] for _ in calls]
    for call in calls:
        jax.block_until_ready(call())  # type: ignore[no-untyped-call]
    for _, (times, call) in itertools.product(range(repeats), list(zip(taken, calls, strict=True))):
        start, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())  # type: ignore[no-untyped-call]
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    return [tuple(np.median(times, axis=0)) for times in taken]


def attention_times(
    name: str, heads: tuple[int, int, int], batch: int, shared: int, own: int, repeats: int
) -> list[Times]:
    """Return times of a layer's attention, plain and cascaded."""
    attention = select_attention(name, jax.default_backend(), S)
    layout = decode_layout(batch, shared + own, shared)
    x = arrays(batch, *heads, (batch * -(-(shared + own) // S) + 1) * S, "bfloat16")
    plain, once = attend(attention, x, layout), attend(attention, x, with_run(layout, shared))
    return in_turns((plain, once), repeats)


def planning_us(batch: int, repeats: int = 2000) -> float:
    """Return microseconds of planning a step of decodes that share no node."""
    nodes: list[Any] = [SimpleNamespace(id=b, num_tokens=500) for b in range(batch)]
    members = [Member(b, b, 1, (node,)) for b, node in enumerate(nodes)]
    start = time.perf_counter()
    for _ in range(repeats):
        plan_runs(members, batch, batch, 64)
    return (time.perf_counter() - start) / repeats * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--attention", nargs="+", default=["cpu", "cpu_native"])
    parser.add_argument(
        "--heads", type=int, nargs=3, default=[9, 3, 64], metavar=("H", "K", "D"),
        help="query heads, kv heads, head dim; SmolLM2's by default",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--shared", type=int, default=1500)
    parser.add_argument("--own", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    shared = args.shared // S * S
    heads = "/".join(map(str, args.heads))
    print(f"a layer's attention, heads {heads}, {shared} tokens shared, {args.own} own")
    for name, batch in itertools.product(args.attention, args.batch):
        plain, once = attention_times(
            name, tuple(args.heads), batch, shared, args.own, args.repeats
        )
        print(
            f"{name:>12} batch {batch:3}: plain {1e3 * plain[0]:8.2f} ms  "
            f"cascade {1e3 * once[0]:8.2f} ms  {plain[0] / once[0]:5.2f}x by the clock  "
            f"{plain[1] / once[1]:5.2f}x in CPU time"
        )
    for batch in args.batch:
        print(f"planning batch {batch}, nothing shared: {planning_us(batch):.0f} us a step")


if __name__ == "__main__":
    main()
