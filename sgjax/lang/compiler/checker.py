"""The checker of code movement: which moves cannot change what a prompt means. Imports blocks.

Natural language has no data-flow analysis, so it errs on the safe side: two blocks change their
order only if neither shows a sign of speaking of the other. Signs are words of place and order
(above, then), names (an argument, a noun that both use), marks that bind lines (a colon, a list, a
quotation or tag that is open), and the last block's place before the answer. What a pronoun speaks
of is guessed as the nearest block before it that may name it, and must stay that block.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sgjax.lang.compiler.blocks import Block


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


SINGULAR = _words_of(
    """
    it its itself this that such same one he him his she her hers other another
    """
)
"""Words that speak of one thing named before."""

PLURAL = _words_of(
    """
    they them their theirs these those both either neither others ones
    """
)
"""Words that speak of several things named before."""

PLACING = _words_of(
    """
    above previous previously earlier later former latter preceding foregoing aforementioned
    mentioned given so here
    """
)
"""Words that speak of some place in the prompt."""

AHEAD = _words_of("below following follows next")
"""Words that speak of what comes."""

ORDERING = _words_of(
    """
    then after afterwards before finally first firstly second secondly third thirdly last lastly
    also too additionally moreover furthermore meanwhile similarly likewise again
    """
)
"""Words that depend on what stands before their sentence."""

CONNECTING = _words_of(
    """
    and but or because however therefore thus hence otherwise instead now once yet still
    """
)
"""Words that tie a sentence to the one before, where they begin it."""

PRESENTING = re.compile(r"^\s*here (?:is|are)\b", re.IGNORECASE)
"""A beginning whose "here" speaks of the sentence's own end."""

COMMON = _words_of(
    """
    a an the is are was were be been being am do does did done have has had having i you we
    your our my me us of in on at to for from by with without into onto about as than not no
    nor yes can could may might must shall should will would please very only just all any
    each every some more most much many few what which who whom whose where why how answer
    write give use using make keep be always never
    """
)
"""Words that two sentences may share without speaking of one another."""


@dataclass(frozen=True)
class Violation:
    """Why two blocks must not change their order: indices in the original order, and a reason."""

    earlier: int
    later: int
    reason: str


def check_order(blocks: Sequence[Block], order: Sequence[int]) -> list[Violation]:
    """Return what is wrong with an order of blocks; empty if nothing is.

    Args:
        blocks: in the original order.
        order: indices into `blocks`, the proposed order.
    """
    place = {index: at for at, index in enumerate(order)}
    if sorted(order) != list(range(len(blocks))):
        return [Violation(-1, -1, f"{list(order)} is no order of {len(blocks)} blocks")]
    found = [pair for pair in bound_pairs(blocks) if place[pair.later] != place[pair.earlier] + 1]
    for later in range(len(blocks)):
        for earlier in range(later):
            if place[later] < place[earlier]:
                reason = refers(blocks, earlier, later)
                if reason:
                    found.append(Violation(earlier, later, reason))
    for index, block in enumerate(blocks):
        for words, what in ((SINGULAR, "one"), (PLURAL, "several")):
            pointing = sorted(_pronouns(block) & words)
            if not pointing:
                continue
            was = _antecedent(blocks, range(index), words)
            now = _antecedent(blocks, order[: place[index]], words)
            if was != now:
                reason = f"{pointing[0]!r} would speak of another block ({what} named before)"
                found.append(Violation(-1 if was is None else was, index, reason))
    return found


def refers(blocks: Sequence[Block], earlier: int, later: int) -> str:
    """Return why two blocks must keep their order, "" if nothing speaks against changing it.

    What pronouns speak of is looked at for the order as a whole (`check_order`).
    """
    one, other = blocks[earlier], blocks[later]
    if later == len(blocks) - 1:
        return "the last block leads to the answer"
    if not one.constant and not other.constant:
        return "both hold arguments: moving them gains nothing"
    if any(placing := _plain_words(block) & PLACING for block in (one, other)):
        return f"{min(placing)!r} speaks of a place in the prompt"
    if (ahead := _words(one) & AHEAD) and not one.text.rstrip().endswith(":"):
        return f"{min(ahead)!r} may speak of what follows"
    if tied := _words(other) & (ORDERING | AHEAD):
        return f"{min(tied)!r} depends on what stands before"
    if not one.constant and (pointing := _pronouns(other)):
        return f"{min(pointing)!r} may speak of an argument"
    if (first := _first_word(other)) in CONNECTING:
        return f"{first!r} ties it to what stands before"
    shared = sorted(_stems(one) & _stems(other))
    if shared:
        return f"both speak of {shared[0]!r}"
    return ""


def bound_pairs(blocks: Sequence[Block]) -> list[Violation]:
    """Return neighbours that must stay neighbours."""
    found = []
    so_far = ""
    for index in range(len(blocks) - 1):
        text, after = blocks[index].text, blocks[index + 1].text
        so_far += text
        reason = ""
        if _leaves_open(so_far):
            reason = "a quotation, bracket or tag is open between them"
        elif text.rstrip().endswith((":", ",", "-", "—", "=")):
            reason = "the first one leads to the second"
        elif _is_item(after):
            reason = "the second one is an item of a list"
        elif not re.search(r"[.!?\"')\]}:]\s*$|\n$", text):
            reason = "the first one is not finished"
        if reason:
            found.append(Violation(index, index + 1, reason))
    return found


def _antecedent(
    blocks: Sequence[Block], before: Sequence[int], words: frozenset[str]
) -> int | None:
    """Return the nearest of some blocks that may name what a pronoun speaks of, or None.

    An argument may hold any name. Constant text names one thing by an article, several by plurals.
    """
    for index in reversed(before):
        block = blocks[index]
        named = _words(block)
        if not block.constant or (
            named & {"a", "an", "the"}
            if words is SINGULAR
            else any(len(word) > 3 and word.endswith("s") for word in named)
        ):
            return index
    return None


def _first_word(block: Block) -> str:
    found = re.search(r"[a-z]+", block.text.lower())
    return found[0] if found else ""


def _pronouns(block: Block) -> set[str]:
    """Return a block's pronouns; "one" before a noun is a number."""
    text = re.sub(
        r"\bone (?!of\b|from\b|that\b|which\b|or\b)[a-z]+", "", block.constant_text.lower()
    )
    return set(re.findall(r"[a-z]+", text)) & (SINGULAR | PLURAL)


def _plain_words(block: Block) -> set[str]:
    return set(re.findall(r"[a-z]+", PRESENTING.sub("", block.constant_text).lower()))


def _words(block: Block) -> set[str]:
    return set(re.findall(r"[a-z]+", block.constant_text.lower()))


def _stems(block: Block) -> set[str]:
    """Return what a block speaks of: its words less the common ones, without plural endings."""
    words = _words(block) | {w for name in block.arguments for w in name.lower().split("_")}
    return {_stem(word) for word in words - COMMON if len(word) > 2}


def _stem(word: str) -> str:
    for ending in ("ies", "ing", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _leaves_open(text: str) -> bool:
    """Return whether a text opens a quotation, bracket, fence or tag that it does not close."""
    tags = len(re.findall(r"<\w[^<>/]*>", text)) != len(re.findall(r"</\w+>", text))
    brackets = any(text.count(o) != text.count(c) for o, c in ("()", "[]", "“”"))
    return tags or brackets or any(text.count(mark) % 2 for mark in ('"', "```", "'''"))


def _is_item(text: str) -> bool:
    return re.match(r"\s*(?:[-*•]|\(?\d+[.)]|\(?[a-z][.)])\s", text) is not None
