"""Programs on a scripted backend: what is appended, asked and stored."""

import subprocess
import sys

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import GenCall


def test_text_and_generations_are_appended_in_order(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s, topic):  # type: ignore[no-untyped-def]
        s += "About " + topic + ": " + sgl.gen("first") + "; "
        s += [sgl.gen("second"), "."]
        assert s["first"] == "<first>"

    state = program.run(topic="cats", backend=backend)
    assert state.text() == "About cats: <first>; <second>."
    assert backend.prompts == ["About cats: ", "About cats: <first>; "]
    assert state["second"] == state.get_var("second") == "<second>"


def test_appending_returns_before_the_model_answers() -> None:
    backend = sgl.ScriptedBackend({"a": "done"}, hold=True)
    seen = []

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        seen.append(len(backend.prompts))
        backend.release_answers()
        seen.append(s["a"])

    program.run(backend=backend)
    assert seen == [1, "done"]


def test_a_variable_read_after_its_second_generation_is_the_second() -> None:
    backend = sgl.ScriptedBackend({"a": ["one", "two"]})
    seen = []

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a") + "," + sgl.gen("a")
        seen.append(s["a"])

    program.run(backend=backend)
    assert seen == ["two"]


def test_an_unknown_variable_is_a_key_error_that_names_the_known(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")

    state = program.run(backend=backend)
    with pytest.raises(KeyError, match="'b' is not set; variables here: a"):
        state["b"]
    assert "a" in state
    assert "b" not in state


def test_set_var_and_scope_store_without_asking(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s.set_var("k", 3)
        s["j"] = 4
        with s.var_scope("whole"):
            s += "in " + sgl.gen("a")
        s += " out"
        assert s["whole"] == "in <a>"

    state = program.run(backend=backend)
    assert (state["k"], state["j"], state.text()) == (3, 4, "in <a> out")


def test_roles_build_text_and_messages_as_calls_expressions_and_blocks(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s.system("be brief")
        s += sgl.user("hi")
        with s.assistant():
            s += "I say " + sgl.gen("a")
        s += sgl.user_begin() + "bye" + sgl.user_end()

    state = program.run(backend=backend)
    assert state.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I say <a>"},
        {"role": "user", "content": "bye"},
    ]
    call = backend.calls[0].call
    assert isinstance(call, GenCall)
    assert (call.prompt.role, call.prompt.open_text) == ("assistant", "I say ")
    assert call.prompt.text == state.text()[: len(call.prompt.text)]


def test_a_message_inside_a_message_is_refused(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        with s.user():
            s += sgl.user("x")

    with pytest.raises(sgl.ProgramError, match="begins inside the 'user' message"):
        program.run(backend=backend)


def test_select_appends_its_winner_unless_told_not_to(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "A: " + sgl.select("a", ["yes", "no"]) + " B: "
        s += sgl.select("b", ["yes", "no"], append=False)
        s += sgl.gen("c", choices=["x", "y"])

    state = program.run(backend=backend)
    assert state.text() == "A: no B: y"
    assert (state["a"], state["b"], state["c"]) == ("no", "no", "y")


def test_a_gen_takes_the_runs_defaults_where_it_says_nothing(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a") + sgl.gen("b", max_tokens=7, temperature=0.5, stop=";")

    program.run(backend=backend, max_new_tokens=9, temperature=0, stop=["\n"], top_k=-1)
    first, second = (c.call.params for c in backend.calls if isinstance(c.call, GenCall))
    assert (first.max_new_tokens, first.temperature, first.stop) == (9, 0, ("\n",))
    assert (second.max_new_tokens, second.temperature, second.stop) == (7, 0.5, (";",))
    program.run(backend=backend)
    call = backend.calls[-2].call
    assert isinstance(call, GenCall)
    assert (call.params.max_new_tokens, call.params.temperature) == (128, 1.0)


def test_dtype_is_a_regex_and_n_makes_a_list(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen_int("i") + sgl.gen("many", n=3)

    state = program.run(backend=backend)
    call = backend.calls[0].call
    assert isinstance(call, GenCall)
    assert call.params.regex == "[-+]?[0-9]+"
    assert state["many"] == ["<many>"] * 3
    assert state.text() == "x<i><many>"


def test_a_seed_gives_each_gen_its_own_draw_and_repeats(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"
        group = s.fork(2)
        group += sgl.gen("a") + sgl.gen("b")

    def seeds() -> list[int | None]:
        backend.calls.clear()
        program.run(backend=backend, seed=5)
        return sorted(c.call.params.seed for c in backend.calls if isinstance(c.call, GenCall))

    first = seeds()
    assert len(set(first)) == 4
    assert seeds() == first


def test_bind_fixes_arguments_and_keeps_the_rest(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s, a, b, c="z"):  # type: ignore[no-untyped-def]
        s += a + b + c

    assert program.bind(b="2").run("1", backend=backend).text() == "12z"
    assert program.bind(a="1").run(b="3", c="4", backend=backend).text() == "134"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"a": "x", "temprature": 0}, "temprature"),
        ({}, "missing a required argument: 'a'"),
        ({"a": "x", "temperature": -1}, "temperature"),
    ],
)
def test_wrong_arguments_of_run_are_refused(
    backend: sgl.ScriptedBackend, kwargs: dict[str, object], message: str
) -> None:
    @sgl.function
    def program(s, a):  # type: ignore[no-untyped-def]
        s += a

    with pytest.raises(sgl.ConfigError, match=message):
        program.run(backend=backend, **kwargs)  # type: ignore[arg-type]


def test_programs_must_take_s_and_leave_runs_own_names_alone() -> None:
    with pytest.raises(sgl.ConfigError, match="must be named 's'"):
        sgl.function(lambda state: None)
    with pytest.raises(sgl.ConfigError, match="'temperature', which is an argument of run"):
        sgl.function(lambda s, temperature: None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sgl.gen("a", regex="a", dtype=int), "regex and dtype"),
        (lambda: sgl.gen("a", choices_method=sgl.greedy_token_selection), "needs choices"),
        (lambda: sgl.gen("a", choices=["x"], max_tokens=3), "takes no max_new_tokens"),
        (lambda: sgl.select("a", []), "must be a list"),
        (lambda: sgl.select("a", ["x", ""]), "not empty"),
        (lambda: sgl.select("a", ["x"], choices_method="mean"), "use sgl.token_length"),
    ],
)
def test_expressions_that_make_no_sense_are_refused_where_they_are_written(
    make: object, message: str
) -> None:
    with pytest.raises(sgl.ConfigError, match=message):
        make()  # type: ignore[operator]


def test_a_run_without_a_backend_says_how_to_set_one() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x"

    with pytest.raises(sgl.UnsupportedBackend, match="set_default_backend"):
        program.run()
    with pytest.raises(sgl.UnsupportedBackend, match="a str is no backend"):
        program.run(backend="gpt")
    with pytest.raises(sgl.UnsupportedBackend, match="no HTTP server yet"):
        sgl.RuntimeEndpoint("http://localhost:30000")


def test_the_default_backend_serves_runs_that_name_none(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        return 7

    sgl.set_default_backend(backend)
    try:
        assert program.run()["a"] == "<a>"
        assert program().ret_value == 7
        assert sgl.flush_cache()
        assert sgl.get_server_info() == {"backend": "scripted", "calls": 2}
    finally:
        sgl.set_default_backend(None)


def test_the_language_imports_without_jax() -> None:
    code = (
        "import sys; sys.modules['jax'] = None; import sgjax as sgl\n"
        "b = sgl.ScriptedBackend({'a': 'y'})\n"
        "f = sgl.function(lambda s: s.__iadd__('x' + sgl.gen('a')))\n"
        "assert f.run(backend=b).text() == 'xy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
