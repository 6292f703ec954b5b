"""build: wire an engine's parts from its configuration, once.

DEVICE. Imports everything the engine is made of. What is decided here once (backend, sizes) is
recorded in `info`.
"""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from sgjax.engine.assemble import build_pages, build_scheduler, whole_pages
from sgjax.engine.config import (
    BLOCK_TOKENS,
    CascadeSpec,
    EngineConfig,
    Int8Spec,
    PlainSpec,
    SharedPrefixSpec,
    resolve,
)
from sgjax.engine.exact import ExactSampler
from sgjax.engine.executor import JaxExecutor
from sgjax.engine.front import Front
from sgjax.engine.hosts import check_processes, other_hosts
from sgjax.engine.loop import EngineLoop
from sgjax.engine.masks import MaskTable
from sgjax.engine.parts import Parts
from sgjax.engine.sizing import (
    check_room,
    context_len,
    fitting_tokens,
    make_ladder,
    peak_memory_bytes,
)
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import ExactSamplerSpec, build_jump
from sgjax.kernels.base import Attention
from sgjax.kernels.select import select_attention
from sgjax.kernels.sharded import ShardedAttention
from sgjax.models.config import ModelConfig
from sgjax.models.dense import select_dense
from sgjax.models.int8 import quantize
from sgjax.models.layer import Dense, LlamaWeights
from sgjax.models.llama import stored_bytes
from sgjax.models.load import LoadedModel, load_model
from sgjax.models.pull import default_cache_dir
from sgjax.models.sharding import REPLICATED, TENSOR, fit_config, fit_weights, make_mesh, shardings
from sgjax.schedule import (
    build_siblings,
)
from sgjax.schedule.entrance import Open


@dataclass(frozen=True)
class MeasuredParts(Parts):
    """The parts of an engine that runs its plans on a device."""

    executor: JaxExecutor
    attention: Attention
    dense: Dense

    def release(self) -> None:
        """Free the device's memory, and let other processes that run the same steps end."""
        self.executor.release()

    def device_info(self) -> dict[str, Any]:
        """Return the device, its backends, and the shapes that were compiled."""
        return {
            "device": jax.local_devices()[0].device_kind,
            "executor": self.executor.kind,
            "attention": self.attention.name,
            "linear": self.dense.name,
            "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
            "page_bytes": self.executor.page_bytes,
            "peak_memory_bytes": peak_memory_bytes(),
            "compilations": len(self.executor.shapes),
            "shapes": [
                {**dataclasses.asdict(shape), "first_run_s": seconds}
                for shape, seconds in self.executor.shapes.items()
            ],
        }


def build(config: EngineConfig) -> MeasuredParts:
    """Load the model, make pool, cache, scheduler and executor, and start the loop.

    Raises:
        ConfigError, ModelLoadError, UnsupportedBackend: see `Engine`.
    """
    platform = jax.default_backend()
    degree = config.mesh.tensor
    check_processes(degree, config.kv_tokens)
    hosts = other_hosts()
    mesh = None if degree == 1 else make_mesh(degree)
    model, valid_vocab = _load(config, mesh)
    config, context, kv_dtype = _sized(config, model.config, platform)
    size = config.page_size
    pages = build_pages(config)
    attention = _attention(config, platform, mesh)
    shared_prefix = _shared_prefix(config.shared_prefix, attention)
    dense = select_dense(config.linear, attention.name, model.config, degree)
    weights = model.weights
    if isinstance(config.weights, Int8Spec):
        weights = _quantized(model, degree)
    config = dataclasses.replace(
        config, attention=attention.name, linear=dense.name, shared_prefix=shared_prefix
    )
    executor = JaxExecutor(
        config=model.config,
        weights=dense.prepare(weights),
        attention=attention,
        dense=dense,
        shared_prefix=shared_prefix,
        ladder=make_ladder(
            config.max_running, config.token_budget, -(-context // size), model.config.vocab_size
        ),
        num_pages=pages.pool.num_pages,
        page_size=size,
        kv_dtype=kv_dtype,
        valid_vocab=valid_vocab,
        masks=MaskTable(
            -(-model.config.vocab_size // 32),
            config.grammar.table_bytes,
            config.max_running + config.token_budget // BLOCK_TOKENS,  # with guesses
            None if mesh is None else NamedSharding(mesh, REPLICATED),
            hosts,
        ),
        mesh=mesh,
        hosts=hosts,
    )
    if config.warmup == "full":
        executor.warm_up()
    jump = build_jump(config.grammar.jump, model.tokenizer)
    scheduler = build_scheduler(
        config, pages, model.tokenizer, valid_vocab, executor.now, jump, Open()
    )
    kernels = load_kernels(config.grammar.kernels, default_cache_dir() / "native")
    grammars = GrammarCache(
        GrammarCompiler(model.tokenizer, model.config.vocab_size, kernels, config.grammar),
        config.grammar.reuse,
    )
    loop = EngineLoop(scheduler, executor, grammars=grammars)
    front: Front = loop
    if isinstance(config.grammar.sampler, ExactSamplerSpec):
        front = ExactSampler(
            loop, grammars, model.tokenizer, config.grammar, config.seed, context, executor.now
        )
    return MeasuredParts(
        config,
        model.config,
        model.tokenizer,
        pages,
        scheduler,
        grammars,
        kernels,
        loop,
        front,
        executor,
        attention,
        dense,
    )


def follow(config: str | Path | Mapping[str, Any] | None = None, **overrides: Any) -> None:
    """Run this process's part of an engine that process 0 of jax.distributed has, until it ends.

    Args:
        config, overrides: as `Engine` takes them in process 0.

    Raises:
        ConfigError: there is no such engine; or see `Engine`.
        ModelLoadError, UnsupportedBackend: see `Engine`.
    """
    if jax.process_index() == 0:
        raise ConfigError(
            "follow is for processes after the first, which has the Engine; call "
            "jax.distributed.initialize before it"
        )
    # Shapes are compiled when process 0 runs them.
    parts = build(dataclasses.replace(resolve(config, overrides), warmup="lazy"))
    try:
        parts.executor.follow()
    finally:
        parts.loop.stop()


def _load(config: EngineConfig, mesh: Mesh | None) -> tuple[LoadedModel, int]:
    """Return the model, spread over a mesh if there is one, and below which ids it may sample."""
    # A first use fetches a checkpoint, which takes a while: say so where nobody configured logging.
    progress = logging.getLogger("sgjax").warning
    # Weights to be split wait in the host's memory: a device need not hold them all.
    host = None if mesh is None else jax.local_devices(backend="cpu")[0]
    with jax.default_device(host):
        model = load_model(config.model, config.dtype, config.seed, progress=progress)
    # Asked before the split, which pads the vocabulary.
    valid_vocab = min(model.tokenizer.vocab_size, model.config.vocab_size)
    return (model if mesh is None else _split(model, mesh)), valid_vocab


def _attention(config: EngineConfig, platform: str, mesh: Mesh | None) -> Attention:
    attention = select_attention(config.attention, platform, config.page_size)
    if mesh is not None:
        attention = ShardedAttention(attention, mesh, TENSOR)
    if build_siblings(config.siblings).shares_planned and not attention.writes_first:
        raise UnsupportedBackend(
            f"siblings: share_planned needs K/V written before attention reads them, which "
            f"attention={attention.name!r} does not do; use siblings: defer"
        )
    return attention


def _split(model: LoadedModel, mesh: Mesh) -> LoadedModel:
    """Return the model with its weights spread over a mesh."""
    fitted = fit_config(model.config, mesh.size)
    weights = fit_weights(model.weights, model.config, fitted)
    weights = jax.device_put(weights, shardings(weights, mesh))
    return dataclasses.replace(model, config=fitted, weights=weights)


def _sized(
    config: EngineConfig, model: ModelConfig, platform: str
) -> tuple[EngineConfig, int, str]:
    """Return the configuration with what depends on model and memory; the context, K/V's dtype."""
    context = context_len(config.max_context_len, model)
    kv_dtype = config.kv_dtype or config.dtype
    token_bytes = stored_bytes(model, kv_dtype, platform, config.mesh.tensor)
    if platform != "cpu":  # whose devices share one memory
        token_bytes //= config.mesh.tensor
    kv_tokens = config.kv_tokens or fitting_tokens(token_bytes, config.max_running * context)
    kv_tokens = whole_pages(config, kv_tokens)
    check_room(config, kv_tokens * token_bytes)
    sized = dataclasses.replace(
        config, kv_dtype=kv_dtype, kv_tokens=kv_tokens, max_context_len=context
    )
    return sized, context, kv_dtype


def _quantized(model: LoadedModel, degree: int) -> LlamaWeights:
    if degree > 1:
        raise UnsupportedBackend(
            f"weights: int8 is for one device, got mesh: tensor={degree}; use "
            "weights: {type: stored}"
        )
    return quantize(model.weights)


def _shared_prefix(spec: SharedPrefixSpec | None, attention: Attention) -> SharedPrefixSpec:
    if spec is None:
        pays = attention.run_pays_from
        return CascadeSpec(min_queries=pays) if pays else PlainSpec()
    return spec
