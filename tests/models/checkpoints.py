"""Write the golden variations as GGUF files and as Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import gguf
import jax
import numpy as np
import safetensors.numpy
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers

from sgjax.models.config import ModelConfig
from sgjax.models.gguf import gguf_name
from sgjax.models.layer import LlamaWeights
from sgjax.models.llama import rope_frequencies
from sgjax.models.weights import from_tensors, tensor_shapes
from tests.golden import variations

VOCAB = variations.BASE["vocab_size"]
QUANTS = gguf.GGMLQuantizationType


def tensors(name: str) -> dict[str, NDArray[np.float32]]:
    shapes = tensor_shapes(ModelConfig.from_hf(variations.CONFIGS[name]))
    return {key: variations.tensor(name, key, shape) for key, shape in shapes.items()}


def expected_weights(name: str) -> LlamaWeights:
    return from_tensors(
        ModelConfig.from_hf(variations.CONFIGS[name]), tensors(name).__getitem__, "float32"
    )


def assert_same_weights(got: LlamaWeights, expected: LlamaWeights, tolerance: float = 0.0) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * float(np.abs(b).max()), rtol=0)


def permuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of q or k as llama.cpp's converter does (LlamaModel.permute)."""
    rows = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return rows.swapaxes(1, 2).reshape(values.shape)


def write_gguf(
    path: Path, name: str = "gqa", kind: str = "F32", pre: str = "default", **changes: Any
) -> Path:
    """Write a variation as a GGUF file; `changes` to metadata, None removes a key."""
    config = ModelConfig.from_hf(variations.CONFIGS[name])
    architecture = "qwen2" if config.architecture == "qwen2" else "llama"
    metadata: dict[str, Any] = {
        "block_count": config.num_layers,
        "context_length": config.max_position,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.ffn_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.freq_base": config.rope_theta,
    } | {key.replace("__", "."): value for key, value in changes.items()}
    writer = gguf.GGUFWriter(path, metadata.pop("architecture", architecture))
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in metadata.items():
        if value is not None:
            add.get(type(value), writer.add_array)(f"{architecture}.{key}", value)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", pre)
    writer.add_array(
        "tokenizer.ggml.tokens", ["a", "b", "ab", *(f"x{i}" for i in range(VOCAB - 3))]
    )
    writer.add_array("tokenizer.ggml.token_type", [1] * VOCAB)
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", 3)
    for key, values in tensors(name).items():
        if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
            values = permuted(values, config.num_heads if "q_proj" in key else config.num_kv_heads)
        if values.ndim == 1 or kind == "F32":
            writer.add_tensor(gguf_name(key), values)
        else:
            data = gguf.quants.quantize(values, QUANTS[kind])
            writer.add_tensor(gguf_name(key), data, raw_dtype=QUANTS[kind])
    if config.rope_scaling.type == "llama3":
        plain = ModelConfig.from_hf(variations.CONFIGS[name] | {"rope_scaling": None})
        writer.add_tensor("rope_freqs.weight", rope_frequencies(plain) / rope_frequencies(config))
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(folder: Path, name: str = "gqa", dtype: Any = np.float32, shards: int = 1) -> Path:
    """Write a variation as a Hugging Face folder."""
    folder.mkdir(exist_ok=True)
    config = variations.CONFIGS[name] | {"eos_token_id": [1, 2]}
    (folder / "config.json").write_text(json.dumps(config))
    arrays = {key: values.astype(dtype) for key, values in tensors(name).items()}
    files: dict[str, dict[str, NDArray[Any]]] = {}
    for i, (key, values) in enumerate(arrays.items()):
        file = f"model-{i % shards + 1:05}-of-{shards:05}" if shards > 1 else "model"
        files.setdefault(f"{file}.safetensors", {})[key] = values
    for file, part in files.items():
        safetensors.numpy.save_file(part, folder / file)
    if shards > 1:
        weight_map = {key: file for file, part in files.items() for key in part}
        index = {"weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    (folder / "tokenizer.json").write_text(backend.to_str())
    return folder
