"""The scheduler on the simulator: what each request gets, whatever happens around it."""

import random

import pytest

from sgjax.cache import ManualSpec, NoCacheSpec, TableSpec, ThrottledSpec, TreeSpec
from sgjax.errors import ConfigError, OutOfPages, PromptTooLong, RequestAborted
from sgjax.schedule.spec import (
    AdmitSpec,
    AgedLpmSpec,
    DeferSpec,
    DfsWeightSpec,
    FcfsSpec,
    LpmSpec,
    RandomSpec,
    SharePlannedSpec,
)
from sgjax.types import FinishKind, Request, SamplingParams, Wants
from tests.schedule.harness import Bench, Setup, ask, family, words

CACHES = [TreeSpec(), NoCacheSpec(), TableSpec(), ManualSpec(), ThrottledSpec(keep=0.5)]
POLICIES = [FcfsSpec(), RandomSpec(), LpmSpec(), DfsWeightSpec(), AgedLpmSpec(max_wait_s=0.3)]
SIBLINGS = [AdmitSpec(), DeferSpec(), SharePlannedSpec()]


def solo(prompt: tuple[int, ...], new: int) -> tuple[int, ...]:
    """Return the output of a prompt that runs alone, without a cache."""
    bench = Bench(Setup(cache=NoCacheSpec()))
    bench.add(ask("solo", prompt, new))
    return bench.run()["solo"].output_ids


@pytest.mark.parametrize("siblings", SIBLINGS, ids=lambda s: s.type)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda s: s.type)
@pytest.mark.parametrize("cache", CACHES, ids=lambda s: s.type)
def test_output_is_the_same_under_every_switch(cache, policy, siblings) -> None:
    rng = random.Random(5)
    prompts = [p for _ in range(2) for p in family(rng, 6, 40, 9)]
    rng.shuffle(prompts)
    for page_size, pages in ((1, 150), (4, 40), (16, 60)):
        setup = Setup(policy, siblings, cache, pages=pages, page_size=page_size, growth=0.0)
        bench = Bench(setup)
        bench.add(*(ask(str(i), p, 12) for i, p in enumerate(prompts)))
        done = bench.run()
        for i, prompt in enumerate(prompts):
            assert done[str(i)].output_ids == solo(prompt, 12), (page_size, i)


def test_retracted_sequences_resume_where_they_were() -> None:
    rng = random.Random(1)
    prompts = [words(rng, 20) for _ in range(6)]
    bench = Bench(Setup(pages=170, growth=0.0))
    bench.add(*(ask(str(i), p, 40) for i, p in enumerate(prompts)))
    done = bench.run()
    assert bench.scheduler.stats.retractions > 0
    for i, prompt in enumerate(prompts):
        assert done[str(i)].output_ids == solo(prompt, 40)
    # Hits count at the first admission only, not those on a sequence's own pages.
    hits = sum(completion.cached_tokens for completion in done.values())
    assert bench.scheduler.stats.cached_tokens == hits <= 6


def test_a_small_request_does_not_overtake_one_that_does_not_fit_yet() -> None:
    rng = random.Random(19)
    bench = Bench(Setup(pages=60, growth=0.0))
    bench.add(ask("running", words(rng, 30), 10))
    bench.step()
    bench.add(ask("big", words(rng, 40), 2), ask("small", words(rng, 4), 2))
    done = bench.run()
    assert done["big"].queued_s <= done["small"].queued_s


def test_nobody_is_admitted_in_a_step_that_retracts() -> None:
    rng = random.Random(18)
    bench = Bench(Setup(RandomSpec(seed=1), pages=120, growth=0.0, max_running=9))
    bench.add(*(ask(str(i), words(rng, 10), 60) for i in range(8)))
    running: set[str] = set()
    while len(bench.plans) < 200:
        bench.add(ask(f"small{len(bench.plans)}", words(rng, 2), 1))
        before = bench.scheduler.stats.retractions
        plan = bench.step()
        assert plan is not None
        now = {row.seq.request.id for row in plan.rows}
        # Its place is needed; whoever came in would be the next to go.
        assert bench.scheduler.stats.retractions == before or now <= running
        running = now
    assert bench.scheduler.stats.retractions > 3
    bench.run()


def test_last_sequence_fails_alone_when_the_pool_is_too_small() -> None:
    rng = random.Random(2)
    big, small = words(rng, 20), words(rng, 20)
    bench = Bench(Setup(pages=60, growth=0.0))
    bench.add(ask("big", big, 100), ask("small", small, 5))
    done = bench.run()
    assert done["big"].finish.kind is FinishKind.ABORT
    assert isinstance(done["big"].finish.error, OutOfPages)
    assert done["big"].output_ids == solo(big, 100)[: len(done["big"].output_ids)]
    assert done["small"].output_ids == solo(small, 5)


def test_growth_estimate_avoids_retractions() -> None:
    def retractions(growth: float) -> int:
        rng = random.Random(3)
        bench = Bench(Setup(pages=200, growth=growth))
        bench.add(*(ask(str(i), words(rng, 20), 40) for i in range(12)))
        bench.run()
        return bench.scheduler.stats.retractions

    assert retractions(1.0) == 0 < retractions(0.0)


def test_newcomers_are_given_room_for_all_they_may_write_in_the_step_that_admits_them() -> None:
    def admitted(newcomers_in_full: bool) -> int:
        rng = random.Random(3)
        bench = Bench(
            Setup(pages=120, growth=0.0, token_budget=256, newcomers_in_full=newcomers_in_full)
        )
        bench.add(*(ask(str(i), words(rng, 10), 30) for i in range(6)))
        bench.step()
        return bench.scheduler.num_running

    # 120 tokens hold three prompts of 10 with 30 tokens to come, or six prompts.
    assert (admitted(True), admitted(False)) == (3, 6)


def test_extends_are_chunked_and_mixed_with_decode_under_one_budget() -> None:
    rng = random.Random(4)
    bench = Bench(Setup(token_budget=64))
    bench.add(ask("short", words(rng, 10), 20))
    bench.step()
    bench.add(ask("long", words(rng, 200), 4))
    bench.run()
    mixed = [p for p in bench.plans if {r.num_tokens > 1 for r in p.rows} == {True, False}]
    assert [max(r.num_tokens for r in p.rows) for p in mixed] == [48, 48, 48, 48, 8]
    assert all(p.num_tokens <= 64 for p in bench.plans)


def test_siblings_that_are_deferred_compute_their_prefix_once() -> None:
    def computed(siblings, budget: int) -> int:
        prompts = family(random.Random(6), 6, 60, 4)
        bench = Bench(Setup(siblings=siblings, token_budget=budget))
        bench.add(*(ask(str(i), p, 1) for i, p in enumerate(prompts)))
        bench.run()
        return bench.scheduler.stats.computed_tokens

    once = 60 + 6 * 4
    assert computed(DeferSpec(), 1024) == once
    assert computed(SharePlannedSpec(), 1024) == once
    assert computed(AdmitSpec(), 1024) == 6 * 64


def test_a_prefix_that_is_cached_already_is_nothing_to_wait_for() -> None:
    rng = random.Random(20)
    one, other = family(rng, 2, 60, 40)
    bench = Bench(Setup(siblings=DeferSpec(min_tokens=16), token_budget=256))
    bench.add(ask("warm", one[:60], 1))
    bench.run()
    bench.add(ask("one", one, 5), ask("other", other, 5))
    bench.step()
    assert bench.scheduler.num_running == 2


def test_share_planned_admits_siblings_in_the_same_step() -> None:
    prompts = family(random.Random(7), 6, 60, 4)
    bench = Bench(Setup(siblings=SharePlannedSpec(), token_budget=1024))
    bench.add(*(ask(str(i), p, 1) for i, p in enumerate(prompts)))
    bench.run()
    assert len(bench.plans) == 1


def test_a_prompt_that_is_cached_whole_still_computes_a_token() -> None:
    prompt = words(random.Random(17), 50)
    bench = Bench()
    bench.add(ask("first", prompt, 1))
    bench.run()
    assert bench.pages.pool.counts()["tree"] == 50
    bench.add(ask("again", prompt, 1))
    plan = bench.step()
    assert plan is not None
    assert [(row.start, row.end) for row in plan.rows] == [(49, 50)]
    assert bench.run()["again"].cached_tokens == 49


def test_equal_prompts_run_at_once_and_free_their_duplicates() -> None:
    prompt = words(random.Random(8), 50)
    bench = Bench(Setup(token_budget=1024))
    bench.add(*(ask(str(i), prompt, 10) for i in range(4)))
    bench.step()
    # Rule 6: after the prompt's K/V entered the tree all four hold the tree's 49 + 1 pages.
    assert bench.pages.pool.counts()["tree"] == 50
    assert bench.pages.pool.counts()["sequence"] == 0
    assert len({c.output_ids for c in bench.run().values()}) == 1


def test_requests_that_want_no_token_hold_no_slot_afterwards() -> None:
    rng = random.Random(9)
    bench = Bench(Setup(max_running=1))
    bench.add(ask("hint", words(rng, 30), wants=Wants.NOTHING))
    bench.add(ask("score", words(rng, 30), wants=Wants.LOGPROBS, logprob_start=20))
    bench.add(ask("gen", words(rng, 30), 3))
    done = bench.run()
    assert done["hint"].output_ids == done["score"].output_ids == ()
    assert len(done["gen"].output_ids) == 3
    entries = done["score"].input_logprobs
    assert entries is not None
    assert len(entries) == 10
    assert entries[0].logprob is None
    assert all(e.logprob is not None for e in entries[1:])


def test_prompt_logprobs_survive_chunks_cache_hits_and_retraction() -> None:
    rng = random.Random(10)
    prompt = words(rng, 100)
    bench = Bench(Setup(token_budget=32, pages=180, growth=0.0))
    bench.add(ask("warm", prompt, 1))
    bench.run()
    bench.add(*(ask(f"other{i}", words(rng, 30), 60) for i in range(2)))
    bench.add(ask("score", prompt, 30, return_logprob=True, logprob_start=7))
    done = bench.run()
    assert bench.scheduler.stats.retractions > 0
    entries = done["score"].input_logprobs
    assert entries is not None
    assert [e.token_id for e in entries] == list(prompt[7:])
    assert sum(e.logprob is None for e in entries) == 1
    assert done["score"].output_logprobs is not None
    assert len(done["score"].output_logprobs) == 30


def test_deltas_of_a_stream_add_up_to_the_completion() -> None:
    bench = Bench()
    params = SamplingParams(max_new_tokens=30, ignore_eos=True, stop=("zz",))
    bench.add(Request("s", words(random.Random(11), 12), params, stream=True))
    completion = bench.run()["s"]
    assert "".join(d.text for d in bench.deltas["s"]) == completion.text
    assert sum((d.token_ids for d in bench.deltas["s"]), ()) == completion.output_ids
    assert len(bench.deltas["s"]) > 5


def test_a_request_ends_on_stop_strings_stop_ids_and_length() -> None:
    prompt = words(random.Random(12), 12)
    full = solo(prompt, 20)
    text = bytes(full).decode()
    stop = text[7:9]
    bench = Bench()
    bench.add(
        Request("string", prompt, SamplingParams(max_new_tokens=20, stop=(stop,))),
        Request("id", prompt, SamplingParams(max_new_tokens=20, stop_token_ids=(full[5],))),
        Request("length", prompt, SamplingParams(max_new_tokens=20)),
    )
    done = bench.run()
    assert done["string"].text == text[: text.index(stop)]
    assert done["string"].finish.matched == stop
    assert done["id"].output_ids == full[: full.index(full[5]) + 1]
    assert done["id"].text == text[: full.index(full[5])]
    assert done["id"].finish.matched == full[5]
    assert done["length"].finish.kind is FinishKind.LENGTH


@pytest.mark.parametrize("when", ["waiting", "running", "deferred", "held"])
def test_abort_ends_a_request_wherever_it_is(when: str) -> None:
    rng = random.Random(13)
    prompts = family(rng, 2, 60, 4)
    bench = Bench(Setup(siblings=DeferSpec(), token_budget=16, max_running=2))
    bench.add(ask("first", prompts[0], 5, followers=1 if when == "held" else 0))
    if when == "waiting":
        bench.add(ask("filler", words(rng, 200), 5))
    after = "first" if when == "held" else None
    bench.add(ask("victim", prompts[1] if when != "waiting" else words(rng, 9), 5, after=after))
    bench.step()
    if when == "running":
        while bench.scheduler.num_running < 2:
            bench.step()
    assert bench.scheduler.abort("victim")
    assert not bench.scheduler.abort("victim")
    done = bench.run()
    assert isinstance(done["victim"].finish.error, RequestAborted)
    assert done["first"].finish.kind is FinishKind.LENGTH


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        (Request("x", ()), ConfigError, "empty"),
        (ask("x", (60,) * 1001), PromptTooLong, "max_context_len is 1000"),
        (ask("x", (60,) * 300), PromptTooLong, "kv_tokens"),
        (ask("x", (60,) * 9, logprob_start=9), ConfigError, "0 to 8"),
        (ask("x", (60,) * 9, wants=Wants.LOGPROBS), ConfigError, "must say logprob_start"),
        (ask("x", (60,) * 9, after="nobody"), ConfigError, "no live hint"),
        (ask("taken", (60,) * 9), ConfigError, "in use"),
    ],
    ids=["empty", "context", "pool", "logprob_start", "no logprob_start", "hint", "duplicate"],
)
def test_a_bad_request_is_refused_and_nothing_else_is_harmed(request_, error, says) -> None:
    bench = Bench(Setup(pages=200))
    bench.add(ask("taken", words(random.Random(14), 20), 5))
    with pytest.raises(error, match=says):
        bench.add(request_)
    assert list(bench.run()) == ["taken"]
    assert bench.scheduler.stats.requests == 1


def test_an_output_that_only_the_context_limits_is_not_expected_to_outgrow_it() -> None:
    rng = random.Random(16)
    bench = Bench(Setup(pages=500, max_context_len=50, growth=1.0, token_budget=256))
    bench.add(*(ask(str(i), words(rng, 10), 10**9) for i in range(8)))
    bench.step()
    assert bench.scheduler.num_running == 8
    assert {len(c.output_ids) for c in bench.run().values()} == {40}


def test_aged_lpm_bounds_the_wait_of_a_starved_family() -> None:
    def wait(policy) -> float:
        rng = random.Random(15)
        popular = family(rng, 60, 100, 5)
        bench = Bench(Setup(policy=policy, pages=260, max_running=2, token_budget=256))
        bench.add(ask("warm", popular[0], 4))
        bench.run()
        bench.add(ask("starved", words(rng, 100), 4))
        bench.add(*(ask(str(i), p, 4) for i, p in enumerate(popular)))
        return bench.run()["starved"].queued_s

    assert wait(AgedLpmSpec(max_wait_s=0.5)) < 0.5 + 0.5 < wait(LpmSpec())
