"""build_simulated: an engine whose steps cost simulated time; everything else is the real thing.

HOST, no jax. Imports the parts of the engine below the device, models' configs, tokens and sim.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sgjax.engine.assemble import build_pages, build_scheduler, whole_pages
from sgjax.engine.config import EngineConfig, MeshSpec
from sgjax.engine.loop import EngineLoop
from sgjax.engine.parts import Parts
from sgjax.errors import ConfigError
from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import ExactSamplerSpec, build_jump
from sgjax.models.config import ModelConfig
from sgjax.models.gguf_file import GgufFile
from sgjax.models.presets import load_preset, preset_names
from sgjax.models.pull import default_cache_dir, pull, pulled_path
from sgjax.sim import SimSpec, Simulator, build_simulator
from sgjax.sim.replay import ANY_ID, Served, drive
from sgjax.sim.trace import Arrival
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.fast import FastTokenizer
from sgjax.tokens.first import first_tokens
from sgjax.tokens.gguf import tokenizer_from_gguf
from sgjax.tokens.hf import tokenizer_from_folder
from sgjax.types import Constraint


@dataclass(frozen=True)
class SimulatedParts(Parts):
    """The parts of an engine that runs its plans on a virtual clock."""

    simulator: Simulator

    def release(self) -> None:
        """There is no device, and there are no other processes."""

    def device_info(self) -> dict[str, Any]:
        """Return the hardware that is simulated; `clock_s` is the virtual clock."""
        return {
            "device": self.simulator.hardware.summary,
            "executor": self.simulator.executor.kind,
            "clock_s": self.simulator.executor.now(),
            "attention": "none",
            "page_bytes": self.config.page_size * self.simulator.token_bytes,
            "versions": {"numpy": metadata.version("numpy")},
            "compilations": 0,
            "shapes": [],
        }

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Serve a trace (on the loop's thread).

        Raises:
            ConfigError: requests are alive, whose answers nobody would hear.
        """
        if self.scheduler.has_work:
            raise ConfigError(
                "a trace is replayed on an engine that has nothing else to do, but requests are "
                "alive; wait for them, or make another engine"
            )
        return drive(trace, self.scheduler, self.simulator.executor, self.simulator.cost)


def build_simulated(config: EngineConfig, spec: SimSpec) -> SimulatedParts:
    """Make pool, cache, scheduler and simulator, and start the loop.

    Args:
        config: the engine's configuration.
        spec: its `executor`.

    Raises:
        ConfigError: unknown model or hardware, weights that do not fit, a context beyond the
            model's.
    """
    if isinstance(config.grammar.sampler, ExactSamplerSpec):
        raise ConfigError(
            "grammar.sampler: exact needs a model's probabilities, which executor: sim does not "
            "have; use sampler: local"
        )
    if config.shared_prefix is not None or config.mesh != MeshSpec():
        raise ConfigError(
            "shared_prefix and mesh belong to executor: jax; leave them out with executor: sim"
        )
    model = _architecture(spec.model or config.model)
    tokenizer = _tokenizer(spec.tokenizer, spec.vocab_size)
    kv_dtype = config.kv_dtype or config.dtype
    simulator = build_simulator(spec, model, tokenizer, config.dtype, kv_dtype, config.seed)
    config = dataclasses.replace(
        config,
        kv_dtype=kv_dtype,
        kv_tokens=_kv_tokens(config, spec.hardware, simulator.kv_tokens),
        max_context_len=_context_len(config, model),
    )
    pages = build_pages(config)
    executor = simulator.executor
    jump = build_jump(config.grammar.jump, tokenizer)
    scheduler = build_scheduler(
        config,
        pages,
        tokenizer,
        ANY_ID,
        executor.now,
        jump,
        simulator.entrance,
        logprobs=spec.logprobs == "zero",
        top_logprobs=0,
    )
    kernels = load_kernels(config.grammar.kernels, default_cache_dir() / "native")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, kernels, config.grammar)

    def compile_constraint(constraint: Constraint) -> Grammar:
        grammar = compiler(constraint)
        executor.advance_to(executor.now() + spec.compile_s)
        return grammar

    # On the loop's own thread, so that the virtual clock waits for it.
    grammars = GrammarCache(compile_constraint, config.grammar.reuse, num_threads=0)
    loop = EngineLoop(scheduler, executor, settle_s=spec.settle_s, grammars=grammars)
    return SimulatedParts(
        config, model, tokenizer, pages, scheduler, grammars, kernels, loop, loop, simulator
    )


def _kv_tokens(config: EngineConfig, hardware: str, fitting: int) -> int:
    kv_tokens = config.kv_tokens or fitting
    if kv_tokens > fitting:
        raise ConfigError(
            f"kv_tokens={kv_tokens}, but beside the weights {hardware} holds {fitting}; lower it, "
            "or leave it out to take them all"
        )
    return whole_pages(config, kv_tokens)


def _context_len(config: EngineConfig, model: ModelConfig) -> int:
    context = config.max_context_len or model.max_position
    if context > model.max_position:
        raise ConfigError(
            f"max_context_len={context} is beyond the model's {model.max_position} tokens; lower it"
        )
    return context


def _architecture(model: str) -> ModelConfig:
    return load_preset(model.removeprefix("random:")).config


def _tokenizer(name: str, vocab_size: int | None) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    whole = _whole_tokenizer(name)
    return whole if vocab_size is None else first_tokens(whole, vocab_size)


def _whole_tokenizer(name: str) -> FastTokenizer:
    path = Path(name).expanduser()
    if path.is_dir():
        return tokenizer_from_folder(path)
    if name in preset_names():
        path = pulled_path(name, default_cache_dir())
        if not path.exists():
            path = pull(name, default_cache_dir(), lambda line: None)
    if not path.is_file():
        raise ConfigError(
            f"tokenizer={name!r} is not usable; allowed: bytes, a preset that can be fetched, a "
            "folder with tokenizer.json or tokenizer.model, or a .gguf file"
        )
    return tokenizer_from_gguf(GgufFile(path).metadata)
