"""What calls cost in systems above a model's server: virtual time, in closed form."""

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.models.presets import load_preset
from sgjax.sim import Roofline, Work, load_hardware
from sgjax.sim.trace import Arrival, BlockTokens

LLAMA = load_preset("llama-2-7b").config
ROOFLINE = Roofline(LLAMA, load_hardware("a10g"), "bfloat16", "bfloat16")
PROMPT = [7] * 40


def engine(calls, jump="none", **executor):
    a10g = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b", "logprobs": "zero"}
    return sgl.Engine(
        executor={**a10g, **executor, "calls": calls},
        cache={"type": "none"},
        grammar={"jump": {"type": jump}},
        dtype="bfloat16",
        max_running=1,
    )


def write(tokens, calls, times=1, **executor):
    """Ask for so many tokens behind the prompt; return the ids and the virtual seconds."""
    with engine(calls, **executor) as run:
        params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        answers = [run.generate(input_ids=PROMPT, sampling_params=params) for _ in range(times)]
        return [answer["output_ids"] for answer in answers], run.now()


def fill_in(calls, jump):
    with engine(calls, jump) as run:
        params = {"temperature": 0, "max_new_tokens": 60, "regex": "[a-p]{3} forced words [a-p]{2}"}
        return run.generate("A form: ", params)["text"], run.now()


def choose(calls, choices, **executor):
    """Select once in a program; return the choice and the virtual seconds."""

    @sgl.function
    def program(s):
        s += "The question is long enough. Answer:" + sgl.select("a", choices)

    with engine(calls, **executor) as run:
        answer = program.run(backend=run, fork=sgl.SequentialFork())["a"]
        return answer, run.now()


def one_token_s(context):
    return ROOFLINE.seconds(Work(1, 1, context, context))


def prompt_s(tokens):
    return ROOFLINE.seconds(Work(tokens, 1, tokens * (tokens + 1) // 2, tokens))


def test_each_call_and_each_sampled_token_take_the_host_their_time() -> None:
    text, free_s = write(5, {}, times=3)
    same_text, paid_s = write(5, {"call_s": 2.0, "token_s": 0.25}, times=3)
    assert same_text == text
    assert paid_s - free_s == pytest.approx(3 * (2.0 + 5 * 0.25))


def test_a_call_takes_its_time_beside_the_tokens_of_its_prompt() -> None:
    _, free_s = write(1, {})
    _, paid_s = write(1, {"call_s": 2.0}, tokenize_s=0.5)
    assert paid_s - free_s == pytest.approx(2.0 + 40 * 0.5)


def test_further_passes_are_of_one_token_behind_the_prompt() -> None:
    text, free_s = write(4, {})
    same_text, paid_s = write(4, {"further_passes": 2, "token_s": 0.5})
    assert same_text == text
    assert paid_s - free_s == pytest.approx(one_token_s(41) + one_token_s(42) + (4 + 2) * 0.5)


def test_a_chunk_computes_all_before_it_again_and_runs_to_its_end() -> None:
    """Ten tokens in chunks of four: prompts of 40, 44 and 48 tokens, three decodes behind each."""
    text, _ = write(10, {})
    same_text, seconds = write(10, {"chunk": 4, "token_s": 0.5})
    begins = (40, 44, 48)
    decodes = sum(one_token_s(begin + i) for begin in begins for i in (1, 2, 3))
    assert same_text == text
    assert seconds == pytest.approx(sum(map(prompt_s, begins)) + decodes + 12 * 0.5)


def test_tokens_that_a_jump_writes_cost_the_host_what_it_takes_to_walk_them() -> None:
    text, free_s = fill_in({}, "retokenize")
    same_text, paid_s = fill_in({"forced_s": 1.0}, "retokenize")
    assert same_text == text
    assert paid_s - free_s == pytest.approx(len(" forced words "))  # tokens are bytes here
    assert fill_in({"forced_s": 1.0}, "none") == fill_in({}, "none")


@pytest.mark.parametrize("num_choices", [2, 5])
def test_a_walked_select_costs_one_call_for_one_token_however_many_choices(num_choices) -> None:
    choices = [f" choice {i} of them" for i in range(num_choices)]
    scored, scored_s = choose({}, choices)
    walked, walked_s = choose({"selects": "walked"}, choices)
    assert walked == scored == choices[0]
    assert walked_s < scored_s / (num_choices - 0.5)
    _, paid_s = choose({"selects": "walked", "call_s": 8.0, "token_s": 1.0}, choices)
    assert paid_s - walked_s == pytest.approx(8.0 + 1.0)
    _, forced_s = choose({"selects": "walked", "forced_s": 1.0}, choices)
    assert forced_s - walked_s == pytest.approx(len(choices[0]) - 1)  # tokens are bytes here


def test_selects_one_after_another_are_told_apart() -> None:
    @sgl.function
    def program(s, name):
        s += f"This is about {name}. "
        s += "First:" + sgl.select("a", ["x", "y"]) + " Second:" + sgl.select("b", ["x", "y"])

    with engine({"selects": "walked", "token_s": 100.0}) as run:
        for name in ("one", "two"):
            program.run(backend=run, fork=sgl.SequentialFork(), name=name)
        assert run.now() // 100 == 4


def test_a_replayed_trace_pays_for_its_calls_too() -> None:
    trace = [Arrival(0.0, BlockTokens([i], 500), 9) for i in range(3)]
    seconds = []
    for calls in ({}, {"token_s": 1.0}):
        with engine(calls) as run:
            seconds.append(run.replay(trace).elapsed_s)
    assert seconds[1] - seconds[0] == pytest.approx(3 * 9)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ({"call_s": -1.0}, "call_s=-1.0 is negative"),
        ({"chunk": 0}, "chunk=0 is not allowed"),
        ({"further_passes": -1}, "further_passes=-1 is negative"),
        ({"selects": "guessed"}, "selects"),
        ({"token": 1.0}, "token"),
    ],
)
def test_what_calls_cannot_cost_is_refused(calls, message) -> None:
    with pytest.raises(ConfigError, match=message):
        engine(calls)
