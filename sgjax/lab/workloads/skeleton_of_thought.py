"""Skeleton of thought: tips on a topic, first in a few words each, then all expanded at once.

The paragraphs of a topic share its skeleton. Imports the lab's texts, the task of programs and the
language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import choose, prose, read_rows
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("tip_topics.jsonl",)


@sgl.function
def advise(s: ProgramState, topic: str, tips: list[int], paragraphs: list[int]) -> None:
    """Give tips; `tips` and `paragraphs` hold the tokens of each."""
    s += "You help people with practical advice.\n"
    s += f"Give {len(tips)} tips for {topic}, each of a few words.\n"
    for number, tokens in enumerate(tips, 1):
        s += f"{number}." + sgl.gen(f"tip{number}", max_tokens=tokens, ignore_eos=True) + "\n"
    group = s.fork(len(tips))
    for number, (member, tokens) in enumerate(zip(group, paragraphs, strict=True), 1):
        member += f"Now expand tip {number} into a detailed paragraph:"
        member += sgl.gen("paragraph", max_tokens=tokens, ignore_eos=True) + "\n"
    group.join("concate_and_append")
    s += "In summary:" + sgl.gen("summary", max_tokens=48, ignore_eos=True)


@dataclass(frozen=True)
class SkeletonOfThoughtWorkload:
    """Topics on which advice is wanted.

    Attributes:
        type: the tag.
        num_topics: how many.
        low, high: tokens of a paragraph, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["skeleton_of_thought"] = "skeleton_of_thought"
    num_topics: int = 50
    low: int = 64
    high: int = 128

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the topics, or make some up, and fix their order by the seed."""
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            rows = [(r["topic"], r["number"]) for r in read_rows(paths[0], ("topic", "number"))]
        else:
            made = random.Random(0)
            rows = [(prose(made, 6), made.randint(5, 9)) for _ in range(self.num_topics)]
        arguments = [
            {
                "topic": topic,
                "tips": [rng.randint(8, 16) for _ in range(number)],
                "paragraphs": [rng.randint(self.low, self.high) for _ in range(number)],
            }
            for topic, number in choose(rng, rows, self.num_topics, "num_topics")
        ]
        return ProgramsTask(advise, tuple(arguments), seed)
