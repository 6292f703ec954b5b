"""The task of programs: what it runs, what it measures, and how `language` changes that."""

import time

import pytest

import sgjax as sgl
from sgjax.errors import BatchError
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.witness import Witness
from sgjax.lang.backends.local import LocalBackend
from sgjax.lang.spec import LanguageSpec, ParallelFork, SequentialFork

PLAIN = LanguageSpec()
ONE_AT_A_TIME = LanguageSpec(programs=1)
SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b", "logprobs": "zero"}


@sgl.function
def think(s, problem, tokens):
    s += "Think. " + problem
    branches = list(s.fork(2))
    for branch in branches:
        branch += sgl.gen("thought", max_tokens=tokens, temperature=0.7, ignore_eos=True)
        branch += sgl.gen("doubt", max_tokens=1, ignore_eos=True)
    return branches


@sgl.function
def slow(s, problem, pause_s):
    s += problem
    for _ in range(3):
        s += sgl.gen("word", max_tokens=2, ignore_eos=True)
        s["word"]
        time.sleep(pause_s)


@sgl.function
def choose(s, question):
    s += question
    s += sgl.select("colour", [" red", " blue"])


TASK = ProgramsTask(think, tuple({"problem": f"Problem {i}.", "tokens": 3} for i in range(6)), 5)


@pytest.fixture
def engine():
    with sgl.Engine(executor=SIM) as engine:
        yield engine


def test_every_request_is_noted_with_its_prompt_and_output(engine):
    before = engine.get_server_info()
    ran = TASK.run(engine, PLAIN)
    after = engine.get_server_info()
    counted = after["prompt_tokens"] - before["prompt_tokens"]
    assert sum(len(visit.prompt) for visit in ran.prompts) == counted
    outputs = [visit.output for visit in ran.prompts]
    # A hint for the batch, one for each fork, and two generations of each branch.
    assert sorted(map(len, outputs)) == [0] * (1 + 6) + [1] * 12 + [3] * 12
    grown = [visit.prompt for visit in ran.prompts if len(visit.output) == 1]
    made = [visit.prompt + visit.output for visit in ran.prompts if len(visit.output) == 3]
    assert sorted(grown) == sorted(made)


def test_times_are_on_the_engines_clock_and_begin_with_the_first_call(engine):
    begin = engine.now()
    ran = TASK.run(engine, PLAIN)
    elapsed = engine.now() - begin
    for outcome in ran.outcomes:
        assert 0 < outcome.ttft_s < outcome.latency_s <= elapsed
        assert outcome.completion_tokens == 2 * (3 + 1)
    assert max(outcome.latency_s for outcome in ran.outcomes) == pytest.approx(elapsed, rel=0.2)


def test_one_program_at_a_time_takes_as_long_as_all_latencies_together(engine):
    begin = engine.now()
    ran = TASK.run(engine, ONE_AT_A_TIME)
    latencies = [outcome.latency_s for outcome in ran.outcomes]
    assert sum(latencies) == pytest.approx(engine.now() - begin, rel=0.1)
    assert engine.get_server_info()["mean_batch_size"] <= 2


@pytest.mark.parametrize(
    "language",
    [
        ONE_AT_A_TIME,
        LanguageSpec(programs=4),
        LanguageSpec(SequentialFork()),
        LanguageSpec(ParallelFork(hint=False)),
    ],
    ids=["one", "four", "sequential", "no_hint"],
)
def test_language_changes_requests_and_times_but_no_answer(language):
    answers = []
    for spec in (PLAIN, language):
        with sgl.Engine(executor=SIM) as engine:
            answers.append([outcome.answer for outcome in TASK.run(engine, spec).outcomes])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 6
    first, second = answers[0][0].split("\n")
    assert first != second, "branches that sample must differ"


@pytest.mark.parametrize("language", [PLAIN, ONE_AT_A_TIME, LanguageSpec(programs=2)])
def test_simulated_time_stands_still_while_programs_think(language):
    courses = []
    for pause_s in (0.0, 0.02):
        rows = tuple({"problem": f"Problem {i}.", "pause_s": pause_s} for i in range(4))
        with sgl.Engine(executor={**SIM, "settle_s": 0.0}) as engine:
            outcomes = ProgramsTask(slow, rows, 0).run(engine, language).outcomes
            courses.append([engine.now(), *(o.latency_s for o in outcomes)])
    assert courses[0] == pytest.approx(courses[1])


@sgl.function
def stumble(s, problem):
    s += problem + sgl.gen("word", max_tokens=1, ignore_eos=True)
    if s["word"] and problem.endswith("3"):
        raise ValueError("stumbled")


@pytest.mark.parametrize("num_threads", [1, 2, "auto"])
def test_nobody_is_busy_when_a_batch_is_over_even_if_programs_failed(engine, num_threads):
    witness = Witness(LocalBackend(engine), engine.now, 5)
    rows = [{"problem": f"Problem {i}"} for i in range(5)]
    with pytest.raises(BatchError, match="1 of 5 programs failed"):
        stumble.run_batch(rows, backend=witness, num_threads=num_threads)
    deadline = time.monotonic() + 10
    while witness.busy and time.monotonic() < deadline:
        time.sleep(0.001)  # the last thread says so just after the batch has ended
    assert not witness.busy


def test_without_hints_none_is_sent(engine):
    ran = TASK.run(engine, LanguageSpec(ParallelFork(hint=False)))
    assert len(ran.prompts) == 24


def test_choices_are_graded_and_counted_as_first_words(engine):
    rows = tuple({"question": f"Question {i}:"} for i in range(3))
    task = ProgramsTask(choose, rows, 0, "colour", ("red", "red", "green"))
    outcomes = task.run(engine, PLAIN).outcomes
    assert {outcome.answer for outcome in outcomes} <= {"red", "blue"}
    assert [o.correct for o in outcomes] == [o.answer == "red" for o in outcomes[:2]] + [False]
    assert all(o.ttft_s == o.latency_s > 0 and o.completion_tokens == 0 for o in outcomes)
    assert task.first(2).expected == ("red", "red")


def test_a_program_that_fails_fails_the_run(engine):
    rows = ({"problem": "x" * 5000, "tokens": 3},)
    with pytest.raises(BatchError, match="max_context_len is 4096"):
        ProgramsTask(think, rows, 0).run(engine, PLAIN)
