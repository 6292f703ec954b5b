"""FastTokenizer: the one tokenizer over the `tokenizers` package, and the bytes of its pieces.

HOST. Imports `tokenizers`, errors. The loaders beside this file (hf, gguf, sentencepiece) build the
backend and state the facts that the backend does not know.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from sgjax.errors import ConfigError
from sgjax.tokens.byte import to_utf8

SPACE = "▁"
"""Stands for a space in SentencePiece vocabularies."""


@dataclass(frozen=True)
class Facts:
    """What is known of a vocabulary beside its rules.

    Attributes:
        piece_bytes: the exact bytes of every id; literal text for special tokens.
        bos_id: the id prepended to prompts, or None where the model wants none.
        end_ids: all ids that end a generation.
        special_ids: control tokens.
        chat_template: a Jinja template that renders without further variables, or None.
        adds_leading_space: encoding puts one space before the text, decoding drops it.
    """

    piece_bytes: tuple[bytes, ...]
    bos_id: int | None
    end_ids: frozenset[int]
    special_ids: frozenset[int]
    chat_template: str | None
    adds_leading_space: bool


class FastTokenizer:
    """Implement `Tokenizer` with a `tokenizers.Tokenizer`; immutable and thread-safe.

    Decoding works on `piece_bytes`, never through the backend's decoder, so that the text of an
    output and the bytes that grammars see are the same.
    """

    def __init__(self, backend: tokenizers.Tokenizer, facts: Facts) -> None:
        self._backend = backend
        self._facts = facts

    @property
    def facts(self) -> Facts:
        """Return what is known of the vocabulary beside its rules."""
        return self._facts

    @property
    def vocab_size(self) -> int:
        """Return the number of ids."""
        return len(self._facts.piece_bytes)

    @property
    def bos_id(self) -> int | None:
        """Return the id prepended to prompts, or None."""
        return self._facts.bos_id

    @property
    def end_ids(self) -> frozenset[int]:
        """Return all ids that end a generation."""
        return self._facts.end_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Return ids of control tokens."""
        return self._facts.special_ids

    @property
    def chat_template(self) -> str | None:
        """Return the model's own Jinja template with its special tokens' texts bound, or None."""
        return self._facts.chat_template

    @property
    def strips_leading_space(self) -> bool:
        """Return whether decoding drops one space at the very start of a text."""
        return self._facts.adds_leading_space

    @functools.cached_property
    def fingerprint(self) -> str:
        """Return a hash of everything that decides how text becomes ids and back."""
        facts = (sorted(self.end_ids), sorted(self.special_ids), self.bos_id)
        return hashlib.sha256((self._backend.to_str() + repr(facts)).encode()).hexdigest()

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        """Return the token ids of `text`.

        Bytes for which the vocabulary has no token are left out, as the models' own tokenizers do
        (SmolLM2's lacks six control characters).

        Args:
            text: any text; special tokens written out in it become their ids.
            add_bos: prepend `bos_id`, unless the text itself begins with it (as the output of
                some chat templates does).

        Raises:
            ConfigError: the text cannot be encoded as UTF-8.
        """
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except TypeError:
            to_utf8(text)  # explains what the package rejects as "must be str"
            raise
        bos_id = self._facts.bos_id
        return [bos_id, *ids] if add_bos and bos_id is not None and ids[:1] != [bos_id] else ids

    def rules(self) -> str:
        """Return the backend's vocabulary and rules as the JSON of the `tokenizers` package.

        It has no decoder: decoding is done here, by the bytes of the pieces.
        """
        return str(self._backend.to_str())

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        skipped = self._facts.special_ids if skip_special else frozenset()
        data = b"".join([self.token_bytes(i) for i in ids if i not in skipped])
        if self._facts.adds_leading_space and data[:1] == b" ":
            data = data[1:]
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes one token stands for in the middle of a text.

        Raises:
            ConfigError: the id is not in the vocabulary.
        """
        if 0 <= token_id < len(self._facts.piece_bytes):
            return self._facts.piece_bytes[token_id]
        raise ConfigError(f"token id {token_id} is outside the vocabulary [0, {self.vocab_size})")


def bind_template(template: str | None, bos_text: str, eos_text: str) -> str | None:
    """Return a chat template with the texts of the special tokens it refers to set in it."""
    if template is None:
        return None
    return f"{{% set bos_token = {bos_text!r} %}}{{% set eos_token = {eos_text!r} %}}{template}"


def byte_level_bytes(piece: str) -> bytes:
    """Return the bytes of a piece of a byte-level vocabulary, where each byte is one character.

    A piece with a character outside that alphabet is literal text.
    """
    alphabet = _byte_alphabet()
    try:
        return bytes([alphabet[c] for c in piece])
    except KeyError:
        return piece.encode()


def sentencepiece_bytes(piece: str) -> bytes:
    """Return the bytes of a SentencePiece piece: `<0x0A>` is a byte, `▁` is a space."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return piece.replace(SPACE, " ").encode()


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's alphabet: printable bytes are themselves, the others move up from U+0100."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(moved)}
