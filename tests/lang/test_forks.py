"""Forks, joins, hints and groups: what reaches the backend, and what comes back."""

import time

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall


def test_members_go_on_from_the_parents_text_independently(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "start" + sgl.gen("a")
        group = s.fork(3)
        group += lambda i: f"-{i}-"
        group += ["x", "y", "z"]
        group += sgl.gen("b")
        group[1] += "!"
        assert [f.text() for f in group] == [
            "start<a>-0-x<b>",
            "start<a>-1-y<b>!",
            "start<a>-2-z<b>",
        ]
        assert [f["a"] for f in group] == ["<a>"] * 3
        s += "|end"

    assert program.run(backend=backend).text() == "start<a>|end"


def test_a_prefix_is_announced_once_and_its_members_go_out_together(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "prefix"
        group = s.fork(4)
        for i, member in enumerate(group):
            member += f" {i}" + sgl.gen("a")
            member += sgl.gen("b")

    program.run(backend=backend)
    hint, *first = backend.calls[:5]
    assert (hint.kind, hint.prompt, hint.followers) == ("hint", "prefix", 4)
    assert [c.batch for c in first] == [0, 0, 0, 0]
    assert [c.after for c in first] == [hint.hint] * 4
    assert {c.after for c in backend.calls[5:]} == {None}
    assert len(backend.calls) == 9


@pytest.mark.parametrize(
    ("fork", "text"),
    [(sgl.ParallelFork(hint=False), "p"), (sgl.SequentialFork(), "p"), (sgl.ParallelFork(), "")],
)
def test_no_hint_when_it_is_off_or_there_is_nothing_to_announce(
    backend: sgl.ScriptedBackend, fork: object, text: str
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += text
        group = s.fork(2)
        group += "x" + sgl.gen("a")

    program.run(backend=backend, fork=fork)  # type: ignore[arg-type]
    assert [c.kind for c in backend.calls] == ["gen", "gen"]


def test_samples_of_a_fork_go_out_together_where_the_rest_goes_in_turn(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p"
        for member in s.fork(2):
            member += sgl.gen("a")
            for leaf in member.fork(2):
                leaf += sgl.gen("b")
        other = s.fork(2)
        other += ["x", "y"]
        other += sgl.gen("c")

    program.run(backend=backend, fork=sgl.SequentialFork(samples_together=True))
    sent: dict[int, list[str]] = {}
    for call in backend.calls:
        sent.setdefault(call.batch, []).append(call.prompt)
    # The leaves' prompts are all the same, but those of one fork alone are samples.
    assert sorted(sent.values()) == [["p", "p"], ["p<a>", "p<a>"], ["p<a>", "p<a>"], ["px"], ["py"]]


def test_sequential_forks_have_one_request_in_flight() -> None:
    backend = sgl.ScriptedBackend({"a": "x", "b": "y"}, hold=True)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p"
        group = s.fork(3)
        group += sgl.gen("a") + sgl.gen("b")
        assert len(backend.prompts) == 1
        backend.release_answers()
        group.join()

    state = program.run(backend=backend, fork=sgl.SequentialFork())
    assert len(backend.prompts) == 6
    assert state["b"] == ["y"] * 3


def test_a_blocked_reader_lets_its_members_go_and_the_others_follow_later(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "prefix"
        group = s.fork(2)
        group[0] += sgl.gen("a")
        assert group[0]["a"] == "<a>"
        group[1] += sgl.gen("a")

    program.run(backend=backend)
    assert [(c.kind, c.batch, c.after) for c in backend.calls] == [
        ("hint", -1, None),
        ("gen", 0, "h0"),
        ("gen", 1, "h0"),
    ]


def test_a_hint_is_released_when_some_member_never_asks(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "prefix"
        group = s.fork(3)
        group[0] += sgl.gen("a")
        group[1] += "nothing"
        group.join()

    program.run(backend=backend)
    assert [(c.kind, c.after or c.hint) for c in backend.calls] == [
        ("hint", "h0"),
        ("release", "h0"),
        ("gen", "h0"),
        ("release", "h0"),
    ]


def test_a_fork_of_a_fork_chains_its_hint(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "a"
        group = s.fork(2)
        for member in group:
            member += "b"
            inner = member.fork(2)
            inner += sgl.gen("x")
            inner.join()
        group.join()

    state = program.run(backend=backend)
    hints = [(c.after, c.hint, c.followers) for c in backend.calls if c.kind == "hint"]
    assert hints == [(None, "h0", 2), ("h0", "h1", 2), ("h0", "h2", 2)]
    assert state["x"] == [["<x>"] * 2] * 2


def test_join_concatenates_what_members_added(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p:"
        group = s.fork(2)
        group += lambda i: f"[{i}" + sgl.gen("a") + "]"
        group.join("concate_and_append")
        s += "."

    state = program.run(backend=backend)
    assert state.text() == "p:[0<a>][1<a>]."
    assert "a" not in state


def test_nothing_can_be_appended_after_a_join_or_a_return(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p"
        group = s.fork(2)
        group.join()
        with pytest.raises(sgl.ProgramError, match="was joined"):
            group[0] += "x"

    state = program.run(backend=backend)
    with pytest.raises(sgl.ProgramError, match="has returned"):
        state += "x"


def test_a_copy_leaves_the_original_alone(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p"
        with s.copy() as c:
            c += "side" + sgl.gen("a")
            assert c["a"] == "<a>"
        s += "q"

    state = program.run(backend=backend)
    assert state.text() == "pq"
    assert state["a"] == ["<a>"]


def test_a_fork_does_not_block_its_program() -> None:
    backend = sgl.ScriptedBackend({"a": "1", "b": "2"}, hold=True)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p" + sgl.gen("a")
        group = s.fork(2)
        group += sgl.gen("b")
        group.join()
        s += "done"
        assert len(backend.prompts) == 1
        backend.release_answers()

    assert program.run(backend=backend)["b"] == ["2", "2"]


def test_what_was_forked_wrongly_is_refused(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        with pytest.raises(sgl.ConfigError, match="at least 1"):
            s.fork(0)
        for wrong in ("2", 1.5, True):
            with pytest.raises(sgl.ConfigError, match="at least 1"):
                s.fork(wrong)
        group = s.fork(2)
        with pytest.raises(sgl.ConfigError, match="3 expressions were appended to a fork of 2"):
            group += ["a", "b", "c"]
        with pytest.raises(sgl.ConfigError, match="gather_variable"):
            group.join("merge")

    program.run(backend=backend)


def test_stress_of_nested_forks_gives_what_serial_execution_gives() -> None:
    def answer(call: Call) -> str:
        return f"({len(call.prompt.text) % 7})" if isinstance(call, GenCall) else call.choices[0]

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "root"
        outer = s.fork(5)
        for i, member in enumerate(outer):
            member += f" {i}" * i + sgl.gen("x")
            inner = member.fork(3)
            inner += lambda j: f"/{j}" * j + sgl.gen("y") + sgl.select("z", ["p", "q"])
            inner.join("concate_and_append")
        outer.join("concate_and_append")
        s += sgl.gen("end")

    texts = {
        program.run(backend=sgl.ScriptedBackend(answer), fork=fork).text()
        for fork in (sgl.ParallelFork(), sgl.ParallelFork(hint=False), sgl.SequentialFork())
    }
    assert len(texts) == 1


@pytest.mark.timeout(30)
def test_a_fork_that_is_refused_does_not_keep_its_program_from_ending() -> None:
    backend = sgl.ScriptedBackend({"a": "x"}, hold=True)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "a"
        group = s.fork(2)
        group.join()
        with pytest.raises(sgl.ProgramError, match="was joined"):
            group[0].fork(2)
        s += sgl.gen("a")
        return "done"

    state = program.run(backend=backend, stream=True)
    while not backend.prompts:
        time.sleep(0.001)

    def fork_until_refused() -> None:
        while True:
            state.fork(1)

    # The function is over, its generation is not.
    with pytest.raises(sgl.ProgramError, match="has returned"):
        fork_until_refused()
    backend.release_answers()
    assert state.ret_value == "done"
