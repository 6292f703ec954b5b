"""Tensor parallelism on eight fake devices; the compared runs are in tp_checks.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgjax as sgl
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.models.presets import load_preset
from sgjax.models.sharding import fit_config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def degrees():
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.tp_checks"],
        cwd=ROOT, env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {said["degree"]: said for said in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_logits_are_the_same_on_any_number_of_devices(degrees, degree):
    one, many = (np.array(degrees[n]["logits"]) for n in (1, degree))
    assert np.abs(many - one).max() <= 1e-4 * np.abs(one).max()


def test_two_devices_with_rows_padded_as_on_a_tpu_give_the_same_logits(degrees):
    assert degrees[2]["row"] == 2 * 128
    one, padded = np.array(degrees[1]["logits"]), np.array(degrees[2]["padded"])
    assert np.abs(padded - one).max() <= 1e-4 * np.abs(one).max()


def test_the_logits_of_a_mixture_are_the_same_on_four_devices(degrees):
    one, four = (np.array(degrees[n]["mixture"]) for n in (1, 4))
    assert np.abs(four - one).max() <= 1e-4 * np.abs(one).max()


def test_greedy_tokens_are_the_same_on_any_number_of_devices(degrees):
    assert {tuple(d["tokens"]) for d in degrees.values()} == {tuple(degrees[1]["tokens"])}


def test_an_engine_on_a_mesh_says_the_same_with_jumps_guesses_cascades_and_planned_siblings(
    degrees,
):
    one, four = (degrees[n]["engine"] for n in (1, 4))
    assert four["tokens"] == one["tokens"]
    assert four["guessed"] == one["guessed"] > 0
    assert four["forced"] == one["forced"] > 0
    for got, want in zip(four["logprobs"], one["logprobs"], strict=True):
        np.testing.assert_allclose(np.array(got, float), np.array(want, float), atol=1e-4)


def test_a_split_vocabulary_gives_the_same_tokens_and_ids(degrees):
    one, four = (degrees[n]["sampled"] for n in (1, 4))
    for name, (tokens, logprobs, ids, best) in one.items():
        assert four[name][0] == tokens, name
        assert four[name][2] == ids, name
        np.testing.assert_allclose(four[name][1], logprobs, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(four[name][3], best, atol=1e-5, err_msg=name)


def test_a_split_vocabulary_is_sampled_without_moving_logits(degrees):
    # Blocks' sums and, of the block that was drawn, its weights: never one number an id.
    assert degrees[4]["sampled"]["largest_moved"] <= 6 * 256


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_a_layer_has_two_all_reduces(degrees, degree):
    # And one puts together the embeddings, whose vocabulary is split, too.
    assert degrees[degree]["all_reduces"] == 2 * 2 + 1


@pytest.mark.parametrize(
    ("preset", "degree", "message"),
    [
        ("smollm2-135m", 2, "9 query heads are no multiple of it; allowed: 1, 3"),
        ("llama-2-70b", 48, "64 query heads are no multiple"),
    ],
)
def test_a_degree_that_does_not_fit_is_refused_with_those_that_do(preset, degree, message):
    with pytest.raises(ConfigError, match=message):
        fit_config(load_preset(preset).config, degree)


def test_kv_heads_are_repeated_where_there_are_fewer_than_devices():
    assert fit_config(load_preset("llama-3-8b").config, 16).num_kv_heads == 16
    assert fit_config(load_preset("llama-3-8b").config, 4).num_kv_heads == 8


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(UnsupportedBackend, match="tensor=64 needs that many devices, found"):
        sgl.Engine("random:tiny", mesh={"tensor": 64})
