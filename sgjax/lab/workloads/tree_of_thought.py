"""Tree of thought on word problems: plans, solutions of each, checks of each, answers after each.

Every level shares all that leads to it: a question's plans share the question, a plan's solutions
the plan. The script that SGLang published for deep trees grows two branches at each of four levels
and samples at a temperature of 0.001, "to make the comparison more fair": thoughts of one fork are
then the same, and so is all that follows from them. Imports the lab's problems, the task of
programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.problems import load_problems
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

STAGES = (
    "Write a plan for solving the problem. Name the steps and do not calculate yet.\n",
    "Now follow the plan with the numbers of the problem, step by step, to the answer.\n",
    "Check the solution strictly, step by step, and rate it from 1 to 5.\n",
    "Do you change your mind? Give the final answer.\n",
)


@sgl.function
def search(
    s: ProgramState, question: str, branches: int, warmth: float, lengths: list[list[int]]
) -> list[ProgramState]:
    """Grow the tree; return its leaves.

    `lengths` holds the tokens of each generation, level by level; `warmth` is its temperature.
    """
    s += f"Problem: {question}\n"
    frontier = [s]
    for stage, tokens in zip(STAGES, lengths, strict=False):
        grown: list[ProgramState] = []
        for state in frontier:
            state += stage
            for branch in state.fork(branches):
                branch += sgl.gen(
                    "thought",
                    max_tokens=tokens[len(grown)],
                    temperature=warmth,
                    ignore_eos=True,
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
        levels: of the tree, 1 to 4.
        temperature: of the thoughts; at 0 those of a fork are the same, in length as well.
        low, high: tokens of a thought, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["tree_of_thought"] = "tree_of_thought"
    num_questions: int = 64
    branches: int = 2
    levels: int = 4
    temperature: float = 0.0
    low: int = 64
    high: int = 256

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the problems, or make some up, and fix their order by the seed."""
        require(self, num_questions=1, branches=1, levels=1, temperature=0)
        if self.levels > len(STAGES):
            raise ConfigError(
                f"tree_of_thought: levels={self.levels} is not allowed; it must be <= {len(STAGES)}"
            )
        rng = random.Random(seed)
        rows = [
            {
                "question": question,
                "branches": self.branches,
                "warmth": self.temperature,
                "lengths": [
                    self._lengths(rng, self.branches**level) for level in range(1, self.levels + 1)
                ],
            }
            for question in load_problems(data, seed, self.num_questions)
        ]
        return ProgramsTask(search, tuple(rows), seed)

    def _lengths(self, rng: random.Random, count: int) -> list[int]:
        if self.temperature == 0:
            return [rng.randint(self.low, self.high)] * count
        return [rng.randint(self.low, self.high) for _ in range(count)]
