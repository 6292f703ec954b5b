"""HellaSwag with solved examples: the likeliest of four endings, chosen by `select`.

Two levels are shared: the examples by all questions, a question by its endings. Imports the lab's
texts, the task of programs and the language.
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

FILES = ("hellaswag_val.jsonl",)
KEYS = ("activity_label", "ctx", "endings", "label")


@sgl.function
def complete(s: ProgramState, examples: str, question: str, endings: list[str]) -> None:
    """Choose how a text goes on."""
    s += examples
    s += question
    s += sgl.select("ending", endings)


@dataclass(frozen=True)
class HellaswagWorkload:
    """Questions about how a text goes on.

    Attributes:
        type: the tag.
        shots: solved examples before each question; the data's first rows.
        num_questions: how many are asked.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["hellaswag"] = "hellaswag"
    shots: int = 20
    num_questions: int = 200

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the questions, or make some up, and fix their order by the seed."""
        require(self, shots=0, num_questions=1)
        rng, paths = random.Random(seed), data.find(FILES)
        rows = read_rows(paths[0], KEYS) if paths else self._made_up()
        solved = [_question(row) + _endings(row)[row["label"]] for row in rows[: self.shots]]
        examples = "".join(f"{text}\n\n" for text in solved)
        asked = choose(rng, rows[self.shots :], self.num_questions, "num_questions")
        arguments = tuple(
            {"examples": examples, "question": _question(row), "endings": _endings(row)}
            for row in asked
        )
        expected = tuple(row["endings"][row["label"]].strip() for row in asked)
        return ProgramsTask(complete, arguments, seed, "ending", expected)

    def _made_up(self) -> list[dict[str, Any]]:
        rng = random.Random(0)
        return [
            {
                "activity_label": prose(rng, 3),
                "ctx": prose(rng, rng.randint(8, 38)),
                "endings": [prose(rng, rng.randint(6, 20)) for _ in range(4)],
                "label": rng.randrange(4),
            }
            for _ in range(self.shots + self.num_questions)
        ]


def _question(row: dict[str, Any]) -> str:
    return f"{row['activity_label']}: {row['ctx']}"


def _endings(row: dict[str, Any]) -> list[str]:
    return [f" {ending}" for ending in row["endings"]]
