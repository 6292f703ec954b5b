"""The multiple-choice workload: which questions, in which order, from which data."""

import json
from collections import Counter

import pytest

from sgjax.errors import BatchError, ConfigError, PromptTooLong
from sgjax.lab.workloads import DataSource, MmluWorkload
from sgjax.lang.spec import LanguageSpec
from tests.lab.fake_engine import FakeEngine

PLAIN = LanguageSpec()


def prompts(task):
    return [row["prompt"] for row in task.rows]


def rows(subjects, count):
    return [
        {"subject": s, "idx": i, "question": f"{s} {i}?", "choices": list("wxyz"), "answer": i % 4}
        for s in subjects
        for i in range(count)
    ]


@pytest.fixture
def folder(tmp_path):
    for name, count in (("mmlu_dev.jsonl", 5), ("mmlu_test.jsonl", 7)):
        lines = "".join(json.dumps(row) + "\n" for row in rows(["b", "a", "c"], count))
        (tmp_path / name).write_text(lines)
    return tmp_path


def test_all_questions_are_asked_once_in_an_order_fixed_by_the_seed():
    first, again, other = (MmluWorkload().load(DataSource(), seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert sorted(prompts(first)) == sorted(prompts(other))
    assert first.num_programs == len(set(prompts(first))) == 64


def test_prompts_of_a_subject_share_all_their_shots():
    task = MmluWorkload(order="by_subject").load(DataSource(), 0)
    by_shots = Counter(text.rpartition("\n\n")[0] for text in prompts(task))
    assert set(by_shots.values()) == {16}
    assert all(shots.count("Answer: ") == 5 for shots in by_shots)


def test_limits_choose_the_first_subjects_and_so_many_questions(folder):
    task = MmluWorkload(num_subjects=2, num_questions=9).load(DataSource(str(folder)), 0)
    assert task.num_programs == 9
    assert {text.partition("?")[0][-3] for text in prompts(task)} == {"a", "b"}


def test_data_path_may_be_the_two_files(folder):
    paths = (str(folder / "mmlu_dev.jsonl"), str(folder / "mmlu_test.jsonl"))
    by_files = MmluWorkload().load(DataSource(paths), 0)
    assert by_files == MmluWorkload().load(DataSource(str(folder)), 0)
    assert by_files.num_programs == 21


@pytest.mark.parametrize("path", ["nowhere", ("mmlu_dev.jsonl",), ("a", "b", "c")])
def test_other_data_paths_are_refused_with_what_is_needed(folder, path):
    with pytest.raises(ConfigError, match=r"holds mmlu_dev\.jsonl and mmlu_test\.jsonl"):
        MmluWorkload().load(DataSource(path), 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"shots": -1}, "shots=-1"),
        ({"num_questions": 0}, "num_questions=0"),
        ({"num_subjects": 0}, "num_subjects=0"),
        ({"shots": 6}, "has 5 solved examples"),
    ],
)
def test_options_out_of_range_are_refused(options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        MmluWorkload(**options).load(DataSource(), 0)


def test_an_answer_is_right_when_it_is_the_letter():
    task = MmluWorkload(num_questions=20).load(DataSource(), 0)
    outcomes = task.run(FakeEngine(answer=lambda text: "B"), PLAIN).outcomes
    assert [o.answer for o in outcomes] == ["B"] * 20
    assert [o.correct for o in outcomes] == [right == "B" for right in task.expected]
    assert 0 < sum(o.correct for o in outcomes) < 20


def test_a_question_that_the_engine_refuses_is_no_wrong_answer():
    class Refusing(FakeEngine):
        def submit(self, requests, hear):
            hear(0, PromptTooLong("too long"))

    with pytest.raises(BatchError, match="too long"):
        MmluWorkload(num_questions=3).load(DataSource(), 0).run(Refusing(), PLAIN)


def test_prompts_are_the_tokens_that_are_sent():
    task = MmluWorkload(num_questions=3).load(DataSource(), 0)
    engine = FakeEngine()
    ran = task.run(engine, PLAIN)
    assert [list(visit.prompt) for visit in ran.prompts] == engine.seen
    asked = {bytes(v.prompt).decode(): bytes(v.output).decode() for v in ran.prompts if v.output}
    answers = [outcome.answer for outcome in ran.outcomes]
    assert [asked[text].strip() for text in prompts(task)] == answers
