"""Three fields of a biography, one generation each: the paper's use of API speculation (section 5).

Solved examples show the form, so that a model tends to write the next fields by itself. Imports the
lab's texts, the task of programs and the language.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sgjax as sgl
from sgjax.lab.workloads.base import DataSource, require
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lab.workloads.text import choose, prose, read_rows
from sgjax.lang.state import ProgramState
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA

FILES = ("wiki_pages.jsonl",)
FIELDS = ("Name", "Born", "Occupation")
SHOTS = (
    "Ada Lovelace (10 December 1815 - 27 November 1852) was an English mathematician who wrote "
    "the first program for Babbage's engine.\n"
    "Name: Ada Lovelace\nBorn: 10 December 1815\nOccupation: mathematician\n\n"
    "Alfred Nobel (21 October 1833 - 10 December 1896) was a Swedish chemist and inventor. He "
    "left his fortune to the prizes that bear his name.\n"
    "Name: Alfred Nobel\nBorn: 21 October 1833\nOccupation: chemist\n\n"
)
FIRST = ("Anna", "Carl", "Elena", "Hugo", "Ines", "Jonas", "Klara", "Leo", "Mira", "Otto")
LAST = ("Berg", "Castell", "Duval", "Ferrand", "Hale", "Keller", "Moreau", "Novak", "Quist", "Voss")
TRADES = ("painter", "botanist", "composer", "engineer", "poet", "surgeon", "architect", "printer")
MONTHS = ("January", "March", "April", "May", "July", "August", "October", "November")


@sgl.function
def extract(s: ProgramState, page: str) -> None:
    """Fill in the form of a page."""
    s += SHOTS + page + "\n"
    for field in FIELDS:
        s += f"{field}:" + sgl.gen(field, stop="\n", max_tokens=24) + "\n"


@dataclass(frozen=True)
class ExtractionWorkload:
    """Pages about persons, from the data's `text` or made up.

    Attributes:
        type: the tag.
        num_pages: how many.
        words: of each page, at most.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["extraction"] = "extraction"
    num_pages: int = 24
    words: int = 120

    def load(self, data: DataSource, seed: int) -> ProgramsTask:
        """Read the pages, or make some up, and fix their order by the seed."""
        require(self, num_pages=1, words=1)
        rng, paths = random.Random(seed), data.find(FILES)
        if paths:
            rows = read_rows(paths[0], ("kind", "text"))
            pages = [row["text"] for row in rows if row["kind"] == "person"]
        else:
            made = random.Random(0)
            pages = [_page(made, self.words) for _ in range(self.num_pages)]
        pages = [" ".join(page.split()[: self.words]) for page in pages]
        chosen = choose(rng, pages, self.num_pages, "num_pages")
        return ProgramsTask(extract, tuple({"page": p} for p in chosen), seed, measure=measure)


def measure(states: Sequence[ProgramState], tokenizer: Tokenizer) -> dict[str, float]:
    """Return how often the model followed the form, and what that saved.

    Returns:
        `follow_rate`: the share of later fields that earlier requests had written already;
        `prompt_reduction`: prompt tokens of one request a field over those that were sent;
        `followed_prompt_reduction`: the same over the pages whose form was followed throughout,
        left out where there are none.
    """
    pages = [_Page.of(state, tokenizer) for state in states]
    followed = [page for page in pages if page.reused == len(FIELDS) - 1]
    rate = sum(page.reused for page in pages) / (len(pages) * (len(FIELDS) - 1))
    measured = {"follow_rate": rate, "prompt_reduction": _reduction(pages)}
    return measured | ({"followed_prompt_reduction": _reduction(followed)} if followed else {})


@dataclass(frozen=True)
class _Page:
    """A page's fields: how many needed no request, prompt tokens sent, and without speculation."""

    reused: int
    sent: int
    plain: int

    @classmethod
    def of(cls, state: ProgramState, tokenizer: Tokenizer) -> "_Page":
        metas: list[Any] = [state.get_meta_info(field) for field in FIELDS]
        rest, lengths = state.text(), []
        for field in reversed(FIELDS):
            rest = rest.removesuffix(f"{state[field]}\n")
            lengths.append(len(tokenizer.encode(rest, add_bos=True)))
            rest = rest.removesuffix(f"{field}:")
        reused = sum(meta.get("speculated", False) for meta in metas)
        return cls(reused, sum(meta["prompt_tokens"] for meta in metas), sum(lengths))


def _reduction(pages: Sequence[_Page]) -> float:
    return sum(page.plain for page in pages) / sum(page.sent for page in pages)


def _page(rng: random.Random, words: int) -> str:
    """Return a made-up biography; its facts come first, as in an encyclopaedia."""
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    born = f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1700, 1950)}"
    facts = f"{name} (born {born}) was a {rng.choice(TRADES)}."
    return f"{facts} {prose(rng, words)}"
