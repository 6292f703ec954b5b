"""Traces made up where none is at hand: the structure and the lengths of the published ones.

HOST. Imports sim.trace and the standard library. Numbers are those of Mooncake's conversation trace
and of Azure's (2023), as measured on them: arrivals a second, quantiles of lengths, how much of a
prompt was seen before and how long ago. What is made of them is synthetic.
"""

import random
from collections.abc import Iterator
from itertools import count

from sgjax.sim.trace import BLOCK_TOKENS, Arrival, BlockTokens

LONGEST_BLOCKS = 240
"""Longest prompts, in blocks of 512 tokens."""


def make_conversations(total: int, seed: int) -> list[Arrival]:
    """Make up chats behind a common system prompt, like Mooncake's conversation trace.

    Two of five requests go on with an earlier prompt, mostly one of some hundred requests ago, and
    add a few blocks to it; the others share the first block alone.

    Args:
        total: requests.
        seed: of everything.
    """
    rng, fresh, now = random.Random(seed), count(1), 0.0
    prompts: list[list[int]] = []
    arrivals = []
    for _ in range(total):
        now += rng.expovariate(3.4)
        back = 1 + int(rng.expovariate(1 / 600))
        if rng.random() < 0.39 and back <= len(prompts):
            blocks = prompts[-back] + _new(rng, fresh, median=4, sigma=1.0)
        else:
            blocks = [0, *_new(rng, fresh, median=12, sigma=1.1)]
        blocks = blocks[:LONGEST_BLOCKS]
        prompts.append(blocks)
        length = BLOCK_TOKENS * len(blocks) - rng.randrange(BLOCK_TOKENS)
        arrivals.append(Arrival(now, BlockTokens(blocks, length), _length(rng, 300, 0.8, 2000)))
    return arrivals


def make_lengths(total: int, seed: int) -> list[Arrival]:
    """Make up requests that share nothing, with lengths like those of Azure's conversations."""
    rng, fresh, now = random.Random(seed), count(), 0.0
    arrivals = []
    for _ in range(total):
        now += rng.expovariate(5.5)
        length = _length(rng, 900, 0.9, 4100)
        blocks = [next(fresh) for _ in range(-(-length // BLOCK_TOKENS))]
        arrivals.append(Arrival(now, BlockTokens(blocks, length), _length(rng, 160, 0.8, 1000)))
    return arrivals


def _new(rng: random.Random, fresh: Iterator[int], median: float, sigma: float) -> list[int]:
    return [next(fresh) for _ in range(_length(rng, median, sigma, LONGEST_BLOCKS))]


def _length(rng: random.Random, median: float, sigma: float, most: int) -> int:
    """Return a log-normal length between 1 and `most`."""
    return max(1, min(most, round(median * rng.lognormvariate(0.0, sigma))))
