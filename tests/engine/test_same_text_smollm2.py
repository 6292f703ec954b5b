"""Rule 8 on SmolLM2-135M in float32: real weights, real text, few shapes."""

import pytest

import sgjax as sgl
from tests.engine.rule8 import check_same_text, make_reference

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]

SHOTS = (
    "Answer each question in one word.\n\n"
    "Q: What is the capital of France?\nA: Paris\n\n"
    "Q: Which planet is known as the red planet?\nA: Mars\n\n"
    "Q: What gas do plants take in from the air?\nA:"
)
PROMPTS = [
    SHOTS,
    SHOTS + " Carbon dioxide\n\nQ: How many legs does a spider have?\nA:",
    SHOTS + " Carbon dioxide\n\nQ: What is the opposite of hot?\nA:",
    "Once upon a time, in a small village by the sea,",
    "Café déjà vu: 東京 🙂",
    SHOTS,
]


@pytest.fixture(scope="module")
def setup(smollm2_path):
    config = {
        "model": str(smollm2_path),
        "dtype": "float32",
        "max_context_len": 256,
        "max_running": 4,
        "token_budget": 64,
        "kv_tokens": 256,
    }
    with sgl.Engine(**config) as engine:
        prompts = [engine.tokenizer.encode(text, add_bos=True) for text in PROMPTS]
    return config, make_reference(prompts, new=16, **config)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"cache": {"type": "none"}, "siblings": {"type": "admit"}},
        {"siblings": {"type": "share_planned"}, "policy": {"type": "dfs_weight"}},
        {"cache": {"type": "table"}, "policy": {"type": "random", "seed": 2}},
    ],
    ids=["default", "no_cache", "share_planned", "table"],
)
def test_text_is_the_same_under_every_switch(setup, switches) -> None:
    config, reference = setup
    check_same_text(reference, **{**config, **switches})


def test_text_is_the_same_with_larger_pages_and_chunks(setup) -> None:
    config, reference = setup
    check_same_text(reference, **{**config, "page_size": 16, "token_budget": 256})
