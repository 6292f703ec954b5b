"""Engine on a simulated device: the same public face, a virtual clock, and no jax."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sgjax as sgl

A10G = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
GREEDY = {"temperature": 0.0, "max_new_tokens": 40}


@pytest.fixture
def make():
    engines = []

    def build(**overrides):
        engines.append(sgl.Engine(**{"executor": A10G, "debug_checks": True, **overrides}))
        return engines[-1]

    yield build
    for engine in engines:
        engine.shutdown()


def test_a_prompt_is_answered_in_virtual_time(make):
    engine = make()
    result = engine.generate("Once upon a time", GREEDY)
    info = engine.get_server_info()
    assert result["meta_info"]["completion_tokens"] == 40
    assert result["meta_info"]["e2e_latency_s"] == pytest.approx(info["clock_s"])
    # 13 GB of weights at about 0.7 * 600 GB/s and 5 ms a step: about 36 ms a token.
    assert 40 * 0.030 < info["clock_s"] < 40 * 0.042
    assert (info["executor"], info["device"]) == ("sim", "NVIDIA A10G")


def test_a_request_waits_out_the_pause_after_one_that_ended(make):
    clocks = {}
    for pause_s in (0.0, 0.5):
        engine = make(executor={**A10G, "pause_s": pause_s})
        for prompt in ("First", "Second", "Third"):
            result = engine.generate(prompt, GREEDY)
        clocks[pause_s] = (engine.get_server_info()["clock_s"], result["meta_info"]["ttft_s"])
    # Each but the first waits, and so does its first token; the pause after the last is nobody's.
    assert clocks[0.5][0] == pytest.approx(clocks[0.0][0] + 2 * 0.5)
    assert clocks[0.5][1] == pytest.approx(clocks[0.0][1] + 0.5)


def test_kv_pool_is_what_the_device_has_left(make):
    tokens = make().get_server_info()["config"]["kv_tokens"]
    assert tokens == (0.9 * 24e9 - 2 * 6_738_415_616) // 524_288
    assert make(kv_tokens=500).get_server_info()["pages"]["total"] == 501
    with pytest.raises(sgl.ConfigError, match="a10g holds 15493"):
        make(kv_tokens=10**6)


def test_settings_change_the_time_and_never_the_text(make):
    prompts = ["a shared beginning of some length, " * 20 + str(i) for i in range(12)]
    texts, clocks = [], []
    for cache in ("tree", "none"):
        engine = make(cache={"type": cache})
        texts.append([r["text"] for r in engine.generate(prompts, GREEDY)])
        clocks.append(engine.get_server_info()["clock_s"])
    assert texts[0] == texts[1]
    assert clocks[0] < clocks[1]


def test_programs_see_each_other_at_once_however_long_they_think(make):
    """Ten threads ask again as soon as they are answered: they must stay together in a batch."""
    import threading

    engine = make(executor={**A10G, "settle_s": 0.05})

    def chat(name):
        for turn in range(3):
            engine.generate(f"{name} {turn}", {**GREEDY, "max_new_tokens": 5})

    threads = [threading.Thread(target=chat, args=(f"user {i}",)) for i in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.get_server_info()["forward_passes"] <= 3 * 5 + 3


def test_wrong_names_are_answered_with_the_nearest(make):
    with pytest.raises(sgl.ConfigError, match="unknown hardware 'a1og'; did you mean 'a10g'"):
        make(executor={**A10G, "hardware": "a1og"})
    with pytest.raises(sgl.ConfigError, match=r"unknown key 'executor\.hardwear'"):
        make(executor={"type": "sim", "hardwear": "a10g"})


def test_a_simulated_engine_needs_no_jax():
    program = (
        "import sys\n"
        "for name in ('jax', 'jaxlib', 'flax', 'chex'): sys.modules[name] = None\n"
        "import sgjax as sgl\n"
        "with sgl.Engine('llama-2-7b', executor={'type': 'sim', 'hardware': 'h200'}) as engine:\n"
        "    print(engine.generate('Hi', {'max_new_tokens': 4})['meta_info']['finish_reason'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "length" in done.stdout


def test_tokens_are_counted_by_the_vocabulary_of_a_folder(tmp_path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "tokens" / "sentencepiece.model"
    shutil.copy(golden, tmp_path / "tokenizer.model")
    counts = []
    for tokenizer in (str(tmp_path), "bytes"):
        with sgl.Engine(executor={**A10G, "tokenizer": tokenizer}) as engine:
            result = engine.generate("the quick brown fox", {"max_new_tokens": 1})
            counts.append(result["meta_info"]["prompt_tokens"])
    assert 1 < counts[0] < counts[1] == len("the quick brown fox")


@pytest.mark.parametrize("strategy", ["policy", "eviction"])
def test_a_random_strategy_without_a_seed_takes_the_engines(make, strategy) -> None:
    kind = {"policy": "random", "eviction": "randomized"}[strategy]
    prompts = [[100 * (i % 7) + j for j in range(60)] + [i] for i in range(60)]

    def hits(seed, engine_seed):
        own = {"policy": {"type": "fcfs"}, strategy: {"type": kind, "seed": seed}}
        engine = make(**own, seed=engine_seed, kv_tokens=256, max_running=1)
        engine.generate(input_ids=prompts, sampling_params={"max_new_tokens": 2})
        return engine.get_server_info()["cached_tokens"]

    assert hits(None, 1) == hits(1, 0) == hits(1, 1)
    assert len({hits(None, seed) for seed in range(4)}) > 1
    assert len({hits(0, seed) for seed in range(4)}) == 1


def test_a_vocabulary_that_cannot_be_cut_is_refused(make, tmp_path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "tokens" / "sentencepiece.model"
    shutil.copy(golden, tmp_path / "tokenizer.model")
    with pytest.raises(sgl.ConfigError, match="only a byte-level vocabulary can be cut"):
        make(executor={**A10G, "tokenizer": str(tmp_path), "vocab_size": 300})
    with pytest.raises(sgl.ConfigError, match="not allowed with tokenizer: bytes"):
        make(executor={**A10G, "vocab_size": 300})


def test_a_stream_shows_the_tokens_that_a_jump_replaced_no_longer(make, tmp_path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "tokens" / "sentencepiece.model"
    shutil.copy(golden, tmp_path / "tokenizer.model")
    engine = make(
        executor={**A10G, "tokenizer": str(tmp_path)}, grammar={"jump": {"type": "retokenize"}}
    )
    params = {"regex": "(the|a) (quick|brown) (fox|dog)(, (the|a) (quick|brown) (fox|dog)){0,3}"}
    for seed in range(8):
        for piece in engine.generate("go", {**params, "seed": seed}, stream=True):
            ids = [token for token in piece["output_ids"] if token not in engine.tokenizer.end_ids]
            data = b"".join(engine.tokenizer.token_bytes(token) for token in ids)
            assert data.decode() == piece["text"]
            assert len(piece["output_ids"]) == piece["meta_info"]["completion_tokens"]
    assert engine.get_server_info()["rolled_back_tokens"] > 0


@pytest.mark.parametrize(
    "asked",
    [
        {"return_logprob": True},
        {"return_logprob": True, "logprob_start_len": 0},
        {"return_logprob": True, "top_logprobs_num": 2},
    ],
)
def test_log_probabilities_that_nobody_computes_are_refused(make, asked):
    engine = make()
    refused = r"wants log-probabilities, but this engine has no model.*logprobs: zero"
    with pytest.raises(sgl.UnsupportedBackend, match=refused):
        engine.generate("Once", GREEDY, **asked)
    assert engine.generate("Once", GREEDY)["meta_info"]["completion_tokens"] == 40


@sgl.function
def choose(s):
    s += "The sky is" + sgl.select("colour", [" blue", " green"])


def test_select_is_refused_too_unless_scores_of_zero_were_declared(make):
    with pytest.raises(sgl.ProgramError) as refused:
        choose.run(backend=make())["colour"]
    cause = refused.value.__cause__
    assert isinstance(cause, sgl.UnsupportedBackend)
    assert "as select needs them" in str(cause)
    engine = make(executor={**A10G, "logprobs": "zero"})
    assert choose.run(backend=engine)["colour"] == " blue"
    result = engine.generate("Once", GREEDY, return_logprob=True)
    assert {logprob for logprob, _, _ in result["meta_info"]["output_token_logprobs"]} == {0.0}
    with pytest.raises(sgl.ConfigError, match="top_logprobs_num=2 is not allowed; at most 0"):
        engine.generate("Once", GREEDY, return_logprob=True, top_logprobs_num=2)


def test_a_sibling_of_a_refused_score_is_not_held_up(make):
    said = []

    @sgl.function
    def both(s):
        s += "The sky is"
        scored, told = s.fork(2)
        scored += sgl.select("colour", [" blue", " green"])
        told += sgl.gen("word", max_tokens=3, ignore_eos=True)
        said.append(told["word"])

    with pytest.raises(sgl.ProgramError, match="select"):
        both.run(backend=make(), temperature=0.0)
    assert len(said) == 1


def test_no_trace_is_replayed_beside_requests_whose_answers_it_would_take(make):
    engine = make()
    stream = engine.generate("Once upon a time", {**GREEDY, "max_new_tokens": 3000}, stream=True)
    next(stream)
    with pytest.raises(sgl.ConfigError, match="requests are alive"):
        engine.replay([])
    assert list(stream)[-1]["meta_info"]["completion_tokens"] == 3000


def test_an_engine_lives_as_long_as_somebody_reads_a_stream_of_it():
    stream = sgl.Engine(executor=A10G).generate("Once upon a time", GREEDY, stream=True)
    gc.collect()
    assert list(stream)[-1]["meta_info"]["completion_tokens"] == 40
