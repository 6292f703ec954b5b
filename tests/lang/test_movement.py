"""Code movement: what moves, what may not, and what it gains."""

import random

import pytest

import sgjax as sgl
from sgjax.lang.compiler.blocks import Block, find_template, joined, parse_template, shared_text
from sgjax.lang.compiler.checker import check_order
from sgjax.lang.compiler.compiled import CompiledProgram
from sgjax.lang.compiler.movement import (
    Shot,
    move_code,
    parse_order,
    propose_by_model,
    propose_safely,
)
from tests.lang.templates import SHOTS, TESTS, Labelled

ALL = pytest.mark.parametrize("template", [*SHOTS, *TESTS], ids=lambda t: t.name)


def index_of(blocks: tuple[Block, ...], beginning: str) -> int:
    (found,) = [i for i, b in enumerate(blocks) if b.text.lstrip().startswith(beginning)]
    return found


def labels(template: Labelled) -> tuple[tuple[Block, ...], set[int], set[int]]:
    blocks = parse_template(template.text)
    movable = {index_of(blocks, beginning) for beginning in template.movable}
    bound = {index_of(blocks, beginning) for beginning in template.bound}
    return blocks, movable, bound


def moved_ahead(blocks: tuple[Block, ...], order: list[int]) -> set[int]:
    """Return the constant blocks that stood behind an argument and stand before them all now."""
    varying = [i for i, block in enumerate(blocks) if not block.constant]
    shared = order[: min(map(order.index, varying))]
    return {i for i in shared if i > min(varying)}


def tokens(text: str) -> int:
    return len(text.split())


@ALL
def test_templates_are_labelled_consistently(template: Labelled) -> None:
    blocks, movable, bound = labels(template)
    assert "".join(block.text for block in blocks) == template.text
    assert not movable & bound
    assert all(blocks[i].constant for i in movable | bound)


@ALL
def test_the_built_in_rule_moves_nothing_that_is_bound(template: Labelled) -> None:
    blocks, movable, _ = labels(template)
    order = propose_safely(blocks)
    assert check_order(blocks, order) == []
    assert moved_ahead(blocks, order) <= movable


@ALL
def test_wrong_moves_are_refused_with_a_reason(template: Labelled) -> None:
    blocks, _, bound = labels(template)
    last = len(blocks) - 1
    for index in bound | {last}:
        order = [index, *(i for i in range(len(blocks)) if i != index)]
        if order != sorted(order):
            assert check_order(blocks, order), f"{blocks[index].text!r} was let through"
    everything = sorted(range(len(blocks)), key=lambda i: (not blocks[i].constant, i))
    assert check_order(blocks, everything), "all constants first, the answer's cue among them"


@ALL
def test_no_order_that_is_let_through_moves_anything_bound(template: Labelled) -> None:
    blocks, movable, _ = labels(template)
    rng = random.Random(template.name)
    orders = [rng.sample(range(len(blocks)), len(blocks)) for _ in range(300)]
    for order in orders:
        if not check_order(blocks, order):
            assert moved_ahead(blocks, order) <= movable


def test_most_of_the_movable_constant_text_is_gained() -> None:
    gained = wanted = right = 0
    for template in TESTS:
        blocks, movable, _ = labels(template)
        order = propose_safely(blocks)
        moved = moved_ahead(blocks, order)
        wanted += sum(tokens(blocks[i].text) for i in movable)
        gained += sum(tokens(blocks[i].text) for i in moved)
        right += moved == movable
        before = shared_text(blocks)
        after = shared_text(joined([blocks[i] for i in order]))
        assert tokens(after) >= tokens(before)
    print(f"{right} of {len(TESTS)} as labelled; {gained} of {wanted} movable words gained")
    assert gained >= 0.6 * wanted


@sgl.function
def review(s, text):  # type: ignore[no-untyped-def]
    s += "Review: " + text + "\nYou classify opinions.\nUse a single word.\nClass:"
    s += sgl.gen("label", stop="\n")
    s += "\nBecause " + sgl.gen("why")


def test_a_moved_graph_runs_and_begins_with_what_is_shared() -> None:
    movement = move_code(review.trace())
    assert movement.violations == ()
    assert movement.after == "You classify opinions.\nUse a single word.\nReview: "
    backend = sgl.ScriptedBackend({"label": "good", "why": "of it"})
    state = CompiledProgram(movement.graph).run("fine", backend=backend)
    assert state.text() == (
        "You classify opinions.\nUse a single word.\nReview: fine\nClass:good\nBecause of it"
    )
    assert movement.gain(tokens, batch=10) == 9 * 7
    movement.graph.check()
    assert move_code(movement.graph).order == tuple(range(4))


def test_nothing_moves_across_roles_generations_or_variables() -> None:
    @sgl.function
    def program(s, a):  # type: ignore[no-untyped-def]
        s += sgl.system("Be kind.")
        s += sgl.user(a + "\nMind the gap.\nAsk politely.\nNow:")
        s += sgl.assistant(sgl.gen("x"))
        s += sgl.user("Speak up.")

    graph = program.trace()
    template = find_template(graph)
    assert [block.text for block in template.blocks] == [
        "{a}\n",
        "Mind the gap.\n",
        "Ask politely.\n",
        "Now:",
    ]
    moved = CompiledProgram(move_code(graph).graph)
    state = moved.run("Hello", backend=sgl.ScriptedBackend({"x": "y"}))
    assert [m["content"] for m in state.messages()] == [
        "Be kind.",
        "Mind the gap.\nAsk politely.\nHello\nNow:",
        "y",
        "Speak up.",
    ]


RECORDED = {
    "right": " 2 3 1 4\n",
    "everything first": " 2 3 4 1\n",
    "no numbers": " the instructions come first\n",
    "one is missing": " 2 1 4\n",
    "one is twice": " 2 2 1 4\n",
}


@pytest.mark.parametrize("answer", RECORDED)
def test_a_models_proposal_is_taken_only_if_the_checker_agrees(answer: str) -> None:
    backend = sgl.ScriptedBackend({"order": RECORDED[answer]})
    shots = [Shot(parse_template(t.text), propose_safely(parse_template(t.text))) for t in SHOTS]
    propose = propose_by_model(backend, shots)
    if answer in ("no numbers", "one is missing", "one is twice"):
        with pytest.raises(sgl.ConfigError, match="numbers from 1 to 4 are needed"):
            move_code(review.trace(), propose)
        return
    movement = move_code(review.trace(), propose)
    prompt = backend.prompts[0]
    assert prompt.count("Order:") == len(SHOTS) + 1
    assert "2. 'You classify opinions.'" in prompt
    if answer == "right":
        assert movement.after.startswith("You classify opinions.")
    else:
        assert movement.violations
        assert movement.graph == review.trace()
        assert movement.gain(tokens) == 0


def test_a_model_behind_openais_api_can_propose() -> None:
    pytest.importorskip("openai")
    from tests.lang.api_server import serving

    with serving(lambda prompt: RECORDED["right"]) as server:
        backend = sgl.OpenAI("scripted", base_url=server.url, api_key="none")
        movement = move_code(review.trace(), propose_by_model(backend, []))
        backend.close()
    assert movement.order == (1, 2, 0, 3)


def test_an_order_is_read_from_an_answer() -> None:
    assert parse_order(" 3, 1 and 2.", 3) == [2, 0, 1]
