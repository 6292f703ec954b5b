"""Where the programs' texts come from: JSON lines of a user's, or prose that is made up.

Imports `errors`. Made-up prose is of common words, so that any vocabulary spends about a token on
each; no two texts of a seed are alike, so that only what a workload shares on purpose is shared.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgjax.errors import ConfigError

COMMON = (
    "a about after again all along also always among an and another any around as at away back "
    "because been before began being below best between big both bring but by call came can "
    "change children city close come could country day did different do does done down each early "
    "earth eat end enough even every eyes far father few find first follow food for form found "
    "four from gave get give go good great group grow had hand hard has have he head hear help her "
    "here high him his home house how idea if important in into is it its just keep kind know land "
    "large last late learn leave left letter life light like line list little live long look made "
    "make man many may men might mile more most mother mountain move much music must name near "
    "need never new next night no not now number of off often old on once one only open or other "
    "our out over own page paper part people place plant play point press read real right river "
    "run said same saw school sea second see seem sentence set she should show side small so some "
    "song soon sound spell stand start state still stop story study such take talk tell than that "
    "the their them then there these they thing think this those thought three through time to "
    "together too took tree try turn two under until up us use very voice walk want was watch "
    "water way we well went were what when where which while white who why will with without word "
    "work world would write year you young your"
)
WORDS = COMMON.split()

SENTENCE = 12
"""Words of a made-up sentence."""


def prose(rng: random.Random, words: int) -> str:
    """Return made-up sentences of so many words, at least one."""
    chosen = rng.choices(WORDS, k=max(words, 1))
    sentences = [chosen[i : i + SENTENCE] for i in range(0, len(chosen), SENTENCE)]
    return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)


def about_tokens(text: str) -> int:
    """Return about how many tokens an English text has: one for four characters, at least one."""
    return max(1, len(text) // 4)


def read_rows(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Read a file of JSON lines.

    Args:
        path: the file.
        keys: what each row must have.

    Raises:
        ConfigError: it cannot be read, is empty, or a row is no object with these keys.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}, line {number}: not JSON: {error}") from None
        missing = [key for key in keys if not isinstance(row, dict) or key not in row]
        if missing:
            raise ConfigError(f"{path}, line {number}: no {missing[0]!r}; rows need {list(keys)}")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path} holds no rows; it must be JSON lines with {list(keys)}")
    return rows


def choose(rng: random.Random, rows: Sequence[Any], count: int, what: str) -> list[Any]:
    """Return so many rows in random order.

    Raises:
        ConfigError: there are fewer.
    """
    if count > len(rows):
        raise too_few(what, count, len(rows))
    return rng.sample(rows, count)


def too_few(what: str, count: int, rows: int) -> ConfigError:
    """Return the error of a number that asks for more rows than there are."""
    return ConfigError(f"{what}={count} is not allowed; the data has rows for {rows} at most")
