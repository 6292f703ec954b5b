"""LLM judge by branch, solve and merge: an article judged in six respects, then as a whole.

The judgements of an article share the article. As in the script that SGLang published, the whole is
judged with the article and the judgements, but not the questions, before it. Imports the lab's
texts, the task of programs and the language.
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

FILES = ("judge_articles.jsonl",)
RESPECTS = {
    "Substance": "what is said should be researched, right, to the point and show that its author "
    "knows the subject; it should be clear what the article is for.",
    "Structure": "an article needs an introduction, a body and a conclusion, and each paragraph "
    "should lead to the next without a jump.",
    "Argument": "the argument should be sound, hang together and be put plainly; each point should "
    "rest on evidence and be thought through.",
    "Clarity": "sentences should be short and mean one thing; a reader from another field should "
    "understand each point at once, and no word should be vague.",
    "Language": "mistakes in grammar and punctuation distract a reader and can turn the meaning of "
    "a sentence into another one; there should be none.",
    "Sources": "whatever is taken from others should name where it comes from, in one consistent "
    "form, so that their work is honoured and a reader can look it up.",
}


@sgl.function
def judge(s: ProgramState, article: str, judgements: list[int]) -> None:
    """Judge an article; `judgements` holds the tokens of each."""
    s += "You judge articles by the strictest standards and show no leniency.\n\n"
    s += f"{article}\n\n"
    members = s.fork(len(RESPECTS))
    for member, (respect, meaning), tokens in zip(
        members, RESPECTS.items(), judgements, strict=True
    ):
        member += f"Judge the article in one respect. {respect}: {meaning} Write one paragraph "
        member += "about this respect and about nothing else.\nJudgement:"
        member += sgl.gen("judgement", max_tokens=tokens, ignore_eos=True)
    s += "These are the judgements.\n"
    for member, respect in zip(members, RESPECTS, strict=True):
        s += f"{respect}:"
        s.append_variable(member, "judgement", formatted=False)
        s += "\n"
    s += "All in all, on a scale from 1 to 10, the article deserves a"
    s += sgl.gen("score", max_tokens=2, ignore_eos=True)


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
        require(self, num_articles=1)
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
