"""Tracing, graphs, running them, and the passes that keep every prompt as it is."""

import inspect
import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall
from sgjax.lang.compiler import nodes as g
from sgjax.lang.compiler.compiled import CompiledProgram
from sgjax.lang.compiler.draw import to_dot, to_svg
from sgjax.lang.compiler.graph import Graph
from sgjax.lang.compiler.passes import constant_prefix, fold_constants, remove_dead
from sgjax.tokens.chat import ChatTemplate
from tests.lang.sim_engine import SimEngine


def greedy(call: Call) -> str:
    """A model that is a function of its prompt."""
    size = len(call.prompt.text)
    return f"<{call.name}{size}>" if isinstance(call, GenCall) else call.choices[size % 2]


@sgl.function
def expand(s, topic, tip):  # type: ignore[no-untyped-def]
    s += sgl.user(f"Expand on {topic}: {tip}")
    with s.assistant():
        s += "Well, " + sgl.gen("detail", max_tokens=20, stop=["\n"])


@sgl.function
def skeleton(s, topic, tone="calm"):  # type: ignore[no-untyped-def]
    s += sgl.system("You are " + tone + ".")
    s += f"Two tips about {topic}: "
    with s.var_scope("tips"):
        s += "1. " + sgl.gen("tip1") + " 2. " + sgl.gen("tip2")
    details = [expand(topic, s[f"tip{i}"]) for i in (1, 2)]
    for detail in details:
        s += "\n" + detail["detail"]
    group = s.fork(2)
    group += lambda i: f" [{i}] " + sgl.gen("view")
    group.join()
    with s.copy() as c:
        c += "aside" + sgl.gen_int("aside")
    s.set_var("k", 3)
    s += f"\nAll: {s['view']} {s['tips']} " + sgl.select("mood", ["good", "bad"])


@sgl.function
def concatenating(s, a):  # type: ignore[no-untyped-def]
    s += a
    outer = s.fork(2)
    for i, member in enumerate(outer):
        member += str(i)
        inner = member.fork(2)
        inner += sgl.gen("x", temperature=0.5)
        inner.join("concate_and_append")
    outer.join("concate_and_append")
    s += a + sgl.gen("end")


PROGRAMS = [(skeleton, {"topic": "cats"}), (skeleton, {"topic": "x", "tone": "rude"})]
PROGRAMS += [(expand, {"topic": "t", "tip": "u"}), (concatenating, {"a": "A"})]


@pytest.mark.parametrize(("program", "arguments"), PROGRAMS)
def test_compiling_gives_what_interpreting_gives(
    program: sgl.SglFunction, arguments: dict[str, str]
) -> None:
    backend, again = sgl.ScriptedBackend(greedy), sgl.ScriptedBackend(greedy)
    sgl.set_default_backend(backend)  # nested programs use it
    try:
        interpreted = program.run(**arguments)
    finally:
        sgl.set_default_backend(None)
    compiled = program.compile().run(**arguments, backend=again)
    assert compiled.text() == interpreted.text()
    assert compiled.messages() == interpreted.messages()
    for name in interpreted._writers:
        assert compiled[name] == interpreted[name]
    assert sorted(again.prompts) == sorted(backend.prompts)


def test_compiled_equals_interpreted_on_an_engine(engine: SimEngine) -> None:
    expected = concatenating.run(a="abc", backend=engine, max_new_tokens=6).text()
    compiled = concatenating.compile()
    assert compiled.run("abc", backend=engine, max_new_tokens=6).text() == expected
    (state,) = compiled.run_batch([{"a": "abc"}], backend=engine, max_new_tokens=6)
    assert state.text() == expected
    engine.check_idle()


def test_a_compiled_program_holds_no_thread_while_it_waits() -> None:
    backend = sgl.ScriptedBackend(greedy, hold=True)
    sgl.set_default_backend(backend)
    try:
        state = skeleton.compile().run("cats", stream=True)
        # The user's Python is over although nothing has been answered: nobody waits in it.
        while state._program.is_open:
            pass
        assert len(backend.prompts) == 1
        backend.release_answers()
        assert "<view" in state.text()
    finally:
        sgl.set_default_backend(None)


def test_a_graph_has_a_stream_for_each_call_fork_and_copy() -> None:
    graph = skeleton.trace()
    assert graph.streams == ("skeleton", "expand", "expand", "skeleton", "skeleton", "skeleton")
    kinds = {node.kind for node in graph.nodes}
    assert {"ConstantText", "Argument", "Gen", "Select", "Variable", "Fork", "GetForkItem"} <= kinds
    assert {"Join", "RoleBegin", "RoleEnd", "ScopeBegin", "ScopeEnd", "SetVar"} <= kinds
    between = [
        (graph.nodes[a].kind, graph.nodes[b].kind) for a, b, inside in graph.edges() if not inside
    ]
    assert between.count(("Gen", "Variable")) == 4
    assert ("Fork", "GetForkItem") in between
    assert ("Gen", "Join") in between


@pytest.mark.parametrize("program", [skeleton, expand, concatenating])
def test_graphs_round_trip_through_json(program: sgl.SglFunction) -> None:
    graph = program.trace()
    again = Graph.from_json(graph.to_json())
    assert again == graph
    assert str(again) == str(graph)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [{"kind": "Nothing"}]}'])
def test_what_is_no_graph_is_refused(text: str) -> None:
    with pytest.raises(sgl.ConfigError, match="no graph of a program"):
        Graph.from_json(text)


def test_pictures_show_every_node_and_edge() -> None:
    graph = skeleton.trace()
    root = ElementTree.fromstring(to_svg(graph))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}rect")) == len(graph.nodes)
    assert len(root.findall(f"{space}path")) == len(list(graph.edges()))
    dot = to_dot(graph)
    assert dot.count("->") == len(list(graph.edges()))
    assert dot.count("subgraph") == len(graph.streams)
    assert dot.count("style=dashed") == sum(not inside for *_, inside in graph.edges())


def branching(s, x):  # type: ignore[no-untyped-def]
    s += x + sgl.gen("a")
    if s["a"] == "yes":
        s += "more"


def truthy(s, x):  # type: ignore[no-untyped-def]
    s += x + sgl.gen("a")
    if s["a"]:
        s += "more"


def looping(s, x):  # type: ignore[no-untyped-def]
    for part in x:
        s += part


def counting(s, x):  # type: ignore[no-untyped-def]
    for _ in range(x):
        s += "a"


def measuring(s, x):  # type: ignore[no-untyped-def]
    s += "a" * len(x)


def stripping(s, x):  # type: ignore[no-untyped-def]
    s += sgl.gen("a")
    s += s["a"].strip()


def slicing(s, x):  # type: ignore[no-untyped-def]
    s += f"about {x}"[:12]


def shouting(s, x):  # type: ignore[no-untyped-def]
    s += f"about {x}".upper()


def looking(s, x):  # type: ignore[no-untyped-def]
    s += "a" if "b" in s.text() else "c"


def asking(s, x):  # type: ignore[no-untyped-def]
    s += sgl.gen("a", max_tokens=x)


def choosing(s, x):  # type: ignore[no-untyped-def]
    s += "a" + sgl.select("b", [f"{x}", "c"])


def keyed(s, x):  # type: ignore[no-untyped-def]
    s += {"a": "b"}[x]


def forked(s, x):  # type: ignore[no-untyped-def]
    s.fork(x)


@pytest.mark.parametrize(
    "func",
    [
        branching,
        truthy,
        looping,
        counting,
        measuring,
        stripping,
        slicing,
        shouting,
        looking,
        asking,
        choosing,
        keyed,
        forked,
    ],
)
def test_what_depends_on_data_is_refused_with_its_line(func) -> None:  # type: ignore[no-untyped-def]
    first = inspect.getsourcelines(func)[1]
    with pytest.raises(sgl.ProgramError, match="tracing") as caught:
        sgl.function(func).trace()
    found = re.match(r"(.*):(\d+): ", str(caught.value))
    assert found is not None
    assert found[1] == __file__
    assert first < int(found[2]) <= first + 2


def test_a_failure_while_tracing_names_its_line() -> None:
    def broken(s, x):  # type: ignore[no-untyped-def]
        s += s["never"]

    with pytest.raises(sgl.ProgramError, match=r"test_compiler.py:\d+: .*KeyError"):
        sgl.function(broken).trace()


def test_arguments_with_values_are_built_in() -> None:
    graph = sgl.function(counting).bind(x=3).trace()
    assert graph.arguments == ()
    assert [node.label for node in graph.nodes] == ["'a'"] * 3
    assert skeleton.trace(tone="sad").arguments == ("topic",)


def test_a_compiled_program_checks_its_arguments() -> None:
    compiled = expand.compile()
    with pytest.raises(sgl.ConfigError, match="missing or unknown"):
        compiled.run("a")
    with pytest.raises(sgl.ConfigError, match="takes 2 arguments, not 3"):
        compiled.run("a", "b", "c")
    with pytest.raises(sgl.ConfigError, match="'topic' was given twice"):
        compiled.run("a", topic="b", tip="c")
    with pytest.raises(sgl.ConfigError, match="no argument 'max_tokens'; its arguments are: topic"):
        compiled.run("a", "b", max_tokens=3)
    with pytest.raises(sgl.ConfigError, match="give a dict of arguments per program"):
        compiled.run_batch([("a", "b")])  # type: ignore[list-item]


def run_text(graph: Graph, **arguments: str) -> str:
    return CompiledProgram(graph).run(**arguments, backend=sgl.ScriptedBackend(greedy)).text()


def test_folding_merges_texts_and_builds_arguments_in() -> None:
    graph = concatenating.trace()
    folded = fold_constants(graph, {"a": "A"})
    assert folded.arguments == ()
    assert run_text(folded) == run_text(graph, a="A")
    for stream in range(len(folded.streams)):
        kinds = [node.kind for node in folded.stream_nodes(stream)]
        assert ("ConstantText", "ConstantText") not in itertools.pairwise(kinds)
    assert fold_constants(folded) == folded
    with pytest.raises(sgl.ConfigError, match="no argument 'b'"):
        fold_constants(graph, {"b": "x"})


@sgl.function
def wasteful(s, a):  # type: ignore[no-untyped-def]
    s += a
    with s.var_scope("unread"):
        s += "x" + sgl.gen("used")
    side = s.fork(2)
    side += "side" + sgl.gen("lost")
    s.set_var("constant", 1)
    s += "y" + sgl.gen("wanted")
    s += "z" + sgl.gen("after")


def test_dead_streams_scopes_and_tails_are_removed() -> None:
    graph = wasteful.trace()
    lean = remove_dead(graph)
    assert run_text(lean, a="A") == run_text(graph, a="A")
    assert [n.name for n in lean.nodes if isinstance(n, g.Gen)] == ["used", "wanted", "after"]
    leaner = remove_dead(graph, ["wanted"])
    assert [n.name for n in leaner.nodes if isinstance(n, g.Gen)] == ["used", "wanted"]
    assert not any(isinstance(n, g.ScopeBegin | g.ScopeEnd | g.SetVar) for n in leaner.nodes)
    assert run_text(graph, a="A").startswith(run_text(leaner, a="A"))
    with pytest.raises(sgl.ConfigError, match="sets no variable 'lost'"):
        remove_dead(graph, ["lost"])


def test_removing_the_dead_keeps_what_others_read() -> None:
    graph = skeleton.trace()
    lean = remove_dead(graph)
    backend = sgl.ScriptedBackend(greedy)
    state = CompiledProgram(lean).run("cats", backend=backend)
    assert state["view"]
    assert run_text(lean, topic="cats") == run_text(graph, topic="cats")
    Graph.from_json(lean.to_json())


def test_the_constant_prefix_of_a_graph_is_that_of_its_prompts() -> None:
    graph = fold_constants(skeleton.trace(), {"tone": "calm"})
    prefix = constant_prefix(graph, ChatTemplate("plain"))
    assert prefix == "SYSTEM: You are calm.\nTwo tips about "
    assert run_text(graph, topic="cats").startswith(prefix)


def test_a_nested_run_keeps_its_options_and_refuses_what_a_graph_cannot_hold(
    backend: sgl.ScriptedBackend,
) -> None:
    @sgl.function
    def inner(s, q):  # type: ignore[no-untyped-def]
        s += q + sgl.gen("a")

    def outer(**settings):  # type: ignore[no-untyped-def]
        @sgl.function
        def outer(s, q):  # type: ignore[no-untyped-def]
            s += inner.run(q=q, **settings)["a"] + sgl.gen("b", stop=["z"])

        return outer

    compiled = outer(stop=["x", "y"], top_p=None, max_new_tokens=7).compile()
    assert Graph.from_json(compiled.graph.to_json()) == compiled.graph
    compiled.run(q="q", backend=backend)
    asked = [call.call.params for call in backend.calls if isinstance(call.call, GenCall)]
    assert [(p.stop, p.max_new_tokens) for p in asked] == [(("x", "y"), 7), (("z",), 128)]
    for settings in ({"backend": backend}, {"fork": sgl.SequentialFork()}, {"stream": True}):
        with pytest.raises(sgl.ProgramError, match=f"was given {next(iter(settings))}"):
            outer(**settings).trace()
