"""Five-shot multiple choice in MMLU's form: prompts of a subject share their shots.

Imports the lab's questions and workload protocol.
"""

import random
from dataclasses import dataclass
from typing import Literal

from sgjax.errors import ConfigError, ProgramError
from sgjax.lab.questions import Question, prompt, read_questions, shipped_questions
from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, refuse_language
from sgjax.lang.spec import LanguageSpec
from sgjax.theory.visits import Visit
from sgjax.typed import FORBID_EXTRA

FILES = ("mmlu_dev.jsonl", "mmlu_test.jsonl")


@dataclass(frozen=True)
class MmluTask:
    """Questions with their prompts, in the order in which they are asked."""

    questions: tuple[Question, ...]
    texts: tuple[str, ...]

    @property
    def num_programs(self) -> int:
        """Return the number of questions."""
        return len(self.questions)

    def first(self, count: int) -> "MmluTask":
        """Return the task of the first questions alone."""
        return MmluTask(self.questions[:count], self.texts[:count])

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Ask all questions at once; the answer is the model's next token."""
        refuse_language(language, "mmlu")
        prompts = [engine.tokenizer.encode(text, add_bos=True) for text in self.texts]
        results = engine.generate(
            input_ids=prompts, sampling_params={"max_new_tokens": 1, "temperature": 0.0}
        )
        asked = zip(self.questions, results, strict=True)
        sent = zip(prompts, results, strict=True)
        return Ran(
            outcomes=tuple(_outcome(question, result) for question, result in asked),
            prompts=tuple(Visit(tuple(p), tuple(r["output_ids"])) for p, r in sent),
        )


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

    def load(self, data: DataSource, seed: int) -> MmluTask:
        """Read the questions and fix their order by the seed."""
        for name, least in (("shots", 0), ("num_subjects", 1), ("num_questions", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"mmlu: {name}={value} is not allowed; it must be >= {least}")
        paths = data.find(FILES)
        shots, questions = (
            shipped_questions() if paths is None else tuple(map(read_questions, paths))
        )
        subjects = sorted({q.subject for q in questions})[: self.num_subjects]
        examples = {s: self._examples(shots, s) for s in subjects}
        chosen = self._choose([q for q in questions if q.subject in examples], seed)
        return MmluTask(tuple(chosen), tuple(prompt(q, examples[q.subject]) for q in chosen))

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


def _outcome(question: Question, result: dict[str, object]) -> Outcome:
    meta = result["meta_info"]
    assert isinstance(meta, dict)
    reason = meta["finish_reason"]
    if reason["type"] == "abort":
        raise ProgramError(f"a question of {question.subject} was refused: {reason['message']}")
    answer = str(result["text"]).strip()
    return Outcome(
        answer=answer,
        correct=answer == question.letter,
        latency_s=meta["e2e_latency_s"],
        ttft_s=meta["ttft_s"],
        completion_tokens=meta["completion_tokens"],
    )
