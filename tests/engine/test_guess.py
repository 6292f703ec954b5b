"""Rule 8 for guesses: on a tiny model with a tokenizer of words, outputs are what they are without.

Each request samples in its own way, so that whatever depends on the token before (masks, draws,
penalties) is wrong behind a guess if it is not the guess's own.
"""

import json

import numpy as np
import pytest
import safetensors.numpy

import sgjax as sgl
from sgjax.engine.config import PlainSpec
from sgjax.engine.pack import Ladder, pack, sample_places
from sgjax.engine.sizing import make_ladder
from sgjax.models.config import ModelConfig
from sgjax.models.weights import tensor_shapes
from sgjax.schedule import Plan, PlanRow, Sequence
from sgjax.types import Request, SamplingParams
from tests.fsm.small import byte_level
from tests.golden import variations

PATTERNS = [
    r'(k|v): "[a-z,]{1,3}", "[a-z0-9,]{1,2}"',
    r'\{"n": "[\w ,.]{0,4}", "m": "[\w ,.]{0,4}"\}',
    r"(a|b) = -?[0-9]{1,3}; c = -?[0-9]{1,2}",
]
WAYS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 1.3, "seed": 4, "top_p": 0.9},
    {"temperature": 0.0, "frequency_penalty": 1.5},
    {"temperature": 0.8, "seed": 5, "presence_penalty": 1.0, "repetition_penalty": 1.4},
    {"temperature": 0.0, "logit_bias": {str(byte_level().encode('k: "')[-1]): 9.0}},
    {"temperature": 0.0, "stop": ['"']},
]
PROMPTS = [f"The {word} number {i}" for i in range(3) for word in ("red", "quick", "lazy", "big")]
ASKED = [(f"{p} {n}", {"regex": PATTERNS[n % 3], "max_new_tokens": 40, **WAYS[n % 7]})
         for n, p in enumerate(PROMPTS * 4)]  # fmt: skip
PLAIN = [(p, {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True}) for p in PROMPTS[:4]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_words(tmp_path_factory.mktemp("words"))


def write_words(path):
    """Write a random model whose tokens are words and marks; return its folder."""
    tokenizer = byte_level()
    config = variations.BASE | {"vocab_size": tokenizer.vocab_size, "eos_token_id": 0}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(tokenizer.rules())
    shapes = tensor_shapes(ModelConfig.from_hf(config))
    tensors = {key: variations.tensor("words", key, shape) for key, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return str(path)


def make(folder, mask="all", **jump):
    # Few shapes, the same for all engines here: compiling them is what takes time.
    return sgl.Engine(
        folder,
        dtype="float32",
        max_context_len=64,
        page_size=64,
        kv_tokens=768,
        max_running=4,
        token_budget=32,
        debug_checks=True,
        grammar={"jump": {"type": "tokens", **jump}, "mask": {"type": mask}},
    )


def ask(engine, asked=(*ASKED, *PLAIN)):
    """Return what was said, and its log-probabilities."""
    prompts, params = zip(*asked, strict=True)
    results = engine.generate(list(prompts), list(params), return_logprob=True, top_logprobs_num=2)
    said, logprobs = [], []
    for result in results:
        meta = result["meta_info"]
        tops = [top and [x[1] for x in top] for top in meta["output_top_logprobs"]]
        said.append((result["output_ids"], result["text"], meta["finish_reason"], tops))
        logprobs += [entry[0] for entry in meta["output_token_logprobs"]]
    return said, logprobs


@pytest.fixture(scope="module")
def expected(folder):
    with make(folder, guess=False) as engine:
        said = ask(engine)
        assert engine.get_server_info()["guessed_tokens"] == 0
    return said


def test_outputs_and_their_log_probabilities_are_those_without_guesses(folder, expected) -> None:
    with make(folder) as engine:
        said, logprobs = ask(engine)
        info = engine.get_server_info()
    assert said == expected[0]
    none = [x is None for x in logprobs]  # forced tokens have none
    assert none == [x is None for x in expected[1]]
    own, other = (np.array(x, float)[~np.array(none)] for x in (logprobs, expected[1]))
    np.testing.assert_allclose(own, other, atol=1e-4)
    assert info["guessed_tokens"] > info["wrong_guesses"] > 0
    assert info["rolled_back_tokens"] == 0
    # No program is there for guesses alone.
    ladder = make_ladder(4, 32, 1, byte_level().vocab_size)
    known = {(s.D, s.G, s.BQ, s.P) for s in ladder.warmup_shapes()}
    assert {(s["D"], s["G"], s["BQ"], s["P"]) for s in info["shapes"]} <= known


def test_canonical_masks_without_jumps_say_the_same_token_by_token(folder) -> None:
    # A stop string inside of forced text leaves the tokens behind it, where one jumps.
    asked = [(prompt, params) for prompt, params in ASKED if "stop" not in params]
    with make(folder, mask="canonical") as engine:
        guessed = [said[:3] for said in ask(engine, asked)[0]]
        assert engine.get_server_info()["guessed_tokens"] > 0
    with make(folder, mask="canonical", type="none") as engine:
        assert [said[:3] for said in ask(engine, asked)[0]] == guessed


def test_a_stream_hears_each_token_of_a_step_that_took_two(folder) -> None:
    (prompt, params), heard = ASKED[5], {}
    reports = {"stream": True, "return_logprob": True, "top_logprobs_num": 2}
    for guess in (True, False):
        with make(folder, guess=guess) as engine:
            pieces = list(engine.generate(prompt, params, **reports))
            heard[guess] = [(piece["text"], piece["output_ids"]) for piece in pieces]
            assert (engine.get_server_info()["guessed_tokens"] > 0) == guess
    assert heard[True] == heard[False]


# ------------------------------------------------------------------ packing


def sequence(name, tokens, num_prompt, page, **params):
    request = Request(name, tuple(tokens[:num_prompt]), SamplingParams(**params))
    keys = np.array(tokens[:num_prompt])
    seq = Sequence(request, keys, None, frozenset(), 0, 0, 0.0, 100)
    for token in tokens[num_prompt:]:
        seq.tokens.append(token)
    seq.pages.extend(np.arange(page, page + 20, dtype=np.int32))
    return seq


def test_a_guess_is_sampled_where_no_row_is_with_what_belongs_behind_it() -> None:
    ladder = Ladder((1, 2), ((1, 1, 16), (2, 2, 16)), (20,), (20,), (0,), (0, 8), (0,))
    decode = sequence("d", [5, 6], 1, page=1)
    seq = sequence("g", [5, 6, 7, 7], 2, page=30, frequency_penalty=0.5)
    first = seq.supposing(7, 0)
    guesses = (first, first.supposing(9, 0))
    plan = Plan(1, (PlanRow(decode, 1, 2, True), PlanRow(seq, 2, 6, True, -1, guesses)), 5)
    shape, batch = pack(plan, ladder, 1, 50, PlainSpec(), {0: 3, 1: 4, 2: 5, 3: 6})
    # Four samples do not fit beside the rows of the smaller shape.
    assert (shape.D, shape.G) == (2, 2)
    places = sample_places(plan, shape)
    assert places == [0, 2, 1, 3]
    assert batch.tokens[[0, 2, 3, 4, 5]].tolist() == [6, 7, 7, 7, 9]
    assert batch.logit_rows[places].tolist() == [0, 3, 4, 5]
    assert batch.sampling.position[places].tolist() == [2, 4, 5, 6]
    assert batch.sampling.mask_row[places].tolist() == [3, 4, 5, 6]
    assert batch.layout.kv_lens.tolist() == [2, 0, 6, 0]
    assert batch.layout.out_slots[2:6].tolist() == [32, 33, 34, 35]
    ids, add = batch.sampling.adjust_ids, batch.sampling.adjust_add
    said = [dict(zip(ids[b].tolist(), add[b].tolist(), strict=True)) for b in places[1:]]
    assert [one[7] for one in said] == [-1.0, -1.5, -1.5]
    assert [one.get(9, 0.0) for one in said] == [0.0, 0.0, -0.5]
