"""Many threads on one engine: calls, streams, aborts and cancellations harm each other nowhere."""

import asyncio
import random
import threading
import time

import sgjax as sgl

PROMPTS = [f"prompt {i} " + "ab" * i for i in range(6)]
SHORT = {"temperature": 0.0, "max_new_tokens": 5}
LONG = {"max_new_tokens": 60, "ignore_eos": True}


def call(engine: sgl.Engine, rng: random.Random, expected: list[list[int]]) -> None:
    """Use the engine in one of the ways that users do, and verify the answer."""
    i = rng.randrange(len(PROMPTS))
    way = rng.choice(["one", "list", "close", "abort", "cancel", "inspect"])
    if way == "one":
        assert engine.generate(PROMPTS[i], SHORT)["output_ids"] == expected[i]
    elif way == "list":
        *good, bad = engine.generate([*PROMPTS, "x" * 500], SHORT)
        assert [out["output_ids"] for out in good] == expected
        assert bad["meta_info"]["finish_reason"]["error"] == "PromptTooLong"
    elif way == "close":
        stream = engine.generate(PROMPTS[i], {**LONG, "n": 2}, stream=True)
        next(stream)
        stream.close()
    elif way == "abort":
        stream = engine.generate(PROMPTS[i], LONG, stream=True)
        engine.abort(next(stream)["meta_info"]["id"])
        try:
            list(stream)
        except sgl.RequestAborted:
            pass
    elif way == "cancel":
        asyncio.run(cancelled(engine, PROMPTS[i], rng.random() * 0.05))
    else:
        engine.flush_cache()
        assert engine.get_server_info()["pages"]["total"] == 201


async def cancelled(engine: sgl.Engine, prompt: str, after_s: float) -> None:
    task = asyncio.create_task(engine.async_generate(prompt, LONG))
    await asyncio.sleep(after_s)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


def test_threads_that_call_stream_abort_and_cancel_get_their_own_answers() -> None:
    with sgl.Engine(
        "random:tiny",
        dtype="float32",
        max_context_len=128,
        max_running=4,
        kv_tokens=200,
        token_budget=64,
        debug_checks=True,
    ) as engine:
        expected = [engine.generate(prompt, SHORT)["output_ids"] for prompt in PROMPTS]
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            rng = random.Random(seed)
            try:
                for _ in range(12):
                    call(engine, rng, expected)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert failures == []
        deadline = time.monotonic() + 20
        while engine.get_server_info()["num_running"] and time.monotonic() < deadline:
            time.sleep(0.01)
        info = engine.get_server_info()
        assert info["num_running"] == info["num_waiting"] == info["pages"]["sequence"] == 0
