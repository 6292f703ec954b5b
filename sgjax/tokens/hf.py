"""Tokenizers from Hugging Face folders.

HOST. Imports `tokenizers`, errors; neither transformers nor torch. Reads `tokenizer.json`, or else
a SentencePiece `tokenizer.model`, and what the configs beside it say of special tokens.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from sgjax.errors import ModelLoadError
from sgjax.tokens import sentencepiece
from sgjax.tokens.fast import (
    Facts,
    FastTokenizer,
    bind_template,
    byte_level_bytes,
    sentencepiece_bytes,
)


def tokenizer_from_folder(folder: Path) -> FastTokenizer:
    """Build the tokenizer of a Hugging Face folder.

    Args:
        folder: holds tokenizer.json or tokenizer.model; config.json, generation_config.json,
            tokenizer_config.json and chat_template.jinja are used where they are.

    Raises:
        ModelLoadError: there is no tokenizer, or it is damaged or of an unsupported kind.
    """
    config = _json(folder / "tokenizer_config.json")
    path = folder / "tokenizer.json"
    try:
        if path.exists():
            return _from_json(path, config)
        if (folder / "tokenizer.model").exists():
            return _from_sentencepiece(folder, config)
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelLoadError(
            f"{folder}: the configs beside the tokenizer say something of another kind than is "
            f"expected ({error!r}); download the folder again"
        ) from None
    raise ModelLoadError(
        f"{folder} holds neither tokenizer.json nor tokenizer.model; copy the tokenizer's files "
        "into it"
    )


def _from_json(path: Path, config: Mapping[str, Any]) -> FastTokenizer:
    text = _text(path)
    try:
        backend = tokenizers.Tokenizer.from_str(text)
        rules = json.loads(backend.to_str())  # in the package's present notation
    except Exception as error:  # the package raises plain Exception
        raise ModelLoadError(
            f"{path} is no readable tokenizer ({error}); download it again"
        ) from None
    to_bytes, leading_space = _family(path, rules)
    added = backend.get_added_tokens_decoder()
    special_ids = frozenset(i for i, token in added.items() if token.special)
    vocab = backend.get_vocab(with_added_tokens=False)
    piece_bytes = [b""] * (max([*vocab.values(), *added], default=-1) + 1)
    for piece, token_id in vocab.items():
        piece_bytes[token_id] = to_bytes(piece)
    for token_id, token in added.items():
        piece_bytes[token_id] = token.content.encode()
    bos_text, eos_text = _special_text(config, "bos_token"), _special_text(config, "eos_token")
    facts = Facts(
        piece_bytes=tuple(piece_bytes),
        bos_id=_bos_id(backend, config, bos_text, special_ids),
        end_ids=_end_ids(path.parent, backend.token_to_id(eos_text)),
        special_ids=special_ids,
        chat_template=bind_template(_template(path.parent, config), bos_text, eos_text),
        adds_leading_space=leading_space,
    )
    return FastTokenizer(backend, facts)


def _from_sentencepiece(folder: Path, config: Mapping[str, Any]) -> FastTokenizer:
    vocab = sentencepiece.read_model(folder / "tokenizer.model")
    bos_text, eos_text = (vocab.pieces[i] if i >= 0 else "" for i in (vocab.bos_id, vocab.eos_id))
    return sentencepiece.build(
        vocab,
        # The family's own tokenizer class prepends the bos token unless its config denies it.
        add_bos=bool(config.get("add_bos_token", True)),
        end_ids=_end_ids(folder, vocab.eos_id if vocab.eos_id >= 0 else None),
        chat_template=bind_template(_template(folder, config), bos_text, eos_text),
        added=_json(folder / "added_tokens.json"),
    )


def _family(path: Path, rules: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return how a piece becomes bytes, and whether encoding adds a space before the text."""
    kind = (rules.get("model") or {}).get("type")
    pre = _parts(rules.get("pre_tokenizer"), "pretokenizers")
    if kind == "BPE" and "ByteLevel" in pre:
        return byte_level_bytes, bool(pre["ByteLevel"].get("add_prefix_space"))
    decoder = _parts(rules.get("decoder"), "decoders")
    if kind == "BPE" and ("ByteFallback" in decoder or "Metaspace" in decoder):
        normalizer = _parts(rules.get("normalizer"), "normalizers")
        scheme = pre.get("Metaspace", {}).get("prepend_scheme", "never")
        return sentencepiece_bytes, "Prepend" in normalizer or scheme != "never"
    raise ModelLoadError(
        f"{path} is a tokenizer of the {kind!r} kind with decoder {', '.join(decoder) or 'none'}; "
        "supported are byte-level BPE and SentencePiece vocabularies"
    )


def _parts(rule: Mapping[str, Any] | None, children: str) -> dict[str, Mapping[str, Any]]:
    """Return the parts of a step of the pipeline by their type."""
    if not rule:
        return {}
    parts = rule[children] if rule["type"] == "Sequence" else [rule]
    return {part["type"]: part for part in parts}


def _bos_id(
    backend: tokenizers.Tokenizer,
    config: Mapping[str, Any],
    bos_text: str,
    special_ids: frozenset[int],
) -> int | None:
    """Return the id prepended to prompts: as the config says, else as tokenizer.json does it."""
    stated = config.get("add_bos_token")
    if stated is not None:
        return backend.token_to_id(bos_text) if stated and bos_text else None
    first = backend.encode("a", add_special_tokens=True).ids[:1]
    plain = backend.encode("a", add_special_tokens=False).ids[:1]
    return first[0] if first != plain and first[0] in special_ids else None


def _end_ids(folder: Path, tokenizer_end: int | None) -> frozenset[int]:
    """Return the union of what config, generation config and tokenizer say (rule 11)."""
    ends: set[int] = set() if tokenizer_end is None else {tokenizer_end}
    config = _json(folder / "config.json")
    for source in (
        config,
        config.get("text_config") or {},
        _json(folder / "generation_config.json"),
    ):
        stated = source.get("eos_token_id")
        ends.update(stated if isinstance(stated, list) else [] if stated is None else [stated])
    for end in ends:
        if not isinstance(end, int):
            raise TypeError(f"eos_token_id is {end!r}")
    return frozenset(ends)


def _special_text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name) or ""
    return str(value["content"] if isinstance(value, dict) else value)


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return _text(path)
    template = config.get("chat_template")
    if isinstance(template, list):  # several named ones
        by_name = {entry["name"]: entry["template"] for entry in template}
        template = by_name.get("default")
    return template


def _json(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty where there is no such file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON ({error}); download it again") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} holds a {type(value).__name__}; a JSON object is expected")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"cannot read {path}: {error}; download it again") from None
