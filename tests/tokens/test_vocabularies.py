"""Tokenizers from GGUF metadata, Hugging Face folders and SentencePiece models."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.tokens import sentencepiece
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.chat import ChatTemplate
from sgjax.tokens.fast import FastTokenizer, byte_level_bytes
from sgjax.tokens.first import first_tokens
from sgjax.tokens.gguf import tokenizer_from_gguf
from sgjax.tokens.hf import tokenizer_from_folder
from tests.tokens import naive

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tokens"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40) | st.text(
    "ab 1\n\t'stré🙂漢<|>_", max_size=40
)


def train_smollm_like(vocab_size: int = 700) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = (ROOT / "LICENSE").read_text() + " it's we'll naïve café 漢字漢字 🙂🙂 \n\n\t\t  x"
    backend.train_from_iterator([corpus], trainer)
    return backend


@pytest.fixture(scope="module")
def backend() -> tokenizers.Tokenizer:
    return train_smollm_like()


def gguf_metadata(backend: tokenizers.Tokenizer, **changes: Any) -> dict[str, Any]:
    rules = json.loads(backend.to_str())
    vocab = rules["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.__getitem__)
    merges = [" ".join(m) for m in rules["model"]["merges"]]
    metadata = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": pieces,
        "token_type": [3 if p in SPECIALS else 1 for p in pieces],
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_bos_token": False,
    } | changes
    return {f"tokenizer.ggml.{k}": v for k, v in metadata.items() if v is not None}


@pytest.fixture(scope="module")
def from_gguf(backend: tokenizers.Tokenizer) -> FastTokenizer:
    return tokenizer_from_gguf(gguf_metadata(backend))


def write_folder(folder: Path, backend: tokenizers.Tokenizer, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(backend.to_str())
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


@pytest.fixture(scope="module")
def from_folder(
    backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    folder = tmp_path_factory.mktemp("hf")
    config = {"bos_token": SPECIALS[1], "eos_token": {"content": SPECIALS[2]}}
    return tokenizer_from_folder(write_folder(folder, backend, tokenizer_config=config))


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_gguf_and_folder_encode_as_the_naive_algorithm(
    backend: tokenizers.Tokenizer, from_gguf: Tokenizer, from_folder: Tokenizer, text: str
) -> None:
    if any(special in text for special in SPECIALS):
        return
    ranks = {
        (byte_level_bytes(a), byte_level_bytes(b)): i
        for i, (a, b) in enumerate(json.loads(backend.to_str())["model"]["merges"])
    }
    expected = [p for word in naive.words(text) for p in naive.bpe(word.encode(), ranks)]
    ids = from_gguf.encode(text)
    assert [from_gguf.token_bytes(i) for i in ids] == expected
    assert from_folder.encode(text) == ids


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS | st.sampled_from(SPECIALS), max_size=5).map("".join))
def test_the_tokens_bytes_add_up_to_the_text(from_gguf: Tokenizer, text: str) -> None:
    ids = from_gguf.encode(text)
    assert b"".join(from_gguf.token_bytes(i) for i in ids) == text.encode()
    assert from_gguf.decode(ids, skip_special=False) == text


def test_special_tokens_written_out_become_their_ids_and_are_left_out_of_decoding(
    from_gguf: Tokenizer,
) -> None:
    ids = from_gguf.encode("<|im_start|>user<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert from_gguf.decode(ids) == "user"
    assert from_gguf.special_ids == {0, 1, 2}


def test_half_a_character_decodes_to_the_replacement_character(from_gguf: Tokenizer) -> None:
    first_byte = next(i for i in range(700) if from_gguf.token_bytes(i) == "é".encode()[:1])
    assert from_gguf.decode([first_byte]) == "\ufffd"


def test_an_id_outside_the_vocabulary_is_named(from_gguf: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"token id -1 is outside the vocabulary \[0, 700\)"):
        from_gguf.decode([-1])
    with pytest.raises(ConfigError, match="token id 700"):
        from_gguf.token_bytes(700)


def test_a_lone_surrogate_is_refused(from_gguf: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="lone surrogate at character 1"):
        from_gguf.encode("a\ud800")


def test_fingerprints_differ_when_merges_or_end_ids_differ(backend: tokenizers.Tokenizer) -> None:
    def fingerprint(**changes: Any) -> str:
        return tokenizer_from_gguf(gguf_metadata(backend, **changes)).fingerprint

    merges = gguf_metadata(backend)["tokenizer.ggml.merges"]
    assert fingerprint() == fingerprint()
    prints = {fingerprint(), fingerprint(merges=merges[:-1]), fingerprint(eos_token_id=5)}
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("changes", "bos"), [({}, None), ({"add_bos_token": True}, 1), ({"add_bos_token": None}, None)]
)
def test_gguf_prepends_bos_only_where_the_file_says_so(
    backend: tokenizers.Tokenizer, changes: dict[str, Any], bos: int | None
) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(backend, **changes))
    assert tokenizer.bos_id == bos
    plain = tokenizer.encode("a")
    assert tokenizer.encode("a", add_bos=True) == ([bos, *plain] if bos is not None else plain)


def test_bos_is_not_doubled_where_the_text_begins_with_it(backend: tokenizers.Tokenizer) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(backend, add_bos_token=True))
    assert tokenizer.encode("<|im_start|>a", add_bos=True) == tokenizer.encode("<|im_start|>a")


def test_gguf_counts_control_tokens_that_are_named_as_ends(backend: tokenizers.Tokenizer) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(backend, eos_token_id=300, eot_token_id=301))
    assert tokenizer.end_ids == {0, 2, 300, 301}


def test_an_unknown_gguf_pre_tokenizer_is_refused_by_name(backend: tokenizers.Tokenizer) -> None:
    with pytest.raises(ModelLoadError, match=r"tokenizer.ggml.pre='falcon' is not supported"):
        tokenizer_from_gguf(gguf_metadata(backend, pre="falcon"))
    with pytest.raises(ModelLoadError, match=r"tokenizer.ggml.model='bert'"):
        tokenizer_from_gguf(gguf_metadata(backend, model="bert"))


def test_gguf_metadata_with_holes_is_refused(backend: tokenizers.Tokenizer) -> None:
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.ggml\.merges"):
        tokenizer_from_gguf(gguf_metadata(backend, merges=None))
    with pytest.raises(ModelLoadError, match="token_type has 1 entries for 700 tokens"):
        tokenizer_from_gguf(gguf_metadata(backend, token_type=[1]))


# Cases that tell the published regexes apart; `|` marks the cuts.
@pytest.mark.parametrize(
    ("pre", "marked"),
    [
        ("smollm", "I|'ll| pay| |1|2|3|4| now|\n|\n| ok"),
        ("gpt-2", "pay| 1234| (|now|)"),
        ("llama-bpe", "I|'LL| pay| |123|45|!\n\n| (|now|)"),
        ("qwen2", "I|'LL| pay| |1|2|3|!\n\n| (|now|)"),
    ],
)
def test_each_pre_tokenizer_cuts_words_as_published(pre: str, marked: str) -> None:
    words, text = marked.split("|"), marked.replace("|", "")
    # A vocabulary in which every word of the case is one token, and merges that build it.
    merges: list[tuple[str, str]] = []
    alphabet = {b: c for c in pre_tokenizers.ByteLevel.alphabet() for b in byte_level_bytes(c)}
    pieces = sorted(alphabet.values())
    for word in [*words, text]:
        chars = [alphabet[b] for b in word.encode()]
        for i in range(1, len(chars)):
            merges.append(("".join(chars[:i]), chars[i]))
            pieces.append("".join(chars[: i + 1]))
    pieces = list(dict.fromkeys(pieces))
    tokenizer = tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [1] * len(pieces),
            "tokenizer.ggml.merges": [" ".join(m) for m in dict.fromkeys(merges)],
        }
    )
    assert [tokenizer.decode([i]) for i in tokenizer.encode(text)] == words


def test_folder_end_ids_are_the_union_of_all_sources(
    backend: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    folder = write_folder(
        tmp_path,
        backend,
        tokenizer_config={"eos_token": SPECIALS[2]},
        config={"eos_token_id": 7},
        generation_config={"eos_token_id": [0, 8]},
    )
    assert tokenizer_from_folder(folder).end_ids == {0, 2, 7, 8}


def test_folder_bos_follows_the_config_and_else_the_post_processor(tmp_path: Path) -> None:
    backend = train_smollm_like()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[1]} $A", special_tokens=[(SPECIALS[1], 1)]
    )
    folder = write_folder(tmp_path, backend)
    assert tokenizer_from_folder(folder).bos_id == 1
    config = {"bos_token": SPECIALS[1], "add_bos_token": False}
    assert (
        tokenizer_from_folder(write_folder(tmp_path, backend, tokenizer_config=config)).bos_id
        is None
    )


def test_folder_templates_know_their_special_tokens(
    backend: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    config = {
        "bos_token": SPECIALS[1],
        "eos_token": SPECIALS[2],
        "chat_template": "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}",
    }
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, backend, tokenizer_config=config))
    assert tokenizer.chat_template
    text = ChatTemplate(tokenizer.chat_template).render(
        [{"role": "user", "content": "hi"}], add_generation_prompt=False
    )
    assert text == "<|im_start|>hi<|im_end|>"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, b"", "holds neither tokenizer.json nor tokenizer.model"),
        ("tokenizer.json", b"{", "no readable tokenizer"),
        ("tokenizer.json", b"\xff\xfe", "cannot read"),
        ("tokenizer.model", b"garbage", "no readable SentencePiece model"),
        ("tokenizer.model", b"", "with 0 pieces"),
    ],
)
def test_damaged_or_missing_tokenizers_are_explained(
    tmp_path: Path, name: str | None, content: bytes, message: str
) -> None:
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize(
    "configs",
    [
        {"tokenizer_config": {"eos_token": {"text": "</s>"}}},
        {"tokenizer_config": {"chat_template": [{"name": "default"}]}},
        {"config": {"eos_token_id": "2"}},
        {"config": {"text_config": "none"}},
        {"generation_config": {"eos_token_id": [2, None]}},
    ],
    ids=str,
)
def test_configs_of_another_kind_are_explained(
    backend: tokenizers.Tokenizer, tmp_path: Path, configs: dict[str, Any]
) -> None:
    with pytest.raises(ModelLoadError, match="another kind than is expected"):
        tokenizer_from_folder(write_folder(tmp_path, backend, **configs))


def test_wordpiece_is_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))
    with pytest.raises(ModelLoadError, match="'WordPiece' kind"):
        tokenizer_from_folder(tmp_path)


def test_a_sentencepiece_model_encodes_as_the_sentencepiece_library(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes((GOLDEN / "sentencepiece.model").read_bytes())
    tokenizer = tokenizer_from_folder(tmp_path)
    golden = json.loads((GOLDEN / "sentencepiece.json").read_text())
    for text, ids in golden.items():
        assert tokenizer.encode(text, add_bos=True) == [1, *ids], text
        assert tokenizer.decode(ids) == text
        space = b" " if text else b""
        assert b"".join(tokenizer.token_bytes(i) for i in ids) == space + text.encode()
    assert tokenizer.strips_leading_space
    assert tokenizer.end_ids == {2}


def test_sentencepiece_metadata_of_gguf_gives_the_same_tokenizer(tmp_path: Path) -> None:
    vocab = sentencepiece.read_model(GOLDEN / "sentencepiece.model")
    metadata = {
        "model": "llama",
        "tokens": vocab.pieces,
        "scores": vocab.scores,
        "token_type": vocab.kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    tokenizer = tokenizer_from_gguf({f"tokenizer.ggml.{k}": v for k, v in metadata.items()})
    assert tokenizer.bos_id == 1
    for text, ids in json.loads((GOLDEN / "sentencepiece.json").read_text()).items():
        assert tokenizer.encode(text) == ids


LEGACY_METASPACE = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}


@pytest.mark.parametrize("notation", ["normalizer", "metaspace"])
def test_a_folder_with_a_sentencepiece_vocabulary_in_json_encodes_alike(
    tmp_path: Path, notation: str
) -> None:
    vocab = sentencepiece.read_model(GOLDEN / "sentencepiece.model")
    ids = {piece: i for i, piece in enumerate(vocab.pieces)}
    merges = sentencepiece.merges(vocab, ids)
    backend = tokenizers.Tokenizer(
        models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.decoder = decoders.ByteFallback()
    rules = json.loads(backend.to_str())
    if notation == "normalizer":
        prepend = {"type": "Prepend", "prepend": "▁"}
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        rules["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
    else:
        rules["pre_tokenizer"] = LEGACY_METASPACE
    (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.strips_leading_space
    golden: dict[str, list[int]] = json.loads((GOLDEN / "sentencepiece.json").read_text())
    for text, expected in golden.items():
        # Metaspace adds no second space to a text that begins with one.
        if notation == "normalizer" or not text.startswith(" "):
            assert tokenizer.encode(text) == expected
            assert tokenizer.decode(expected) == text


def test_tokens_added_behind_a_sentencepiece_model_are_known(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes((GOLDEN / "sentencepiece.model").read_bytes())
    size = len(sentencepiece.read_model(tmp_path / "tokenizer.model").pieces)
    added = tmp_path / "added_tokens.json"
    added.write_text(json.dumps({"<pad>": size}))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.encode("<pad>") == [size]
    assert tokenizer.vocab_size == size + 1
    added.write_text(json.dumps({"<pad>": size + 1}))
    with pytest.raises(ModelLoadError, match="without a gap"):
        tokenizer_from_folder(tmp_path)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_byte_tokens_are_the_bytes(text: str) -> None:
    tokenizer: Tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text + "<|end|>")
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == (text + "<|end|>").encode()
    assert tokenizer.decode(ids) == text.replace("<|end|>", "")
    assert ids[-1] in tokenizer.end_ids


@pytest.fixture(scope="module")
def stopped_earlier() -> Tokenizer:
    return tokenizer_from_gguf(gguf_metadata(train_smollm_like(420)))


@given(TEXTS | st.sampled_from((ROOT / "LICENSE").read_text().split("\n")))
@settings(max_examples=60, deadline=None)
def test_the_first_tokens_are_those_of_a_training_that_stopped_there(
    from_gguf: FastTokenizer, stopped_earlier: Tokenizer, text: str
) -> None:
    first = first_tokens(from_gguf, 420)
    ids = first.encode(text)
    assert ids == stopped_earlier.encode(text)
    assert first.decode(ids, skip_special=False) == text
    assert (first.vocab_size, first.end_ids) == (420, from_gguf.end_ids)
    assert first.fingerprint != from_gguf.fingerprint


def test_all_tokens_of_a_vocabulary_are_itself(from_gguf: FastTokenizer) -> None:
    text = "licensed under the same terms"
    assert first_tokens(from_gguf, from_gguf.vocab_size).encode(text) == from_gguf.encode(text)


@pytest.mark.parametrize("size", [1, 258, 701])
def test_too_few_tokens_for_all_bytes_or_more_than_there_are_is_refused(
    from_gguf: FastTokenizer, size: int
) -> None:
    with pytest.raises(ConfigError, match=f"vocab_size={size} is not allowed; .* need 259, .* 700"):
        first_tokens(from_gguf, size)
