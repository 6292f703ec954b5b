"""Whom a request waits for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgjax.schedule.sequence import Sequence
from sgjax.schedule.siblings import Defer
from tests.schedule.harness import ask

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
