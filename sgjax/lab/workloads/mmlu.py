"""Five-shot multiple choice in MMLU's form: prompts of a subject share their shots.

Imports the lab's questions, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.questions import Question, prompt, read_questions, shipped_questions
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("mmlu_dev.jsonl", "mmlu_test.jsonl")


@sgl.function
def ask(s: ProgramState, prompt: str) -> None:
    """Ask for the letter of the right choice: the model's next token."""
    s += prompt
    s += sgl.gen("letter", max_tokens=1)


@dataclass(frozen=True)
class MmluWorkload:
    """Multiple-choice questions, asked in one batch.

    Attributes:
        type: the tag.
        shots: solved examples before each question.
        num_subjects: take the first so many subjects by name; None takes all.
        num_questions: ask so many questions, drawn at random from those subjects; None
            asks all.
        order: `shuffled` mixes the subjects, as requests of many users would; `by_subject` keeps
            the order of the file.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["mmlu"] = "mmlu"
    shots: int = 5
    num_subjects: int | None = None
    num_questions: int | None = None
    order: Literal["shuffled", "by_subject"] = "shuffled"

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the questions and fix their order by the seed."""
        require(self, shots=0, num_subjects=1, num_questions=1)
        paths = data.find(FILES)
        shots, questions = (
            shipped_questions() if paths is None else tuple(map(read_questions, paths))
        )
        subjects = sorted({q.subject for q in questions})[: self.num_subjects]
        examples = {s: self._examples(shots, s) for s in subjects}
        chosen = self._choose([q for q in questions if q.subject in examples], seed)
        rows = tuple({"prompt": prompt(q, examples[q.subject])} for q in chosen)
        return ProgramsTask(ask, rows, seed, "letter", tuple(q.letter for q in chosen))

    def _examples(self, shots: list[Question], subject: str) -> list[Question]:
        examples = [q for q in shots if q.subject == subject]
        if len(examples) < self.shots:
            raise ConfigError(
                f"mmlu: shots={self.shots}, but subject {subject!r} has {len(examples)} solved "
                "examples; lower shots"
            )
        return examples[: self.shots]

    def _choose(self, questions: list[Question], seed: int) -> list[Question]:
        order = random.Random(seed).sample(range(len(questions)), len(questions))
        order = order[: self.num_questions]
        if self.order == "by_subject":
            order.sort()
        return [questions[i] for i in order]
