"""Forms to fill in: outputs most of which a regex fixes (paper, sections 4 and 6.3; Fig. 5).

Three forms of the paper's kind: a character (short prompt, nearly all forced), a city (a long page
to read, a short form) and the grade of an essay (a long page, mostly free text). Beside the common
metrics the run reports what jumps did and what compiling took. Imports the lab's texts, the task of
programs and the language.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, LabEngine, Ran, require
from sgjax.lab.workloads.json_decoding import CHARACTER
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import choose, prose, read_rows
from sgjax.lang.spec import LanguageSpec
from sgjax.lang.state import ProgramState
from sgjax.typed import FORBID_EXTRA

CITY = (
    r'\{\n    "name": "[\w\d\s]{1,16}",\n    "country": "[\w\d\s]{1,16}",\n'
    r'    "latitude": [-+]?[0-9]{1,2}\.[0-9]{0,2},\n    "population": [1-9][0-9]{0,8},\n'
    r'    "top 3 landmarks": \["[\w\d\s]{1,16}", "[\w\d\s]{1,16}", "[\w\d\s]{1,16}"\]\n\}'
)
ESSAY = r'\{"summary": "[\w\d\s]{1,160}\.", "grade": "[ABCD][+-]?"\}'
"""The judge's verdict of the paper's Fig. 2; the summary has an end, so that every output has."""

COUNTED = (
    "jumps", "split_jumps", "rolled_back_tokens", "guessed_tokens", "wrong_guesses", "saved_passes"
)  # fmt: skip


@sgl.function
def fill(s: ProgramState, prompt: str, pattern: str) -> None:
    """Fill in a form."""
    s += prompt
    s += sgl.gen("form", max_tokens=512, regex=pattern)


@dataclass(frozen=True)
class FormsTask:
    """Programs that fill in a form, and what is counted meanwhile.

    Attributes:
        programs: one a form.
        pattern: of the form.
    """

    programs: ProgramsTask
    pattern: str

    @property
    def num_programs(self) -> int:
        """Return the number of forms."""
        return self.programs.num_programs

    def first(self, count: int) -> "FormsTask":
        """Return the task of the first forms alone."""
        return FormsTask(self.programs.first(count), self.pattern)

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Fill in all forms; `valid_outputs` is the share that matches the pattern."""
        before = engine.get_server_info()
        ran = self.programs.run(engine, language)
        after = engine.get_server_info()
        valid = [bool(re.fullmatch(self.pattern, o.answer, re.ASCII)) for o in ran.outcomes]
        metrics = {name: float(after[name] - before[name]) for name in COUNTED}
        metrics["valid_outputs"] = sum(valid) / len(valid)
        metrics["constraints_compiled"] = _grown(before, after, "compiled")
        metrics["compile_s"] = _grown(before, after, "compile_s")
        return Ran(ran.outcomes, ran.prompts, metrics)


@dataclass(frozen=True)
class FormsWorkload:
    """Forms of one kind.

    Attributes:
        type: the tag.
        form: `character`, `city` or `essay`.
        num_forms: how many.
        words: of the page that is read before a city or an essay, at most.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["forms"] = "forms"
    form: Literal["character", "city", "essay"] = "character"
    num_forms: int = 50
    words: int = 600

    def load(self, data: DataSource, seed: int) -> FormsTask:
        """Read the pages, or make some up, and fix their order by the seed."""
        require(self, num_forms=1, words=1)
        file, key, pattern, instruction = _FORMS[self.form]
        rng, paths = random.Random(seed), data.find((file,))
        if paths:
            pages = [row[key] for row in read_rows(paths[0], (key,))]
        else:
            made = random.Random(0)
            length = 2 if self.form == "character" else self.words
            pages = [prose(made, length).title() for _ in range(self.num_forms)]
        pages = choose(rng, pages, min(self.num_forms, len(pages)), "num_forms")
        # Where the file has fewer pages, they are read again.
        rows = [
            {"prompt": f"{instruction}{self._cut(pages[i % len(pages)])}\n", "pattern": pattern}
            for i in range(self.num_forms)
        ]
        return FormsTask(ProgramsTask(fill, tuple(rows), seed, "form"), pattern)

    def _cut(self, page: str) -> str:
        return " ".join(page.split()[: self.words])


_FORMS = {
    "character": (
        "json_character_names.jsonl",
        "name",
        CHARACTER,
        "Fill in what is known about a character of a novel, as JSON.\nThe character: ",
    ),
    "city": (
        "city_docs.jsonl",
        "text",
        CITY,
        "Read a page about a city and fill in what it says, as JSON.\nThe page: ",
    ),
    "essay": (
        "judge_articles.jsonl",
        "text",
        ESSAY,
        "Read an essay, sum it up in a sentence and grade it, as JSON.\nThe essay: ",
    ),
}
"""By form: file and key of the pages, the pattern, and what is asked."""


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float(after["grammars"][name] - before["grammars"][name])
