"""Skeleton of thought: tips on a topic in a few words, each expanded as soon as it is there.

As in the script that SGLang published, a tip is expanded by a prompt of its own, which begins with
solved examples: all paragraphs of all topics share those, and no paragraph has the skeleton before
it. Imports the lab's texts, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import choose, prose, read_rows
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("tip_topics.jsonl",)


@sgl.function
def advise(
    s: ProgramState, topic: str, examples: str, tips: list[int], paragraphs: list[int]
) -> None:
    """Give tips; `tips` and `paragraphs` hold the tokens of each."""
    s += "You help people with practical advice.\n"
    s += f"Give {len(tips)} tips for {topic}, each of a few words.\n"
    expanded = []
    for number, (tip, paragraph) in enumerate(zip(tips, paragraphs, strict=True), 1):
        s += f"{number}." + sgl.gen(f"tip{number}", max_tokens=tip, ignore_eos=True) + "\n"
        member = s.new_root()
        member += f"Expand a tip into a detailed paragraph.\n\n{examples}Topic: {topic}\nTip:"
        member.append_variable(s, f"tip{number}", formatted=False)
        member += "\nParagraph:" + sgl.gen("text", max_tokens=paragraph, ignore_eos=True)
        expanded.append(member)
    for number, member in enumerate(expanded, 1):
        s += f"Tip {number}:"
        s.append_variable(member, "text", formatted=False)
        s += "\n"


@dataclass(frozen=True)
class SkeletonOfThoughtWorkload:
    """Topics on which advice is wanted.

    Attributes:
        type: the tag.
        num_topics: how many.
        num_tips: on each.
        examples: solved examples before each tip that is expanded.
        low, high: tokens of a paragraph, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["skeleton_of_thought"] = "skeleton_of_thought"
    num_topics: int = 50
    num_tips: int = 5
    examples: int = 3
    low: int = 64
    high: int = 128

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the topics, or make some up, and fix their order by the seed."""
        require(self, num_topics=1, num_tips=1, examples=0)
        rng, made, paths = random.Random(seed), random.Random(0), data.find(FILES)
        examples = "".join(
            f"Topic: {prose(made, 3)}\nTip: {prose(made, 4)}\nParagraph: {prose(made, 80)}\n\n"
            for _ in range(self.examples)
        )
        if paths:
            topics = [row["topic"] for row in read_rows(paths[0], ("topic",))]
        else:
            topics = [prose(made, 6) for _ in range(self.num_topics)]
        arguments = [
            {
                "topic": topic,
                "examples": examples,
                "tips": [rng.randint(8, 16) for _ in range(self.num_tips)],
                "paragraphs": [rng.randint(self.low, self.high) for _ in range(self.num_tips)],
            }
            for topic in choose(rng, topics, self.num_topics, "num_topics")
        ]
        return ProgramsTask(advise, tuple(arguments), seed)
