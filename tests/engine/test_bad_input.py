"""What no single request, listener or setting may do: harm the others, hang, or pass unnoticed.

Each of these once stopped the whole engine, or was accepted and ignored.
"""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

import sgjax as sgl
from sgjax.types import Completion, Delta, Request, SamplingParams

GREEDY = {"temperature": 0.0, "max_new_tokens": 4}
SMALL = {
    "model": "random:tiny",
    "dtype": "float32",
    "max_context_len": 64,
    "max_running": 4,
    "kv_tokens": 400,
    "token_budget": 64,
    "debug_checks": True,
}


@pytest.fixture(scope="module")
def engine():
    with sgl.Engine(**SMALL) as engine:
        yield engine


def eventually(condition) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"sampling_params": {"logit_bias": {2**31: 1.0}}}, "logit_bias names token id 2147483648"),
        ({"sampling_params": {"logit_bias": {300: 1.0}}}, "0 to 256"),  # a padded row
        ({"sampling_params": {"stop_token_ids": [2**40], "min_new_tokens": 2}}, "stop_token_ids"),
        ({"sampling_params": {"stop_token_ids": list(range(3000))}}, "token id 257"),
        ({"return_logprob": True, "top_logprobs_num": 33}, "at most 32"),
        ({"return_logprob": True, "top_logprobs_num": -1}, "top_logprobs_num"),
        ({"top_logprobs_num": 3}, "return_logprob=True"),
        ({"logprob_start_len": 0}, "return_logprob=True"),
        ({"return_logprob": [True]}, "True or False"),
        ({"stream": "no"}, "True or False"),
        ({"prompt": None, "input_ids": [True]}, "True"),
        ({"prompt": None, "input_ids": [300]}, "0 to 256"),
        ({"prompt": None, "input_ids": [10**30]}, "0 to 256"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_refused(engine, kwargs, says) -> None:
    with pytest.raises(sgl.ConfigError, match=says):
        engine.generate(**{"prompt": "Hi", **kwargs})
    assert len(engine.generate("Hi", GREEDY)["output_ids"]) == 4


@pytest.mark.parametrize("rid", [["r1", "r2"], {"r1"}, None, 7])
def test_what_is_no_id_cannot_be_aborted_and_stops_nothing(engine, rid) -> None:
    with pytest.raises(sgl.ConfigError, match="id of one request"):
        engine.abort(rid)
    assert len(engine.generate("Hi", GREEDY)["output_ids"]) == 4


def test_one_of_several_lists_of_ids_may_be_none(engine) -> None:
    good, bad = engine.generate(input_ids=[[72], 5], sampling_params=GREEDY)
    assert len(good["output_ids"]) == 4
    assert bad["meta_info"]["finish_reason"]["error"] == "ConfigError"


@pytest.mark.parametrize(
    "extreme",
    [
        {"top_p": 1e-50},
        {"top_p": 1e-300, "temperature": 1e6},
        {"temperature": 1e-40},
        {"min_p": 1.0},
        {"top_k": 10**30},
        {"logit_bias": {7: 1e9, 8: -1e9}, "frequency_penalty": 1e9, "repetition_penalty": 100},
    ],
    ids=str,
)
def test_extreme_but_legal_parameters_give_tokens(engine, extreme) -> None:
    out = engine.generate("Hi", {"max_new_tokens": 4, "seed": 3, **extreme})
    assert all(0 <= token < 257 for token in out["output_ids"])
    assert out["output_ids"]


def test_all_64_bits_of_a_seed_count(engine) -> None:
    params = {"max_new_tokens": 8}
    seeds = (5, 5 + 2**32, 5 + 2**63)
    outs = [engine.generate("Hi", {**params, "seed": s})["output_ids"] for s in seeds]
    assert len({tuple(out) for out in outs}) == 3


def test_logits_that_are_not_finite_fail_their_request_alone(engine, monkeypatch) -> None:
    scheduler, commit = engine._parts.scheduler, engine._parts.scheduler.commit

    def poisoned(plan, out):
        out.next_token[[row.seq.request.tokens[0] == 9 for row in plan.rows]] = -1
        return commit(plan, out)

    monkeypatch.setattr(scheduler, "commit", poisoned)
    good, bad = engine.generate(input_ids=[[72], [9]], sampling_params=GREEDY)
    assert len(good["output_ids"]) == 4
    assert "not finite" in bad["meta_info"]["finish_reason"]["message"]


def test_top_logprobs_are_reported_where_asked_even_if_only_the_first_entry_is(engine) -> None:
    meta = engine.generate(
        "Hi", GREEDY, return_logprob=True, logprob_start_len=1, top_logprobs_num=2
    )["meta_info"]
    assert meta["input_top_logprobs"] == [None]
    assert [len(top) for top in meta["output_top_logprobs"]] == [2] * 4
    without = engine.generate("Hi", GREEDY, return_logprob=True)["meta_info"]
    assert "output_top_logprobs" not in without
    assert "input_token_logprobs" not in without


def test_a_listener_that_raises_harms_its_own_request_only(engine, caplog) -> None:
    def broken(index: int, heard: Delta | Exception) -> None:
        raise RuntimeError("bug in a listener")

    aborted = engine.get_server_info()["aborted"]
    params = SamplingParams(max_new_tokens=50, ignore_eos=True)
    with caplog.at_level(logging.CRITICAL, logger="sgjax"):
        engine.submit([Request(engine.new_id(), (1, 2), params, stream=True)], broken)
        assert len(engine.generate("Hi", GREEDY)["output_ids"]) == 4
        assert eventually(lambda: engine.get_server_info()["aborted"] == aborted + 1)
    assert engine.get_server_info()["pages"]["sequence"] == 0


def test_a_request_id_can_be_used_again_when_it_is_free(engine) -> None:
    heard: list[Completion] = []
    request = Request("mine", (72, 73), SamplingParams(max_new_tokens=2, temperature=0.0))
    for _ in range(2):
        done = threading.Event()

        def hear(index: int, delta: Delta | Exception, done: threading.Event = done) -> None:
            assert isinstance(delta, Delta)
            assert delta.completion is not None
            heard.append(delta.completion)
            done.set()

        engine.submit([request], hear)
        assert done.wait(20)
    assert heard[0].output_ids == heard[1].output_ids


@pytest.fixture
def ctrl_c():
    """Let SIGINT raise KeyboardInterrupt: a shell starts what runs in the background without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_call_and_its_requests(engine) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    engine.generate(["Hi"] * 4, GREEDY)
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.generate(["Hi"] * 2000, {**GREEDY, "max_new_tokens": 50, "ignore_eos": True})
    assert eventually(lambda: engine.get_server_info()["num_running"] == 0)
    info = engine.get_server_info()
    assert info["num_waiting"] == info["pages"]["sequence"] == 0
    assert len(engine.generate("Hi", GREEDY)["output_ids"]) == 4


def test_an_engine_nobody_refers_to_any_more_ends() -> None:
    engine = sgl.Engine(**SMALL)
    engine.generate("Hi", GREEDY)
    thread, gone = engine._loop._thread, weakref.ref(engine)
    del engine
    gc.collect()
    thread.join(20)
    assert gone() is None
    assert not thread.is_alive()


def test_python_ends_cleanly_while_a_step_runs() -> None:
    script = (
        "import sgjax as sgl\n"
        f"engine = sgl.Engine(**{SMALL | {'max_context_len': 400}!r})\n"
        "stream = engine.generate('Hi', {'max_new_tokens': 390, 'ignore_eos': True}, stream=True)\n"
        "next(stream)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"token_budget": 5}, "at least 16"),
        ({"kv_tokens": 10**13}, "lower kv_tokens"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_a_size_that_cannot_be_had_is_refused(config, says) -> None:
    with pytest.raises(sgl.ConfigError, match=says):
        sgl.Engine(**{**SMALL, **config})


@pytest.mark.parametrize(
    "config",
    [
        {"token_budget": 16},
        {"token_budget": 39},
        {"max_running": 1},
        {"page_size": 100, "kv_tokens": 350},
        {"page_size": 16, "kv_tokens": 100},
    ],
    ids=str,
)
def test_odd_sizes_give_the_same_text(engine, config) -> None:
    prompt = "A prompt of more than sixteen tokens."
    expected = engine.generate(prompt, GREEDY)["output_ids"]
    with sgl.Engine(**{**SMALL, **config}) as other:
        assert other.generate(prompt, GREEDY)["output_ids"] == expected
        info = other.get_server_info()
    size = info["config"]["page_size"]
    assert info["config"]["kv_tokens"] == (info["pages"]["total"] - 1) * size


def test_an_output_ends_where_the_context_does(engine) -> None:
    out = engine.generate("x" * 60, {**GREEDY, "max_new_tokens": 10**9, "ignore_eos": True})
    assert len(out["output_ids"]) == 4
    assert out["meta_info"]["finish_reason"] == {"type": "length"}
