"""The language on an engine: forks, hints and selects as the scheduler sees them."""

from collections.abc import Iterator

import pytest

import sgjax as sgl
from sgjax.engine.inputs import sample_seed
from sgjax.lang.backends.base import Answer, GenCall, Piece, Prompt, SelectCall
from sgjax.schedule.spec import AdmitSpec
from sgjax.types import SamplingParams
from tests.lang.sim_engine import SimEngine


@sgl.function
def wide(s, prefix, n):  # type: ignore[no-untyped-def]
    s += prefix
    group = s.fork(n)
    group += lambda i: f"[{i:02d}]" + sgl.gen("t", max_tokens=4)
    group.join()


def test_a_fork_of_16_computes_its_600_tokens_once_and_enters_in_one_batch() -> None:
    engine = SimEngine(pages=12000, siblings=AdmitSpec())
    wide.run(prefix="x" * 600, n=16, backend=engine)
    new = 16 * (4 + 3)  # each child's own text, and the tokens it feeds back
    assert engine.get_server_info()["computed_tokens"] == 600 + new
    first = next(plan for plan in engine.executor.plans if len(plan.rows) > 1)
    assert [row.end - row.start for row in first.rows] == [4] * 16
    engine.check_idle()
    engine.shutdown()


def test_without_the_hint_racing_siblings_compute_the_prefix_again() -> None:
    engine = SimEngine(pages=12000, siblings=AdmitSpec())
    wide.run(prefix="x" * 600, n=16, backend=engine, fork=sgl.ParallelFork(hint=False))
    assert engine.get_server_info()["computed_tokens"] > 2 * 600
    engine.check_idle()
    engine.shutdown()


@pytest.mark.parametrize("fork", [sgl.ParallelFork(), sgl.SequentialFork()])
def test_texts_are_the_same_however_forks_run(fork: object) -> None:
    reference, engine = SimEngine(), SimEngine()
    expected = wide.run(prefix="abc", n=5, backend=reference, fork=sgl.ParallelFork(hint=False))[
        "t"
    ]
    assert wide.run(prefix="abc", n=5, backend=engine, fork=fork)["t"] == expected  # type: ignore[arg-type]
    reference.shutdown()
    engine.shutdown()


def test_a_prompt_that_is_too_long_is_an_error_of_its_own_for_each_member(
    engine: SimEngine,
) -> None:
    with pytest.raises(sgl.ProgramError) as caught:
        wide.run(prefix="x" * 3000, n=4, backend=engine)
    assert isinstance(caught.value.__cause__, sgl.PromptTooLong)
    engine.check_idle()


def test_a_member_that_is_refused_does_not_hold_its_siblings_pin(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" * 100
        group = s.fork(2)
        group[0] += "y" * 3000 + sgl.gen("a")
        group[1] += sgl.gen("a", max_tokens=3)
        with pytest.raises(sgl.ProgramError):
            group[0].sync()
        group[1].sync()

    program.run(backend=engine)
    engine.check_idle()


def test_constraints_that_the_engine_refuses_reach_the_reader(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen_int("i")

    with pytest.raises(sgl.ProgramError, match=r"gen\('i'\).*no grammar"):
        program.run(backend=engine)


@pytest.mark.parametrize("append", [lambda: "", lambda: sgl.image(b"..") + "x"])
def test_prompts_that_the_engine_cannot_take_are_refused(engine: SimEngine, append: object) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += append()  # type: ignore[operator]
        s += sgl.gen("a")

    with pytest.raises(sgl.ProgramError, match=r"prompt is empty|takes no images"):
        program.run(backend=engine)


def test_several_samples_come_back_as_a_list(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a", n=3, max_tokens=4)

    state = program.run(backend=engine)
    assert [len(text) for text in state["a"]] == [4, 4, 4]
    assert state.text() == "x" + state["a"][0]
    assert [m["completion_tokens"] for m in state.get_meta_info("a")] == [4, 4, 4]


@pytest.fixture(scope="module")
def tiny() -> Iterator[sgl.Engine]:
    with sgl.Engine(
        "random:tiny", dtype="float32", kv_tokens=4096, max_context_len=1024, debug_checks=True
    ) as engine:
        yield engine


@pytest.mark.slow
def test_a_fork_on_a_real_step_computes_its_prefix_once(tiny: sgl.Engine) -> None:
    def computed() -> int:
        return int(tiny.get_server_info()["computed_tokens"])

    before = computed()
    wide.run(prefix="x" * 600, n=16, backend=tiny, temperature=0, ignore_eos=True)
    assert computed() - before == 600 + 16 * (4 + 3)


@pytest.mark.slow
def test_select_scores_are_the_engines_log_probabilities(tiny: sgl.Engine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "The answer is" + sgl.select("a", [" yes", " no"])

    meta = program.run(backend=tiny).get_meta_info("a")
    for choice, logprobs in zip((" yes", " no"), meta["choice_token_logprobs"], strict=True):
        result = tiny.generate(
            "The answer is" + choice,
            {"max_new_tokens": 1},
            return_logprob=True,
            logprob_start_len=0,
        )
        assert isinstance(result, dict)
        entries = result["meta_info"]["input_token_logprobs"][-len(choice) :]
        assert logprobs == pytest.approx([lp for lp, _, _ in entries], abs=1e-4)


def answers_of(engine: SimEngine, call: GenCall | SelectCall) -> list[Answer]:
    """Every answer that a call gets, once the engine is idle."""
    heard: list[Answer] = []
    sgl.LocalBackend(engine).submit([call], lambda index, answer: heard.append(answer))
    engine.check_idle()
    return heard


@pytest.mark.parametrize(
    "call",
    [
        GenCall(Prompt("x" * 3000), SamplingParams(n=3)),
        GenCall(Prompt("x"), SamplingParams(n=3, logit_bias=((2**40, 1.0),)), stream=True),
        SelectCall(Prompt("x" * 3000), ("a", "b"), unconditional=True),
    ],
    ids=["samples", "streamed samples", "choices"],
)
def test_a_call_whose_requests_all_fail_is_answered_once(
    engine: SimEngine, call: GenCall | SelectCall
) -> None:
    (answer,) = answers_of(engine, call)
    assert isinstance(answer, sgl.SgjaxError)


def test_a_call_that_failed_hears_no_more_of_its_other_samples(engine: SimEngine) -> None:
    # The second sample is aborted while the first one streams on.
    heard: list[Answer] = []

    def hear(index: int, answer: Answer) -> None:
        if not heard:
            engine.abort(engine.requests[0][1].id)
        heard.append(answer)

    call = GenCall(Prompt("x"), SamplingParams(n=2, max_new_tokens=60), stream=True)
    sgl.LocalBackend(engine).submit([call], hear)
    engine.check_idle()
    assert isinstance(heard[0], Piece)
    assert [type(answer) for answer in heard if not isinstance(answer, Piece)] == [
        sgl.RequestAborted
    ]
    assert isinstance(heard[-1], sgl.RequestAborted)


@pytest.mark.timeout(30)
def test_samples_that_fail_leave_one_request_in_flight_to_the_others(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        long, short = s.fork(2)
        long += "y" * 3000 + sgl.gen("a", n=3)
        with pytest.raises(sgl.ProgramError):
            long.sync()
        for _ in range(3):
            short += sgl.gen("a", max_tokens=2)
        s += short["a"]

    program.run(backend=engine, fork=sgl.SequentialFork())
    engine.check_idle()


@pytest.mark.timeout(30)
def test_programs_on_an_engine_that_was_shut_down_are_told(engine: SimEngine) -> None:
    engine.shutdown()

    @sgl.function
    def program(s, q="q"):  # type: ignore[no-untyped-def]
        s += "prefix" + q
        members = s.fork(2)
        members += sgl.gen("a")
        members.join()
        s += sgl.select("b", ["c", "d"])

    with pytest.raises(sgl.ProgramError, match="shut down"):
        program.run(backend=engine)
    with pytest.raises(sgl.BatchError, match="2 of 2 programs failed"):
        program.run_batch([{"q": "a"}, {"q": "b"}], backend=engine)


def test_samples_have_the_seeds_that_the_engine_gives_its_own(engine: SimEngine) -> None:
    sgl.LocalBackend(engine).submit(
        [GenCall(Prompt("x"), SamplingParams(n=3, seed=2**64 - 1))], lambda index, answer: None
    )
    seeds = [request.params.seed for request in engine.requests[0]]
    assert seeds == [sample_seed(2**64 - 1, index) for index in range(3)]
    assert len(set(seeds)) == 3


def test_a_prefix_that_has_no_tokens_is_an_error_of_those_who_continue_it(
    engine: SimEngine,
) -> None:
    @sgl.function
    def program(s, q):  # type: ignore[no-untyped-def]
        s += "half a \ud800 pair" + q + sgl.gen("a")

    with pytest.raises(sgl.BatchError, match=r"2 of 2 programs failed.*lone surrogate"):
        program.run_batch([{"q": "a"}, {"q": "b"}], backend=engine)
    with pytest.raises(sgl.ProgramError, match="lone surrogate"):
        wide.run(prefix="\ud800", n=2, backend=engine)
