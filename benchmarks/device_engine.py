"""Whole models on a device, for device_check.py: log-probabilities, efficiency, throughput."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import sgjax as sgl
from sgjax.models.load import read_config

Prompts = list[list[int]]
Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]
"""Results by name."""

COMMON: dict[str, Any] = {"page_size": 16}
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def random_prompts(count: int, length: int, seed: int, shared: int = 0) -> Prompts:
    """Return prompts of random bytes, which every tokenizer has, the first `shared` the same."""
    rng = np.random.default_rng(seed)
    common = rng.integers(3, 200, shared).tolist()
    return [common + rng.integers(3, 200, length - shared).tolist() for _ in range(count)]


def logprobs(model: str) -> Rows:
    """Yield the largest difference of log-probabilities between "auto" and the reference."""
    prompts, found = random_prompts(4, 40, seed=0), []
    for attention in ("auto", "reference"):
        with sgl.Engine(
            model, dtype="float32", attention=attention, max_context_len=256, **COMMON
        ) as engine:
            results: Any = engine.generate(
                input_ids=prompts,
                sampling_params={**GREEDY, "max_new_tokens": 1},
                return_logprob=True,
                logprob_start_len=0,
            )
        found.append([[e[0] for e in r["meta_info"]["input_token_logprobs"][1:]] for r in results])
    largest = float(np.abs(np.array(found[0]) - np.array(found[1])).max())
    yield "logprobs", {"model": model, "largest": largest}


def prefill(
    engine: sgl.Engine, config: Any, batch: int, length: int, peak: float
) -> dict[str, Any]:
    """Return time and share of the peak of computing fresh prompts; products with weights count."""
    params = {**GREEDY, "max_new_tokens": 1}
    for seed in (1, 2):  # the first compiles
        start = time.perf_counter()
        engine.generate(input_ids=random_prompts(batch, length, seed), sampling_params=params)
        took = time.perf_counter() - start
    tables = 1 if config.tie_embeddings else 2  # looked up, and for one token of a prompt only
    layers = config.param_count - tables * config.vocab_size * config.hidden_size
    flops = 2 * layers * batch * length
    return {"batch": batch, "context": length, "s": took, "mfu": flops / took / peak}


def decode(
    engine: sgl.Engine, config: Any, batch: int, context: int, new: int, bandwidth: float
) -> Row:
    """Return a decode step's time through the engine, and the share of the bandwidth it needs."""
    prompts = random_prompts(batch, context, seed=3)
    for _ in range(2):  # the second finds the prompts cached and everything compiled
        results: Any = engine.generate(
            input_ids=prompts, sampling_params={**GREEDY, "max_new_tokens": new}
        )
    first = max(r["meta_info"]["ttft_s"] for r in results)
    last = max(r["meta_info"]["e2e_latency_s"] for r in results)
    step = (last - first) / (new - 1)
    looked_up = 0 if config.tie_embeddings else config.vocab_size * config.hidden_size
    read = 2 * (config.param_count - looked_up)
    read += batch * context * config.kv_bytes_per_token("bfloat16")
    return {"batch": batch, "context": context, "s": step, "mbu": read / step / bandwidth}


def workloads(
    engine: sgl.Engine, requests: int, length: int, new: int
) -> Iterator[tuple[str, float]]:
    """Yield output tokens a second of three kinds of work, each after one run to compile."""
    kinds = {"alone": 0, "shared": length - length // 8}
    params = {**GREEDY, "max_new_tokens": new}
    for name, shared in kinds.items():
        for seed in (4, 5):
            start = time.perf_counter()
            prompts = random_prompts(requests, length, seed, shared)
            engine.generate(input_ids=prompts, sampling_params=params)
            rate = requests * new / (time.perf_counter() - start)
        yield name, rate
    for seed in (6, 7):
        start = time.perf_counter()
        chats, turns = random_prompts(requests // 2, length // 4, seed), 3
        for turn in range(turns):
            results: Any = engine.generate(input_ids=chats, sampling_params=params)
            more = random_prompts(len(chats), length // 8, 10 * seed + turn)
            chats = [c + r["output_ids"] + m for c, r, m in zip(chats, results, more, strict=True)]
        rate = turns * len(chats) * new / (time.perf_counter() - start)
    yield "chat", rate


def engine(
    model: str,
    cache: str,
    grid: list[tuple[int, int]],
    size: tuple[int, int, int],
    bandwidth: float,
    peak: float,
) -> Rows:
    """Yield an engine's measurements; the grid's only with the cache.

    Args:
        model: as `Engine` takes it.
        cache: "tree" or "none".
        grid: (batch, context) of prefill and decode.
        size: requests, tokens of a prompt and of an output of the workloads.
        bandwidth, peak: the device's, in bytes and flops a second.
    """
    config, about = read_config(model), {"model": model, "cache": cache}
    with sgl.Engine(model, cache={"type": cache}, max_running=64, **COMMON) as engine:
        for batch, context in grid if cache == "tree" else []:
            yield "engine prefill", about | prefill(engine, config, batch, context, peak)
            row = decode(engine, config, batch, context, size[2], bandwidth)
            yield "engine decode", about | row
        for workload, rate in workloads(engine, *size):
            info = engine.get_server_info()
            told = {name: info[name] for name in ("attention", "compilations")}
            row = {"workload": workload, "output_tokens_per_s": rate}
            yield "engine", about | told | row
