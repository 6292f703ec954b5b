"""load_model: from what a user names to config, weights and tokenizer.

DEVICE. Imports the loaders beside it and the tokenizers.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models import gguf, hf
from sgjax.models.config import ModelConfig
from sgjax.models.gguf_file import GgufFile
from sgjax.models.layer import LlamaWeights
from sgjax.models.presets import load_preset, preset_names
from sgjax.models.pull import default_cache_dir, pull, pulled_path
from sgjax.models.weights import from_tensors, random_weights
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.gguf import tokenizer_from_gguf
from sgjax.tokens.hf import tokenizer_from_folder

_RANDOM = "random:"


@dataclass(frozen=True)
class LoadedModel:
    """A model, ready to run.

    Attributes:
        config: its architecture.
        weights: on the default device.
        tokenizer: may know fewer ids than the model has rows; the rest are never to be sampled.
        name: the preset's name, or the file's or folder's.
        source: the path the weights come from, or "random".
    """

    config: ModelConfig
    weights: LlamaWeights = field(repr=False)
    tokenizer: Tokenizer
    name: str
    source: str


def load_model(
    model: str,
    dtype: str,
    seed: int = 0,
    *,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> LoadedModel:
    """Load a model.

    Args:
        model: a preset's name (fetched on first use where it can be), a Hugging Face folder, a
            .gguf file, or `random:<preset>` for random weights of a real architecture with a
            byte tokenizer.
        dtype: of the weights, "float32" or "bfloat16".
        seed: of random weights.
        cache_dir: where fetched checkpoints lie; None is the user's cache folder.
        progress: told, in a line, what takes long.

    Raises:
        ConfigError: the name is unknown (the message gives the nearest), or the dtype is.
        ModelLoadError: the checkpoint cannot be fetched or read.
    """
    if model.startswith(_RANDOM):
        preset = load_preset(model.removeprefix(_RANDOM))
        weights = random_weights(preset.config, dtype, seed)
        return LoadedModel(preset.config, weights, ByteTokenizer(), model, "random")
    if model in preset_names():
        cache_dir = cache_dir or default_cache_dir()
        path = pulled_path(model, cache_dir)
        if not path.exists():
            path = pull(model, cache_dir, progress)
        return _from_gguf(path, dtype, model)
    path = Path(model).expanduser()
    if path.is_dir():
        return _from_folder(path, dtype)
    if path.is_file():
        return _from_gguf(path, dtype, path.stem)
    raise ConfigError(_unknown(model))


def read_config(model: str) -> ModelConfig:
    """Return a model's architecture without loading its weights.

    Args:
        model: as in `load_model`.

    Raises:
        ConfigError: the name is unknown.
        ModelLoadError: the configuration cannot be read.
    """
    name = model.removeprefix(_RANDOM)
    if name in preset_names():
        return load_preset(name).config
    path = Path(model).expanduser()
    if path.is_dir():
        return hf.config_from_folder(path)
    if path.is_file():
        return gguf.config_from_gguf(GgufFile(path))
    raise ConfigError(_unknown(model))


def _from_folder(folder: Path, dtype: str) -> LoadedModel:
    config = hf.config_from_folder(folder)
    tokenizer = tokenizer_from_folder(folder)
    weights = from_tensors(config, hf.tensor_reader(folder), dtype)
    return _checked(LoadedModel(config, weights, tokenizer, folder.name, str(folder)))


def _from_gguf(path: Path, dtype: str, name: str) -> LoadedModel:
    file = GgufFile(path)
    config = gguf.config_from_gguf(file)
    tokenizer = tokenizer_from_gguf(file.metadata)
    weights = from_tensors(config, gguf.tensor_reader(file, config), dtype)
    return _checked(LoadedModel(config, weights, tokenizer, name, str(path)))


def _checked(model: LoadedModel) -> LoadedModel:
    if max(model.tokenizer.end_ids, default=0) >= model.config.vocab_size:
        raise ModelLoadError(
            f"{model.source}: end ids {sorted(model.tokenizer.end_ids)} exceed the model's "
            f"{model.config.vocab_size} rows; model and tokenizer do not belong together"
        )
    return model


def _unknown(model: str) -> str:
    if "/" in model or "\\" in model or model.endswith(".gguf"):
        return f"model={model!r}: there is no such file or folder; check the path"
    near = difflib.get_close_matches(model, preset_names(), n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"unknown model {model!r}; {hint}allowed: a preset ({', '.join(preset_names())}), a folder "
        "with config.json and safetensors, a .gguf file, or random:<preset>"
    )
