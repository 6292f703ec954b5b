"""Models from GGUF files: the weights that went in come out, everything else is explained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.errors import ModelLoadError
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig
from sgjax.models.gguf import config_from_gguf
from sgjax.models.gguf_file import GgufFile
from sgjax.models.load import LoadedModel, load_model
from sgjax.models.presets import load_preset
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.fast import byte_level_bytes
from sgjax.tokens.gguf import tokenizer_from_gguf
from tests.golden import variations
from tests.models.checkpoints import (
    QUANTS,
    assert_same_weights,
    expected_weights,
    finish,
    write_gguf,
)
from tests.tokens import naive


@pytest.mark.parametrize("name", ["gqa", "mqa", "wide_heads", "tied", "qwen2"])
def test_a_gguf_file_gives_the_config_and_weights_that_went_in(tmp_path: Path, name: str) -> None:
    model = load_model(str(write_gguf(tmp_path / "m.gguf", name)), "float32")
    assert model.config == ModelConfig.from_hf(variations.CONFIGS[name])
    assert_same_weights(model.weights, expected_weights(name))
    assert (model.name, model.source) == ("m", str(tmp_path / "m.gguf"))
    assert model.tokenizer.end_ids == {3}


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 8e-3), ("Q5_0", 0.07), ("Q4_1", 0.08), ("Q4_0", 0.14)],
)
def test_quantised_tensors_are_close_to_what_was_quantised(
    tmp_path: Path, kind: str, tolerance: float
) -> None:
    model = load_model(str(write_gguf(tmp_path / "m.gguf", kind=kind)), "float32")
    assert_same_weights(model.weights, expected_weights("gqa"), tolerance)


def scalar_q4_k(block: bytes) -> list[float]:
    """Dequantise 256 values of Q4_K one by one, as the format's C code does."""
    d, dmin = np.frombuffer(block[:4], np.float16).astype(float)
    packed, quants = block[4:16], block[16:144]

    def scale_min(j: int) -> tuple[int, int]:
        if j < 4:
            return packed[j] & 63, packed[j + 4] & 63
        return (
            (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4),
            (packed[j + 4] >> 4) | (packed[j] >> 6 << 4),
        )

    out = []
    for j in range(8):
        scale, least = scale_min(j)
        for i in range(32):
            quant = quants[j // 2 * 32 + i] >> (4 * (j % 2)) & 15
            out.append(d * scale * quant - dmin * least)
    return out


def scalar_q6_k(block: bytes) -> list[float]:
    """Dequantise 256 values of Q6_K one by one, as the format's C code does."""
    low, high = block[:128], block[128:192]
    scales = np.frombuffer(block[192:208], np.int8)
    d = float(np.frombuffer(block[208:210], np.float16)[0])
    out = []
    for i in range(256):
        half, j = divmod(i, 128)
        quarter, k = divmod(j, 32)
        four = low[half * 64 + (j % 64)] >> (4 * (quarter // 2)) & 15
        two = high[half * 32 + k] >> (2 * quarter) & 3
        out.append(d * int(scales[i // 16]) * ((four | two << 4) - 32))
    return out


@pytest.mark.parametrize(
    ("kind", "scalar", "scale_at"), [("Q4_K", scalar_q4_k, (0, 2)), ("Q6_K", scalar_q6_k, (208,))]
)
def test_k_quants_are_read_as_their_format_says(
    tmp_path: Path, kind: str, scalar: Callable[[bytes], list[float]], scale_at: tuple[int, ...]
) -> None:
    size = gguf.GGML_QUANT_SIZES[QUANTS[kind]][1]
    blocks = np.random.default_rng(0).integers(0, 256, (3, size), np.uint8)
    for at in scale_at:
        blocks[:, at : at + 2] = np.array([0.01], np.float16).view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", blocks, raw_dtype=QUANTS[kind])
    finish(writer)
    got = GgufFile(tmp_path / "m.gguf").read("x")
    np.testing.assert_allclose(got, [scalar(bytes(b)) for b in blocks], rtol=1e-5, atol=1e-6)


def test_gguf_rope_scaling_is_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", rope__scaling__type="linear", rope__scaling__factor=4.0)
    assert config_from_gguf(GgufFile(path)).rope_scaling == LinearScaling(4.0)


def test_llama3_scaling_is_recovered_from_the_divisors_that_gguf_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = variations.LLAMA3_ROPE | {"original_max_position_embeddings": 8192}
    data = variations.BASE | {"rope_scaling": published, "rope_theta": 500000.0, "head_dim": 64}
    monkeypatch.setitem(variations.CONFIGS, "llama31", data)
    config = config_from_gguf(GgufFile(write_gguf(tmp_path / "m.gguf", "llama31")))
    assert config.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 8192)
    with pytest.raises(ModelLoadError, match="not those of Llama-3"):
        config_from_gguf(GgufFile(write_gguf(tmp_path / "n.gguf", "llama3_rope")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gemma"}, "architecture 'gemma' is not supported"),
        ({"expert_count": 8}, "mixture of 8 experts"),
        ({"block_count": None}, r"has no llama\.block_count"),
        ({"attention__head_count_kv": [2, 1]}, "one int for all layers"),
        ({"rope__dimension_count": 8}, "8 of 16 dimensions"),
        ({"rope__scaling__type": "yarn"}, "rope scaling 'yarn'"),
        ({"attention__head_count_kv": 3}, "num_heads=4 is no multiple of num_kv_heads=3"),
        ({"feed_forward_length": 95}, r"has shape \(96, 64\); the config asks for \(95, 64\)"),
        ({"block_count": 3}, "has no tensor 'blk.2.attn_norm.weight'"),
        ({"pre": "falcon"}, "tokenizer.ggml.pre='falcon'"),
    ],
)
def test_gguf_files_that_ask_for_more_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", **changes)
    with pytest.raises(ModelLoadError, match=message):
        load_model(str(path), "float32")


def test_an_unsupported_quantisation_is_refused_by_name(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", np.zeros((1, 84), np.uint8), raw_dtype=QUANTS.Q2_K)
    finish(writer)
    with pytest.raises(ModelLoadError, match="quantisation Q2_K; supported are F32, F16"):
        load_model(str(tmp_path / "m.gguf"), "float32")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no GGUF file: it begins with b''"),
        (b"PK\x03\x04 a zip", "no GGUF file"),
        (b"GGUF", "header breaks off"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(16), "version 1"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "big-endian"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, "header breaks off"),
    ],
)
def test_foreign_files_are_explained(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        load_model(str(tmp_path / "m.gguf"), "float32")


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_gguf_file_cut_anywhere_is_refused(
    gguf_bytes: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "m.gguf"
    path.write_bytes(gguf_bytes[: data.draw(st.integers(0, len(gguf_bytes) - 33))])
    with pytest.raises(ModelLoadError, match=r"no GGUF file|damaged or truncated|is truncated"):
        GgufFile(path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_gguf_header_never_fails_in_another_way(
    gguf_bytes: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(gguf_bytes)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(4, 5000))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "m.gguf"
    path.write_bytes(damaged)
    try:
        file = GgufFile(path)
        config_from_gguf(file)
        tokenizer_from_gguf(file.metadata)
    except ModelLoadError:
        pass


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LoadedModel:
    return load_model(str(smollm2_path), "bfloat16")


@pytest.mark.smollm2
def test_smollm2_is_what_its_preset_says(smollm2: LoadedModel) -> None:
    assert smollm2.config == load_preset("smollm2-135m").config
    assert smollm2.tokenizer.vocab_size == 49152
    assert smollm2.tokenizer.end_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert smollm2.tokenizer.bos_id is None


@pytest.fixture(scope="module")
def tokenizer(smollm2: LoadedModel) -> Tokenizer:
    return smollm2.tokenizer


@pytest.fixture(scope="module")
def naive_encode(smollm2_path: Path) -> Callable[[str], list[bytes]]:
    metadata = GgufFile(smollm2_path).metadata
    merges, pieces = metadata["tokenizer.ggml.merges"], metadata["tokenizer.ggml.tokens"]
    known = {piece for piece in map(byte_level_bytes, pieces) if len(piece) == 1}
    pairs = [tuple(byte_level_bytes(part) for part in m.split(" ")) for m in merges]
    ranks = {(a, b): i for i, (a, b) in enumerate(pairs)}

    def encode(text: str) -> list[bytes]:
        # The vocabulary lacks six control characters; the reference tokenizers drop them too.
        words = [bytes(b for b in w.encode() if bytes([b]) in known) for w in naive.words(text)]
        return [p for word in words for p in naive.bpe(word, ranks)]

    return encode


@pytest.mark.smollm2
@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=60))
def test_smollm2_encodes_as_the_naive_algorithm(
    tokenizer: Tokenizer, naive_encode: Callable[[str], list[bytes]], text: str
) -> None:
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode(text)] == naive_encode(text)
