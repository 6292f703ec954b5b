"""SentencePiece vocabularies: reading `tokenizer.model`, and merges from scores.

HOST. Imports `tokenizers`, errors. Covers the BPE kind without text normalisation (Llama, Llama-2,
Mistral, Vicuna), also as it comes in GGUF metadata; other kinds are refused by name.
"""

import enum
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import models, normalizers

from sgjax.errors import ModelLoadError
from sgjax.tokens.fast import SPACE, Facts, FastTokenizer, sentencepiece_bytes


class PieceKind(enum.IntEnum):
    """Kinds of pieces; the numbers are those of SentencePiece and of GGUF alike."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """A SentencePiece BPE vocabulary.

    Attributes:
        pieces: text of every id.
        scores: of each id; of two possible merges the one with the higher score goes first.
        kinds: `PieceKind` of each id.
        adds_leading_space: encoding puts one space before the text.
        bos_id, eos_id: ids that begin and end a text, -1 for none.
    """

    pieces: list[str]
    scores: list[float]
    kinds: list[int]
    adds_leading_space: bool
    bos_id: int
    eos_id: int


def build(
    vocab: Vocabulary,
    *,
    add_bos: bool,
    end_ids: frozenset[int],
    chat_template: str | None,
    added: Mapping[str, int] | None = None,
) -> FastTokenizer:
    """Build the tokenizer of a vocabulary.

    Args:
        vocab: pieces and scores.
        add_bos: prompts begin with the vocabulary's bos id.
        end_ids: all ids that end a generation.
        chat_template: Jinja template, or None.
        added: further control tokens (text to id) behind the vocabulary.
    """
    ids = {piece: i for i, piece in enumerate(vocab.pieces)}
    unknown = [p for p, kind in zip(vocab.pieces, vocab.kinds, strict=True) if kind == 2]
    backend = tokenizers.Tokenizer(
        models.BPE(
            ids,
            merges(vocab, ids),
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    first = [normalizers.Prepend(SPACE)] if vocab.adds_leading_space else []
    backend.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", SPACE)])
    special_ids = add_literal_tokens(backend, vocab.pieces, vocab.kinds)
    piece_bytes = [sentencepiece_bytes(p) for p in vocab.pieces]
    for text, token_id in sorted((added or {}).items(), key=lambda item: item[1]):
        backend.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False)])
        if backend.token_to_id(text) != token_id or token_id > len(piece_bytes):
            raise ModelLoadError(
                f"added token {text!r} has id {token_id}, but the ids of added tokens must follow "
                f"the {len(vocab.pieces)} of tokenizer.model without a gap; convert the tokenizer "
                "to a tokenizer.json"
            )
        if token_id == len(piece_bytes):
            piece_bytes.append(text.encode())
        special_ids |= {token_id}
    facts = Facts(
        piece_bytes=tuple(piece_bytes),
        bos_id=vocab.bos_id if add_bos and vocab.bos_id >= 0 else None,
        end_ids=end_ids,
        special_ids=special_ids,
        chat_template=chat_template,
        adds_leading_space=vocab.adds_leading_space,
    )
    return FastTokenizer(backend, facts)


def add_literal_tokens(
    backend: tokenizers.Tokenizer, pieces: list[str], kinds: list[int]
) -> frozenset[int]:
    """Make pieces that are matched as they are written known to `backend`.

    Returns:
        The ids of control tokens among them.
    """
    special_ids = set()
    literal = []
    for token_id, (piece, kind) in enumerate(zip(pieces, kinds, strict=True)):
        special = kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)
        if special:
            special_ids.add(token_id)
        if special or kind == PieceKind.USER_DEFINED:
            literal.append(tokenizers.AddedToken(piece, special=special, normalized=False))
    backend.add_tokens(literal)
    return frozenset(special_ids)


def read_model(path: Path) -> Vocabulary:
    """Read a `tokenizer.model` file.

    Raises:
        ModelLoadError: the file is no SentencePiece model, or not of the BPE kind.
    """
    try:
        vocab, kind = _parse(path.read_bytes())
    except (OSError, IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelLoadError(
            f"{path} is no readable SentencePiece model ({error}); download it again, or put a "
            "tokenizer.json beside it"
        ) from None
    if kind != "bpe" or not vocab.pieces:
        raise ModelLoadError(
            f"{path} is a SentencePiece model of kind {kind!r} with {len(vocab.pieces)} pieces; "
            "only 'bpe' is supported without a tokenizer.json: put one beside it"
        )
    return vocab


def merges(vocab: Vocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return all merges that make a piece, best first.

    SentencePiece merges the pair whose *result* scores best. So each way of cutting a piece in two
    pieces is a merge with the piece's score; ties go to the older parts.
    """
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, score in zip(vocab.pieces, vocab.scores, strict=True):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                ranked.append((-score, ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _parse(data: bytes) -> tuple[Vocabulary, str]:
    """Read the few fields of SentencePiece's `ModelProto` that matter here; return the kind too."""
    pieces: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append(bytes(piece.get(1, b"")).decode())
            scores.append(struct.unpack("<f", bytes(piece.get(2, 4)))[0])
            kinds.append(int(piece.get(3, PieceKind.NORMAL)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    # Absent fields have the format's defaults.
    kind = _KINDS.get(int(trainer.get(3, 1)), "unknown")
    if normalizer.get(2) or normalizer.get(4, 1):
        kind += " with text normalisation"
    vocab = Vocabulary(
        pieces,
        scores,
        kinds,
        adds_leading_space=bool(normalizer.get(3, 1)),
        bos_id=_signed(trainer.get(41, 1)),
        eos_id=_signed(trainer.get(42, 2)),
    )
    return vocab, kind


def _fields(data: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of one protobuf message; fixed-width values stay bytes."""
    if isinstance(data, int):
        raise ValueError("a number stands where a message should")
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} runs past the end")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int | bytes) -> int:
    """Return a varint as the signed 32-bit number it stands for."""
    return (int(value) + 2**31) % 2**32 - 2**31
