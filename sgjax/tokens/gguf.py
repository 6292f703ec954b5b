"""Tokenizers rebuilt from the metadata of a GGUF file.

HOST. Imports `tokenizers`, errors; knows nothing of the file, only its metadata. Two families: the
byte-level BPE that GGUF calls `gpt2`, and the SentencePiece BPE that it calls `llama`.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from sgjax.errors import ModelLoadError
from sgjax.tokens import sentencepiece
from sgjax.tokens.fast import Facts, FastTokenizer, bind_template, byte_level_bytes
from sgjax.tokens.sentencepiece import PieceKind

# Files often declare one end id although the model also ends its turns with another. The format's
# reference reader therefore counts control tokens of these names as ends, and so do we.
_END_NAMES = frozenset(
    (
        "</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>",
        "<|end|>", "<end_of_turn>",
    )
)  # fmt: skip

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> FastTokenizer:
    """Build a tokenizer.

    Args:
        metadata: the file's key-value pairs.

    Raises:
        ModelLoadError: a key is missing, or the vocabulary is of an unsupported kind.
    """
    model = _need(metadata, "model")
    if model in ("gpt2", "llama"):
        try:
            return _byte_level(metadata) if model == "gpt2" else _sentencepiece(metadata)
        except ModelLoadError:
            raise
        except Exception as error:  # the package raises plain Exception
            raise ModelLoadError(
                f"the GGUF file's vocabulary cannot be rebuilt ({error}); download the file again"
            ) from None
    raise ModelLoadError(
        f"tokenizer.ggml.model={model!r} is not supported; supported are 'gpt2' (byte-level BPE) "
        "and 'llama' (SentencePiece BPE)"
    )


def _byte_level(metadata: Mapping[str, Any]) -> FastTokenizer:
    pieces, kinds = _pieces(metadata)
    pre = metadata.get("tokenizer.ggml.pre", "default")
    backend = tokenizers.Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [tuple(merge.split(" ", 1)) for merge in _need(metadata, "merges")],
            # Llama 3 takes a whole word that is in the vocabulary even where no merges lead to it.
            ignore_merges=pre in _LLAMA3,
        )
    )
    backend.pre_tokenizer = _pre_tokenizer(pre)
    special_ids = sentencepiece.add_literal_tokens(backend, pieces, kinds)
    plain = (PieceKind.NORMAL, PieceKind.UNUSED, PieceKind.BYTE)
    facts = Facts(
        piece_bytes=tuple(
            byte_level_bytes(piece) if kind in plain else piece.encode()
            for piece, kind in zip(pieces, kinds, strict=True)
        ),
        bos_id=_bos_id(metadata, default=pre in _LLAMA3),
        end_ids=_end_ids(metadata, pieces, special_ids),
        special_ids=special_ids,
        chat_template=_chat_template(metadata, pieces),
        adds_leading_space=False,
    )
    return FastTokenizer(backend, facts)


def _sentencepiece(metadata: Mapping[str, Any]) -> FastTokenizer:
    pieces, kinds = _pieces(metadata)
    special = {i for i, kind in enumerate(kinds) if kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)}
    bos_id = _bos_id(metadata, default=True)
    vocab = sentencepiece.Vocabulary(
        pieces=pieces,
        scores=_same_length(metadata, "scores", pieces),
        kinds=kinds,
        adds_leading_space=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
        bos_id=-1 if bos_id is None else bos_id,
        eos_id=int(metadata.get("tokenizer.ggml.eos_token_id", -1)),
    )
    return sentencepiece.build(
        vocab,
        add_bos=bos_id is not None,
        end_ids=_end_ids(metadata, pieces, frozenset(special)),
        chat_template=_chat_template(metadata, pieces),
    )


_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """Return the rule that cuts a text into words before merging."""
    if name in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return pre_tokenizers.Sequence([digits, words])
    if name in _LLAMA3:
        pattern = _WORDS + r"\p{N}{1,3}" + _REST
    elif name == "qwen2":
        pattern = _WORDS + r"\p{N}" + _REST
    else:
        raise ModelLoadError(
            f"tokenizer.ggml.pre={name!r} is not supported; supported are 'default', 'gpt-2', "
            "'smollm', 'qwen2' and 'llama-bpe'. Use the model's Hugging Face folder instead"
        )
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, to_bytes])


def _pieces(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    pieces: list[str] = _need(metadata, "tokens")
    return pieces, _same_length(metadata, "token_type", pieces)


def _bos_id(metadata: Mapping[str, Any], default: bool) -> int | None:
    """Return the id prepended to prompts; `default` is the family's rule where none is stated."""
    bos_id = metadata.get("tokenizer.ggml.bos_token_id")
    wanted = metadata.get("tokenizer.ggml.add_bos_token", default)
    return int(bos_id) if wanted and bos_id is not None else None


def _end_ids(
    metadata: Mapping[str, Any], pieces: list[str], special_ids: frozenset[int]
) -> frozenset[int]:
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    declared = {int(metadata[key]) for key in keys if key in metadata}
    return frozenset(declared | {i for i in special_ids if pieces[i] in _END_NAMES})


def _chat_template(metadata: Mapping[str, Any], pieces: list[str]) -> str | None:
    def text(name: str) -> str:
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return "" if token_id is None else pieces[token_id]

    return bind_template(metadata.get("tokenizer.chat_template"), text("bos"), text("eos"))


def _need(metadata: Mapping[str, Any], name: str) -> Any:
    try:
        return metadata[f"tokenizer.ggml.{name}"]
    except KeyError:
        raise ModelLoadError(
            f"the GGUF file has no tokenizer.ggml.{name}, so its vocabulary cannot be rebuilt; "
            "use a file that was converted with its tokenizer"
        ) from None


def _same_length(metadata: Mapping[str, Any], name: str, pieces: list[str]) -> list[Any]:
    values: list[Any] = _need(metadata, name)
    if len(values) != len(pieces):
        raise ModelLoadError(
            f"tokenizer.ggml.{name} has {len(values)} entries for {len(pieces)} tokens; the GGUF "
            "file is damaged: download it again"
        )
    return values
