"""Simulated answers: lengths as asked, and the same whatever runs beside them."""

import statistics

import numpy as np
import pytest

from sgjax.errors import ConfigError
from sgjax.schedule import Sequence
from sgjax.sim.outputs import FullLengths, LognormalLengths, UniformLengths, draw, speak
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.detokenize import OutputText
from sgjax.types import Request, SamplingParams

TOKENIZER = ByteTokenizer()


def answer(script, prompt, arrival=0, temperature=0.0, limit=200):
    params = SamplingParams(max_new_tokens=limit, temperature=temperature)
    seq = Sequence(
        Request("r", tuple(prompt), params), np.array(prompt, np.int64),
        OutputText(TOKENIZER, params), TOKENIZER.end_ids, arrival, arrival, 0.0, 10_000,
    )  # fmt: skip
    out = []
    while len(out) < limit and (not out or out[-1] not in TOKENIZER.end_ids):
        out.append(script(seq))
        seq.tokens.append(out[-1])
    return out


def test_answers_end_with_the_end_token_at_their_drawn_length():
    script = speak(TOKENIZER, UniformLengths(low=5, high=9), seed=0)
    answers = [answer(script, [i, 1, 2]) for i in range(200)]
    assert {len(a) for a in answers} == {5, 6, 7, 8, 9}
    assert all(a[-1] == 256 and 256 not in a[:-1] for a in answers)
    assert TOKENIZER.decode(answers[0]).isprintable()


def test_greedy_answers_depend_on_the_prompt_alone():
    script = speak(TOKENIZER, LognormalLengths(median=20, sigma=0.8), seed=1)
    assert answer(script, [1, 2, 3], arrival=0) == answer(script, [1, 2, 3], arrival=9)
    lengths = {len(answer(script, [1, 2, 3], arrival=i, temperature=1.0)) for i in range(20)}
    assert len(lengths) > 5  # sampled ones depend on their seed, too


def test_full_answers_run_to_their_limit():
    assert len(answer(speak(TOKENIZER, FullLengths(), seed=0), [1], limit=17)) == 17


def test_lognormal_lengths_have_the_stated_median_and_spread():
    lengths = [draw(LognormalLengths(median=100, sigma=0.5), (i + 0.5) / 1000) for i in range(1000)]
    assert statistics.median(lengths) == pytest.approx(100, abs=1)
    logs = [np.log(length) for length in lengths]
    assert np.std(logs) == pytest.approx(0.5, abs=0.02)


def test_impossible_lengths_are_refused():
    with pytest.raises(ConfigError, match="1 <= low <= high"):
        UniformLengths(low=3, high=2)
