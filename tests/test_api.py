"""The public contract: names, parameters, defaults and the keys of results, as users know them.

What programs rely on is written out here; a change of it must be one on purpose.
"""

import dataclasses
import inspect

import pytest

import sgjax as sgl
from sgjax.engine.config import EngineConfig
from sgjax.lang.backends.usage import TokenUsage
from sgjax.lang.compiler.compiled import CompiledProgram
from sgjax.lang.compiler.graph import Graph
from sgjax.types import SamplingParams

GEN = (
    "name=None, max_tokens=None, min_tokens=None, stop=None, stop_token_ids=None, "
    "temperature=None, top_p=None, top_k=None, min_p=None, frequency_penalty=None, "
    "presence_penalty=None, ignore_eos=None, return_logprob=None, logprob_start_len=None, "
    "top_logprobs_num=None, dtype=None, choices=None, choices_method=None, regex=None, "
    "json_schema=None, n=None"
)
GENERATE = (
    "self, prompt=None, sampling_params=None, input_ids=None, image_data=None, "
    "return_logprob=False, logprob_start_len=-1, top_logprobs_num=0, stream=False"
)

SIGNATURES = {
    sgl.function: "func=None, *, num_api_spec_tokens=None",
    sgl.SglFunction.run: "self, *args, stream=False, backend=None, fork=None, **kwargs",
    sgl.SglFunction.run_batch: (
        "self, batch_arguments, *, num_threads='auto', progress_bar=False, "
        "generator_style=False, backend=None, fork=None, **kwargs"
    ),
    sgl.SglFunction.bind: "self, **arguments",
    sgl.SglFunction.trace: "self, **arguments",
    sgl.SglFunction.compile: "self",
    sgl.gen: GEN,
    sgl.gen_int: "name=None, **options",
    sgl.gen_string: "name=None, **options",
    sgl.select: (
        "name, choices, temperature=0.0, choices_method=TokenLengthNormalized(), append=True"
    ),
    sgl.system: "expr",
    sgl.user: "expr",
    sgl.assistant: "expr",
    sgl.system_begin: "",
    sgl.system_end: "",
    sgl.user_begin: "",
    sgl.user_end: "",
    sgl.assistant_begin: "",
    sgl.assistant_end: "",
    sgl.image: "source",
    sgl.video: "path, num_frames",
    sgl.set_default_backend: "backend",
    sgl.flush_cache: "backend=None",
    sgl.get_server_info: "backend=None",
    sgl.ProgramState.get_var: "self, name",
    sgl.ProgramState.set_var: "self, name, value",
    sgl.ProgramState.get_meta_info: "self, name",
    sgl.ProgramState.text: "self",
    sgl.ProgramState.messages: "self",
    sgl.ProgramState.sync: "self",
    sgl.ProgramState.error: "self",
    sgl.ProgramState.text_iter: "self, var=None",
    sgl.ProgramState.text_async_iter: "self, var=None",
    sgl.ProgramState.var_scope: "self, name",
    sgl.ProgramState.fork: "self, n=1",
    sgl.ProgramState.copy: "self",
    sgl.ProgramState.system: "self, expr=None",
    sgl.ProgramState.user: "self, expr=None",
    sgl.ProgramState.assistant: "self, expr=None",
    sgl.ForkGroup.join: "self, mode='gather_variable'",
    sgl.OpenAI: "model, base_url=None, api_key=None, timeout_s=600.0",
    sgl.RuntimeEndpoint: "url",
    sgl.Engine: "model=None, config=None, **overrides",
    sgl.Engine.generate: GENERATE,
    sgl.Engine.async_generate: GENERATE,
    sgl.Engine.flush_cache: "self",
    sgl.Engine.get_server_info: "self",
    sgl.Engine.abort: "self, rid",
    sgl.Engine.shutdown: "self",
}


@pytest.mark.parametrize("callable_", SIGNATURES, ids=lambda c: c.__qualname__)
def test_what_users_call_takes_what_they_know(callable_) -> None:
    signature = inspect.signature(callable_)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({SIGNATURES[callable_]})"


def test_states_and_groups_are_used_like_texts_dicts_and_lists() -> None:
    for kind, operators in (
        (sgl.ProgramState, "__iadd__ __getitem__ __setitem__ __contains__"),
        (sgl.ForkGroup, "__iadd__ __getitem__ __iter__ __len__"),
        (sgl.SglFunction, "__call__"),
        (sgl.Engine, "__enter__ __exit__"),
    ):
        defined = {name for base in kind.__mro__ for name in vars(base)}
        assert [name for name in operators.split() if name not in defined] == []


def test_every_public_name_is_there_and_engine_comes_when_it_is_asked_for() -> None:
    assert [name for name in sgl.__all__ if not hasattr(sgl, name)] == []
    for method in ("token_length_normalized", "greedy_token_selection", "sequence_likelihood",
                   "unconditional_likelihood_normalized"):  # fmt: skip
        assert getattr(sgl, method).name == method
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        _ = sgl.Engin


def test_every_error_is_a_child_of_one() -> None:
    for name in ("ConfigError", "PromptTooLong", "GrammarError", "OutOfPages", "UnsupportedBackend",
                 "ModelLoadError", "ProgramError"):  # fmt: skip
        assert issubclass(getattr(sgl, name), sgl.SgjaxError)


def test_sampling_parameters_and_their_defaults() -> None:
    assert dataclasses.asdict(SamplingParams()) == {
        "max_new_tokens": 128,
        "min_new_tokens": 0,
        "stop": (),
        "stop_token_ids": (),
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": None,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": False,
        "regex": None,
        "json_schema": None,
        "choices": None,
        "logit_bias": (),
        "seed": None,
        "n": 1,
        "skip_special_tokens": True,
        "no_stop_trim": False,
    }


def test_keys_of_the_configuration() -> None:
    known = {field.name for field in dataclasses.fields(EngineConfig)}
    assert known >= {
        "model", "dtype", "kv_dtype", "page_size", "kv_tokens", "max_context_len", "max_running",
        "token_budget", "cache", "eviction", "policy", "siblings", "grammar", "attention", "mesh",
        "executor", "seed", "warmup", "debug_checks",
    }  # fmt: skip
    config = EngineConfig()
    assert (config.model, config.page_size, config.kv_tokens) == ("smollm2-135m", 1, None)
    assert (config.warmup, config.debug_checks, config.attention) == ("lazy", False, "auto")


TAGGED = [
    {"cache": {"type": "none"}},
    {"cache": {"type": "table"}},
    {"cache": {"type": "manual"}},
    {"cache": {"type": "throttled", "keep": 0.4}},
    {"policy": {"type": "fcfs"}},
    {"policy": {"type": "random", "seed": 1}},
    {"policy": {"type": "lpm"}},
    {"policy": {"type": "dfs_weight"}},
    {"policy": {"type": "aged_lpm", "max_wait_s": 2}},
    {"siblings": {"type": "admit"}},
    {"siblings": {"type": "defer"}},
    {"siblings": {"type": "share_planned"}},
    {"grammar": {"jump": {"type": "none"}, "mask": {"type": "all"}}},
    {"grammar": {"jump": {"type": "retokenize"}, "mask": {"type": "canonical"}}},
    {"grammar": {"jump": {"type": "tokens"}, "sampler": {"type": "local"}, "reuse": True}},
    {"grammar": {"jump": {"type": "string"}}},
]
SIMULATED = {
    "executor": {"type": "sim", "hardware": "a10g", "model": "llama-2-7b", "logprobs": "zero"},
    "kv_tokens": 2048,
    "debug_checks": True,
}


@pytest.mark.parametrize("setting", TAGGED, ids=str)
def test_a_setting_is_named_by_its_tag_and_stands_in_the_servers_info(setting) -> None:
    with sgl.Engine(**SIMULATED, **setting) as engine:
        out = engine.generate("Hi", {"max_new_tokens": 2, "regex": "(ab|cd)"})
        assert out["text"] in ("ab", "a", "cd", "c")
        config = engine.get_server_info()["config"]
    for key, value in setting.items():
        assert {k: config[key][k] for k in value}.keys() == value.keys()
        tags = [(config[key], value), *((config[key][k], v) for k, v in value.items())]
        assert all(
            got["type"] == asked["type"]
            for got, asked in tags
            if isinstance(asked, dict) and "type" in asked
        )


def test_keys_and_types_of_a_result() -> None:
    with sgl.Engine(**SIMULATED) as engine:
        params = {"max_new_tokens": 3}
        plain = engine.generate("Hi", params)
        told = engine.generate("Hi", params, return_logprob=True, logprob_start_len=0)
        (refused,) = engine.generate([""], params)
    assert list(map(type, (plain["text"], plain["output_ids"], plain["meta_info"]))) == [
        str, list, dict,
    ]  # fmt: skip
    always = {
        "id": str,
        "prompt_tokens": int,
        "completion_tokens": int,
        "cached_tokens": int,
        "forced_tokens": int,
        "finish_reason": dict,
        "e2e_latency_s": float,
        "ttft_s": float,
    }
    assert {key: type(value) for key, value in plain["meta_info"].items()} == always
    assert set(refused["meta_info"]) == set(always)
    assert set(refused["meta_info"]["finish_reason"]) == {"type", "message", "error"}
    sides = {"input_token_logprobs", "output_token_logprobs"}
    assert set(told["meta_info"]) == set(always) | sides
    first, second = told["meta_info"]["input_token_logprobs"]
    assert first[0] is None
    assert list(map(type, second)) == [float, int, str]


def test_what_comes_back_has_the_form_of_what_was_asked() -> None:
    with sgl.Engine(**SIMULATED) as engine:
        params = {"max_new_tokens": 2}
        assert engine.generate([], params) == []
        assert list(engine.generate([], params, stream=True)) == []
        assert isinstance(engine.generate("a", params), dict)
        assert len(engine.generate(["a"], params)) == 1
        assert len(engine.generate("a", {**params, "n": 2})) == 2
        assert len(engine.generate(["a", "b"], [params, {**params, "n": 3}])) == 4
        assert {p["index"] for p in engine.generate(["a", "b"], params, stream=True)} == {0, 1}
        assert all("index" not in p for p in engine.generate("a", params, stream=True))


def test_keys_of_the_servers_info() -> None:
    with sgl.Engine(**SIMULATED) as engine:
        info = engine.get_server_info()
    assert set(info) >= {
        "config", "device", "executor", "prompt_tokens", "cached_tokens", "cache_hit_rate",
        "computed_tokens", "forced_tokens", "forward_passes", "evicted_tokens", "retractions",
        "pages", "plan_s", "device_s", "commit_s", "compilations",
    }  # fmt: skip
    assert set(info["pages"]) == {"total", "free", "tree", "sequence"}


def test_what_running_tracing_and_compiling_give() -> None:
    @sgl.function
    def program(s, q):
        s += q + sgl.gen("a")

    backend = sgl.ScriptedBackend({"a": "x"})
    assert isinstance(program.run(q="q", backend=backend), sgl.ProgramState)
    assert isinstance(program("q", backend=backend), sgl.ProgramState)
    assert isinstance(program.bind(q="q").run(backend=backend), sgl.ProgramState)
    assert isinstance(program.trace(), Graph)
    assert isinstance(program.compile(), CompiledProgram)
    assert isinstance(sgl.function(num_api_spec_tokens=4)(program.func), sgl.SglFunction)
    with pytest.raises(sgl.UnsupportedBackend, match="no HTTP server"):
        sgl.RuntimeEndpoint("http://localhost")
    usage = TokenUsage()
    usage.add(requests=1, prompt_tokens=2, completion_tokens=3)
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (1, 2, 3)
    usage.reset()
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"policy": "lpm"}, r"policy: got 'lpm', but an object .* is needed, as \{type: lpm\}$"),
        ({"policy": 3}, "policy: got 3, but an object with a 'type' key is needed$"),
        ({"cache": {"keep": 0.5}}, "cache: .* but an object with a 'type' key is needed$"),
        ({"page_size": 0}, "engine config: page_size=0 is not allowed; it must be at least 1$"),
        (
            {"executor": {"type": "sim", "hardware": "a10g", "tensor": 0}},
            "engine config: executor: tensor=0 is not allowed; it must be >= 1$",
        ),
    ],
)
def test_a_wrong_setting_is_answered_with_what_to_write(settings, says) -> None:
    with pytest.raises(sgl.ConfigError, match=says):
        sgl.Engine(**settings)
