"""The texts of a language, where they are few, and the outputs that stand for them.

HOST. Imports its neighbours and the tokenizer protocol.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from sgjax.fsm.grammar import Grammar
from sgjax.fsm.utf8 import ByteDfa
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.middle import encode_bytes


def list_texts(dfa: ByteDfa, limit: int) -> tuple[bytes, ...] | None:
    """Return all texts of a language, shorter ones before what continues them.

    Args:
        dfa: its automaton; from every state that can be reached a text can be finished.
        limit: most texts.

    Returns:
        None where there are more, infinitely many too. The work is bounded by the limit: every
        step of the walk is part of a text.
    """
    found: list[bytes] = []
    text = bytearray()
    path: list[tuple[int, Iterator[tuple[int, int]]]] = []
    on_path: set[int] = set()

    def enter(state: int) -> None:
        if dfa.table.accepting[state]:
            found.append(bytes(text))
        path.append((state, _edges(dfa, state)))
        on_path.add(state)

    enter(0)
    while path:
        if len(found) > limit:
            return None
        state, edges = path[-1]
        edge = next(edges, None)
        if edge is None:
            path.pop()
            on_path.remove(state)
            del text[-1:]
            continue
        byte, target = edge
        if target in on_path:  # a loop: the language is infinite
            return None
        text.append(byte)
        enter(target)
    return tuple(found)


def _edges(dfa: ByteDfa, state: int) -> Iterator[tuple[int, int]]:
    targets = dfa.targets(state)
    return ((int(byte), int(targets[byte])) for byte in np.flatnonzero(targets >= 0))


def list_outputs(
    grammar: Grammar, tokenizer: Tokenizer, limit: int
) -> tuple[tuple[int, ...], ...] | None:
    """Return the outputs that stand for a language: its texts in the tokenizer's own tokens.

    A text that something can follow is ended by an end id, as in the engine; with several end ids
    it makes an output for each. Texts that the tokenizer cannot write are left out: those that
    spell a special token, for example.

    Args:
        grammar: of the language.
        tokenizer: writes the texts.
        limit: most texts.

    Returns:
        None where there are more texts, or the grammar does not list them.
    """
    texts = None if grammar.dfa is None else list_texts(grammar.dfa, limit)
    if texts is None:
        return None
    outputs: list[tuple[int, ...]] = []
    for text in texts:
        ids = encode_bytes(tokenizer, text)
        state = grammar.start
        for token in ids or ():
            state = grammar.advance(state, token)
            if state < 0:
                break
        if ids is None or state < 0:
            continue
        if grammar.is_final(state):
            outputs.append(tuple(ids))
        else:
            outputs += [(*ids, end) for end in sorted(tokenizer.end_ids)]
    return tuple(outputs)


def is_own(tokenizer: Tokenizer, output: Sequence[int]) -> bool:
    """Return whether an output is in the tokenizer's own tokens, but for an end id behind them."""
    ids = list(output)
    if ids and ids[-1] in tokenizer.end_ids:
        del ids[-1]
    return encode_bytes(tokenizer, b"".join([tokenizer.token_bytes(i) for i in ids])) == ids
