"""ModelConfig: from config.json and from plain data."""

import pytest

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig, NoScaling
from sgjax.typed import validate

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
}
PLAIN = {
    "architecture": "llama", "vocab_size": 8, "hidden_size": 8, "num_layers": 1, "num_heads": 2,
    "num_kv_heads": 1, "head_dim": 4, "ffn_size": 8, "max_position": 16,
}  # fmt: skip


def test_smollm2_has_134_million_parameters():
    config = ModelConfig.from_hf(SMOLLM2)
    assert config.param_count == 134_515_008
    assert config.kv_bytes_per_token("bfloat16") == 23_040
    assert (config.head_dim, config.tie_embeddings, config.rope_theta) == (64, True, 1e5)
    assert hash(config) == hash(ModelConfig.from_hf(SMOLLM2))


def test_llama_without_kv_heads_has_as_many_as_heads():
    data = {k: v for k, v in SMOLLM2.items() if k != "num_key_value_heads"}
    assert ModelConfig.from_hf(data).num_kv_heads == 9


def test_qwen2_has_biases_and_its_window_only_if_switched_on():
    data = SMOLLM2 | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096}
    assert ModelConfig.from_hf(data).qkv_bias
    assert ModelConfig.from_hf(data).sliding_window is None
    assert ModelConfig.from_hf(data | {"use_sliding_window": True}).sliding_window == 4096
    assert ModelConfig.from_hf(data).param_count == 134_515_008 + 30 * (576 + 2 * 192)


def test_mistral_keeps_its_window():
    data = SMOLLM2 | {"architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    assert ModelConfig.from_hf(data).sliding_window == 4096
    assert ModelConfig.from_hf(data | {"sliding_window": None}).sliding_window is None


@pytest.mark.parametrize(
    ("rope", "want"),
    [
        (None, NoScaling()),
        ({"rope_type": "default"}, NoScaling()),
        ({"type": "linear", "factor": 2}, LinearScaling(2.0)),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            Llama3Scaling(8.0, 1.0, 4.0, 8192),
        ),
    ],
)
def test_rope_scaling_is_read_from_either_key(rope, want):
    assert ModelConfig.from_hf(SMOLLM2 | {"rope_scaling": rope}).rope_scaling == want
    if rope:
        both = {"rope_parameters": rope | {"rope_theta": 7.0}}
        config = ModelConfig.from_hf(SMOLLM2 | both)
        assert (config.rope_scaling, config.rope_theta) == (want, 7.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM.*allowed: LlamaForCausalLM"),
        ({"architectures": None, "model_type": "phi"}, "phi"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'.*default, linear, llama3"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"num_key_value_heads": 2}, "no multiple"),
        ({"hidden_size": "large"}, "cannot be used"),
        ({"num_attention_heads": 0}, "cannot be used"),
        ({"rope_scaling": "linear"}, "cannot be used"),
    ],
)
def test_what_the_forward_pass_cannot_do_is_refused_by_name(change, message):
    with pytest.raises(ModelLoadError, match=message):
        ModelConfig.from_hf(SMOLLM2 | change)


def test_a_missing_key_is_named():
    with pytest.raises(ModelLoadError, match="intermediate_size"):
        ModelConfig.from_hf({k: v for k, v in SMOLLM2.items() if k != "intermediate_size"})


def test_presets_are_validated():
    rope = {"type": "linear", "factor": 2.0}
    config = validate(ModelConfig, PLAIN | {"rope_scaling": rope}, "preset")
    assert config.rope_scaling == LinearScaling(2.0)
    with pytest.raises(ConfigError, match="'num_layer'; did you mean 'num_layers'"):
        validate(ModelConfig, PLAIN | {"num_layer": 2}, "preset")
    with pytest.raises(ConfigError, match="head_dim=3"):
        validate(ModelConfig, PLAIN | {"head_dim": 3}, "preset")
    with pytest.raises(ConfigError, match=r"kv dtype 'int8'.*float32"):
        config.kv_bytes_per_token("int8")
