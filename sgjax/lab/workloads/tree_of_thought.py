"""Tree of thought on word problems: plans, solutions of each plan, ratings of each solution.

Every level shares all that leads to it: a question's plans share the question, a plan's solutions
the plan. Imports the lab's problems, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource
from sgjax.lab.workloads.problems import load_problems
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

STAGES = (
    "Write a plan for solving the problem. Name the steps and do not calculate yet.\n",
    "Now follow the plan with the numbers of the problem, step by step, to the answer.\n",
    "Check the solution strictly, step by step, and rate it from 1 to 5.\n",
)


@sgl.function
def search(
    s: ProgramState, question: str, branches: int, lengths: list[list[int]]
) -> list[ProgramState]:
    """Grow the tree; return its leaves.

    `lengths` holds the tokens of each generation, level by level.
    """
    s += f"Problem: {question}\n"
    frontier = [s]
    for stage, tokens in zip(STAGES, lengths, strict=True):
        grown: list[ProgramState] = []
        for state in frontier:
            state += stage
            for branch in state.fork(branches):
                branch += sgl.gen(
                    "thought", max_tokens=tokens[len(grown)], temperature=0.7, ignore_eos=True
                )
                branch += "\n"
                grown.append(branch)
        frontier = grown
    return frontier


@dataclass(frozen=True)
class TreeOfThoughtWorkload:
    """Problems, each with a tree of thoughts.

    Attributes:
        type: the tag.
        num_questions: how many problems.
        branches: thoughts that each thought leads to.
        low, high: tokens of a thought, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["tree_of_thought"] = "tree_of_thought"
    num_questions: int = 64
    branches: int = 2
    low: int = 64
    high: int = 256

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the problems, or make some up, and fix their order by the seed."""
        rng = random.Random(seed)
        rows = [
            {
                "question": question,
                "branches": self.branches,
                "lengths": [
                    [rng.randint(self.low, self.high) for _ in range(self.branches**level)]
                    for level in range(1, len(STAGES) + 1)
                ],
            }
            for question in load_problems(data, seed, self.num_questions)
        ]
        return ProgramsTask(search, tuple(rows), seed)
