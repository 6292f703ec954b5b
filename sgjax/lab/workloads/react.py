"""ReAct agents: recorded runs of thought, action and observation, replayed.

All agents share the instructions with their solved examples; each call of an agent shares the whole
course before it. As in the paper a recorded run is replayed: what the model says at a step is
generated and dropped, and the recorded step is appended. Like the script that SGLang published, an
agent thinks once more behind its last step; how long that is, is not recorded. Imports the lab's
texts, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import about_tokens, choose, prose, read_rows
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("react_fewshot_prompts.jsonl", "react_hotpotqa_100.jsonl")
EXAMPLES = "webthink_simple6"
INSTRUCTIONS = (
    "Answer the question by taking turns between Thought, Action and Observation. A thought is "
    "about what is known so far. An action is one of Search[entity], Lookup[keyword] and "
    "Finish[answer]; what it brings is the observation. Here are some examples.\n"
)


@sgl.function
def act(s: ProgramState, examples: str, question: str, steps: list[dict[str, Any]]) -> None:
    """Replay an agent's run."""
    s += INSTRUCTIONS + examples
    s += f"\nQuestion: {question}\n"
    for number, step in enumerate(steps, 1):
        s += f"Thought {number}:"
        with s.copy() as said:
            said += sgl.gen(f"said{number}", max_tokens=step["tokens"], ignore_eos=True)
        s += f" {step['said']}\nObservation {number}: {step['seen']}\n"
    s += f"Thought {len(steps) + 1}:"
    as_long = sum(step["tokens"] for step in steps) // len(steps)
    s += sgl.gen(f"said{len(steps) + 1}", max_tokens=as_long, ignore_eos=True)


@dataclass(frozen=True)
class ReactWorkload:
    """Agents that search for answers.

    Attributes:
        type: the tag.
        num_agents: how many runs are replayed.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["react"] = "react"
    num_agents: int = 100

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read recorded runs, or make some up, and fix their order by the seed."""
        require(self, num_agents=1)
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            examples = next(
                row["text"]
                for row in read_rows(paths[0], ("name", "text"))
                if row["name"] == EXAMPLES
            )
            rows = [
                {"question": row["question"], "steps": [_step(**step) for step in row["steps"]]}
                for row in read_rows(paths[1], ("question", "steps"))
            ]
        else:
            examples, rows = prose(random.Random(0), 1400), self._made_up()
        chosen = choose(rng, rows, self.num_agents, "num_agents")
        return ProgramsTask(act, tuple({"examples": examples, **row} for row in chosen), seed)

    def _made_up(self) -> list[dict[str, Any]]:
        rng = random.Random(0)
        return [
            {
                "question": prose(rng, 20),
                "steps": [
                    _step(prose(rng, rng.randint(15, 35)), "Search[it]", prose(rng, 95))
                    for _ in range(rng.choice([3, 4, 5]))
                ],
            }
            for _ in range(self.num_agents)
        ]


def _step(thought: str, action: str, observation: str) -> dict[str, Any]:
    said = f"{thought}\nAction: {action}"
    return {"said": said, "seen": observation, "tokens": about_tokens(said)}
