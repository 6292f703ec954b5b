"""Models from Hugging Face folders: config.json and safetensors, single or sharded.

DEVICE. Imports models.config, safetensors, errors; neither transformers nor torch.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from sgjax.errors import ModelLoadError
from sgjax.models.config import ModelConfig


def config_from_folder(folder: Path) -> ModelConfig:
    """Read a folder's config.json.

    Raises:
        ModelLoadError: it is missing, damaged, or asks for something that is not supported.
    """
    return ModelConfig.from_hf(_json(folder / "config.json"))


def tensor_reader(folder: Path) -> Callable[[str], NDArray[np.generic]]:
    """Return a function from tensor names to arrays, read from disk when asked for.

    Raises:
        ModelLoadError: the folder has no safetensors, or a shard is missing or damaged.
    """
    files = _files_of_tensors(folder)

    def read(name: str) -> NDArray[np.generic]:
        if name not in files:
            raise ModelLoadError(
                f"{folder} has no tensor {name!r} among its {len(files)}; is the checkpoint "
                "complete, and does config.json belong to it?"
            )
        with _open(files[name]) as file:
            try:
                array: NDArray[np.generic] = file.get_tensor(name)
            except (safetensors.SafetensorError, TypeError, ValueError) as error:
                raise ModelLoadError(
                    f"{files[name]} does not give tensor {name!r} ({error}); download the folder "
                    "again, or use a checkpoint of float tensors"
                ) from None
        return array

    return read


def _files_of_tensors(folder: Path) -> dict[str, Path]:
    """Return which file holds each tensor."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = _json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
            raise ModelLoadError(
                f"{index} has no weight_map from tensors to files; download it again"
            )
        for shard in sorted(set(shards.values())):
            _names(folder / shard)  # a missing or truncated shard is found before loading begins
        return {name: folder / shard for name, shard in shards.items()}
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        others = ", ".join(sorted(p.name for p in folder.glob("*.bin"))) or "none"
        raise ModelLoadError(
            f"{folder} holds no .safetensors files (PyTorch .bin files: {others}); download the "
            "safetensors variant of the checkpoint, or convert it"
        )
    return {name: path for path in paths for name in _names(path)}


def _names(path: Path) -> list[str]:
    with _open(path) as file:
        return list(file.keys())


def _open(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path} is missing, although the index names it; download the checkpoint again"
        ) from None
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelLoadError(
            f"{path} is truncated or no safetensors file ({error}); download it again"
        ) from None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path.parent} holds no {path.name}; give a folder with config.json, safetensors and "
            "a tokenizer, or a .gguf file"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is not readable JSON ({error}); download it again") from None
    if not isinstance(data, dict):
        raise ModelLoadError(f"{path} holds a {type(data).__name__}; a JSON object is expected")
    return data
