"""Self-consistency on word problems: several solutions of one problem, sampled beside each other.

Solved examples are shared by all problems, a problem by its solutions. Imports the lab's problems,
the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.problems import load_problems, load_solved
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA


@sgl.function
def solve(s: ProgramState, examples: str, question: str, lengths: list[int]) -> list[ProgramState]:
    """Sample solutions; return them."""
    s += examples
    s += f"Question: {question}\nAnswer:"
    solutions = list(s.fork(len(lengths)))
    for solution, tokens in zip(solutions, lengths, strict=True):
        solution += sgl.gen("answer", max_tokens=tokens, temperature=0.7, ignore_eos=True)
    return solutions


@dataclass(frozen=True)
class SelfConsistencyWorkload:
    """Problems, each with several sampled solutions.

    Attributes:
        type: the tag.
        num_questions: how many problems.
        shots: solved examples.
        samples: solutions of a problem.
        low, high: tokens of a solution, drawn evenly between them.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["self_consistency"] = "self_consistency"
    num_questions: int = 100
    shots: int = 5
    samples: int = 8
    low: int = 64
    high: int = 192

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the problems, or make some up, and fix their order by the seed."""
        require(self, num_questions=1, shots=0, samples=1)
        rng, examples = random.Random(seed), load_solved(data, self.shots)
        rows = [
            {
                "examples": examples,
                "question": question,
                "lengths": [rng.randint(self.low, self.high) for _ in range(self.samples)],
            }
            for question in load_problems(data, seed, self.num_questions)
        ]
        return ProgramsTask(solve, tuple(rows), seed)
