"""Compression: what is forced is in every text, jumps keep the language, traps are avoided."""

import random
import re

import pytest

from sgjax.fsm.automaton import build_char_dfa
from sgjax.fsm.compress import CompressedFsm
from sgjax.fsm.draw import draw_svg
from sgjax.fsm.kernels import Budget
from sgjax.fsm.parse import parse
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.utf8 import build_byte_dfa
from tests.fsm.small import byte_level
from tests.fsm.test_masks import random_regex

KERNELS = PortableKernels()


def compress(pattern):
    dfa = build_byte_dfa(build_char_dfa(parse(pattern), KERNELS, Budget()))
    return dfa, CompressedFsm(dfa)


@pytest.mark.parametrize(
    ("pattern", "forced"),
    [
        ("ab?", "a"),  # after "a" the text may end
        ("(ab)*", ""),
        ("(ab)+", "ab"),
        ("abc", "abc"),
        ("a(bc|bd)", "ab"),
        ("é", "é"),
        ("[éè]x", ""),  # both begin with the same byte: no part of a character is forced
        ("東(é|è)", "東"),
        ('{"name": "[a-z]+"}', '{"name": "'),
        ("", ""),
    ],
)
def test_forced_text_from_the_start(pattern, forced) -> None:
    dfa, fsm = compress(pattern)
    data, end = fsm.forced(0)
    assert data.decode() == forced
    assert dfa.walk(0, data) == end


def test_forced_text_is_in_every_text_and_jumps_keep_the_language() -> None:
    rng = random.Random(3)
    jumps = 0
    for _ in range(150):
        pattern = random_regex(rng)
        dfa, fsm = compress(pattern)
        state, text = 0, b""
        for _ in range(40):
            data, end = fsm.forced(state)
            if data:
                jumps += 1
                # Whoever reads another byte on the way leaves the language, and none may stop.
                at = state
                for byte in data:
                    assert not dfa.table.accepting[at]
                    assert dfa.num_edges[at] == 1
                    at = dfa.walk(at, bytes([byte]))
                assert at == end
                assert dfa.boundary[end]
                state, text = end, text + data
                continue
            edges = [b for b, t in enumerate(dfa.targets(state).tolist()) if t >= 0]
            if not edges or (dfa.table.accepting[state] and rng.random() < 0.3):
                break
            byte = rng.choice(edges)
            state, text = dfa.walk(state, bytes([byte])), text + bytes([byte])
        if dfa.table.accepting[state]:
            assert re.fullmatch(pattern, text.decode(), re.ASCII), (pattern, text)
    assert jumps > 50


def test_the_drawing_shows_every_forced_run_once() -> None:
    dfa, _ = compress(r'\{"house": "(Gryffindor|Slytherin)", "n": [0-9]{1,2}\}')
    svg = draw_svg(dfa)
    assert svg.startswith("<svg")
    for run in ('{"house": "', 'ryffindor", "n": ', 'lytherin", "n": '):
        assert run.replace('"', "&quot;") in svg
    import xml.etree.ElementTree as ET

    ET.fromstring(svg)


def test_the_tokenizer_of_these_tests_splits_characters() -> None:
    pieces = [byte_level().token_bytes(i) for i in byte_level().encode("東京")]
    with pytest.raises(UnicodeDecodeError):
        [p.decode() for p in pieces]
