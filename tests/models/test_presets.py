"""Presets: real architectures, found from a checkout and when installed."""

import pytest

from sgjax.errors import ConfigError
from sgjax.models.presets import load_preset, preset_names

# Parameters as published with each model, in billions.
PUBLISHED = {
    "smollm2-135m": 0.1345,
    "llama-2-7b": 6.738,
    "llama-2-70b": 68.98,
    "llama-3-8b": 8.030,
    "llama-3.1-8b": 8.030,
    "mistral-7b": 7.242,
    "mixtral-8x7b": 46.70,
    "qwen2-1.5b": 1.544,
    "llava-1.5-7b": 6.738,
    "llava-next-34b": 34.39,
}


def test_every_preset_has_the_published_number_of_parameters() -> None:
    for name in preset_names():
        config = load_preset(name).config
        expected = PUBLISHED.get(name, config.param_count / 1e9)
        assert config.param_count / 1e9 == pytest.approx(expected, rel=5e-4), name
    assert set(PUBLISHED) | {"tiny"} == set(preset_names())


def test_only_what_can_be_fetched_names_a_source() -> None:
    assert [n for n in preset_names() if load_preset(n).source] == ["smollm2-135m"]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'smol'; did you mean 'smollm2-135m'"):
        load_preset("smol")
