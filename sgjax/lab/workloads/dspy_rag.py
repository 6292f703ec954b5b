"""Answers from retrieved passages, with prompts as a compiled DSPy pipeline has them.

All questions share the instructions and the demonstrations: bare questions with their answers, as
many as DSPy fills up to 16 with, then solved ones with passages of their own. As in the script that
SGLang published, 32 questions are asked at once. Imports the lab's texts, the task of programs and
the language.
"""

import random
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import choose, prose, read_rows
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("hotpotqa_dev_context_100.jsonl",)
INSTRUCTIONS = (
    "Answer questions with short factoid answers.\n\n---\n\nFollow the following format.\n\n"
    "Context: may contain relevant facts\nQuestion: the question\nReasoning: step by step\n"
    "Answer: often between 1 and 5 words\n\n---\n\n"
)
FILLED = (
    "Reasoning: The passages name both sides of the question; comparing them gives the answer.\n"
)


@sgl.function
def answer(s: ProgramState, demonstrations: str, asked: str, tokens: int) -> None:
    """Reason about passages and answer."""
    s += INSTRUCTIONS + demonstrations
    s += asked + "Reasoning:"
    s += sgl.gen("answer", max_tokens=tokens, ignore_eos=True)


@dataclass(frozen=True)
class DspyRagWorkload:
    """Questions with the passages that were retrieved for them.

    Attributes:
        type: the tag.
        num_questions: how many are asked.
        demonstrations: solved questions in the prompt; the data's first rows.
        labelled: questions with nothing but their answers before those; the data's next rows.
        passages: retrieved for each.
        low, high: tokens of reasoning and answer, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["dspy_rag"] = "dspy_rag"
    num_questions: int = 80
    demonstrations: int = 4
    labelled: int = 12
    passages: int = 3
    low: int = 32
    high: int = 96

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read questions and passages, or make some up, and fix their order by the seed."""
        require(self, num_questions=1, demonstrations=0, labelled=0, passages=1)
        rng, paths = random.Random(seed), data.find(FILES)
        keys = ("question", "answer", "paragraphs")
        rows = read_rows(paths[0], keys) if paths else self._made_up()
        solved, shown = rows[: self.demonstrations], self.demonstrations + self.labelled
        demonstrations = "".join(
            f"Question: {row['question']}\nAnswer: {row['answer']}\n\n---\n\n"
            for row in rows[self.demonstrations : shown]
        ) + "".join(
            f"{self._asked(row)}{FILLED}Answer: {row['answer']}\n\n---\n\n" for row in solved
        )
        asked = choose(rng, rows[shown:], self.num_questions, "num_questions")
        arguments = [
            {
                "demonstrations": demonstrations,
                "asked": self._asked(row),
                "tokens": rng.randint(self.low, self.high),
            }
            for row in asked
        ]
        return ProgramsTask(answer, tuple(arguments), seed, at_once=32)

    def _asked(self, row: dict[str, Any]) -> str:
        texts = [p["text"] for p in row["paragraphs"][: self.passages]]
        context = "".join(f"[{i}] «{text}»\n" for i, text in enumerate(texts, 1))
        return f"Context:\n{context}Question: {row['question']}\n"

    def _made_up(self) -> list[dict[str, Any]]:
        rng = random.Random(0)
        return [
            {
                "question": prose(rng, 18),
                "answer": prose(rng, 2),
                "paragraphs": [
                    {"text": prose(rng, rng.randint(60, 180))} for _ in range(self.passages)
                ],
            }
            for _ in range(self.demonstrations + self.labelled + self.num_questions)
        ]
