"""Engine's public behaviour (api.md section 2) on the tiny model."""

import asyncio
import itertools
import threading
import time

import jax
import numpy as np
import pytest

import sgjax as sgl

GREEDY = {"temperature": 0.0, "max_new_tokens": 8}


@pytest.fixture(scope="module")
def engine():
    with sgl.Engine(
        "random:tiny",
        dtype="float32",
        max_context_len=256,
        max_running=8,
        kv_tokens=1600,
        token_budget=256,
        debug_checks=True,
    ) as engine:
        yield engine


def test_one_prompt_gives_one_result_and_a_list_gives_a_list(engine) -> None:
    one = engine.generate("Hello", GREEDY)
    assert set(one) == {"text", "output_ids", "meta_info"}
    assert len(one["output_ids"]) == one["meta_info"]["completion_tokens"] == 8
    assert one["meta_info"]["prompt_tokens"] == len(engine.tokenizer.encode("Hello", add_bos=True))
    assert one["meta_info"]["finish_reason"] == {"type": "length"}
    assert 0 < one["meta_info"]["ttft_s"] <= one["meta_info"]["e2e_latency_s"]
    many = engine.generate(["Hello", "Goodbye"], GREEDY)
    assert many[0]["output_ids"] == one["output_ids"]
    assert many[0]["meta_info"]["cached_tokens"] > 0
    assert engine.generate(["Hello"], GREEDY)[0]["output_ids"] == one["output_ids"]


def test_input_ids_equal_their_text(engine) -> None:
    ids = engine.tokenizer.encode("Hello", add_bos=True)
    expected = engine.generate("Hello", GREEDY)["output_ids"]
    assert engine.generate(input_ids=ids, sampling_params=GREEDY)["output_ids"] == expected
    assert engine.generate(input_ids=[ids], sampling_params=GREEDY)[0]["output_ids"] == expected
    numpys = list(np.array(ids))
    assert engine.generate(input_ids=numpys, sampling_params=GREEDY)["output_ids"] == expected


def test_each_prompt_may_have_its_own_parameters(engine) -> None:
    params = [{**GREEDY, "max_new_tokens": n} for n in (1, 5)]
    outs = engine.generate(["a", "b"], params)
    assert [len(o["output_ids"]) for o in outs] == [1, 5]


def test_n_samples_differ_and_a_seed_repeats_them(engine) -> None:
    params = {"temperature": 1.0, "max_new_tokens": 12, "n": 3, "seed": 5}
    outs = engine.generate("Hello", params)
    assert len({tuple(o["output_ids"]) for o in outs}) == 3
    again = engine.generate(["Hello", "x"], params)
    assert [o["output_ids"] for o in again[:3]] == [o["output_ids"] for o in outs]
    single = engine.generate("Hello", {**params, "n": 1})
    assert single["output_ids"] == outs[0]["output_ids"]


def test_requests_without_a_seed_draw_differently(engine) -> None:
    params = {"temperature": 1.0, "max_new_tokens": 12}
    outs = engine.generate(["Hello"] * 4, params)
    assert len({tuple(o["output_ids"]) for o in outs}) == 4


def test_stream_pieces_grow_to_the_final_result(engine) -> None:
    final = engine.generate("Hello", GREEDY)
    pieces = list(engine.generate("Hello", GREEDY, stream=True))
    assert len(pieces) == 8
    for before, after in itertools.pairwise(pieces):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
    assert pieces[-1]["text"] == final["text"]
    assert pieces[-1]["output_ids"] == final["output_ids"]
    assert pieces[0]["meta_info"]["finish_reason"] is None


def test_stream_of_a_list_says_which_prompt_each_piece_belongs_to(engine) -> None:
    finals = engine.generate(["Hello", "Goodbye"], GREEDY)
    last = {}
    for piece in engine.generate(["Hello", "Goodbye"], GREEDY, stream=True):
        last[piece["index"]] = piece
    assert [last[i]["output_ids"] for i in range(2)] == [f["output_ids"] for f in finals]


def test_a_stream_never_shows_what_a_stop_string_cuts_off(engine) -> None:
    # Printable text, so that a stop string of two characters spans two tokens.
    params = {**GREEDY, "max_new_tokens": 24, "logit_bias": dict.fromkeys(range(97, 123), 50.0)}
    params["frequency_penalty"] = 2.0  # and hardly the same character again and again
    whole = engine.generate("Hello", params)["text"]
    stop = whole[9:11]
    expected = whole[: whole.index(stop)]
    pieces = [p["text"] for p in engine.generate("Hello", {**params, "stop": stop}, stream=True)]
    assert pieces[-1] == expected
    assert all(expected.startswith(piece) for piece in pieces)
    kept = engine.generate("Hello", {**params, "stop": stop, "no_stop_trim": True})
    assert kept["text"] == expected + stop
    assert kept["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


def test_n_samples_stream_as_one_call(engine) -> None:
    params = {"temperature": 1.0, "max_new_tokens": 6, "n": 2, "seed": 5}
    finals = engine.generate("Hello", params)
    last = {p["index"]: p for p in engine.generate("Hello", params, stream=True)}
    assert [last[i]["output_ids"] for i in range(2)] == [f["output_ids"] for f in finals]


def test_a_stream_that_is_closed_aborts_its_request(engine) -> None:
    stream = engine.generate("Hello", {**GREEDY, "max_new_tokens": 200}, stream=True)
    next(stream)
    stream.close()
    deadline = time.monotonic() + 20
    while engine.get_server_info()["num_running"] and time.monotonic() < deadline:
        time.sleep(0.01)
    info = engine.get_server_info()
    assert info["num_running"] == 0
    assert info["pages"]["sequence"] == 0


def test_async_calls_run_together_and_equal_the_blocking_ones(engine) -> None:
    expected = [engine.generate(p, GREEDY)["output_ids"] for p in ("a", "b", "c")]

    async def main():
        calls = (engine.async_generate(p, GREEDY) for p in ("a", "b", "c"))
        outs = await asyncio.gather(*calls)
        pieces = [p async for p in await engine.async_generate("a", GREEDY, stream=True)]
        return [o["output_ids"] for o in outs], pieces[-1]["output_ids"]

    outs, streamed = asyncio.run(main())
    assert outs == expected
    assert streamed == expected[0]


def test_a_cancelled_task_aborts_its_request(engine) -> None:
    async def main() -> None:
        task = asyncio.create_task(
            engine.async_generate("Hello", {**GREEDY, "max_new_tokens": 200})
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aborted = engine.get_server_info()["aborted"]
    asyncio.run(main())
    deadline = time.monotonic() + 20
    while engine.get_server_info()["aborted"] == aborted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.get_server_info()["aborted"] == aborted + 1


def test_abort_ends_a_running_request_with_an_error(engine) -> None:
    seen: list[Exception] = []
    started = threading.Event()
    ids: list[str] = []

    def consume() -> None:
        try:
            for piece in engine.generate("Hi", {**GREEDY, "max_new_tokens": 200}, stream=True):
                ids.append(piece["meta_info"]["id"])
                started.set()
        except sgl.SgjaxError as error:
            seen.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert started.wait(20)
    engine.abort(ids[0])
    thread.join(20)
    assert isinstance(seen[0], sgl.RequestAborted)


def test_logprobs_of_prompt_and_output_are_those_of_a_longer_prompt(engine) -> None:
    out = engine.generate(
        "Hello", GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=3
    )
    meta = out["meta_info"]
    ids = engine.tokenizer.encode("Hello", add_bos=True)
    assert [e[1] for e in meta["input_token_logprobs"]] == ids
    assert meta["input_token_logprobs"][0][0] is None
    assert meta["input_top_logprobs"][0] is None
    assert [e[1] for e in meta["output_token_logprobs"]] == out["output_ids"]
    for (logprob, token, _), top in zip(
        meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True
    ):
        assert top[0][:2] == (logprob, token)  # greedy takes the likeliest
        assert top[0][0] >= top[1][0] >= top[2][0]
    # The output's log-probabilities are the prompt's of the text that contains it.
    whole = engine.generate(
        input_ids=ids + out["output_ids"],
        sampling_params={**GREEDY, "max_new_tokens": 1},
        return_logprob=True,
        logprob_start_len=len(ids) - 1,
    )
    again = whole["meta_info"]["input_token_logprobs"][1:]
    assert [e[0] for e in again] == pytest.approx(
        [e[0] for e in meta["output_token_logprobs"]], abs=1e-4
    )


def test_min_new_tokens_bias_and_penalties_are_honoured(engine) -> None:
    base = engine.generate("Hello", GREEDY)["output_ids"]
    banned = {**GREEDY, "logit_bias": {base[0]: -100.0}}
    assert base[0] not in engine.generate("Hello", banned)["output_ids"]
    forced = {**GREEDY, "logit_bias": {77: 1e4}}
    assert set(engine.generate("Hello", forced)["output_ids"]) == {77}
    presence = {**forced, "presence_penalty": 2e4}
    assert engine.generate("Hello", presence)["output_ids"].count(77) == 1
    end = min(engine.tokenizer.end_ids)
    ends = {**GREEDY, "logit_bias": {end: 1e4}}
    out = engine.generate("Hello", ends)
    assert out["output_ids"] == [end]
    assert out["meta_info"]["finish_reason"] == {"type": "stop", "matched": end}
    longer = engine.generate("Hello", {**ends, "min_new_tokens": 5})["output_ids"]
    assert len(longer) == 6
    assert longer[-1] == end
    ignoring = engine.generate("Hello", {**ends, "ignore_eos": True})["output_ids"]
    assert ignoring == [end] * 8


@pytest.mark.parametrize(
    ("kwargs", "error", "says"),
    [
        ({"prompt": "x" * 400}, sgl.PromptTooLong, "max_context_len"),
        ({"prompt": ""}, sgl.ConfigError, "empty"),
        ({"prompt": 5}, sgl.ConfigError, "must be a string"),
        ({"prompt": None}, sgl.ConfigError, "either prompt or input_ids"),
        ({"prompt": "a", "input_ids": [1]}, sgl.ConfigError, "not both"),
        ({"input_ids": [1, 10**6]}, sgl.ConfigError, "1000000"),
        ({"input_ids": []}, sgl.ConfigError, "empty"),
        ({"prompt": "a", "sampling_params": {"max_new_tokens": 0}}, sgl.ConfigError, ">= 1"),
        ({"prompt": "a", "sampling_params": {"max_new_tokens": "9"}}, sgl.ConfigError, "integer"),
        ({"prompt": "a", "sampling_params": {"temperature": -1}}, sgl.ConfigError, "temperature"),
        ({"prompt": "a", "sampling_params": {"temprature": 1}}, sgl.ConfigError, "temperature"),
        ({"prompt": "a", "sampling_params": {"stop": 3}}, sgl.ConfigError, "stop"),
        ({"prompt": "a", "sampling_params": {"stop": [""]}}, sgl.ConfigError, "stop"),
        ({"prompt": "a", "sampling_params": [{}, {}]}, sgl.ConfigError, "2 sampling_params"),
        ({"prompt": "a", "image_data": "cat.png"}, sgl.UnsupportedBackend, "no images"),
        ({"prompt": "a", "top_logprobs_num": -2}, sgl.ConfigError, "top_logprobs_num"),
        (
            {"prompt": "a", "return_logprob": True, "logprob_start_len": 99},
            sgl.ConfigError,
            "logprob_start",
        ),
    ],
)
def test_bad_input_is_refused_and_the_engine_lives_on(engine, kwargs, error, says) -> None:
    expected = engine.generate("Hello", GREEDY)["output_ids"]
    with pytest.raises(error, match=says):
        engine.generate(**kwargs)
    assert engine.generate("Hello", GREEDY)["output_ids"] == expected


def test_a_bad_request_of_a_batch_fails_alone(engine) -> None:
    good = engine.generate("Hello", GREEDY)["output_ids"]
    outs = engine.generate(["Hello", "", "x" * 400, "Hello"], GREEDY)
    kinds = [o["meta_info"]["finish_reason"]["type"] for o in outs]
    assert kinds == ["length", "abort", "abort", "length"]
    assert outs[0]["output_ids"] == outs[3]["output_ids"] == good
    assert "max_context_len" in outs[2]["meta_info"]["finish_reason"]["message"]


def test_a_request_that_outgrows_the_pool_fails_alone() -> None:
    with sgl.Engine(
        "random:tiny", dtype="float32", max_context_len=256, max_running=8, kv_tokens=40
    ) as engine:
        with pytest.raises(sgl.OutOfPages, match="raise kv_tokens"):
            engine.generate("Hello", {**GREEDY, "max_new_tokens": 100, "ignore_eos": True})
        with pytest.raises(sgl.PromptTooLong, match="kv_tokens"):
            engine.generate("x" * 60, GREEDY)
        assert len(engine.generate("Hello", GREEDY)["output_ids"]) == 8


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"modle": "tiny"}, sgl.ConfigError, "did you mean 'model'"),
        ({"model": "smollm"}, sgl.ConfigError, "smollm2-135m"),
        ({"model": "random:tiny", "cache": {"type": "tre"}}, sgl.ConfigError, "tree"),
        ({"model": "random:tiny", "page_size": 0}, sgl.ConfigError, "page_size"),
        ({"model": "random:tiny", "max_context_len": 10**7}, sgl.ConfigError, "max_context_len"),
        ({"model": "random:tiny", "attention": "cuda"}, sgl.UnsupportedBackend, "attention"),
        ({"model": "random:tiny", "dtype": "float16"}, sgl.ConfigError, "dtype"),
    ],
)
def test_a_bad_configuration_says_what_to_do(config, error, says) -> None:
    with pytest.raises(error, match=says):
        sgl.Engine(**config)


def test_flush_cache_drops_every_page(engine) -> None:
    engine.generate("Hello", GREEDY)
    assert engine.get_server_info()["pages"]["tree"] > 0
    assert engine.flush_cache()
    pages = engine.get_server_info()["pages"]
    assert pages["tree"] == pages["sequence"] == 0
    assert pages["free"] == pages["total"] - 1  # the scratch page


def test_a_broken_device_fails_requests_instead_of_hanging(monkeypatch) -> None:
    with sgl.Engine("random:tiny", dtype="float32", max_context_len=256, kv_tokens=600) as engine:

        def broken(plan):
            raise RuntimeError("device lost")

        monkeypatch.setattr(engine._parts.executor, "submit", broken)
        for _ in range(2):
            with pytest.raises(sgl.SgjaxError, match="device lost; shut it down"):
                engine.generate("Hello", GREEDY)


def test_shutdown_frees_memory_and_threads_of_an_engine_that_is_kept() -> None:
    alive = {id(array) for array in jax.live_arrays()}
    threads = set(threading.enumerate())
    engine = sgl.Engine(
        "random:tiny", dtype="float32", max_context_len=256, kv_tokens=600,
        grammar={"sampler": {"type": "exact"}},
    )  # fmt: skip
    engine.generate("Hello", {**GREEDY, "choices": ["a", "b"]})
    engine.shutdown()
    engine.shutdown()  # and again, as a context manager's end does after a call
    assert {id(array) for array in jax.live_arrays()} <= alive
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive(), thread.name


def test_shutdown_fails_what_is_alive_and_what_comes_later() -> None:
    engine = sgl.Engine("random:tiny", dtype="float32", max_context_len=256, kv_tokens=600)
    stream = engine.generate("Hello", {**GREEDY, "max_new_tokens": 200}, stream=True)
    next(stream)
    engine.shutdown()
    with pytest.raises(sgl.SgjaxError, match="shut down"):
        list(stream)
    with pytest.raises(sgl.SgjaxError, match="shut down"):
        engine.generate("Hello", GREEDY)
