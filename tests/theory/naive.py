"""An unlimited cache by brute force, and strategies for small requests."""

from hypothesis import strategies as st

from sgjax.theory.visits import Visit

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)

visits = st.builds(
    Visit,
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple),
    output=st.lists(st.integers(0, 1), max_size=3).map(tuple),
)


def prefixes(tokens):
    return {tuple(tokens[:end]) for end in range(1, len(tokens) + 1)}


def computed_serially(order, page_size=1):
    """Prompt tokens an engine computes with an unlimited cache that matches on tokens[:-1]."""
    seen, computed = {()}, 0
    for visit in order:
        hit = 0
        while hit + page_size < len(visit.prompt) and visit.prompt[: hit + page_size] in seen:
            hit += page_size
        computed += len(visit.prompt) - hit
        seen |= prefixes(visit.prompt + visit.output[:-1])
    return computed


def unlimited_best(given_visits, page_size):
    """What serving by length of the prompt, in pages, computes with an unlimited cache."""
    return computed_serially(
        sorted(given_visits, key=lambda v: (len(v.prompt) - 1) // page_size), page_size
    )
