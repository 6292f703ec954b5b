"""Check an accelerator in a few minutes: parity, decode bandwidth, cascade, engine throughput.

Kernels by themselves here, whole models in device_engine.py. Prints a line for each measurement,
writes each into a JSON file at once and draws a figure at the end; a part that fails or for which
no time is left is named there. Ready for any CUDA machine with jax >= 0.10.2; it never ran on one.
--quick is for trying the script itself on a CPU.

    python benchmarks/device_check.py --bandwidth 4.8e12 --out device.json
"""

import argparse
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from device_engine import logprob_difference, measure

from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Layout, no_runs, num_runs
from sgjax.kernels.reference import ReferenceAttention
from sgjax.kernels.select import select_attention
from sgjax.kernels.storage import pool_dtype

S = 16
"""Tokens a page."""

Rows = Iterable[tuple[str, Any]]
"""Results by name."""


def decode_layout(D: int, context: int, shared: int) -> Layout:
    """Return D decodes at `context` tokens whose first `shared` tokens lie in the same pages."""
    pages, common = -(-context // S), shared // S
    table = 1 + np.arange(D * pages, dtype=np.int32).reshape(D, pages)
    table[:, :common] = table[0, :common]
    last = np.full(D, context - 1, np.int32)
    none = np.zeros(0, np.int32)
    # jit takes numpy's arrays where the record names jax's.
    where: dict[str, Any] = {
        "positions": last,
        "out_slots": table[np.arange(D), last // S] * S + last % S,
        "kv_lens": last + 1,
        "page_table": table,
        "block_row": none,
        "block_start": none,
        "block_len": none,
    }
    return Layout(**where, shared=no_runs(D, D))


def with_run(layout: Layout, shared: int) -> Layout:
    """Return the layout with its common pages as one run, in tiles of queries."""
    D = int(layout.kv_lens.shape[0])
    runs: Any = no_runs(D, D)
    tiles = -(-D // runs.tokens.shape[1])
    assert tiles <= num_runs(D)
    padded = np.full(tiles * runs.tokens.shape[1], D, np.int32)
    padded[:D] = np.arange(D)
    runs.tokens[:tiles] = padded.reshape(tiles, -1)
    runs.end[:tiles], runs.own_start[:] = shared, shared
    return dataclasses.replace(layout, shared=runs)


def arrays(D: int, H: int, K: int, HD: int, slots: int, dtype: str) -> list[jax.Array]:
    """Return q, k, v and the two pools of one layer, random."""
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = [(D, H, HD), (D, K, HD), (D, K, HD), (slots, K * HD), (slots, K * HD)]
    made = [jax.random.normal(key, s, dtype) for key, s in zip(keys, shapes, strict=True)]
    stored = pool_dtype(dtype, jax.default_backend())
    if stored == "uint16":
        made[3:] = [jax.lax.bitcast_convert_type(x, jnp.uint16) for x in made[3:]]
    return made


def seconds(f: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median time of a call, after one to compile."""
    jax.block_until_ready(f())  # type: ignore[no-untyped-call]
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(f())  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def attend(attention: Attention, x: list[jax.Array], layout: Layout) -> Callable[[], jax.Array]:
    """Return a call of attention alone, on a pool of its own that is updated in place."""
    placed = jax.device_put(layout)
    jitted = jax.jit(attention, donate_argnums=(3, 4))
    pools = [jnp.copy(pool) for pool in x[3:]]

    def call() -> jax.Array:
        out: jax.Array
        out, *pools[:] = jitted(*x[:3], *pools, placed)
        return out

    return call


def check_parity(attention: Attention) -> dict[str, float]:
    """Return the largest difference from the reference, plain and cascaded, by dtype."""
    found = {}
    plain = decode_layout(8, 200, 64)
    for dtype in ("float32", "bfloat16"):
        x = arrays(8, 32, 8, 128, 8 * 13 * S + S, dtype)
        want = jnp.float32(attend(ReferenceAttention(S), x, plain)())
        for name, layout in (("plain", plain), ("cascade", with_run(plain, 64))):
            got = jnp.float32(attend(attention, x, layout)())
            found[f"{name} {dtype}"] = float(jnp.abs(got - want).max())
    return found


def decode_bandwidth(attention: Attention, D: int, context: int, peak: float) -> dict[str, float]:
    """Return time and share of the bandwidth of decode attention, Llama-2-7B's heads."""
    K, HD = 32, 128
    layout = decode_layout(D, context, 0)
    x = arrays(D, K, K, HD, (D * -(-context // S) + 1) * S, "bfloat16")
    took = seconds(attend(attention, x, layout))
    read = 2 * D * context * K * HD * 2
    return {"batch": D, "context": context, "s": took, "mbu": read / took / peak}


def cascade_gain(attention: Attention, D: int, shared: int) -> dict[str, float]:
    """Return how many times faster a shared prefix is attended as one run."""
    layout = decode_layout(D, shared + 64, shared)
    x = arrays(D, 32, 32, 128, (D * -(-(shared + 64) // S) + 1) * S, "bfloat16")
    plain = seconds(attend(attention, x, layout))
    once = seconds(attend(attention, x, with_run(layout, shared)))
    return {"batch": D, "shared": shared, "plain_s": plain, "cascade_s": once, "gain": plain / once}


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
    for row in results.get("engine", []):
        rates = row["output_tokens_per_s"]
        right.plot(list(rates), list(rates.values()), "o", label=f"{row['model']} {row['cache']}")
    right.set(title="engine", ylabel="output tokens a second")
    for axes in (left, right):
        if axes.lines:
            axes.legend(fontsize=7)
    left_out = len(results.get("failed", [])) + len(results.get("left out", []))
    figure.suptitle(results["device"] + (f", {left_out} parts missing" if left_out else ""))
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def logprobs(model: str) -> dict[str, Any]:
    """Return the largest difference of a whole model's log-probabilities from the reference's."""
    return {"model": model, "largest": logprob_difference(model)}


class Session:
    """Results as they come, each written at once; a part that fails does not end the others.

    Args:
        out: the JSON file.
        limit_s: seconds after which nothing is begun.
        about: what all results are of.
    """

    def __init__(self, out: Path, limit_s: float, about: dict[str, Any]) -> None:
        self._out = out
        self._ends = time.perf_counter() + limit_s
        self.results = about

    def say(self, name: str, value: Any) -> None:
        """Print and write one result."""
        self.results.setdefault(name, []).append(value)
        print(name, value, flush=True)
        self._out.write_text(json.dumps(self.results, indent=1), encoding="utf-8")

    def run(self, part: str, rows: Callable[[], Rows]) -> None:
        """Take a part's named results while there is time."""
        try:
            if self._over():
                self.say("left out", part)
                return
            for name, value in rows():
                self.say(name, value)
                if self._over():
                    self.say("left out", f"what is left of {part}")
                    return
        except Exception as error:  # a machine is paid for: the other parts are worth having
            self.say("failed", {"part": part, "error": f"{type(error).__name__}: {error}"[:2000]})

    def _over(self) -> bool:
        return time.perf_counter() > self._ends


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes a second, peak")
    parser.add_argument("--peak", type=float, default=989e12, help="flops a second in bfloat16")
    parser.add_argument("--attention", default="auto", help="of the kernels by themselves")
    parser.add_argument("--models", nargs="+", default=["random:llama-2-7b", "smollm2-135m"])
    parser.add_argument("--parity-model", default="random:qwen2-1.5b")
    parser.add_argument("--limit-s", type=float, default=330, help="begin nothing after that")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--out", type=Path, default=Path("device_check.json"))
    args = parser.parse_args()
    attention = select_attention(args.attention, jax.default_backend(), S)
    about = {
        "device": jax.devices()[0].device_kind, "jax": jax.__version__, "name": attention.name
    }  # fmt: skip
    session, quick = Session(args.out, args.limit_s, about), args.quick

    def one(name: str, measured: Callable[[], Any]) -> Rows:
        yield name, measured()

    def engine(model: str, cache: str) -> None:
        part = functools.partial(measure, model, cache, grid, size, args.bandwidth, args.peak)
        session.run(f"engine {model} {cache}", part)

    session.run("parity", lambda: one("parity", lambda: check_parity(attention)))
    for batch, context in [(2, 64)] if quick else itertools.product((1, 32, 128), (2048, 8192)):
        taken = functools.partial(decode_bandwidth, attention, batch, context, args.bandwidth)
        session.run(f"decode {batch}x{context}", functools.partial(one, "decode", taken))
    for shared in (64,) if quick else (1024, 8192):
        taken = functools.partial(cascade_gain, attention, 4 if quick else 64, shared)
        session.run(f"cascade {shared}", functools.partial(one, "cascade", taken))
    grid = [(2, 64)] if quick else [(1, 2048), (32, 2048)]
    size = (4, 64, 4) if quick else (64, 640, 64)
    first, *others = ["random:tiny"] if quick else args.models
    # The first model's grid is worth most; its programs serve both caches.
    engine(first, "tree")
    engine(first, "none")
    taken = functools.partial(logprobs, "random:tiny" if quick else args.parity_model)
    session.run("logprobs", functools.partial(one, "logprobs", taken))
    for model, cache in itertools.product(others, ("tree", "none")):
        engine(model, cache)
    draw(session.results, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
