"""A simulated server's tokenizer and pause before the scheduler."""

import pytest

import sgjax as sgl
from sgjax.schedule import Scheduler
from sgjax.sim.trace import Arrival, BlockTokens

A10G = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
FIRST = {"type": "prompts_first", "decode_steps": 10}
GREEDY = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
PROMPTS = [[100 + i] * 400 for i in range(4)]


def serve(prompts, params=GREEDY, executor=None, **settings):
    """Ask for all at once; return the results and the engine's counters."""
    with sgl.Engine(executor={**A10G, **(executor or {})}, **settings) as engine:
        results = engine.generate(input_ids=prompts, sampling_params=params)
        return results, engine.get_server_info()


def test_requests_are_tokenized_one_after_another() -> None:
    """With tokenizing slower than computing, each comes alone, when its turn is over."""
    at_once, _ = serve(PROMPTS)
    results, info = serve(PROMPTS, executor={"tokenize_s": 0.01})
    ttft = [result["meta_info"]["ttft_s"] for result in results]
    alone = at_once[0]["meta_info"]["ttft_s"] / 2  # four prompts at once take more than two alone
    for i, seconds in enumerate(ttft):
        assert 4.0 * (i + 1) < seconds < 4.0 * (i + 1) + alone
    assert info["mean_batch_size"] == 1
    assert [r["output_ids"] for r in results] == [r["output_ids"] for r in at_once]


def test_who_comes_while_others_are_tokenized_stands_behind_them() -> None:
    one, _ = serve(PROMPTS[:1], executor={"tokenize_s": 1e-4})
    four, _ = serve(PROMPTS, executor={"tokenize_s": 1e-4})
    ttft = [result["meta_info"]["ttft_s"] for result in four]
    assert ttft[0] == pytest.approx(one[0]["meta_info"]["ttft_s"])
    assert ttft == sorted(ttft)


def test_requests_that_came_one_by_one_find_the_prefix_of_the_first() -> None:
    prompts = [[7] * 600 + [i] for i in range(8)]
    settings = {"siblings": {"type": "admit"}, "composition": FIRST, "token_budget": 8192}
    params = {**GREEDY, "max_new_tokens": 1}
    _, together = serve(prompts, params, **settings)
    _, apart = serve(prompts, params, executor={"tokenize_s": 1e-6}, **settings)
    assert together["cached_tokens"] == 0
    assert apart["cached_tokens"] == 7 * 600


def test_a_pause_lets_those_come_who_are_being_tokenized() -> None:
    """After the first has ended, the pause is long enough for all the others' prompts."""
    params = {**GREEDY, "max_new_tokens": 1}
    settings = {"executor": {"tokenize_s": 1e-3, "pause_s": 2.0}, "token_budget": 4096}
    results, info = serve(PROMPTS, params, **settings)
    assert info["forward_passes"] == 2
    ttft = [result["meta_info"]["ttft_s"] for result in results]
    assert ttft[1] == ttft[2] == ttft[3] > ttft[0] + 2.0


def test_a_request_that_is_being_tokenized_can_be_aborted() -> None:
    with sgl.Engine(executor={**A10G, "tokenize_s": 1e-3}) as engine:
        stream = engine.generate(input_ids=PROMPTS[0], sampling_params=GREEDY, stream=True)
        stream.close()
        engine.generate(input_ids=PROMPTS[1], sampling_params=GREEDY)
        info = engine.get_server_info()
    assert (info["num_waiting"], info["num_running"]) == (0, 0)


@pytest.mark.parametrize("composition", [{"type": "mixed"}, FIRST], ids=["mixed", "prompts first"])
def test_macro_steps_are_exact_behind_a_tokenizer_and_a_pause(composition, monkeypatch) -> None:
    trace = [
        Arrival(0.05 * i, BlockTokens([i % 3, 10 + i], 600), 5 + 17 * i % 60) for i in range(40)
    ]
    executor = {**A10G, "tokenize_s": 5e-5, "pause_s": 0.1}

    def served():
        with sgl.Engine(executor=executor, composition=composition, max_running=9) as engine:
            return engine.replay(trace)

    macro = served()
    monkeypatch.setattr(Scheduler, "repeats", lambda self, plan: 1)
    single = served()
    assert macro.stats == single.stats
    for name in ("queued_s", "ttft_s", "e2e_s", "cached_tokens"):
        assert getattr(macro, name).tolist() == getattr(single, name).tolist()
