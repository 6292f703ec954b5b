"""Small tokenizers for the tests of constraints, trained here on a few lines of text."""

import functools
import json

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from sgjax.tokens.fast import Facts, FastTokenizer, byte_level_bytes, sentencepiece_bytes

TEXT = [
    '{"name": "Hermione Granger", "house": "Gryffindor", "wand": {"wood": "vine", "length": 1.5}}',
    '{\n    "name": "Harry Potter",\n    "house": "Gryffindor",\n    "alive": true\n}',
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on the mat in the sun.",
    "Above Average, Below Average, Excellent, Fair. 2026-11-29 192.168.10.254 jane.doe@mail.org",
    "red car, green big truck, blue bike; aaaa bbbb abab abba [1, 2, 3, 44, 555] (x + y) * z",
    "Zürich – 東京 is nice 😀 today, très café naïve, Ελλάδα, Москва, 東京都 京都 😀😃",
    "one\n  \ntwo\n  \nthree\n  \nfour",
    "  indented   text\n\n\nwith\tgaps  and \r\n lines 's 't 'll don't can't we'll",
]
LATER_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def byte_level(size: int = 600) -> FastTokenizer:
    """Return a byte-level BPE tokenizer (GPT-2's kind); id 0 ends a text, id 1 is special."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return _trained(size, words, None)


@functools.cache
def composing(size: int = 600) -> FastTokenizer:
    """Return a byte-level tokenizer of a later kind (Qwen's): other words, and text in NFC."""
    cut = pre_tokenizers.Split(tokenizers.Regex(LATER_WORDS), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _trained(size, pre_tokenizers.Sequence([cut, to_bytes]), normalizers.NFC())


def _trained(size, words, normalizer) -> FastTokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = words
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|end|>", "<|start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXT * 4, trainer)
    return _wrap(backend, byte_level_bytes, leading_space=False)


@functools.cache
def sentencepiece() -> FastTokenizer:
    """Return a byte-fallback BPE tokenizer (SentencePiece's kind) that adds a leading space."""
    seed = tokenizers.Tokenizer(models.BPE())
    seed.normalizer = normalizers.Replace(" ", "▁")
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<s>", "</s>", *bytes_], show_progress=False
    )
    seed.train_from_iterator([line.replace("\n", "") for line in TEXT] * 4, trainer)
    model = json.loads(seed.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in model["merges"]]
    backend = tokenizers.Tokenizer(models.BPE(model["vocab"], merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.add_special_tokens(
        [tokenizers.AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>")]
    )
    return _wrap(backend, sentencepiece_bytes, leading_space=True)


def _wrap(backend, to_bytes, leading_space) -> FastTokenizer:
    vocab = backend.get_vocab()
    pieces = [b""] * len(vocab)
    for piece, token_id in vocab.items():
        pieces[token_id] = to_bytes(piece) if token_id > 1 else piece.encode()
    facts = Facts(
        piece_bytes=tuple(pieces),
        bos_id=None,
        end_ids=frozenset({1 if leading_space else 0}),
        special_ids=frozenset({0, 1}),
        chat_template=None,
        adds_leading_space=leading_space,
    )
    return FastTokenizer(backend, facts)
