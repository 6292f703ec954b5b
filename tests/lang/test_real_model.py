"""The examples and API speculation on the real SmolLM2-135M."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sgjax as sgl
from tests.lang.api_server import serving
from tests.lang.test_examples import load

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[sgl.Engine]:
    with sgl.Engine(
        str(smollm2_path), max_context_len=512, kv_tokens=4096, max_running=8, token_budget=512
    ) as engine:
        yield engine


@pytest.fixture(autouse=True)
def default_backend(engine: sgl.Engine) -> Iterator[None]:
    sgl.set_default_backend(engine)
    yield
    sgl.set_default_backend(None)


def test_the_judge_returns_a_verdict_in_its_form() -> None:
    judge = load("essay_judge")
    state = judge.judge.run(
        topic="Tides", essay="Tides rise and fall because the moon pulls the sea.", temperature=0
    )
    assert state["related"] in ("yes", "no")
    if state["related"] == "yes":
        assert re.fullmatch(judge.VERDICT, state["verdict"])


def test_thoughts_are_expanded_and_searched() -> None:
    state = load("skeleton_of_thought").answer.run(question="Why sleep?", num_points=2)
    assert state["answer"].count("\n\n") >= 1
    state = load("tree_of_thought").solve.run(problem="2 + 3 * 4 = ?", depth=1, breadth=2, keep=1)
    assert state["path"].startswith("Problem: 2 + 3")


def test_react_and_tools_keep_to_their_forms() -> None:
    text = load("react").react.run(question="Where is the Seine?", max_steps=2).text()
    assert re.search(r"\nAction 1: (Search|Finish)\[[^\]]*\]\n", text)
    state = load("tool_use").assist.run(request="What is 17 * 23?", temperature=0)
    assert state["tool"] in ("calculate", "population")


def test_questions_are_answered_in_a_batch_and_in_turns() -> None:
    module = load("few_shot_qa")
    for row, state in zip(module.QUESTIONS, module.answer.run_batch(module.QUESTIONS), strict=True):
        assert state["answer"] in row["options"]
    chat = load("multi_turn_chat").chat
    state = chat.run(turns=["Which star is brightest?", "Why?"], temperature=0, stream=True)
    assert "".join(state.text_iter("answer1")) == state["answer1"]


def test_json_programs_write_json() -> None:
    module = load("json_character")
    description = "Mira is an old botanist who lives among birches."
    for program in (module.by_schema, module.by_program):
        character = json.loads(program.run(description=description, temperature=0)["character"])
        assert set(character) == {"name", "age", "house"}


@sgl.function(num_api_spec_tokens=24)
def extract(s, page):  # type: ignore[no-untyped-def]
    s += "Text: Marie Curie (born 1867) was a physicist.\nname: Marie Curie\njob: physicist\n"
    s += f"born: 1867\n\nText: {page}\nname:" + sgl.gen("name", stop="\n", max_tokens=12)
    s += "\njob:" + sgl.gen("job", stop="\n", max_tokens=12)
    s += "\nborn:" + sgl.gen("born", stop="\n", max_tokens=12)


PAGES = ["Max Planck (born 1858) was a physicist in Berlin.", "Ada Lovelace, born in 1815, wrote."]


def test_speculation_gives_the_same_values_with_fewer_requests(engine: sgl.Engine) -> None:
    plain = sgl.function(extract.func)
    for page in PAGES:
        speculative = sgl.SpeculativeBackend(sgl.LocalBackend(engine), 24)
        fast = extract.run(page=page, backend=speculative, temperature=0)
        slow = plain.run(page=page, temperature=0)
        assert fast.text() == slow.text()
        assert 1 <= speculative.usage.requests <= 3


def test_speculation_works_on_the_model_behind_an_api(engine: sgl.Engine) -> None:
    pytest.importorskip("openai")

    def write(prompt: str) -> str:
        result = engine.generate(prompt, {"max_new_tokens": 36, "temperature": 0})
        assert isinstance(result, dict)
        return str(result["text"])

    with serving(write) as server:
        backend = sgl.OpenAI("scripted", base_url=server.url, api_key="none")
        fast = extract.run(page=PAGES[0], backend=backend, temperature=0)
        asked = len(server.requests)
        slow = sgl.function(extract.func).run(page=PAGES[0], backend=backend, temperature=0)
        backend.close()
    assert fast.text() == slow.text()
    assert asked < 3
