"""What the simulated model writes within a constraint: the language, and the same in each mode."""

import re

import pytest

import sgjax as sgl
from sgjax.fsm.grammar import compile_regex
from sgjax.fsm.kernels import Budget
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.vocabulary import Vocabulary
from sgjax.sim.constrained import draw_text
from sgjax.tokens.byte import ByteTokenizer

A10G = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
PERSON = r'\{"name": "[\w ]{1,16}", "house": "(Gryffindor|Hufflepuff)", "age": [0-9]{1,2}\}'


@pytest.mark.parametrize("pattern", [PERSON, "ab?", "[^x]+x", "(one|two)*three", "é{2}|東?", ""])
def test_drawn_texts_match_and_depend_on_the_seed(pattern) -> None:
    vocabulary = Vocabulary(ByteTokenizer(), 257)
    dfa = compile_regex(pattern, vocabulary, PortableKernels(), Budget()).dfa
    texts = [draw_text(dfa, seed).decode() for seed in range(40)]
    assert all(re.fullmatch(pattern, text, re.ASCII) for text in texts)
    assert texts == [draw_text(dfa, seed).decode() for seed in range(40)]
    assert len(set(texts)) > 1 or pattern == ""


def test_a_text_that_hardly_finds_its_end_is_led_to_it() -> None:
    vocabulary = Vocabulary(ByteTokenizer(), 257)
    pattern = "([a-z ]{40}|[0-9]{100})*#"
    dfa = compile_regex(pattern, vocabulary, PortableKernels(), Budget()).dfa
    texts = [draw_text(dfa, seed).decode() for seed in range(10)]
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert max(map(len, texts)) > 1024
    assert max(map(len, texts)) <= 1024 + 100


def run(executor=A10G, rounds=1, **grammar):
    with sgl.Engine(executor=executor, debug_checks=True, grammar=grammar) as engine:
        prompts = [f"Who is number {i}?" for i in range(12)]
        for _ in range(rounds):
            results = engine.generate(prompts, {"regex": PERSON, "temperature": 0.0})
        return results, engine.get_server_info()


def test_all_jump_modes_write_the_same_and_jumps_save_time() -> None:
    texts, clocks = {}, {}
    for jump in ("none", "tokens", "string", "retokenize"):
        results, info = run(jump={"type": jump})
        texts[jump] = [r["text"] for r in results]
        clocks[jump] = info["clock_s"]
        assert all(re.fullmatch(PERSON, text, re.ASCII) for text in texts[jump])
        assert all(r["meta_info"]["finish_reason"]["type"] == "stop" for r in results)
        assert info["saved_passes"] == sum(r["meta_info"]["forced_tokens"] for r in results)
    assert all(texts[jump] == texts["none"] for jump in texts)
    assert clocks["tokens"] < 0.7 * clocks["none"]


def test_compiling_takes_host_time_once_or_for_each_request() -> None:
    plain = run()[1]["clock_s"]
    slow = {**A10G, "compile_s": 0.25}
    for reuse, compiled in ((True, 1), (False, 24)):
        _, info = run(slow, rounds=2, reuse=reuse)
        assert info["grammars"]["compiled"] == compiled
        assert info["clock_s"] >= plain + 0.25 * compiled
        assert info["clock_s"] < 2 * plain + 0.25 * compiled + 1e-6


def test_a_bad_pattern_fails_alone_there_too() -> None:
    with sgl.Engine(executor=A10G) as engine:
        good, bad = engine.generate(["x", "y"], [{"regex": "(one|two)"}, {"regex": "("}])
    assert good["text"] in ("one", "two")
    assert bad["meta_info"]["finish_reason"]["error"] == "GrammarError"
