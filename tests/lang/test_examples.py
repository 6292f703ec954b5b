"""The examples: each runs on a scripted backend, and does what it says."""

import ast
import importlib.util
import json
import tokenize
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall
from tests.lang.api_server import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
VERDICT = '{"summary": "Short, clear, thin on evidence.", "grade": "B-"}'


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    source = Path(__file__).read_text()
    assert {name for name in names if f'load("{name}")' not in source} == set()


def test_the_judge_grades_along_all_dimensions_at_once() -> None:
    judge = load("essay_judge")
    backend = sgl.ScriptedBackend(
        {"related": "yes", "judgment": " Good. END", "verdict": VERDICT}, chat="chatml"
    )
    state = judge.judge.run(topic="tides", essay="The moon pulls.", backend=backend)
    assert json.loads(state["verdict"])["grade"] == "B-"
    judgments = [c for c in backend.calls if c.call is not None and c.call.name == "judgment"]
    assert len({c.batch for c in judgments}) == 1
    assert [c.followers for c in backend.calls if c.kind == "hint"] == [3]
    assert "clarity:  Good. \noriginality:" in state.text()


def test_the_judge_stops_where_the_essay_misses_its_topic() -> None:
    backend = sgl.ScriptedBackend({"related": "no"})
    load("essay_judge").judge.run(topic="tides", essay="x", backend=backend)
    assert len(backend.prompts) == 1


def code_lines(name: str) -> int:
    """Count lines that hold code: no blank lines, comments or docstrings."""
    path = EXAMPLES / f"{name}.py"
    tree = ast.parse(path.read_text())
    documented = [
        tree,
        *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)),
    ]
    docs = {
        line
        for node in documented
        if ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    skipped |= {tokenize.ENCODING, tokenize.ENDMARKER}
    with path.open("rb") as file:
        used = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in skipped
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(used - docs)


def test_the_judge_takes_at_most_half_the_lines_of_the_plain_client() -> None:
    assert 2 * code_lines("essay_judge") <= code_lines("essay_judge_openai")


def test_the_plain_clients_judge_comes_to_the_same_verdict() -> None:
    openai = pytest.importorskip("openai")
    module = load("essay_judge_openai")

    def write(messages: list[dict[str, str]]) -> str:
        last = messages[-1]["content"]
        return " Good." if "Assess" in last else VERDICT if "JSON" in last else "yes"

    with serving(write) as server:
        client = openai.OpenAI(base_url=server.url, api_key="none")
        judge = module.Judge(client, "scripted")
        judge.is_related = lambda messages: judge.ask(messages, 1) == "yes"
        verdict = judge.judge("tides", "The moon pulls.")
        client.close()
    assert json.loads(verdict) == json.loads(VERDICT)


def test_related_is_read_from_log_probabilities() -> None:
    module = load("essay_judge_openai")
    top = [SimpleNamespace(token=t, logprob=p) for t, p in ((" No", -0.2), ("Yes", -1.7))]
    content = [SimpleNamespace(top_logprobs=top)]
    choice = SimpleNamespace(logprobs=SimpleNamespace(content=content))
    create = lambda **_: SimpleNamespace(choices=[choice])  # noqa: E731
    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    assert module.Judge(client, "m").is_related([]) is False


def test_the_skeleton_is_expanded_in_parallel() -> None:
    module = load("skeleton_of_thought")
    script = {"point1": "Read\n", "point2": "Taste\n", "point3": "Repeat\n", "text": "Because."}
    backend = sgl.ScriptedBackend(script)
    state = module.answer.run(question="How?", backend=backend)
    assert state["answer"] == "Read: Because.\n\nTaste: Because.\n\nRepeat: Because."
    texts = [c.batch for c in backend.calls if c.call is not None and c.call.name == "text"]
    assert len(set(texts)) == 1


def test_the_tree_keeps_the_best_thoughts() -> None:
    module = load("tree_of_thought")
    written = iter(range(100))

    def write(call: Call) -> str:
        if not isinstance(call, GenCall):
            number = int(call.prompt.text.rsplit("#", 1)[1].split()[0])
            return str(1 + number % 5)
        return " 42" if call.name == "answer" else f" thought #{next(written)} \n"

    backend = sgl.ScriptedBackend(write)
    state = module.solve.run(problem="P", backend=backend)
    assert state["answer"] == " 42"
    assert len([c for c in backend.calls if c.kind == "gen"]) == 3 + 2 * 3 + 1
    ratings = [line[-1] for line in state["path"].splitlines() if line.startswith("How promising")]
    assert ratings == ["3", "5"]


def test_react_searches_until_it_finishes() -> None:
    module = load("react")
    backend = sgl.ScriptedBackend(
        {
            "thought": [" Where?", " Which river?", " How long?", " Done."],
            "kind": ["Search", "Search", "Search", "Finish"],
            "target": ["Eiffel Tower]", "Paris]", "Seine]", "777 km]"],
        }
    )
    state = module.react.run(question="How long?", backend=backend)
    assert state["answer"] == "777 km"
    assert "Observation 3: The Seine is a river of 777 km" in state.text()


def test_few_shot_answers_share_their_examples() -> None:
    module = load("few_shot_qa")
    backend = sgl.ScriptedBackend(lambda call: call.choices[0])  # type: ignore[union-attr]
    states = module.answer.run_batch(module.QUESTIONS, backend=backend)
    assert [s["answer"] for s in states] == ["Pacific", "steam", "six"]
    hint = backend.calls[0]
    assert hint.kind == "hint"
    assert hint.prompt.endswith("Answer: mercury\n\n")


@pytest.mark.parametrize(
    ("tool", "text", "result"),
    [
        ("calculate", "17 * 23)", "391"),
        ("calculate", "x + 1)", "error: cannot calculate"),
        ("calculate", "1 / 0)", "error: division by zero"),
        ("population", "Iceland)", "390000"),
    ],
)
def test_tools_run_what_the_model_wrote(tool: str, text: str, result: str) -> None:
    module = load("tool_use")
    backend = sgl.ScriptedBackend({"tool": tool, "input": text, "answer": "So."})
    state = module.assist.run(request="?", backend=backend)
    assert f"The result is {result}" in state.text()


def test_a_chat_remembers_its_turns_and_streams() -> None:
    module = load("multi_turn_chat")
    backend = sgl.ScriptedBackend({"answer0": "Sirius.", "answer1": "Nine light years."})
    state = module.chat.run(turns=["Which?", "How far?"], backend=backend, stream=True)
    assert "".join(state.text_iter("answer1")) == "Nine light years."
    assert [m["content"] for m in state.messages()][1:] == [
        "Which?",
        "Sirius.",
        "How far?",
        "Nine light years.",
    ]


def test_json_comes_by_schema_and_by_program() -> None:
    module = load("json_character")
    text = '{"name": "Mira", "age": 81, "house": "Birch"}'
    backend = sgl.ScriptedBackend(
        {"character": text, "name": "Mira", "age": "81", "house": "Birch"}
    )
    one = module.by_schema.run(description="d", backend=backend)
    two = module.by_program.run(description="d", backend=backend)
    assert json.loads(one["character"]) == json.loads(two["character"])
    call = backend.calls[0].call
    assert isinstance(call, GenCall)
    assert json.loads(call.params.json_schema or "") == module.SCHEMA
