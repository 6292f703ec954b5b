"""What every engine is assembled of above its executor: pool, cache and scheduler.

HOST, no jax. Imports schedule, cache, tokens, types, models.config and config; shared by `build`
and `build_simulated`.
"""

from collections.abc import Callable

from sgjax.cache import PagePool, build_cache
from sgjax.engine.config import BLOCK_TOKENS, EngineConfig
from sgjax.fsm.jump import JumpMode
from sgjax.schedule import (
    Entrance,
    LeastProgress,
    Limits,
    PageKeeper,
    Scheduler,
    Strategies,
    build_composition,
    build_growth,
    build_look,
    build_policy,
    build_siblings,
)
from sgjax.tokens.base import Tokenizer
from sgjax.types import MAX_TOP_LOGPROBS


def build_pages(config: EngineConfig) -> PageKeeper:
    """Make the pool, with the scratch page, and the prefix cache over it.

    Args:
        config: with `kv_tokens` resolved to whole pages.
    """
    assert config.kv_tokens is not None
    pool = PagePool(1 + config.kv_tokens // config.page_size, config.page_size)
    return PageKeeper(pool, build_cache(config.cache, config.eviction, pool, config.seed))


def build_scheduler(
    config: EngineConfig,
    pages: PageKeeper,
    tokenizer: Tokenizer,
    vocab_size: int,
    now: Callable[[], float],
    jump: JumpMode,
    entrance: Entrance,
    logprobs: bool = True,
    top_logprobs: int = MAX_TOP_LOGPROBS,
) -> Scheduler:
    """Make the scheduler.

    Args:
        config: with `max_context_len` resolved.
        pages: pool and cache.
        tokenizer: for texts and stop tests.
        vocab_size: ids below it may occur in requests and be sampled.
        now: the executor's clock, in seconds.
        jump: what happens where a constraint forces text.
        entrance: what requests pass before they wait.
        logprobs, top_logprobs: what the executor can say of a token, see `Limits`.
    """
    assert config.max_context_len is not None
    return Scheduler(
        pages=pages,
        strategies=Strategies(
            policy=build_policy(config.policy, config.seed),
            siblings=build_siblings(config.siblings),
            composition=build_composition(config.composition),
            growth=build_growth(config.growth),
            retract=LeastProgress(),
            jump=jump,
            look=build_look(config.admission),
            entrance=entrance,
        ),
        tokenizer=tokenizer,
        limits=Limits(
            config.max_running,
            config.token_budget,
            BLOCK_TOKENS,
            config.max_context_len,
            vocab_size,
            logprobs,
            top_logprobs,
        ),
        seed=config.seed,
        now=now,
        debug_checks=config.debug_checks,
    )


def whole_pages(config: EngineConfig, kv_tokens: int) -> int:
    """Return a pool's size in tokens, rounded up to whole pages."""
    return -(-kv_tokens // config.page_size) * config.page_size
