"""Multiple-choice questions in MMLU's form: loading them, and MMLU's classic prompt.

Imports `errors`. The shipped set (data/questions_*.jsonl) was written for this project in MMLU's
columns: subject, idx, question, choices (four), answer (0..3); the `dev` rows are the shots.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from sgjax.errors import ConfigError

LETTERS = "ABCD"


@dataclass(frozen=True)
class Question:
    """One question with four choices.

    Attributes:
        subject: its subject, with underscores for spaces.
        question: the question.
        choices: the four answers to choose from.
        answer: index of the right choice.
    """

    subject: str
    question: str
    choices: tuple[str, str, str, str]
    answer: int

    @property
    def letter(self) -> str:
        """Return the letter of the right choice."""
        return LETTERS[self.answer]

    def text(self) -> str:
        """Return the question as it is asked, up to and including 'Answer:'."""
        choices = "".join(
            f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, self.choices, strict=True)
        )
        return f"{self.question}{choices}\nAnswer:"


def prompt(question: Question, shots: Iterable[Question]) -> str:
    """Return MMLU's prompt: a heading, the solved shots, and the question to be answered."""
    about = question.subject.replace("_", " ")
    heading = f"The following are multiple choice questions (with answers) about {about}.\n\n"
    solved = "".join(f"{shot.text()} {shot.letter}\n\n" for shot in shots)
    return heading + solved + question.text()


def shipped_questions() -> tuple[list[Question], list[Question]]:
    """Return the shots and the questions that ship with the project."""
    data = files("sgjax.lab") / "data"
    texts = [(data / f"questions_{part}.jsonl").read_text(encoding="utf-8") for part in PARTS]
    shots, questions = (
        parse_questions(text, part) for text, part in zip(texts, PARTS, strict=True)
    )
    return shots, questions


def read_questions(path: Path) -> list[Question]:
    """Read questions from a JSON-lines file in MMLU's columns.

    Raises:
        ConfigError: the file cannot be read, or a row is not in MMLU's form.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read questions from {path}: {error}") from None
    return parse_questions(text, str(path))


def parse_questions(text: str, where: str) -> list[Question]:
    """Parse JSON lines; `where` names their source in error messages."""
    # Not splitlines: a question may hold a line separator such as U+2028, which JSON allows.
    rows = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not rows:
        raise ConfigError(f"{where} holds no questions; it must be JSON lines in MMLU's columns")
    return [_parse_row(line, f"{where}, line {n}") for n, line in rows]


PARTS = ("dev", "test")


def _parse_row(line: str, where: str) -> Question:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    try:
        subject, question, answer = row["subject"], row["question"], row["answer"]
        a, b, c, d = row["choices"]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{where}: not in MMLU's form; a row needs subject, question, four choices and answer"
        ) from None
    if not all(isinstance(part, str) for part in (subject, question, a, b, c, d)):
        raise ConfigError(f"{where}: subject, question and choices must be strings")
    if answer not in range(4):
        raise ConfigError(f"{where}: answer={answer!r} is not allowed; it must be 0, 1, 2 or 3")
    return Question(subject, question, (a, b, c, d), answer)
