"""What the simulated model says within a constraint: a text of the language, drawn by the prompt.

HOST. Imports fsm, schedule, tokens and its neighbours. The text is drawn before its first token and
whatever the jump mode, so that all variants of an experiment write the same.
"""

import random
import zlib
from collections import OrderedDict

import numpy as np

from sgjax.fsm.utf8 import ByteDfa
from sgjax.schedule import Sequence
from sgjax.schedule.policies import mix
from sgjax.sim.executor import Script, allowed_tokens
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.middle import encode_bytes

_WORDS = "the quick brown fox jumps over the lazy dog and runs on to where the river bends "
_LEAVE = 1 / 24
"""How likely free text ends at each character."""
_STOP = 1 / 4
"""How likely the whole text ends at each place where it may."""
_LONG = 1024
"""Bytes from which on a text takes the shortest way to its end: some languages rarely find one."""
_KEPT_TEXTS = 4096

Text = tuple[bytes, list[int] | None]
"""A text and its own tokens; None where the tokenizer has none for it."""


def keep_constraints(script: Script, tokenizer: Tokenizer, seed: int) -> Script:
    """Return a script that answers as `script` does, but within a sequence's constraint.

    The drawn text is written in the tokenizer's own tokens; where a jump left a boundary that
    they do not have, in the tokens of the rest alone. What a mask then forbids, or a grammar
    without an automaton, gets any token that is allowed.

    Args:
        script: of what has no constraint.
        tokenizer: of the texts.
        seed: of the texts, beside the prompt and, at a temperature, the request's own seed.
    """
    texts: OrderedDict[str, Text] = OrderedDict()
    anything = allowed_tokens(script)

    def text_of(seq: Sequence, dfa: ByteDfa) -> Text:
        found = texts.get(seq.request.id)
        if found is None:
            prompt = zlib.crc32(seq.tokens.view(0, seq.num_prompt).tobytes())
            own = seq.seed if seq.request.params.temperature > 0 else 0
            text = draw_text(dfa, mix(seed, own, prompt))
            found = texts[seq.request.id] = (text, encode_bytes(tokenizer, text))
            if len(texts) > _KEPT_TEXTS:
                texts.popitem(last=False)
        return found

    def write(seq: Sequence) -> int:
        grammar = seq.grammar
        if grammar is None:
            return script(seq)
        token = None
        if grammar.dfa is not None:
            output = seq.tokens.view(seq.num_prompt).tolist()
            token = _next_token(tokenizer, text_of(seq, grammar.dfa), output)
        if token is None:
            return anything(seq)
        if token in tokenizer.end_ids:
            return token if grammar.is_accepting(seq.grammar_state) else anything(seq)
        return token if grammar.advance(seq.grammar_state, token) >= 0 else anything(seq)

    return write


def draw_text(dfa: ByteDfa, seed: int) -> bytes:
    """Return a text of a language: plain words where it is free, anything where it is not.

    Args:
        dfa: its automaton; a text can be finished from every state.
        seed: of the choices.
    """
    rng = random.Random(seed)
    word = rng.randrange(len(_WORDS))
    text, state = bytearray(), 0
    while True:
        targets = dfa.targets(state)
        options = np.flatnonzero(targets >= 0).tolist()
        is_long = len(text) >= _LONG
        stops = dfa.table.accepting[state] and (is_long or rng.random() < _STOP)
        if not options or stops:
            return bytes(text)
        byte = ord(_WORDS[word % len(_WORDS)])
        if is_long:
            byte = min(options, key=lambda b: int(dfa.distance[targets[b]]))
        elif len(options) > 1 and byte in options and rng.random() >= _LEAVE:
            word += 1
        else:
            ends = [b for b in options if b == ord('"')]
            plain = [b for b in options if chr(b).isascii() and chr(b).isprintable()]
            byte = rng.choice(ends or plain or options)
        text.append(byte)
        state = int(targets[byte])


def _next_token(tokenizer: Tokenizer, drawn: Text, output: list[int]) -> int | None:
    """Return the token that goes on writing a text; None where the output has left it."""
    text, own = drawn
    if own is not None and own[: len(output)] == output:
        rest = own[len(output) :]
    else:
        written = b"".join([tokenizer.token_bytes(i) for i in output])
        if not text.startswith(written):
            return None
        rest = encode_bytes(tokenizer, text[len(written) :]) or []
        if not rest and written != text:
            return None
    return rest[0] if rest else min(tokenizer.end_ids, default=None)
