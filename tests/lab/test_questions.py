"""The shipped questions and MMLU's prompt."""

from collections import Counter

import pytest

from sgjax.errors import ConfigError
from sgjax.lab.questions import Question, parse_questions, prompt, shipped_questions

ROW = '{"subject": "s", "idx": 0, "question": "q", "choices": ["1", "2", "3", "4"], "answer": 2}'


def test_shipped_questions_have_five_shots_and_sixteen_questions_a_subject():
    shots, questions = shipped_questions()
    assert Counter(q.subject for q in shots) == dict.fromkeys({q.subject for q in shots}, 5)
    assert Counter(q.subject for q in questions) == dict.fromkeys({q.subject for q in shots}, 16)
    assert len({q.subject for q in shots}) == 4


def test_shipped_answers_are_balanced_over_the_letters():
    shots, questions = shipped_questions()
    assert set(Counter(q.letter for q in shots).values()) == {5}
    assert set(Counter((q.subject, q.letter) for q in questions).values()) == {4}


def test_shipped_questions_are_distinct_and_offer_four_different_choices():
    questions = [q for part in shipped_questions() for q in part]
    assert len({q.question for q in questions}) == len(questions)
    assert all(len(set(q.choices)) == 4 for q in questions)


def test_prompt_has_mmlus_classic_form():
    shot = Question("general_chemistry", "One?", ("a", "b", "c", "d"), 1)
    asked = Question("general_chemistry", "Two?", ("e", "f", "g", "h"), 0)
    assert prompt(asked, [shot]) == (
        "The following are multiple choice questions (with answers) about general chemistry.\n\n"
        "One?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\n"
        "Two?\nA. e\nB. f\nC. g\nD. h\nAnswer:"
    )


def test_line_separators_inside_a_question_do_not_end_its_row():
    [question] = parse_questions(ROW.replace('"q"', '"one\u2028two\x85three"') + "\n", "file")
    assert question.question == "one\u2028two\x85three"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no questions"),
        (ROW + "\n{", "line 2: not JSON"),
        ("[1, 2]", "not in MMLU's form"),
        (ROW.replace("answer", "reply"), "not in MMLU's form"),
        (ROW.replace(', "4"', ""), "not in MMLU's form"),
        (ROW.replace('"4"', "4"), "must be strings"),
        (ROW.replace("2}", "4}"), "answer=4 is not allowed"),
        (ROW.replace("2}", '"C"}'), "answer='C' is not allowed"),
    ],
)
def test_rows_of_another_form_are_refused_with_their_place(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_questions(text, "file")
