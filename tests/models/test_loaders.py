"""load_model: Hugging Face folders, random models, and names that mean nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models import load
from sgjax.models.config import ModelConfig
from sgjax.models.load import load_model
from sgjax.models.presets import Preset
from sgjax.tokens.byte import ByteTokenizer
from tests.golden import variations
from tests.models.checkpoints import assert_same_weights, expected_weights, write_folder


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 0.0), (np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)]
)
def test_a_folder_gives_the_weights_that_went_in(
    tmp_path: Path, dtype: Any, tolerance: float, shards: int
) -> None:
    model = load_model(str(write_folder(tmp_path, "qwen2", dtype, shards)), "float32")
    assert model.config == ModelConfig.from_hf(variations.CONFIGS["qwen2"])
    assert_same_weights(model.weights, expected_weights("qwen2"), tolerance)
    assert model.tokenizer.end_ids == {1, 2}
    assert model.name == tmp_path.name


def test_weights_have_the_dtype_that_was_asked_for(tmp_path: Path) -> None:
    weights = load_model(str(write_folder(tmp_path)), "bfloat16").weights
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(weights)} == {"bfloat16"}
    with pytest.raises(ConfigError, match="dtype='float64'"):
        load_model(str(tmp_path), "float64")


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _cut(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-100])

    return cut


def _index(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        path.write_text(json.dumps(index | {"weight_map": change(index["weight_map"])}))

    return rewrite


SHARD = "model-00002-of-00003.safetensors"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop("config.json"), "holds no config.json"),
        (_cut("config.json"), "config.json is not readable JSON"),
        (_drop("tokenizer.json"), "neither tokenizer.json nor tokenizer.model"),
        (_drop(SHARD), f"{SHARD} is missing, although the index names it"),
        (_cut(SHARD), f"{SHARD} is truncated or no safetensors file"),
        (_cut("model.safetensors.index.json"), "not readable JSON"),
        (_index(list), "no weight_map from tensors to files"),
        (_index(lambda shards: dict.fromkeys(shards, SHARD)), f"{SHARD} does not give tensor"),
    ],
)
def test_damaged_folders_are_explained(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(write_folder(tmp_path, shards=3))
    with pytest.raises(ModelLoadError, match=message):
        load_model(str(tmp_path), "float32")


def test_a_folder_without_safetensors_or_without_a_tensor_is_explained(tmp_path: Path) -> None:
    write_folder(tmp_path)
    arrays = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    del arrays["lm_head.weight"]
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"no tensor 'lm_head\.weight'"):
        load_model(str(tmp_path), "float32")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"no \.safetensors files .*pytorch_model\.bin"):
        load_model(str(tmp_path), "float32")


def test_end_ids_beyond_the_models_rows_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5000}')
    with pytest.raises(ModelLoadError, match=r"end ids \[1, 2, 5000\] exceed the model's 97 rows"):
        load_model(str(tmp_path), "float32")


def test_random_models_need_no_files_and_repeat_by_seed() -> None:
    first, again, other = (load_model("random:tiny", "float32", seed) for seed in (0, 0, 1))
    assert_same_weights(first.weights, again.weights)
    assert not np.array_equal(first.weights.embed, other.weights.embed)
    assert isinstance(first.tokenizer, ByteTokenizer)
    assert first.tokenizer.vocab_size <= first.config.vocab_size
    assert (first.name, first.source) == ("random:tiny", "random")


def test_a_random_mixture_of_experts_has_its_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig.from_hf(variations.CONFIGS["mixtral"])
    monkeypatch.setattr(load, "load_preset", lambda name: Preset("small Mixtral", config))
    layer = load_model("random:mixtral", "float32").weights.layers[0]
    assert layer.router is not None
    assert layer.gate.shape == (config.num_experts, config.hidden_size, config.ffn_size)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("smollm2-135", ConfigError, "did you mean 'smollm2-135m'"),
        ("random:tinny", ConfigError, "did you mean 'tiny'"),
        ("no/such/folder", ConfigError, "there is no such file or folder"),
        ("model.gguf", ConfigError, "there is no such file or folder"),
        ("llama-2-7b", ModelLoadError, "use 'random:llama-2-7b' for random weights"),
    ],
)
def test_unknown_models_are_explained(model: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_model(model, "float32")
