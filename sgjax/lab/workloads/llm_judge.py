"""LLM judge by branch, solve and merge: an article judged in several respects, then as a whole.

The judgements of an article share the article. Imports the lab's texts, the task of programs and
the language.
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

FILES = ("judge_articles.jsonl",)
RESPECTS = ("clarity", "originality", "evidence")
GRADES = ["1", "2", "3", "4", "5"]


@sgl.function
def judge(s: ProgramState, article: str, judgements: list[int]) -> None:
    """Judge an article; `judgements` holds the tokens of each."""
    s += "You judge articles by the strictest standards and show no leniency.\n\n"
    s += f"{article}\n\n"
    group = s.fork(len(RESPECTS))
    for member, respect, tokens in zip(group, RESPECTS, judgements, strict=True):
        member += f"How good is its {respect}? Give reasons:"
        member += sgl.gen("judgement", max_tokens=tokens, ignore_eos=True) + "\n"
    group.join("concate_and_append")
    s += "All in all:" + sgl.gen("merged", max_tokens=64, ignore_eos=True)
    s += "\nIts grade from 1 to 5: " + sgl.select("grade", GRADES)


@dataclass(frozen=True)
class LlmJudgeWorkload:
    """Articles to judge.

    Attributes:
        type: the tag.
        num_articles: how many.
        low, high: tokens of a judgement, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["llm_judge"] = "llm_judge"
    num_articles: int = 25
    low: int = 96
    high: int = 224

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the articles, or make some up, and fix their order by the seed."""
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            articles = [row["text"] for row in read_rows(paths[0], ("text",))]
        else:
            made = random.Random(0)
            articles = [prose(made, made.randint(500, 1100)) for _ in range(self.num_articles)]
        arguments = [
            {
                "article": article,
                "judgements": [rng.randint(self.low, self.high) for _ in RESPECTS],
            }
            for article in choose(rng, articles, self.num_articles, "num_articles")
        ]
        return ProgramsTask(judge, tuple(arguments), seed)
