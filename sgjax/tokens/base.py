"""The tokenizer protocol: all that the rest of sgjax knows of a tokenizer.

Imports the standard library only. Implementations live beside this file.
"""

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Turn text into token ids and back; every implementation is immutable and thread-safe."""

    @property
    def vocab_size(self) -> int:
        """Return the number of ids the tokenizer knows (may be less than the model's rows)."""
        ...

    @property
    def bos_id(self) -> int | None:
        """Return the id prepended to prompts, or None where the model uses none."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Return all ids that end a generation: the union of what every source says (rule 11)."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Return ids of control tokens, which `decode` leaves out unless told otherwise."""
        ...

    @property
    def chat_template(self) -> str | None:
        """Return the model's own Jinja chat template, or None."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a stable hash of vocabulary and merges; keys grammar caches."""
        ...

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        """Return the token ids of `text`; special tokens written out in it become their ids."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes one token stands for in the middle of a text.

        Special tokens return their literal text. Concatenating the bytes of the tokens of a text
        gives the text, except for the single leading space that SentencePiece vocabularies add
        (see `strips_leading_space`) and for bytes of which a vocabulary has no token.
        """
        ...

    @property
    def strips_leading_space(self) -> bool:
        """Return whether decoding drops one space at the very start of a text (SentencePiece)."""
        ...
