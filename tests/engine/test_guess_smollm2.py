"""Guesses on SmolLM2-135M in float32: what comes out is what comes out token by token."""

import pytest

import sgjax as sgl
from sgjax.lab.workloads import DataSource
from sgjax.lab.workloads.forms import FormsWorkload

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]


def fill_in(path, **jump):
    """Return the characters' output ids, one of them sampled, and the engine's counters."""
    task = FormsWorkload(form="character", num_forms=3).load(DataSource(), seed=0)
    ways = ({"temperature": 0.0}, {"temperature": 0.0}, {"temperature": 1.0, "seed": 1})
    params = [{"regex": task.pattern, "max_new_tokens": 300, **way} for way in ways]
    with sgl.Engine(
        str(path),
        dtype="float32",
        max_context_len=512,
        max_running=4,
        token_budget=128,
        kv_tokens=2048,
        grammar={"jump": jump, "mask": {"type": "canonical"}},
    ) as engine:
        results = engine.generate([row["prompt"] for row in task.programs.rows], params)
        return [result["output_ids"] for result in results], engine.get_server_info()


def test_under_canonical_masks_guesses_and_jumps_write_what_no_jump_writes(smollm2_path) -> None:
    said, info = fill_in(smollm2_path, type="tokens")
    unguessed, unguessed_info = fill_in(smollm2_path, type="tokens", guess=False)
    token_by_token, plain_info = fill_in(smollm2_path, type="none")
    assert said == unguessed == token_by_token
    right = info["guessed_tokens"] - info["wrong_guesses"]
    assert right > 0
    assert info["rolled_back_tokens"] == 0
    assert info["rows"] == unguessed_info["rows"] - right
    assert info["rows"] < plain_info["rows"] / 3
