"""Requests as people send them to a chatbot: lengths like ShareGPT's, nothing shared.

The data hold lengths alone, so texts are always made up. Imports the lab's texts, the task of
programs and the language.
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

FILES = ("sharegpt_turn_lengths.jsonl",)


@sgl.function
def reply(s: ProgramState, question: str, tokens: int) -> None:
    """Answer one request."""
    s += question
    s += sgl.gen("answer", max_tokens=tokens, ignore_eos=True)


@dataclass(frozen=True)
class SharegptWorkload:
    """Requests without any sharing.

    Attributes:
        type: the tag.
        num_requests: how many.
        longest: tokens that prompts and answers have at most.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["sharegpt"] = "sharegpt"
    num_requests: int = 100
    longest: int = 1024

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read lengths, or draw some, and make up requests of them."""
        require(self, num_requests=1, longest=1)
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            lengths = [
                (row["h"][0] // 4, row["a"][0] // 4) for row in read_rows(paths[0], ("h", "a"))
            ]
        else:
            # Log-normal, with the medians (36 and 274 tokens) and about the means of ShareGPT.
            lengths = [
                (int(rng.lognormvariate(3.6, 2.0)), int(rng.lognormvariate(5.6, 0.5)))
                for _ in range(self.num_requests)
            ]
        arguments = [
            {
                "question": prose(rng, max(1, min(self.longest, asked))),
                "tokens": max(1, min(self.longest, answered)),
            }
            for asked, answered in choose(rng, lengths, self.num_requests, "num_requests")
        ]
        return ProgramsTask(reply, tuple(arguments), seed)
