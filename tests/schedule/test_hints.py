"""Frontend hints: a prefix announced, computed once, pinned for its followers, then let go."""

import random

import pytest

from sgjax.cache import ManualSpec
from sgjax.errors import ConfigError, PromptTooLong
from sgjax.schedule.spec import PassOverSpec
from sgjax.types import FinishKind, Wants
from tests.schedule.harness import Bench, Setup, ask, family, words


def hint(name: str, tokens: tuple[int, ...], followers: int):
    return ask(name, tokens, wants=Wants.NOTHING, followers=followers)


def test_followers_wait_for_their_hint_and_enter_as_one_group() -> None:
    prompts = family(random.Random(1), 8, 100, 3)
    bench = Bench(Setup(token_budget=256))
    bench.add(hint("h", prompts[0][:100], 8))
    bench.add(*(ask(str(i), p, 2, after="h") for i, p in enumerate(prompts)))
    assert bench.scheduler.num_waiting == 9
    first = bench.step()
    second = bench.step()
    assert first is not None
    assert second is not None
    assert [row.seq.request.id for row in first.rows] == ["h"]
    assert {row.seq.request.id for row in second.rows} == set("01234567")
    assert second.num_tokens == 8 * 3
    bench.run()


@pytest.mark.parametrize(("at_end", "order"), [(False, "012s"), (True, "s012")])
def test_followers_stand_where_they_came_or_where_their_hint_has_ended(
    at_end: bool, order: str
) -> None:
    rng = random.Random(1)
    prompts = family(rng, 3, 30, 3)
    bench = Bench(Setup(max_running=1, admission=PassOverSpec(joins_at_end=at_end)))
    bench.add(hint("h", prompts[0][:30], 3))
    bench.add(*(ask(str(i), p, 2, after="h") for i, p in enumerate(prompts)))
    bench.add(ask("s", words(rng, 30), 2))
    assert "".join(name for name in bench.run() if name != "h") == order


def test_a_hint_is_pinned_until_its_last_follower_is_admitted() -> None:
    rng = random.Random(2)
    prompts = family(rng, 2, 60, 3)
    bench = Bench(Setup(pages=100))
    bench.add(hint("h", prompts[0][:60], 2))
    bench.drain()
    bench.add(ask("0", prompts[0], 2, after="h"))
    bench.drain()
    # The pool is too small for both, yet the announced prefix is not evicted for a stranger.
    bench.add(ask("stranger", words(rng, 35), 2))
    bench.drain()
    bench.add(ask("1", prompts[1], 2, after="h"))
    done = bench.run()
    assert done["1"].cached_tokens == 60


def test_a_release_keeps_the_pin_for_followers_that_wait_in_the_queue() -> None:
    rng = random.Random(20)
    prompts = family(rng, 2, 60, 3)
    bench = Bench(Setup(pages=100, max_running=1))
    bench.add(hint("h", prompts[0][:60], 5))
    bench.drain()
    bench.add(ask("recent", words(rng, 30), 1))
    bench.drain()
    # The stranger goes first. It must evict what was used recently, not the older, pinned prefix.
    bench.add(ask("stranger", words(rng, 35), 2))
    bench.add(ask("0", prompts[0], 2, after="h"))
    bench.scheduler.release_hint("h")
    assert bench.run()["0"].cached_tokens == 60


def test_the_id_of_a_hint_is_in_use_until_its_followers_came() -> None:
    prompts = family(random.Random(21), 2, 60, 3)
    bench = Bench()
    bench.add(hint("h", prompts[0][:60], 1))
    bench.drain()
    with pytest.raises(ConfigError, match="in use"):
        bench.add(hint("h", prompts[1], 1))
    bench.add(ask("0", prompts[0], 2, after="h"))
    bench.drain()
    bench.done.clear()
    bench.add(hint("h", prompts[1], 0))
    bench.run()


def test_a_refused_follower_lets_the_pin_go() -> None:
    bench = Bench(Setup(max_context_len=50))
    prompt = words(random.Random(22), 30)
    bench.add(hint("h", prompt, 1))
    bench.drain()
    with pytest.raises(PromptTooLong):
        bench.add(ask("0", prompt * 2, 2, after="h"))
    bench.run()


def test_hint_pins_fall_when_nothing_else_can_run() -> None:
    rng = random.Random(3)
    bench = Bench(Setup(pages=100))
    bench.add(hint("h", words(rng, 60), 1))
    bench.drain()
    bench.add(ask("big", words(rng, 80), 5))
    bench.drain()
    assert bench.done["big"].finish.kind is FinishKind.LENGTH
    bench.scheduler.release_hint("h")
    bench.run()


def test_release_and_abort_of_followers_let_the_pin_go() -> None:
    rng = random.Random(4)
    prompts = family(rng, 3, 40, 3)
    bench = Bench(Setup(token_budget=16))
    bench.add(hint("h", prompts[0][:40], 3))
    bench.add(ask("0", prompts[0], 2, after="h"))
    bench.step()
    assert bench.scheduler.abort("0")
    bench.scheduler.release_hint("h")
    bench.run()  # check_idle: every page of the tree is evictable again
    assert bench.pages.cache.num_pages == 40


def test_aborting_a_hint_sets_its_followers_free() -> None:
    prompts = family(random.Random(5), 2, 40, 3)
    bench = Bench(Setup(token_budget=16))
    bench.add(hint("h", prompts[0][:40], 2))
    bench.add(*(ask(str(i), p, 2, after="h") for i, p in enumerate(prompts)))
    bench.step()
    assert bench.scheduler.abort("h")
    done = bench.run()
    assert done["0"].finish.kind is done["1"].finish.kind is FinishKind.LENGTH


def test_declared_prefixes_are_all_that_a_manual_cache_keeps() -> None:
    prompts = family(random.Random(6), 4, 50, 5)
    bench = Bench(Setup(cache=ManualSpec(), token_budget=256))
    bench.add(hint("h", prompts[0][:50], 4))
    bench.add(*(ask(str(i), p, 2, after="h") for i, p in enumerate(prompts)))
    bench.run()
    assert bench.scheduler.stats.cached_tokens == 4 * 50
    assert bench.pages.cache.num_pages == 50
