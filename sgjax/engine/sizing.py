"""Sizes that depend on limits and on the machine: the shape ladder, the pool, the context.

DEVICE. Imports jax (to ask a device for its memory), pack, and the configs.
"""

import os
import resource
import sys

import jax

from sgjax.engine.config import BLOCK_TOKENS, EngineConfig
from sgjax.engine.pack import Ladder
from sgjax.errors import ConfigError
from sgjax.models.config import ModelConfig
from sgjax.types import MAX_TOP_LOGPROBS


def make_ladder(max_running: int, token_budget: int, max_pages: int, vocab_size: int) -> Ladder:
    """Return the shapes for an engine's limits: some two dozen for plain requests.

    Query blocks of 64 tokens suit prefill. Many short extends (jump-forward, the ends of cached
    prompts) take blocks of BLOCK_TOKENS, in which the scheduler counts, so that every plan fits.

    Args:
        max_running: rows a step at most.
        token_budget: new tokens a step at most, in blocks of BLOCK_TOKENS.
        max_pages: P, pages of the longest sequence.
        vocab_size: V.
    """
    most = token_budget // BLOCK_TOKENS * BLOCK_TOKENS
    # Padding is computed, so the rungs are close. At equal size the larger blocks come first: they
    # read the keys less often.
    mixed = {(D, -(-n // 64), 64) for D in _steps(8, 8, max_running) for n in _steps(64, 2, most)}
    few = min(8, max_running)
    mixed |= {(few, -(-most * i // (4 * BLOCK_TOKENS)), BLOCK_TOKENS) for i in range(1, 5)}
    mixed.add((max_running, most // BLOCK_TOKENS, BLOCK_TOKENS))
    return Ladder(
        decode=tuple(dict.fromkeys((1, *_steps(8, 2, max_running)))),
        mixed=tuple(sorted(mixed, key=lambda shape: (shape[0] + shape[1] * shape[2], -shape[2]))),
        pages=_steps(-(-max_pages // 8), 8, max_pages),
        # A step with blocks is long enough to carry the longest table.
        mixed_pages=(max_pages,),
        targets=(0, 64, most + max_running),
        adjustments=(0, 64, 1024, vocab_size),
        top=tuple(dict.fromkeys(min(n, vocab_size) for n in (0, 8, MAX_TOP_LOGPROBS))),
    )


def context_len(wanted: int | None, model: ModelConfig) -> int:
    """Return the longest sequence: what is wanted, or all that the model can.

    Raises:
        ConfigError: more is wanted than the model can.
    """
    longest = model.max_position
    if model.sliding_window is not None:
        longest = min(longest, model.sliding_window)
    if wanted is not None and wanted > longest:
        raise ConfigError(
            f"max_context_len={wanted} is beyond the model's {longest} tokens; lower it"
        )
    return wanted or longest


def check_room(config: EngineConfig, kv_bytes: int) -> None:
    """Refuse a pool that the device's whole memory could not hold.

    Raises:
        ConfigError: with what it needs and what there is.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    memory = stats.get("bytes_limit") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if kv_bytes > memory:
        raise ConfigError(
            f"kv_tokens={config.kv_tokens} in pages of {config.page_size} need "
            f"{kv_bytes / 1e9:.1f} GB of K/V, but there are {memory / 1e9:.1f} GB; lower kv_tokens"
        )


def fitting_tokens(bytes_per_token: int, most: int) -> int:
    """Return how many tokens of K/V fit: most of a device, a tenth of a host's free memory."""
    stats = jax.local_devices()[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        room = int(0.85 * (stats["bytes_limit"] - stats["bytes_in_use"]))
    else:
        room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10
    return max(1, min(most, room // bytes_per_token))


def peak_memory_bytes() -> int:
    """Return the most memory in use so far: the device's, or the process's where they are one."""
    stats = jax.local_devices()[0].memory_stats()
    if stats is not None and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def _steps(first: int, factor: int, last: int) -> tuple[int, ...]:
    """Return a geometric ladder from `first` that ends at `last`."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= factor
    return (*sizes, last)
