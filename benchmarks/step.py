"""Time the jitted step alone, on random weights, for a grid of batch shapes.

Prints tokens a second and the share of the roofline max(bytes / bandwidth, flops / peak), both
figures being arguments: measure your machine's own. Shapes are D decode rows at the given context
and G query blocks of BQ tokens of one fresh prompt.

    python benchmarks/step.py --shape 1,0,1 --shape 32,0,1 --shape 0,4,128
"""

import argparse
import functools
import itertools
import time
from typing import Any

import jax
import numpy as np

from sgjax.engine.large_pages import use_large_pages
from sgjax.engine.step import step
from sgjax.kernels.batch import Batch, Layout, Sampling, no_runs
from sgjax.kernels.select import select_attention
from sgjax.models.config import DTYPE_BYTES, ModelConfig
from sgjax.models.dense import select_dense
from sgjax.models.int8 import quantize
from sgjax.models.llama import make_kv
from sgjax.models.weights import random_weights

SMOLLM2 = ModelConfig(
    architecture="llama",
    vocab_size=49152,
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    max_position=8192,
    rope_theta=1e5,
    norm_eps=1e-5,
    tie_embeddings=True,
)
SHAPES = ["1,0,1", "2,0,1", "8,0,1", "32,0,1", "64,0,1", "0,2,64", "0,4,128", "8,4,64"]


def make_batch(D: int, G: int, BQ: int, P: int, S: int, context: int) -> Batch:
    """Return D decodes at `context` tokens each, and one fresh prompt of G * BQ tokens."""
    B, T, pages = D + G, D + G * BQ, -(-context // S)
    rng = np.random.default_rng(0)
    table = np.zeros((B, P), np.int32)
    table[:D, :pages] = 1 + rng.permutation(D * pages).reshape(D, pages)
    prompt = np.arange(G * BQ)
    if G:
        own = 1 + D * pages + np.arange(-(-len(prompt) // S))
        table[D, : len(own)] = own
    kv_lens = np.zeros(B, np.int32)
    kv_lens[:D] = context
    kv_lens[D : D + 1] = G * BQ
    positions = np.concatenate([np.full(D, context - 1), prompt]).astype(np.int32)
    owner = np.concatenate([np.arange(D), np.full(G * BQ, D)])
    # jit takes numpy's arrays where the records name jax's.
    where: dict[str, Any] = {
        "positions": positions,
        "out_slots": (table[owner, positions // S] * S + positions % S).astype(np.int32),
        "kv_lens": kv_lens,
        "page_table": table,
        "block_row": np.full(G, D, np.int32),
        "block_start": (np.arange(G) * BQ).astype(np.int32),
        "block_len": np.full(G, BQ, np.int32),
    }
    last = np.concatenate([np.arange(D), np.full(G, max(T - 1, 0))]).astype(np.int32)
    sampling: dict[str, Any] = {
        "temperature": np.zeros(B, np.float32),
        "top_k": np.full(B, SMOLLM2.vocab_size, np.int32),
        "top_p": np.ones(B, np.float32),
        "min_p": np.zeros(B, np.float32),
        "seed": np.zeros(B, np.uint32),
        "position": kv_lens,  # rows at 0 sample nothing
        "adjust_ids": np.zeros((B, 8), np.int32),
        "adjust_mul": np.ones((B, 8), np.float32),
        "adjust_add": np.zeros((B, 8), np.float32),
        "mask_row": np.zeros(B, np.int32),
        "wants_logprob": np.zeros(B, bool),
    }
    rows: dict[str, Any] = {
        "tokens": rng.integers(0, SMOLLM2.vocab_size, T).astype(np.int32),
        "logit_rows": last,
        "targets": np.zeros(B, np.int32),
    }
    layout = Layout(**where, shared=no_runs(T, B))
    return Batch(**rows, layout=layout, sampling=Sampling(**sampling))


def roofline_s(batch: Batch, dtype: str, bandwidth: float, peak: float) -> float:
    """Return the least seconds a step can take: weights and K/V read once, or its products."""
    layout, size, c = batch.layout, DTYPE_BYTES[dtype], SMOLLM2
    embed = c.vocab_size * c.hidden_size
    matrices = c.param_count - embed
    read = (matrices + embed) * size + int(layout.kv_lens.sum()) * c.kv_bytes_per_token(dtype)
    seen = int((layout.positions + 1).sum())
    flops = 2 * matrices * len(batch.tokens) + 2 * embed * len(batch.logit_rows)
    flops += 4 * c.num_layers * c.q_size * seen
    return max(read / bandwidth, flops / peak)


def main() -> None:
    """Parse arguments, compile each shape, time all of them interleaved, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", action="append", help="D,G,BQ", default=None)
    parser.add_argument("--dtype", choices=list(DTYPE_BYTES), default="bfloat16")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--linear", default="auto")
    parser.add_argument("--int8", action="store_true", help="weights in 8 bits")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--context", type=int, default=490)
    parser.add_argument("--table-tokens", type=int, default=1024, help="P * S")
    parser.add_argument("--pool-tokens", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--bandwidth", type=float, default=31.5e9, help="bytes a second")
    parser.add_argument("--peak", type=float, default=428e9, help="flops a second")
    args = parser.parse_args()

    S, platform = args.page_size, jax.default_backend()
    attention = select_attention(args.attention, platform, S)
    dense = select_dense(args.linear, attention.name, SMOLLM2, 1)
    run = jax.jit(
        functools.partial(
            step, attention=attention, top=0, valid_vocab=SMOLLM2.vocab_size, dense=dense
        ),
        static_argnums=0,
        donate_argnums=2,
    )
    weights = random_weights(SMOLLM2, args.dtype, 0)
    weights = dense.prepare(quantize(weights) if args.int8 else weights)
    kv = make_kv(SMOLLM2, args.pool_tokens // S * S, args.dtype, platform)
    if platform == "cpu":  # as the engine does
        use_large_pages(weights)
    mask_table = np.full((1, SMOLLM2.vocab_size // 32), 0xFFFFFFFF, np.uint32)

    batches: dict[str, Batch] = {}
    seconds: dict[str, list[float]] = {}
    for text in args.shape or SHAPES:
        D, G, BQ = (int(x) for x in text.split(","))
        batches[text] = make_batch(D, G, BQ, args.table_tokens // S, S, args.context)
        start = time.perf_counter()
        kv, _ = run(SMOLLM2, weights, kv, mask_table, batches[text])
        jax.block_until_ready(kv)  # type: ignore[no-untyped-call]
        print(f"{text}: first call {time.perf_counter() - start:.1f} s")
        seconds[text] = []
    for _, (text, batch) in itertools.product(range(args.repeats), batches.items()):
        start = time.perf_counter()
        kv, out = run(SMOLLM2, weights, kv, mask_table, batch)
        jax.block_until_ready((kv, out))  # type: ignore[no-untyped-call]
        seconds[text].append(time.perf_counter() - start)

    print(f"{'D,G,BQ':>10} {'min ms':>9} {'median ms':>9} {'tok/s':>8} {'roofline':>8}")
    for text, batch in batches.items():
        median = float(np.median(seconds[text]))
        ideal = roofline_s(batch, args.dtype, args.bandwidth, args.peak)
        print(
            f"{text:>10} {1e3 * min(seconds[text]):9.1f} {1e3 * median:9.1f} "
            f"{len(batch.tokens) / median:8.1f} {ideal / median:8.0%}"
        )


if __name__ == "__main__":
    main()
