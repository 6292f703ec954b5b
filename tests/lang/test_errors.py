"""Failures: each reaches its reader with its cause, and harms nobody else."""

import asyncio
import functools
from collections.abc import Sequence

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall, Hear, Hint, Prompt
from sgjax.lang.backends.forwarding import ForwardingBackend


class BoomError(Exception):
    """The cause in these tests."""


def boom_on(*names: str) -> sgl.ScriptedBackend:
    def answer(call: Call) -> str | Exception:
        if call.name in names:
            return BoomError(f"no {call.name}")
        return f"<{call.name}>" if isinstance(call, GenCall) else call.choices[0]

    return sgl.ScriptedBackend(answer)


@sgl.function
def two_gens(s):  # type: ignore[no-untyped-def]
    s += "x" + sgl.gen("good") + sgl.gen("bad")


READS = {
    "getitem": lambda s: s["bad"],
    "get_meta_info": lambda s: s.get_meta_info("bad"),
    "later variable": lambda s: s["never"],
    "text": lambda s: s.text(),
    "messages": lambda s: s.messages(),
    "sync": lambda s: s.sync(),
    "text_iter": lambda s: list(s.text_iter()),
    "variable iter": lambda s: list(s.text_iter("bad")),
    "async iter": lambda s: asyncio.run(_collect(s)),
}


async def _collect(s):  # type: ignore[no-untyped-def]
    return [piece async for piece in s.text_async_iter("bad")]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("outside", [True, False])
def test_every_read_raises_the_failure_with_its_cause(read: str, outside: bool) -> None:
    seen: list[BaseException] = []

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("good") + sgl.gen("bad") + sgl.gen("never")
        if not outside:
            try:
                READS[read](s)
            except sgl.ProgramError as error:
                seen.append(error)

    backend = boom_on("bad")
    if outside:
        state = program.run(backend=backend, stream=True)
        with pytest.raises(sgl.ProgramError) as caught:
            READS[read](state)
        seen.append(caught.value)
        assert isinstance(state.error(), BoomError)
    else:
        with pytest.raises(sgl.ProgramError):
            program.run(backend=backend)
    (error,) = seen
    assert isinstance(error.__cause__, BoomError)
    assert str(error) == "program 'program' failed in gen('bad'): BoomError: no bad"
    assert len(backend.prompts) == 2, "nothing is asked after a failure"


def test_what_was_set_before_the_failure_can_be_read() -> None:
    state = two_gens.run(backend=boom_on("bad"), stream=True)
    assert state["good"] == "<good>"


def test_run_raises_what_the_function_raised() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        raise BoomError("mine")

    with pytest.raises(sgl.ProgramError, match="program 'program' failed: BoomError: mine") as e:
        program.run(backend=boom_on())
    assert isinstance(e.value.__cause__, BoomError)


def test_an_error_that_nobody_reads_is_raised_by_run() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        group = s.fork(2)
        group[1] += sgl.gen("bad")

    with pytest.raises(sgl.ProgramError, match=r"gen\('bad'\)"):
        program.run(backend=boom_on("bad"))


def test_a_program_may_handle_the_failure_of_a_fork() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        group = s.fork(2)
        group[0] += sgl.gen("bad")
        group[1] += sgl.gen("good")
        with pytest.raises(sgl.ProgramError):
            group[0].sync()
        s += group[1]["good"]

    assert program.run(backend=boom_on("bad")).text() == "x<good>"


def test_a_join_with_a_failed_member_fails_the_parent_with_the_members_cause() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        group = s.fork(3)
        group[1] += sgl.gen("bad")
        group.join()
        s += sgl.gen("after")

    with pytest.raises(sgl.ProgramError, match=r"gen\('bad'\)") as caught:
        program.run(backend=boom_on("bad"))
    assert isinstance(caught.value.__cause__, BoomError)


def test_forks_behind_a_failure_fail_with_it() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("bad")
        group = s.fork(2)
        group += sgl.gen("good")
        with pytest.raises(sgl.ProgramError, match=r"gen\('bad'\)"):
            group[0].text()
        raise group[1].error()

    with pytest.raises(sgl.ProgramError):
        program.run(backend=boom_on("bad"))


def test_sibling_programs_of_a_batch_go_on() -> None:
    def answer(call: Call) -> str | Exception:
        return BoomError("odd") if call.prompt.text in ("1", "3") else "ok"

    @sgl.function
    def program(s, q):  # type: ignore[no-untyped-def]
        s += q + sgl.gen("a")

    rows = [{"q": str(i)} for i in range(5)]
    with pytest.raises(sgl.BatchError, match="2 of 5 programs failed, first number 1") as caught:
        program.run_batch(rows, backend=sgl.ScriptedBackend(answer))
    states = caught.value.states
    assert [s.text() for s in states[::2]] == ["0ok", "2ok", "4ok"]
    for state in states[1::2]:
        with pytest.raises(sgl.ProgramError, match="odd"):
            state["a"]


def test_a_defect_of_a_backend_is_an_error_and_no_hang() -> None:
    class Broken(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            raise BoomError("defect")

    with pytest.raises(sgl.ProgramError, match="defect"):
        two_gens.run(backend=sgl.ScriptedBackend(Broken()))


def test_appending_something_else_than_text_names_it() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += 3

    with pytest.raises(sgl.ProgramError, match="a int was appended to a prompt: 3"):
        program.run(backend=boom_on())


@pytest.mark.timeout(30)
def test_a_fork_whose_prefix_cannot_be_announced_fails_with_its_members() -> None:
    class Deaf(ForwardingBackend):
        def submit(self, calls: Sequence[Call], hear: Hear) -> None:
            self._inner.submit(calls, hear)

        def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
            raise BoomError("no hints today")

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        members = s.fork(2)
        members += sgl.gen("good")
        for read in (members[0].text, members[1].sync, s.text):
            with pytest.raises(sgl.ProgramError, match="no hints today"):
                read()

    with pytest.raises(sgl.ProgramError, match="no hints today"):
        program.run(backend=Deaf(boom_on()))


@pytest.mark.timeout(30)
def test_a_function_that_reads_its_own_return_value_is_told() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        return s.ret_value

    with pytest.raises(sgl.ProgramError, match="once the function has returned"):
        program.run(backend=boom_on())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stop": 5}, "stop=5"),
        ({"stop": {"a": 1}}, "stop="),
        ({"stop": [5]}, "stop="),
        ({"stop_token_ids": "12"}, "stop_token_ids='12'"),
        ({"json_schema": {"enum": {1, 2}}}, "json_schema"),
        ({"temperature": {}}, "temperature={}"),
        ({"return_logprob": "yes"}, "return_logprob='yes'"),
        ({"return_logprob": True, "top_logprobs_num": "3"}, "top_logprobs_num='3'"),
        ({"return_logprob": True, "logprob_start_len": -5}, "logprob_start_len=-5"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_name(options, says) -> None:  # type: ignore[no-untyped-def]
    @sgl.function
    def of_the_gen(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("good", **options)

    with pytest.raises(sgl.ProgramError, match=says) as caught:
        of_the_gen.run(backend=boom_on())
    assert isinstance(caught.value.__cause__, sgl.ConfigError)
    with pytest.raises(sgl.ConfigError, match=says):
        two_gens.run(backend=boom_on(), **options)


def test_numbers_of_logprobs_that_would_report_nothing_are_refused() -> None:
    def program(**options):  # type: ignore[no-untyped-def]
        @sgl.function
        def program(s):  # type: ignore[no-untyped-def]
            s += "x" + sgl.gen("plain") + sgl.gen("reported", **options)

        return program

    backend = boom_on()
    with pytest.raises(sgl.ProgramError, match="reports nothing without return_logprob"):
        program(top_logprobs_num=2).run(backend=backend)
    program(return_logprob=True).run(backend=backend, top_logprobs_num=2)
    program(top_logprobs_num=2).run(backend=backend, return_logprob=True)
    asked = [call.call.top_logprobs for call in backend.calls[1:] if call.call]  # type: ignore[union-attr]
    assert asked == [0, 2, 0, 2]


def test_how_forks_run_is_named_by_an_object_and_nothing_else() -> None:
    for fork in ("sequential", {"type": "parallel"}, sgl.SequentialFork):
        with pytest.raises(sgl.ConfigError, match="SequentialFork"):
            two_gens.run(backend=boom_on(), fork=fork)
        with pytest.raises(sgl.ConfigError, match="SequentialFork"):
            sgl.global_config.fork = fork  # type: ignore[assignment]


def test_choices_are_a_sequence_and_append_is_a_bool() -> None:
    for choices in ((c for c in "ab"), {"a", "b"}, "ab", 5):
        with pytest.raises(sgl.ConfigError, match="must be a list of texts"):
            sgl.select("x", choices)  # type: ignore[arg-type]
    with pytest.raises(sgl.ConfigError, match="append='no'"):
        sgl.select("x", ["a"], append="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("expression", [sgl.gen, lambda name: sgl.select(name, ["a"])])
def test_a_variable_is_named_by_a_text(expression) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(sgl.ConfigError, match=r"\(16\): the first argument names a variable"):
        expression(16)


@pytest.mark.parametrize("batch", [None, 5, {"x": "a"}, "ab"])
def test_a_batch_is_a_list_of_dicts(batch) -> None:  # type: ignore[no-untyped-def]
    for program in (two_gens, two_gens.compile()):
        with pytest.raises(sgl.ConfigError, match=r"a batch is a .*; give a list, a dict of arg"):
            program.run_batch(batch, backend=boom_on())
    with pytest.raises(sgl.ConfigError, match="num_threads=True"):
        two_gens.run_batch([{}], backend=boom_on(), num_threads=True)


def test_a_fork_is_joined_once(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        group = s.fork(2)
        group += "x"
        group.join("concate_and_append")
        group.join("concate_and_append")

    with pytest.raises(sgl.ProgramError, match="joined already"):
        program.run(backend=backend)


def test_only_plain_functions_are_programs() -> None:
    async def waits(s):  # type: ignore[no-untyped-def]
        s += "x"

    def yields(s):  # type: ignore[no-untyped-def]
        yield s

    for func, kind in (
        (waits, "an async function"),
        (yields, "a generator"),
        (5, "takes a Python function"),
        (functools.partial(lambda s, a: a, a=1), "takes a Python function"),
        (lambda s, *args: None, "a variadic positional parameter 'args'"),
        (lambda s, **kwargs: None, "a variadic keyword parameter 'kwargs'"),
        (lambda s, a, /: None, "a positional-only parameter 'a'"),
    ):
        with pytest.raises(sgl.ConfigError, match=kind):
            sgl.function(func)  # type: ignore[call-overload]


def test_a_global_setting_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="verbosity"):
        sgl.global_config.verbosity = 2  # type: ignore[attr-defined]


def test_switches_of_a_run_are_on_or_off() -> None:
    with pytest.raises(sgl.ConfigError, match="stream='no'"):
        two_gens.run(backend=boom_on(), stream="no")  # type: ignore[arg-type]
    for name in ("progress_bar", "generator_style"):
        with pytest.raises(sgl.ConfigError, match=f"{name}=1"):
            two_gens.run_batch([{}], backend=boom_on(), **{name: 1})  # type: ignore[call-overload]
