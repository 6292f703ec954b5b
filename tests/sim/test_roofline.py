"""The cost model against hand-made arithmetic, and the properties everything else rests on."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgjax.errors import ConfigError
from sgjax.models.presets import load_preset
from sgjax.schedule.plan import Plan, PlanRow
from sgjax.sim import Roofline, Work, fitting_kv_tokens, hardware_names, load_hardware
from sgjax.sim.hardware import with_constants

LLAMA = load_preset("llama-2-7b").config
IDEAL = dataclasses.replace(
    load_hardware("a10g"),
    matmul_efficiency=1.0,
    memory_efficiency=1.0,
    step_s=0.0,
    usable_memory=1.0,
)
works = st.builds(
    Work, st.integers(1, 4096), st.integers(0, 64), st.integers(1, 10**7), st.integers(1, 10**5)
)


def roofline(tensor=1, hardware=IDEAL):
    return Roofline(LLAMA, hardware, "bfloat16", "bfloat16", tensor)


def test_one_token_costs_one_read_of_the_weights():
    """Batch 1 decoding of a 7B model in 16 bits: 13.2 GB (no embedding) at 600 GB/s."""
    weights = LLAMA.param_count - LLAMA.vocab_size * LLAMA.hidden_size
    seconds = roofline().seconds(Work(tokens=1, sampled=1, pairs=1, context=1))
    assert seconds == pytest.approx(2 * weights / 600e9, rel=1e-3)
    assert 0.021 < seconds < 0.023


def test_long_prompt_is_bound_by_products():
    """4096 tokens: 2 flops a weight and token, and attention's 4 H D a pair and layer."""
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    pairs = 4096 * 4097 // 2
    flops = 2 * weights * 4096 + 2 * 4096 * 32000 + 32 * 4 * 4096 * pairs
    seconds = roofline().seconds(Work(tokens=4096, sampled=1, pairs=pairs, context=4096))
    assert seconds == pytest.approx(flops / 70e12, rel=1e-3)


def test_reading_long_contexts_dominates_large_decode_batches():
    context = 64 * 2000
    seconds = roofline().seconds(Work(tokens=64, sampled=64, pairs=context, context=context))
    keys_and_values = context * 2 * 32 * 4096 * 2
    assert keys_and_values == context * LLAMA.kv_bytes_per_token("bfloat16")
    assert seconds > 0.8 * (keys_and_values / 600e9 + 0.022)


def test_batching_is_nearly_free_and_reuse_saves_products():
    one = roofline().seconds(Work(tokens=1, sampled=1, pairs=100, context=100))
    eight = roofline().seconds(Work(tokens=8, sampled=8, pairs=800, context=800))
    assert eight < 1.1 * one
    cold = roofline().seconds(Work(1024, 1, 1024 * 1025 // 2, 1024))
    warm = roofline().seconds(Work(64, 1, 64 * 960 + 64 * 65 // 2, 1024))
    assert warm < cold / 5


@given(works, works)
def test_more_work_never_costs_less(a, b):
    both = Work(
        *(x + y for x, y in zip(dataclasses.astuple(a), dataclasses.astuple(b), strict=True))
    )
    cost = roofline().seconds
    assert cost(both) >= max(cost(a), cost(b))
    assert cost(both) <= cost(a) + cost(b) + 1e-12  # doing things together never costs more


@given(works)
def test_devices_divide_the_work_and_add_collectives(work):
    ideal = dataclasses.replace(IDEAL, link_bytes_per_s=1e30, link_s=0.0)
    split = roofline(4, ideal).seconds(work)
    assert split == pytest.approx(roofline().seconds(work) / 4)
    assert roofline(4).seconds(work) > split


def test_plans_are_counted_row_by_row():
    rows = (
        PlanRow(None, 9, 10, True),  # a decode at context 10
        PlanRow(None, 4, 8, False),  # a chunk: tokens 5..8 see 5+6+7+8
        PlanRow(None, 0, 3, False, logprob_from=1),  # all three need logits
    )
    assert Work.of(Plan(1, rows, 8)) == Work(tokens=8, sampled=4, pairs=10 + 26 + 6, context=21)


def test_few_tokens_touch_few_experts():
    mixtral = load_preset("mixtral-8x7b").config
    cost = Roofline(mixtral, load_hardware("h200"), "bfloat16", "bfloat16", 1)
    one, many = (cost.seconds(Work(n, n, n, n)) for n in (1, 64))
    assert 3 < (many - 2e-3) / (one - 2e-3) < 4.5  # 2 of 8 experts, then all; attention either way


def test_kv_capacity_is_what_the_weights_leave():
    assert fitting_kv_tokens(LLAMA, IDEAL, "bfloat16", "bfloat16") == (
        (24_000_000_000 - 2 * LLAMA.param_count) // 524288
    )
    with pytest.raises(ConfigError, match="do not fit into 1 x NVIDIA A10G"):
        fitting_kv_tokens(load_preset("llama-2-70b").config, IDEAL, "bfloat16", "bfloat16")
    assert (
        fitting_kv_tokens(load_preset("llama-2-70b").config, IDEAL, "bfloat16", "bfloat16", 8) > 0
    )


def test_every_shipped_device_loads_and_runs_the_7b_model():
    assert {"a10g", "a100-80g", "h200", "v5e", "v5p", "v6e", "cpu"} <= set(hardware_names())
    for name in hardware_names():
        cost = Roofline(LLAMA, load_hardware(name), "bfloat16", "bfloat16")
        assert 0 < cost.seconds(Work(1, 1, 1, 1)) < 2


def test_unknown_hardware_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown hardware 'a10'; did you mean 'a10g'"):
        load_hardware("a10")


def test_constants_of_a_device_can_be_replaced_by_name():
    slower = with_constants(IDEAL, {"step_s": 0.5})
    assert slower == dataclasses.replace(IDEAL, step_s=0.5)
    assert with_constants(IDEAL, {}) == IDEAL
    with pytest.raises(ConfigError, match="unknown constant 'steps_s'; did you mean 'step_s'"):
        with_constants(IDEAL, {"steps_s": 0.5})
    with pytest.raises(ConfigError, match="must be in"):
        with_constants(IDEAL, {"usable_memory": 1.5})


def test_padded_prompts_cost_the_products_of_the_longest():
    prompts, decodes = (
        [PlanRow(None, 0, n, True, -1) for n in (100, 300)],
        [PlanRow(None, 99, 100, True, -1)] * 2,
    )
    plan = Plan(1, tuple(prompts), 400)
    assert Work.of(plan, pads=True) == dataclasses.replace(Work.of(plan), tokens=600)
    plan = Plan(2, tuple(decodes), 2)
    assert Work.of(plan, pads=True) == Work.of(plan)


def test_a_tpu_keeps_rows_in_whole_lanes():
    smollm2 = load_preset("smollm2-135m").config  # 192 elements a row, of three heads
    assert load_hardware("a10g").token_bytes(smollm2, "bfloat16") == 30 * 2 * 192 * 2
    assert load_hardware("v5e").token_bytes(smollm2, "bfloat16") == 30 * 2 * 256 * 2
    assert load_hardware("v5e").token_bytes(smollm2, "bfloat16", tensor=3) == 30 * 2 * 384 * 2
    assert load_hardware("v5e").token_bytes(LLAMA, "bfloat16") == LLAMA.kv_bytes_per_token(
        "bfloat16"
    )
    with pytest.raises(ConfigError, match="kv_lanes=0; it must be 1 or more"):
        dataclasses.replace(load_hardware("v5e"), kv_lanes=0)
