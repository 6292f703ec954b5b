"""Whom a request waits for, and how long."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgjax.schedule.sequence import Sequence
from sgjax.schedule.siblings import Defer
from sgjax.schedule.spec import DeferSpec
from tests.schedule.harness import Bench, Setup, ask, words

TOKENS = st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=9)


def sequence(number, tokens):
    request, keys = ask(str(number), tuple(tokens)), np.array(tokens, np.int64)
    return Sequence(request, keys, None, frozenset(), 0, number, 0.0, 100)


@given(
    asked=TOKENS,
    others=st.lists(TOKENS, max_size=6),
    cached=st.integers(0, 9),
    worth=st.integers(1, 3),
)
def test_one_waits_for_the_first_of_those_who_compute_most_beyond_what_is_cached(
    asked, others, cached, worth
):
    seq = sequence(0, asked)
    computing = [sequence(1 + at, tokens) for at, tokens in enumerate(others)]

    def shared(tokens):
        most = min(len(asked) - 1, len(tokens))  # the last token is computed in any case
        return next((i for i in range(most) if asked[i] != tokens[i]), most)

    longest = max(map(shared, others), default=0)
    found = Defer(worth).wait_for(seq, cached, computing)
    if longest < cached + worth:
        assert found is None
    else:
        at = [shared(tokens) for tokens in others].index(longest)
        assert found == (computing[at], longest)


def test_who_waits_for_a_prefix_goes_on_when_it_is_computed_also_by_one_who_was_retracted():
    rng = random.Random(3)
    prefix = words(rng, 30)
    bench = Bench(Setup(siblings=DeferSpec(), pages=64, growth=0.0))
    bench.add(ask("old", words(rng, 8), 50))
    bench.step()
    bench.step()
    bench.add(ask("writer", prefix, 20))
    while not bench.scheduler.stats.retractions:
        bench.step()
    bench.add(ask("reader", prefix + words(rng, 5), 2))
    while "old" not in bench.done:
        bench.step()
    computed = bench.step()
    assert computed is not None
    assert [row.seq.request.id for row in computed.rows] == ["writer"]
    assert computed.num_tokens > 16, "the prefix was still cached: there is nothing to wait for"
    for _ in range(2):
        bench.step()
    assert bench.done.keys() == {"old", "reader"}
    bench.run()
