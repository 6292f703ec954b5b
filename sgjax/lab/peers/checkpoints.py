"""One model's weights in the forms the peers read, all from one GGUF file.

Quantised tensors are dequantised once and rounded to the dtype of the comparison, so every engine
computes with the same numbers. Imports sgjax's loaders, gguf, jax, safetensors and tokenizers.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import gguf
import jax.numpy as jnp
import numpy as np
import safetensors.flax
import tokenizers

from sgjax.errors import ConfigError
from sgjax.models.config import ModelConfig
from sgjax.models.gguf import config_from_gguf, tensor_reader
from sgjax.models.gguf_file import GgufFile
from sgjax.models.weights import tensor_shapes
from sgjax.tokens.gguf import tokenizer_from_gguf

KINDS = {
    "bfloat16": gguf.GGMLQuantizationType.BF16,
    "float32": gguf.GGMLQuantizationType.F32,
}
FILE_TYPES = {"bfloat16": gguf.LlamaFileType.MOSTLY_BF16, "float32": gguf.LlamaFileType.ALL_F32}


def hf_folder(source: Path, dtype: str, cache: Path) -> Path:
    """Return a Hugging Face folder of a GGUF file's weights, written on first use.

    Args:
        source: the GGUF file.
        dtype: "bfloat16" or "float32".
        cache: folder to write into.
    """

    def write(target: Path) -> None:
        target.mkdir()
        file = GgufFile(source)
        config = config_from_gguf(file)
        read = tensor_reader(file, config)
        tensors = {name: jnp.asarray(read(name), dtype) for name in tensor_shapes(config)}
        safetensors.flax.save_file(tensors, target / "model.safetensors", {"format": "pt"})
        settings = json.dumps(_hf_config(config, dtype), indent=1)
        (target / "config.json").write_text(settings, encoding="utf-8")

    return _once(cache / f"{source.stem}-{dtype}", write)


def tokenizer_folder(source: Path, cache: Path) -> Path:
    """Return a Hugging Face folder of a GGUF file's byte-level tokenizer, written on first use.

    It names no token that begins a text, so that nobody puts one before ids that are complete.

    Args:
        source: the GGUF file.
        cache: folder to write into.

    Raises:
        ConfigError: the vocabulary is not byte-level.
    """
    metadata = GgufFile(source).metadata
    if metadata["tokenizer.ggml.model"] != "gpt2":
        raise ConfigError(f"{source.name}: only byte-level vocabularies are written for peers")

    def write(target: Path) -> None:
        target.mkdir()
        backend = tokenizers.Tokenizer.from_str(tokenizer_from_gguf(metadata).rules())
        backend.decoder = tokenizers.decoders.ByteLevel()
        backend.save(str(target / "tokenizer.json"))
        end = metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.eos_token_id"]]
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
        (target / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")

    return _once(cache / f"{source.stem}-tokenizer-no-bos", write)


def gguf_file(source: Path, dtype: str, cache: Path) -> Path:
    """Return a GGUF file with the metadata of another and its matrices in a dtype.

    Args:
        source: the GGUF file.
        dtype: "bfloat16" or "float32".
        cache: folder to write into.
    """

    def write(target: Path) -> None:
        reader = gguf.GGUFReader(source)
        architecture = reader.fields["general.architecture"].contents()
        writer = gguf.GGUFWriter(target, architecture)
        written = {"general.architecture", "general.file_type"}
        for key, field in reader.fields.items():
            if key not in written and not key.startswith("GGUF."):
                inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(key, field.contents(), field.types[0], inner)
        writer.add_file_type(FILE_TYPES[dtype])
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if values.ndim == 1:
                # llama.cpp wants norms in float32; they are rounded as everyone else's.
                writer.add_tensor(tensor.name, np.asarray(jnp.asarray(values, dtype), np.float32))
            else:
                raw = gguf.quants.quantize(values, KINDS[dtype])
                writer.add_tensor(tensor.name, raw, raw_dtype=KINDS[dtype])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return _once(cache / f"{source.stem}-{dtype}.gguf", write)


def _once(target: Path, write: Callable[[Path], None]) -> Path:
    """Write a file or folder under another name first, so that it is complete once it is there."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        try:
            write(part)
            os.replace(part, target)
        finally:
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
    return target


def _hf_config(config: ModelConfig, dtype: str) -> dict[str, object]:
    """Return config.json of a plain Llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn_size,
        "max_position_embeddings": config.max_position,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": "silu",
        "torch_dtype": dtype,
        "bos_token_id": None,
        "eos_token_id": None,
    }
