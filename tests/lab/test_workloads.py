"""The workloads of programs, on made-up data and on a few rows in the form of the real ones."""

import json
import math
import random
import re
from dataclasses import fields
from typing import get_args

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads import (
    DataSource,
    DspyRagWorkload,
    FamiliesWorkload,
    GenerativeAgentsWorkload,
    HellaswagWorkload,
    JsonDecodingWorkload,
    LlmJudgeWorkload,
    MultiTurnChatWorkload,
    NestedWorkload,
    ReactWorkload,
    SelfConsistencyWorkload,
    SharegptWorkload,
    SkeletonOfThoughtWorkload,
    TraceWorkload,
    TreeOfThoughtWorkload,
    WorkloadConfig,
)
from sgjax.lab.workloads.families import Family
from sgjax.lab.workloads.json_decoding import CHARACTER
from sgjax.lab.workloads.text import about_tokens, choose, prose, read_rows
from sgjax.lang.spec import LanguageSpec, SequentialFork
from sgjax.theory.bound import hit_rate_bound

SIM = {"type": "sim", "hardware": "h200", "model": "llama-3.1-8b", "logprobs": "zero"}
SHIPPED = DataSource()

SMALL = {
    "hellaswag": HellaswagWorkload(shots=4, num_questions=6),
    "react": ReactWorkload(num_agents=4),
    "generative_agents": GenerativeAgentsWorkload(num_calls=20),
    "tree_of_thought": TreeOfThoughtWorkload(num_questions=2, low=4, high=8),
    "self_consistency": SelfConsistencyWorkload(num_questions=3, shots=2, samples=3, low=4, high=8),
    "skeleton_of_thought": SkeletonOfThoughtWorkload(num_topics=2, low=4, high=8),
    "llm_judge": LlmJudgeWorkload(num_articles=2, low=4, high=8),
    "multi_turn_chat": MultiTurnChatWorkload(num_chats=2, num_turns=3, low=20, high=40),
    "dspy_rag": DspyRagWorkload(num_questions=4, demonstrations=2, labelled=2, low=4, high=8),
    "sharegpt": SharegptWorkload(num_requests=5, longest=40),
}

SHARED = {
    "hellaswag": (0.9, 1.0),
    "react": (0.85, 0.95),
    "generative_agents": (0.4, 0.9),
    "tree_of_thought": (0.95, 1.0),
    "self_consistency": (0.85, 0.97),
    "skeleton_of_thought": (0.75, 0.95),
    "llm_judge": (0.8, 0.9),
    "multi_turn_chat": (0.4, 0.6),
    "dspy_rag": (0.5, 0.7),
    "sharegpt": (0.0, 0.05),
}
"""How much of the prompts can come from the cache: the workload's sharing structure in a number."""


def run(workload, language=LanguageSpec(), data=SHIPPED, **settings):  # noqa: B008 - frozen
    task = workload.load(data, seed=1)
    with sgl.Engine(executor=SIM, **settings) as engine:
        ran = task.run(engine, language)
        hit_rate = engine.get_server_info()["cache_hit_rate"]
    prompts, outputs = zip(*((v.prompt, v.output) for v in ran.prompts), strict=True)
    return ran, hit_rate, hit_rate_bound(prompts, outputs)


@pytest.mark.parametrize("name", SMALL)
def test_programs_finish_and_share_what_they_are_said_to(name):
    ran, hit_rate, bound = run(SMALL[name])
    assert len(ran.outcomes) == SMALL[name].load(SHIPPED, 1).num_programs
    assert all(outcome.answer and outcome.latency_s > 0 for outcome in ran.outcomes)
    low, high = SHARED[name]
    assert low <= bound.optimal <= high
    assert 0.9 * bound.reachable - 0.01 <= hit_rate <= bound.reachable + 1e-9


@pytest.mark.parametrize("name", SMALL)
def test_answers_are_the_same_without_cache_and_with_forks_in_turn(name):
    full, _, _ = run(SMALL[name])
    bare, hit_rate, _ = run(SMALL[name], LanguageSpec(SequentialFork()), cache={"type": "none"})
    assert hit_rate == 0
    assert [o.answer for o in bare.outcomes] == [o.answer for o in full.outcomes]
    assert [o.completion_tokens for o in bare.outcomes] == [
        o.completion_tokens for o in full.outcomes
    ]


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_fixes_the_programs(name):
    first, again, *others = (SMALL[name].load(SHIPPED, seed) for seed in (1, 1, 2, 3, 4, 5))
    assert first == again
    assert any(first.rows != other.rows for other in others)


@pytest.mark.parametrize("jump", ["none", "tokens", "retokenize"])
def test_json_decoding_fills_in_the_form_whatever_jumps(jump):
    workload = JsonDecodingWorkload(num_names=2)
    ran, _, _ = run(workload, grammar={"jump": {"type": jump}})
    plain, _, _ = run(workload, grammar={"jump": {"type": "none"}})
    answers = [outcome.answer for outcome in ran.outcomes]
    assert answers == [outcome.answer for outcome in plain.outcomes]
    assert all(re.fullmatch(CHARACTER, answer) for answer in answers)


def write(folder, name, *rows):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_hellaswag_takes_its_first_rows_as_solved_examples(tmp_path):
    rows = [
        {"idx": i, "activity_label": f"Label {i}", "ctx": f"Context {i}", "label": i % 4,
         "endings": [f"ending {i}{letter}." for letter in "abcd"]}
        for i in range(5)
    ]  # fmt: skip
    write(tmp_path, "hellaswag_val.jsonl", *rows)
    task = HellaswagWorkload(shots=2, num_questions=3).load(DataSource(str(tmp_path)), 0)
    assert {row["examples"] for row in task.rows} == {
        "Label 0: Context 0 ending 0a.\n\nLabel 1: Context 1 ending 1b.\n\n"
    }
    assert sorted(task.expected) == ["ending 2c.", "ending 3d.", "ending 4a."]


def test_react_replays_recorded_steps(tmp_path):
    write(tmp_path, "react_fewshot_prompts.jsonl",
          {"task": "t", "name": "other", "text": "no"},
          {"task": "t", "name": "webthink_simple6", "text": "Examples."})  # fmt: skip
    step = {"thought": "I think", "action": "Search[x]", "observation": "It is so."}
    write(tmp_path, "react_hotpotqa_100.jsonl", {"question": "Why?", "steps": [step, step]})
    ran, _, _ = run(ReactWorkload(num_agents=1), data=DataSource(str(tmp_path)))
    [outcome] = ran.outcomes
    said = "I think\nAction: Search[x]"
    replayed, last = outcome.answer.split("Thought 3:")
    assert replayed.endswith(
        f"Examples.\nQuestion: Why?\nThought 1: {said}\nObservation 1: It is so.\n"
        f"Thought 2: {said}\nObservation 2: It is so.\n"
    )
    assert last
    assert outcome.completion_tokens == 3 * about_tokens(said)


def test_generative_agents_read_recorded_calls(tmp_path):
    call = {"fn": "generate_pronunciatio", "args": {"action": "sleeping"}}
    write(tmp_path, "genagents_calls.jsonl", call)
    [row] = GenerativeAgentsWorkload(num_calls=1).load(DataSource(str(tmp_path)), 0).rows
    assert (row["facts"], row["cue"], row["tokens"]) == ("action: sleeping\n", "Emoji:", 6)
    write(tmp_path, "genagents_calls.jsonl", {"fn": "dance", "args": {}})
    with pytest.raises(ConfigError, match="unknown calls \\['dance'\\]"):
        GenerativeAgentsWorkload(num_calls=1).load(DataSource(str(tmp_path)), 0)


def test_word_problems_are_read_with_their_solved_examples(tmp_path):
    write(tmp_path, "gsm8k_test.jsonl", {"question": "How many?", "answer": "#### 3"})
    write(tmp_path, "gsm8k_train_first1000.jsonl", {"question": "Q?", "answer": "Two. #### 2"})
    data = DataSource(str(tmp_path))
    [row] = TreeOfThoughtWorkload(num_questions=1).load(data, 0).rows
    assert row["question"] == "How many?"
    assert [len(level) for level in row["lengths"]] == [2, 4, 8, 16]
    assert all(len(set(level)) == 1 for level in row["lengths"])
    [row] = SelfConsistencyWorkload(num_questions=1, shots=1).load(data, 0).rows
    assert row["examples"] == "Question: Q?\nAnswer: Two. #### 2\n\n"


def test_topics_articles_names_and_passages_are_read(tmp_path):
    data = DataSource(str(tmp_path))
    write(tmp_path, "tip_topics.jsonl", {"topic": "cooking", "number": 6})
    [row] = SkeletonOfThoughtWorkload(num_topics=1).load(data, 0).rows
    assert (row["topic"], len(row["tips"]), len(row["paragraphs"])) == ("cooking", 5, 5)
    assert row["examples"].count("Topic:") == 3
    write(tmp_path, "judge_articles.jsonl", {"idx": 0, "text": "An article."})
    [row] = LlmJudgeWorkload(num_articles=1).load(data, 0).rows
    assert row["article"] == "An article."
    write(tmp_path, "json_character_names.jsonl", {"idx": 0, "name": "Harry"})
    assert JsonDecodingWorkload(num_names=1).load(data, 0).rows == ({"name": "Harry"},)
    passages = [{"title": "t", "text": f"Passage {i}."} for i in range(3)]
    rows = [{"question": f"Q{i}?", "answer": "yes", "paragraphs": passages} for i in range(3)]
    write(tmp_path, "hotpotqa_dev_context_100.jsonl", *rows)
    rag = DspyRagWorkload(num_questions=1, demonstrations=1, labelled=1, passages=2)
    [row] = rag.load(data, 0).rows
    assert row["asked"] == "Context:\n[1] «Passage 0.»\n[2] «Passage 1.»\nQuestion: Q2?\n"
    bare, solved = row["demonstrations"].split("\n\n---\n\n")[:2]
    assert bare == "Question: Q1?\nAnswer: yes"
    assert solved.startswith(row["asked"].replace("Q2", "Q0"))
    write(tmp_path, "sharegpt_turn_lengths.jsonl", {"c": 0, "h": [40, 9], "a": [80, 9]})
    [row] = SharegptWorkload(num_requests=1).load(data, 0).rows
    assert (len(row["question"].split()), row["tokens"]) == (10, 20)


NUMBERS = [
    (kind, field.name)
    for kind in get_args(get_args(WorkloadConfig)[0])
    for field in fields(kind)
    if field.type in (int, float, int | None, float | None)
]
NEEDED = {
    FamiliesWorkload: {"families": {"a": Family(1, 9, 9, 9)}, "num_requests": 1, "rate_per_s": 1},
    NestedWorkload: {"num_requests": 1, "depth": 1, "step": 1},
    TraceWorkload: {"file": "t.jsonl"},
}


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=lambda part: getattr(part, "type", part))
@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_numbers_out_of_range_are_refused_with_key_value_and_limit(kind, name, value):
    workload = kind(**{**NEEDED.get(kind, {}), name: value})
    with pytest.raises(ConfigError, match=rf"{kind.type}: {name}={value}.*(must be|needed)"):
        workload.load(DataSource(), 0)


@pytest.mark.parametrize(
    "kind", [kind for kind, name in NUMBERS if name == "low"], ids=lambda kind: kind.type
)
def test_lengths_may_not_begin_above_their_end(kind):
    with pytest.raises(ConfigError, match="low=3 is not allowed with high=2"):
        kind(low=3, high=2).load(DataSource(), 0)


@pytest.mark.parametrize("workload", [HellaswagWorkload(), TreeOfThoughtWorkload()])
def test_more_programs_than_the_data_have_are_refused(workload, tmp_path):
    row = {"activity_label": "a", "ctx": "c", "endings": list("abcd"), "label": 0}
    write(tmp_path, "hellaswag_val.jsonl", *[row] * 30)
    write(tmp_path, "gsm8k_test.jsonl", {"question": "How many?", "answer": "#### 3"})
    with pytest.raises(ConfigError, match=r"num_questions=\d+ is not allowed; the data has rows"):
        workload.load(DataSource(str(tmp_path)), 0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": 1}\n{"b": 2}\n', "line 2: no 'a'; rows need"),
        ("[1]\n", "line 1: no 'a'"),
        ("{\n", "line 1: not JSON"),
        ("\n", "holds no rows"),
    ],
)
def test_rows_in_another_form_are_refused_with_their_line(tmp_path, text, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_rows(path, ("a",))


def test_made_up_prose_has_as_many_words_as_asked_for():
    text = prose(random.Random(0), 30)
    assert len(text.split()) == 30
    assert text.count(".") == 3
    assert text != prose(random.Random(1), 30)
    with pytest.raises(ConfigError, match="count=2 is not allowed; the data has rows for 1"):
        choose(random.Random(0), [1], 2, "count")


def test_a_town_lives_its_calls_one_after_another_from_a_place_in_the_trace(tmp_path):
    calls = [{"fn": "generate_pronunciatio", "args": {"action": f"step {i}"}} for i in range(6)]
    write(tmp_path, "genagents_calls.jsonl", *calls)
    data = DataSource(str(tmp_path))
    task = GenerativeAgentsWorkload(num_calls=4).load(data, 0)
    numbers = [int(row["facts"].split()[-1]) for row in task.rows]
    assert numbers == [(numbers[0] + i) % 6 for i in range(4)]
    with sgl.Engine(executor=SIM) as engine:
        task.run(engine, LanguageSpec(programs=64))
        assert engine.get_server_info()["mean_batch_size"] == 1
