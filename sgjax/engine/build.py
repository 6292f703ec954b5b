"""build: wire an engine's parts from its configuration, once.

DEVICE. Imports everything the engine is made of. Sizes that depend on the machine (pool, ladder)
are decided here and recorded in `info`.
"""

import dataclasses
import logging
import os
import resource
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from sgjax.cache import PagePool, build_cache
from sgjax.engine.config import (
    BLOCK_TOKENS,
    CascadeSpec,
    EngineConfig,
    PlainSpec,
    SharedPrefixSpec,
)
from sgjax.engine.executor import JaxExecutor
from sgjax.engine.loop import EngineLoop
from sgjax.engine.masks import MaskTable
from sgjax.engine.pack import Ladder
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.kernels import Kernels, load_kernels
from sgjax.fsm.spec import build_jump
from sgjax.kernels.base import Attention
from sgjax.kernels.select import select_attention
from sgjax.kernels.sharded import ShardedAttention
from sgjax.models.config import ModelConfig
from sgjax.models.load import LoadedModel, load_model
from sgjax.models.pull import default_cache_dir
from sgjax.models.sharding import REPLICATED, TENSOR, fit_config, fit_weights, make_mesh, shardings
from sgjax.schedule import (
    AdaptiveGrowth,
    LeastProgress,
    Limits,
    PageKeeper,
    Scheduler,
    build_policy,
    build_siblings,
)
from sgjax.tokens.base import Tokenizer
from sgjax.types import MAX_TOP_LOGPROBS


@dataclass(frozen=True)
class Parts:
    """An engine's parts; scheduler and executor belong to the loop's thread."""

    config: EngineConfig
    model: ModelConfig
    tokenizer: Tokenizer
    pages: PageKeeper
    scheduler: Scheduler
    executor: JaxExecutor
    attention: Attention
    grammars: GrammarCache
    kernels: Kernels
    loop: EngineLoop

    def info(self) -> dict[str, Any]:
        """Return resolved config, device, executor kind and counters (on the loop's thread)."""
        stats, times, pool = self.scheduler.stats, self.loop.times, self.pages.pool
        counts = pool.counts()
        device = jax.devices()[0]
        return {
            "config": dataclasses.asdict(self.config),
            "model": dataclasses.asdict(self.model),
            "device": device.device_kind,
            "executor": self.executor.kind,
            "attention": self.attention.name,
            "grammar_kernels": self.kernels.name,
            "grammars": dataclasses.asdict(self.grammars.stats),
            "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
            **dataclasses.asdict(stats),
            "cache_hit_rate": stats.cached_tokens / max(stats.prompt_tokens, 1),
            "mean_batch_size": stats.rows / max(stats.forward_passes, 1),
            "evicted_tokens": self.pages.evicted_pages * pool.page_size,
            "pages": {k: counts[k] for k in ("total", "free", "tree", "sequence")},
            "peak_memory_bytes": _peak_memory_bytes(),
            "num_running": self.scheduler.num_running,
            "num_waiting": self.scheduler.num_waiting,
            "plan_s": times.plan_s,
            "device_s": times.device_s,
            "commit_s": times.commit_s,
            "compilations": len(self.executor.shapes),
            "shapes": [
                {**dataclasses.asdict(shape), "first_run_s": seconds}
                for shape, seconds in self.executor.shapes.items()
            ],
        }


def build(config: EngineConfig) -> Parts:
    """Load the model, make pool, cache, scheduler and executor, and start the loop.

    Raises:
        ConfigError, ModelLoadError, UnsupportedBackend: see `Engine`.
    """
    platform = jax.default_backend()
    # A first use fetches a checkpoint, which takes a while: say so where nobody configured logging.
    progress = logging.getLogger("sgjax").warning
    degree = config.mesh.tensor
    mesh = None if degree == 1 else make_mesh(degree)
    # Weights to be split wait in the host's memory: a device need not hold them all.
    host = None if mesh is None else jax.local_devices(backend="cpu")[0]
    with jax.default_device(host):
        model = load_model(config.model, config.dtype, config.seed, progress=progress)
    real_vocab = model.config.vocab_size
    if mesh is not None:
        model = _split(model, mesh)
    context = _context_len(config, model.config)
    kv_dtype = config.kv_dtype or config.dtype
    token_bytes = model.config.kv_bytes_per_token(kv_dtype)
    if platform != "cpu":  # whose devices share one memory
        token_bytes //= degree
    kv_tokens = config.kv_tokens or _fitting_tokens(token_bytes, config.max_running * context)
    size = config.page_size
    num_pages = -(-kv_tokens // size)
    _check_room(config, num_pages * size * token_bytes)
    config = dataclasses.replace(
        config, kv_dtype=kv_dtype, kv_tokens=num_pages * size, max_context_len=context
    )
    pool = PagePool(1 + num_pages, size)
    pages = PageKeeper(pool, build_cache(config.cache, config.eviction, pool))
    attention = select_attention(config.attention, platform, size)
    if mesh is not None:
        attention = ShardedAttention(attention, mesh, TENSOR)
    siblings = build_siblings(config.siblings)
    if siblings.shares_planned and not attention.writes_first:
        raise UnsupportedBackend(
            f"siblings: share_planned needs K/V written before attention reads them, which "
            f"attention={attention.name!r} does not do; use siblings: defer"
        )
    shared_prefix = _shared_prefix(config.shared_prefix, attention)
    config = dataclasses.replace(config, shared_prefix=shared_prefix)
    budget = config.token_budget
    valid_vocab = min(model.tokenizer.vocab_size, real_vocab)
    executor = JaxExecutor(
        config=model.config,
        weights=model.weights,
        attention=attention,
        shared_prefix=shared_prefix,
        ladder=make_ladder(
            config.max_running, budget, -(-context // size), model.config.vocab_size
        ),
        num_pages=pool.num_pages,
        page_size=size,
        kv_dtype=kv_dtype,
        valid_vocab=valid_vocab,
        masks=MaskTable(
            -(-model.config.vocab_size // 32),
            config.grammar.table_bytes,
            config.max_running,
            None if mesh is None else NamedSharding(mesh, REPLICATED),
        ),
        mesh=mesh,
    )
    if config.warmup == "full":
        executor.warm_up()
    scheduler = Scheduler(
        pages=pages,
        policy=build_policy(config.policy),
        siblings=siblings,
        growth=AdaptiveGrowth(start=0.7, floor=0.1, decay_steps=600),
        retract=LeastProgress(),
        tokenizer=model.tokenizer,
        limits=Limits(config.max_running, budget, BLOCK_TOKENS, context, valid_vocab),
        seed=config.seed,
        now=executor.now,
        debug_checks=config.debug_checks,
        jump=build_jump(config.grammar.jump, model.tokenizer),
    )
    kernels = load_kernels(config.grammar.kernels, default_cache_dir() / "native")
    grammars = GrammarCache(
        GrammarCompiler(model.tokenizer, model.config.vocab_size, kernels, config.grammar),
        config.grammar.reuse,
    )
    loop = EngineLoop(scheduler, executor, grammars=grammars)
    return Parts(
        config,
        model.config,
        model.tokenizer,
        pages,
        scheduler,
        executor,
        attention,
        grammars,
        kernels,
        loop,
    )


def make_ladder(max_running: int, token_budget: int, max_pages: int, vocab_size: int) -> Ladder:
    """Return the shapes for an engine's limits.

    Args:
        max_running: rows a step at most.
        token_budget: new tokens a step at most, in blocks of BLOCK_TOKENS.
        max_pages: P, pages of the longest sequence.
        vocab_size: V.
    """
    most = token_budget // BLOCK_TOKENS * BLOCK_TOKENS
    # Padding is computed, so rungs are close; four rows cost little more than two.
    tokens = _ladder(64, 2, most)
    blocks = [(-(-t // bq), bq) for t in tokens for bq in (64, BLOCK_TOKENS)]
    return Ladder(
        decode=tuple(dict.fromkeys((1, *_ladder(4, 2, max_running)))),
        mixed_decode=_ladder(4, 16, max_running),
        blocks=tuple(dict.fromkeys(blocks)),
        pages=_ladder(256, 4, max_pages),
        targets=(0, 64, most + max_running),
        adjustments=(0, 64, 1024, vocab_size),
        top=tuple(dict.fromkeys(min(n, vocab_size) for n in (0, 8, MAX_TOP_LOGPROBS))),
    )


def _peak_memory_bytes() -> int:
    """Return the most memory in use so far: the device's, or the process's where they are one."""
    stats = jax.devices()[0].memory_stats()
    if stats is not None and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def _split(model: LoadedModel, mesh: Mesh) -> LoadedModel:
    """Return the model with its weights spread over a mesh."""
    fitted = fit_config(model.config, mesh.size)
    weights = fit_weights(model.weights, model.config, fitted)
    weights = jax.device_put(weights, shardings(weights, mesh))
    return dataclasses.replace(model, config=fitted, weights=weights)


def _shared_prefix(spec: SharedPrefixSpec | None, attention: Attention) -> SharedPrefixSpec:
    if spec is None:
        return CascadeSpec() if attention.uses_runs else PlainSpec()
    if isinstance(spec, CascadeSpec) and not attention.uses_runs:
        raise UnsupportedBackend(
            f"shared_prefix: cascade is not done by attention={attention.name!r}; use "
            "shared_prefix: none, or another backend"
        )
    return spec


def _ladder(first: int, factor: int, last: int) -> tuple[int, ...]:
    sizes = []
    while first < last:
        sizes.append(first)
        first *= factor
    return (*sizes, last)


def _context_len(config: EngineConfig, model: ModelConfig) -> int:
    longest = model.max_position
    if model.sliding_window is not None:
        longest = min(longest, model.sliding_window)
    wanted = config.max_context_len
    if wanted is not None and wanted > longest:
        raise ConfigError(
            f"max_context_len={wanted} is beyond the model's {longest} tokens; lower it"
        )
    return wanted or longest


def _check_room(config: EngineConfig, kv_bytes: int) -> None:
    stats = jax.devices()[0].memory_stats() or {}
    memory = stats.get("bytes_limit") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if kv_bytes > memory:
        raise ConfigError(
            f"kv_tokens={config.kv_tokens} in pages of {config.page_size} need "
            f"{kv_bytes / 1e9:.1f} GB of K/V, but there are {memory / 1e9:.1f} GB; lower kv_tokens"
        )


def _fitting_tokens(bytes_per_token: int, most: int) -> int:
    """Return how many tokens of K/V fit: most of a device, a tenth of a host's free memory."""
    stats = jax.devices()[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        room = int(0.85 * (stats["bytes_limit"] - stats["bytes_in_use"]))
    else:
        # Not every system says what is free; all say what there is.
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        room = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE") // 10
    return max(1, min(most, room // bytes_per_token))
