"""Theorem 3.1 through the real scheduler and radix tree, on the simulator."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.schedule.spec import FcfsSpec, LpmSpec
from sgjax.theory.bound import hit_rate_bound
from sgjax.theory.order import dfs_order, is_dfs_order
from tests.schedule.harness import Bench, Setup, ask

TOKENS = st.integers(60, 62)
PROMPTS = st.lists(st.lists(TOKENS, min_size=1, max_size=12).map(tuple), min_size=1, max_size=12)
END = 70
"""A token that ends some prompts, so that none is a prefix of another."""


def serve_one_by_one(prompts, policy, page_size, num_pages, new=1):
    """Serve all prompts, one at a time; return the scheduler's counters and who came when."""
    bench = Bench(
        Setup(policy=policy, pages=num_pages, page_size=page_size, max_running=1, growth=0.0)
    )
    bench.add(*(ask(str(i), prompt, new) for i, prompt in enumerate(prompts)))
    done = bench.run()
    order = list(dict.fromkeys(int(row.seq.request.id) for p in bench.plans for row in p.rows))
    outputs = [done[str(i)].output_ids for i in range(len(prompts))]
    return bench.scheduler.stats, order, outputs


def pages_of_the_longest(prompts, page_size):
    # The scheduler refuses a prompt that leaves no room for the token it asks for.
    return -(-(max(map(len, prompts)) + 1) // page_size)


@given(PROMPTS, st.sampled_from([1, 2, 3]))
@settings(max_examples=150, deadline=None)
def test_depth_first_order_reaches_the_bound_with_room_for_the_longest_request(prompts, page_size):
    in_order = [prompts[i] for i in dfs_order(prompts)]
    num_pages = pages_of_the_longest(prompts, page_size)
    stats, _, _ = serve_one_by_one(in_order, FcfsSpec(), page_size, num_pages)
    bound = hit_rate_bound(prompts, page_size=page_size)
    assert stats.prompt_tokens - stats.cached_tokens == bound.least_computed
    assert stats.computed_tokens == bound.least_computed


@given(PROMPTS, st.integers(0, 20))
@settings(max_examples=150, deadline=None)
def test_longest_prefix_first_is_a_depth_first_order(prompts, spare):
    ended = [(*prompt, END + i) for i, prompt in enumerate(prompts)]
    num_pages = pages_of_the_longest(ended, 1) + spare
    stats, order, _ = serve_one_by_one(ended, LpmSpec(), 1, num_pages)
    assert is_dfs_order([ended[i] for i in order])
    assert stats.computed_tokens == hit_rate_bound(ended).least_computed


@given(PROMPTS, st.sampled_from([1, 2]), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_no_order_beats_the_bound_even_with_answers_to_reuse(prompts, page_size, new):
    first_turns = prompts[::2]
    bench_pages = 400
    _, _, answers = serve_one_by_one(first_turns, FcfsSpec(), page_size, bench_pages, new)
    second = [p + a + (END,) for p, a in zip(first_turns, answers, strict=True)]
    everything = [*first_turns, *second]
    stats, _, outputs = serve_one_by_one(everything, FcfsSpec(), page_size, bench_pages, new)
    bound = hit_rate_bound(everything, outputs, page_size)
    computed = stats.prompt_tokens - stats.cached_tokens
    assert computed >= bound.least_computed
    by_length = sorted(everything, key=lambda p: (len(p) - 1) // page_size)
    stats, _, _ = serve_one_by_one(by_length, FcfsSpec(), page_size, bench_pages, new)
    assert stats.prompt_tokens - stats.cached_tokens == bound.least_computed


def test_arrival_order_misses_the_bound_where_families_alternate():
    rng = random.Random(0)
    stems = [tuple(rng.randrange(60, 120) for _ in range(20)) for _ in range(3)]
    prompts = [(*stems[i % 3], 60 + i) for i in range(12)]
    num_pages = pages_of_the_longest(prompts, 1)
    bound = hit_rate_bound(prompts).least_computed
    fcfs, _, _ = serve_one_by_one(prompts, FcfsSpec(), 1, num_pages)
    lpm, _, _ = serve_one_by_one(prompts, LpmSpec(), 1, num_pages)
    assert fcfs.computed_tokens > 3 * bound
    assert lpm.computed_tokens == bound


def test_a_prompt_that_is_a_prefix_of_others_may_break_the_equivalence():
    """A match ends before the last token, so at its own end a prefix looks like its parent."""
    prompts = [(60, 61, 62, 63), (60, 61, 64), (60, 61, 62)]
    _, order, _ = serve_one_by_one(prompts, LpmSpec(), 1, 5)
    assert order == [0, 1, 2]
    assert not is_dfs_order([prompts[i] for i in order])
    assert is_dfs_order([prompts[i][:-1] for i in order])
