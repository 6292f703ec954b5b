"""Generative agents: the many short calls by which characters of a simulated town live.

All calls of a kind share its instructions. A town lives one call after another, for what happens
depends on what happened: so does the script that SGLang published, which makes the calls of its
trace in their order, one at a time. Imports the lab's texts, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import prose, read_rows, too_few
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

FILES = ("genagents_calls.jsonl",)


@dataclass(frozen=True)
class Kind:
    """One kind of call.

    Attributes:
        task: what is asked for.
        cue: how the answer begins.
        examples: words of the examples in its instructions.
        facts: words of what differs from call to call, about.
        tokens: of the answer.
        share: of all calls.
    """

    task: str
    cue: str
    examples: int
    facts: int
    tokens: int
    share: float


KINDS = {
    "poignancy_event": Kind(
        task="On a scale of 1 (brushing teeth) to 10 (a break-up), rate how poignant the event is "
        "for the person.",
        cue="Rating:",
        examples=30,
        facts=170,
        tokens=2,
        share=0.32,
    ),
    "generate_event_triple": Kind(
        task="Turn the sentence into a triple of subject, predicate and object.",
        cue="Triple: (",
        examples=190,
        facts=10,
        tokens=20,
        share=0.25,
    ),
    "generate_pronunciatio": Kind(
        task="Turn the description of an action into one or two emoji.",
        cue="Emoji:",
        examples=10,
        facts=7,
        tokens=6,
        share=0.21,
    ),
    "action_location_sector": Kind(
        task="Choose the area of the town in which the person does the next action. Stay in the "
        "current one if it serves; the area must be in the list.",
        cue="Area: {",
        examples=230,
        facts=130,
        tokens=10,
        share=0.11,
    ),
    "action_location_object": Kind(
        task="Choose the object in the area which the person uses for the next action.",
        cue="Object: {",
        examples=160,
        facts=32,
        tokens=5,
        share=0.11,
    ),
}
"""The calls of the published trace, with their shares and facts as counted there; the lengths of
instructions and answers are assumed, after those of SGLang's benchmark."""


@sgl.function
def live(s: ProgramState, instructions: str, facts: str, cue: str, tokens: int) -> None:
    """Make one call."""
    s += instructions
    s += facts + cue
    s += sgl.gen("answer", max_tokens=tokens, ignore_eos=True)


@dataclass(frozen=True)
class GenerativeAgentsWorkload:
    """Calls of a town's characters.

    Attributes:
        type: the tag.
        num_calls: how many calls, each a program.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["generative_agents"] = "generative_agents"
    num_calls: int = 500

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read recorded calls, or make some up; the seed says which of them come first."""
        require(self, num_calls=1)
        paths = data.find(FILES)
        if paths:
            rows = [
                (row["fn"], "".join(f"{key}: {value}\n" for key, value in row["args"].items()))
                for row in read_rows(paths[0], ("fn", "args"))
            ]
        else:
            rows = self._made_up()
        examples = random.Random(0)
        instructions = {
            name: f"{kind.task} Some examples: {prose(examples, kind.examples)}\n\n"
            for name, kind in KINDS.items()
        }
        unknown = {name for name, _ in rows} - KINDS.keys()
        if unknown:
            raise ConfigError(f"generative_agents: unknown calls {sorted(unknown)}; {list(KINDS)}")
        if self.num_calls > len(rows):
            raise too_few("num_calls", self.num_calls, len(rows))
        begin = random.Random(seed).randrange(len(rows))
        chosen = (rows[begin:] + rows[:begin])[: self.num_calls]
        calls = tuple(_row(instructions, *row) for row in chosen)
        return ProgramsTask(live, calls, seed, at_once=1)

    def _made_up(self) -> list[tuple[str, str]]:
        rng = random.Random(0)
        names = rng.choices(list(KINDS), [k.share for k in KINDS.values()], k=self.num_calls)
        return [(name, f"facts: {prose(rng, KINDS[name].facts)}\n") for name in names]


def _row(instructions: dict[str, str], name: str, facts: str) -> dict[str, Any]:
    kind = KINDS[name]
    return {
        "instructions": instructions[name],
        "facts": facts,
        "cue": kind.cue,
        "tokens": kind.tokens,
    }
