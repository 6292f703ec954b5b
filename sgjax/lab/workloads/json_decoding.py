"""JSON decoding: facts about characters, in the form that a regex fixes.

The instructions are shared by all. Imports the lab's texts, the task of programs and the language.
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

FILES = ("json_character_names.jsonl",)

CHARACTER = (
    r'\{\n    "name": "[\w ]{1,24}",\n'
    r'    "house": "(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)",\n'
    r'    "blood status": "(Pure-blood|Half-blood|Muggle-born)",\n'
    r'    "occupation": "(student|teacher|auror|death eater)",\n'
    r'    "wand": \{\n        "wood": "[\w ]{1,16}",\n        "core": "[\w ]{1,16}",\n'
    r'        "length": [0-9]{1,2}\.[0-9]{0,2}\n    \},\n'
    r'    "alive": "(Alive|Deceased)",\n'
    r'    "patronus": "[\w ]{1,16}",\n    "bogart": "[\w ]{1,16}"\n\}'
)
"""The character of SGLang's benchmark."""


@sgl.function
def describe(s: ProgramState, name: str) -> None:
    """Fill in a character's form."""
    s += "Fill in what is known about a character of a novel, as JSON.\nThe character: "
    s += f"{name}\n"
    s += sgl.gen("form", max_tokens=512, regex=CHARACTER)


@dataclass(frozen=True)
class JsonDecodingWorkload:
    """Characters to describe.

    Attributes:
        type: the tag.
        num_names: how many.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["json_decoding"] = "json_decoding"
    num_names: int = 50

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the names, or make some up, and fix their order by the seed."""
        require(self, num_names=1)
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            names = [row["name"] for row in read_rows(paths[0], ("name",))]
        else:
            made = random.Random(0)
            names = [prose(made, 2).title() for _ in range(self.num_names)]
        chosen = choose(rng, names, self.num_names, "num_names")
        return ProgramsTask(describe, tuple({"name": name} for name in chosen), seed, "form")
