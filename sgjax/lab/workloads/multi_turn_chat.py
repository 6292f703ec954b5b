"""Chats of several turns: each turn's prompt begins with the whole chat before it.

The paper's form: what is asked has 256 to 512 tokens, drawn evenly, and nothing is shared between
chats; as in the script that SGLang published, turns follow each other without a template. Always
made up. Imports the lab's texts, the task of programs and the language.
"""

import random
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import prose
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

OUTPUTS = {"short": (4, 8), "long": (256, 512)}
"""Tokens of an answer (paper section 6.1)."""


@sgl.function
def chat(s: ProgramState, turns: list[dict[str, Any]]) -> None:
    """Hold a chat."""
    for turn in turns:
        s += turn["question"]
        s += sgl.gen("answer", max_tokens=turn["tokens"], ignore_eos=True)


@dataclass(frozen=True)
class MultiTurnChatWorkload:
    """Chats.

    Attributes:
        type: the tag.
        num_chats: how many.
        num_turns: of each.
        outputs: `short` answers of 4 to 8 tokens, or `long` ones of 256 to 512.
        low, high: words of a question, about as many as its tokens.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["multi_turn_chat"] = "multi_turn_chat"
    num_chats: int = 20
    num_turns: int = 4
    outputs: Literal["short", "long"] = "short"
    low: int = 256
    high: int = 512

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Make up the chats; `data` is not used."""
        del data
        require(self, num_chats=1, num_turns=1)
        rng = random.Random(seed)
        chats = [
            {"turns": [self._turn(rng) for _ in range(self.num_turns)]}
            for _ in range(self.num_chats)
        ]
        return ProgramsTask(chat, tuple(chats), seed)

    def _turn(self, rng: random.Random) -> dict[str, Any]:
        question = prose(rng, rng.randint(self.low, self.high))
        return {"question": question, "tokens": rng.randint(*OUTPUTS[self.outputs])}
