"""Experiment files: overrides, nearest names, and the shipped experiments."""

from pathlib import Path

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.baselines import baseline_names
from sgjax.lab.config import load_arms, load_experiment
from sgjax.lab.reference import Range
from sgjax.lang.spec import LanguageSpec, SequentialFork

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
QUICKSTART = EXPERIMENTS / "quickstart.yaml"

MINIMAL = """
claim: a claim
workloads: {mmlu: {type: mmlu}}
variants: {full: {}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "exp.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid_and_bear_their_files_name(path):
    assert {experiment.name for experiment in load_arms(path, [])} == {path.stem}


def test_overrides_reach_nested_keys_in_order():
    overrides = ["repeats=5", "workloads.mmlu.num_questions=3", "base.eviction={type: lfu}"]
    experiment = load_experiment(QUICKSTART, [*overrides, "repeats=4", "data.path=[a, b]"])
    assert experiment.repeats == 4
    assert experiment.workloads["mmlu"].num_questions == 3
    assert experiment.base["eviction"] == {"type": "lfu"}
    assert experiment.data.path == ("a", "b")


def test_variant_settings_replace_those_of_the_base(write):
    text = MINIMAL.replace("full: {}", "full: {cache: {type: none}}")
    path = write(text + "base: {cache: {type: throttled, keep: 0.5}, dtype: float32}")
    settings = load_experiment(path, []).engine_settings("full", seed=3)
    assert settings == {"cache": {"type": "none"}, "dtype": "float32", "seed": 3}


def test_objects_without_a_tag_change_keys_of_the_bases(write):
    text = MINIMAL.replace(
        "full: {}", "full: {executor: {hardware: h200}, language: {programs: 1}}"
    )
    base = "base: {executor: {type: sim, hardware: a10g}, language: {fork: {type: sequential}}}"
    experiment = load_experiment(write(text + base), [])
    settings = experiment.engine_settings("full", seed=0)
    assert settings == {"executor": {"type": "sim", "hardware": "h200"}, "seed": 0}
    assert experiment.language("full") == LanguageSpec(SequentialFork(), 1)


def test_a_baseline_comes_between_base_and_variant(write):
    own = "full: {baseline: vllm_0_2_5, max_running: 8}"
    text = MINIMAL.replace("full: {}", own) + "base: {max_running: 4, dtype: float32, page_size: 1}"
    experiment = load_experiment(write(text), [])
    settings = experiment.engine_settings("full", seed=0)
    assert settings["cache"] == {"type": "samples"}
    assert (settings["max_running"], settings["page_size"]) == (8, 16)
    assert settings["dtype"] == "float32"
    assert "baseline" not in settings
    assert experiment.language("full").fork == SequentialFork(samples_together=True)


@pytest.mark.parametrize("name", baseline_names())
def test_every_baseline_is_a_valid_simulated_engine(name, write):
    own = f"full: {{baseline: {name}}}"
    base = "base: {executor: {type: sim, hardware: a10g, model: llama-2-7b}}"
    experiment = load_experiment(write(MINIMAL.replace("full: {}", own) + base), [])
    with sgl.Engine(**experiment.engine_settings("full", seed=0)) as engine:
        policy = engine.get_server_info()["config"]["policy"]
    assert policy == {"type": "lpm" if name == "sglang_first_release" else "fcfs"}


def test_a_baseline_of_all_variants_comes_below_base(write):
    base = "base: {baseline: sglang_first_release, executor: {type: sim, hardware: a10g}}"
    own = "full: {}, vllm: {baseline: vllm_0_2_5}, patient: {executor: {pause_s: 1.0}}"
    experiment = load_experiment(write(MINIMAL.replace("full: {}", own) + base), [])
    full, vllm, patient = (experiment.engine_settings(v, 0) for v in experiment.variants)
    assert full["composition"]["type"] == "prompts_first"
    padded = {"type": "prompts_first", "decode_steps": 1, "max_padding": 256}
    assert vllm["composition"] == padded
    assert full["executor"]["hardware"] == vllm["executor"]["hardware"] == "a10g"
    assert [s["executor"]["pause_s"] for s in (full, vllm, patient)] == [0.03, 0.0, 1.0]


def test_without_language_programs_run_as_they_do_by_default(write):
    assert load_experiment(write(MINIMAL), []).language("full") == LanguageSpec()


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("repeat=2", "unknown key 'repeat'; did you mean 'repeats'"),
        ("workloads.mmlu.num_question=2", "num_question'; did you mean 'num_questions'"),
        ("data.pth=x", "unknown key 'data.pth'; did you mean 'path'"),
        ("workloads.mmlu.type=helaswag", "mmlu: unknown type 'helaswag'; did you mean 'hellaswag'"),
        ("repeats=often", "repeats: got 'often'"),
        ("repeats=0", "repeats=0 is not allowed; it must be >= 1"),
        ("warmup=-1", "warmup=-1 is not allowed; it must be >= 0"),
        ("metrics=[acuracy]", "did you mean 'accuracy'"),
        ("figure.panels=[cache_hitrate]", "did you mean 'cache_hit_rate'"),
        ("expect=['fcf.accuracy > 0']", "unknown variant 'fcf'; did you mean 'fcfs'"),
        ("expect=['full.acc > 0']", "unknown metric 'acc'"),
        ("expect=['full.answers_digest > fcfs.answers_digest']", "by == or !="),
        ("expect=['full.answers_digest == full.accuracy']", "by == or !="),
        ("variants={}", "variants is empty"),
        ("variants={no-cache: {}}", "must be a name that expectations can use"),
        ("base.seed=3", "'seeds'"),
        ("variants.full.baseline=vllm_0_2", "baseline 'vllm_0_2'; did you mean 'vllm_0_2_5'"),
        ("base.language.forks=3", "'full': language: unknown key 'forks'; did you mean 'fork'"),
        ("variants.full.language.programs=0", "programs=0"),
        ("name=a/b", "usable as a folder's name"),
        ("reference.acuracy.values={}", "unknown metric 'acuracy'; did you mean 'accuracy'"),
        ("reference.accuracy.values={mmul: {full: 1}}", "unknown workload 'mmul'; did you mean"),
        ("reference.accuracy.values={mmlu: {ful: 1}}", "unknown variant 'ful'; did you mean"),
        ("reference.accuracy={values: {}, relative_to: fcf}", "variant 'fcf'; did you mean 'fcfs'"),
        ("reference.accuracy.values={mmlu: {full: {range: [2, 1]}}}", "give 0 < low <= high"),
        ("repeats", "write key=value"),
        ("=3", "write key=value"),
        ("claim.part=3", "has no keys"),
        ("claim=[", "not valid YAML: line 1, column"),
        ("figure.panels=[]", "figure.panels is empty"),
        ("seeds=0", r"seeds: got 0; a list is needed"),
        ("variants.ful.policy.type=lpm", "there is no variant 'ful'; did you mean 'full'"),
        ("workloads.mmul.shots=1", "there is no workload 'mmul'; did you mean 'mmlu'"),
        ("peers.names=[vllm]", "with --peers alone"),
        ("sweep=3", "a list of values is needed"),
        ("sweep={a: [1, 1]}", "the name 'full_a_1' is taken"),
        ("sweep.kv_tokens=3", r"sweep\.kv_tokens: got 3; a list of values is needed"),
    ],
)
def test_bad_overrides_are_answered_with_what_is_allowed(override, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_experiment(QUICKSTART, [override])


def test_missing_keys_are_named(write):
    with pytest.raises(ConfigError, match="missing key 'workloads'"):
        load_experiment(write("claim: x\nvariants: {a: {}}"), [])


@pytest.mark.parametrize(
    "text", ["- a list", "just text", "", "a: [1", "a: b: c", MINIMAL + "variants: {b: {}}"]
)
def test_files_that_hold_no_mapping_are_refused(write, text):
    with pytest.raises(ConfigError, match=r"exp\.yaml"):
        load_experiment(write(text), [])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_experiment(tmp_path / "none.yaml", [])


def test_a_key_that_is_there_twice_is_named_with_its_place(write):
    text = MINIMAL + "base:\n  kv_tokens: 3\n  kv_tokens: 4\n"
    with pytest.raises(ConfigError, match=r"line 7, column 3: the key 'kv_tokens' is there twice"):
        load_experiment(write(text), [])


def test_a_value_of_the_base_that_every_variant_replaces_is_refused_not_ignored(write):
    path = write(MINIMAL.replace("{full: {}}", "{a: {policy: {type: lpm}}, b: {}}"))
    assert load_experiment(path, ["base.policy={type: fcfs}"]).base  # b listens to it
    path = write(MINIMAL.replace("{full: {}}", "{a: {policy: {type: lpm}}}"))
    with pytest.raises(ConfigError, match=r"changes nothing: .* variants\.NAME\.policy="):
        load_experiment(path, ["base.policy={type: fcfs}"])
    assert load_experiment(path, ["base.kv_tokens=9"]).base == {"kv_tokens": 9}


ARMS = """
arms:
  simulated: {base.executor: {type: sim, hardware: a10g}, seeds: [0, 1, 2]}
  measured: {workloads.mmlu.num_questions: 100, quick: {workloads.mmlu.num_questions: 10}}
quick:
  workloads.mmlu.num_questions: 40
  seeds: [0]
"""


def test_quick_changes_what_the_file_says_only_where_it_is_asked_for(write):
    path = write(MINIMAL + "seeds: [0, 1]\nquick: {seeds: [7], workloads.mmlu.shots: 2}")
    full, short = load_experiment(path, []), load_experiment(path, [], quick=True)
    assert (full.seeds, full.workloads["mmlu"].shots) == ((0, 1), 5)
    assert (short.seeds, short.workloads["mmlu"].shots) == ((7,), 2)


def test_what_the_command_line_says_wins_over_quick(write):
    path = write(MINIMAL + "quick: {repeats: 2}")
    assert load_experiment(path, ["repeats=3"], quick=True).repeats == 3


def test_an_unknown_key_of_quick_is_found_before_anybody_asks_for_it(write):
    path = write(MINIMAL + "quick: {workloads.mmlu.num_question: 2}")
    with pytest.raises(ConfigError, match=r"quick: unknown key .* did you mean 'num_questions'"):
        load_experiment(path, [])


def test_each_arm_is_an_experiment_with_its_own_changes(write):
    simulated, measured = load_arms(write(MINIMAL + ARMS), ["repeats=2"])
    assert simulated.base["executor"] == {"type": "sim", "hardware": "a10g"}
    assert (simulated.seeds, simulated.workloads["mmlu"].num_questions) == ((0, 1, 2), None)
    assert (measured.seeds, measured.workloads["mmlu"].num_questions) == ((0,), 100)
    assert (measured.base, simulated.repeats, measured.repeats) == ({}, 2, 2)


def test_an_arm_may_be_quick_in_its_own_way(write):
    simulated, measured = load_arms(write(MINIMAL + ARMS), [], quick=True)
    assert (simulated.seeds, simulated.workloads["mmlu"].num_questions) == ((0,), 40)
    assert measured.workloads["mmlu"].num_questions == 10


def test_an_override_reaches_the_arms_that_have_its_workload_and_one_at_least(write):
    alone = "arms: {simulated: {}, measured: {workloads: {chat: {type: multi_turn_chat}}}}"
    path = write(MINIMAL + alone)
    simulated, measured = load_arms(path, ["workloads.mmlu.shots=2", "workloads.chat.num_chats=3"])
    assert simulated.workloads["mmlu"].shots == 2
    assert measured.workloads["chat"].num_chats == 3
    with pytest.raises(ConfigError, match="no workload 'chatt'; did you mean"):
        load_arms(path, ["workloads.chatt.num_chats=3"])


def test_the_peers_can_be_chosen_from_the_command_line(write):
    path = write(MINIMAL + "base: {model: smollm2-135m}\npeers: {names: [vllm, lmql]}")
    [experiment] = load_arms(path, ["peers.names=[lmql]"], pythons={})
    assert list(experiment.variants) == ["full", "lmql"]


def test_a_sweep_adds_variants_and_workloads_and_keeps_what_there_was(write):
    path = write(MINIMAL + "sweep: {kv_tokens: [100, 200]}\n")
    [experiment] = load_arms(path, ["sweep.workload.shots=[1]", "sweep.policy=[{type: fcfs}]"])
    assert experiment.variants == {
        "full": {},
        "full_kv_tokens_100": {"kv_tokens": 100},
        "full_kv_tokens_200": {"kv_tokens": 200},
        "full_policy_fcfs": {"policy": {"type": "fcfs"}},
        "full_kv_tokens_100_policy_fcfs": {"kv_tokens": 100, "policy": {"type": "fcfs"}},
        "full_kv_tokens_200_policy_fcfs": {"kv_tokens": 200, "policy": {"type": "fcfs"}},
    }
    assert {n: w.shots for n, w in experiment.workloads.items()} == {"mmlu": 5, "mmlu_shots_1": 1}


def test_a_swept_key_of_an_object_changes_it_in_each_variant(write):
    path = write(MINIMAL.replace("{}", "{policy: {type: k_lpm}}"))
    variants = load_experiment(path, ["sweep.policy.k=[1, 2]"]).variants
    assert [v["policy"].get("k") for v in variants.values()] == [None, 1, 2]


def test_arms_are_simulated_or_measured(write):
    with pytest.raises(ConfigError, match=r"arms.* 'simulated' or 'measured'"):
        load_arms(write(MINIMAL + "arms: {guessed: {}}"), [])


def test_an_override_leaves_other_uses_of_a_yaml_anchor_alone(write):
    path = write(
        "claim: c\nvariants: {a: {}}\n"
        "workloads: {x: &same {type: mmlu, shots: 1}, y: *same}\n"
        "quick: {workloads.x.shots: 3}"
    )
    workloads = load_experiment(path, [], quick=True).workloads
    assert (workloads["x"].shots, workloads["y"].shots) == (3, 1)


def test_the_papers_values_are_numbers_or_ranges():
    values = "values: {mmlu: {no_cache: 0.15, fcfs: {range: [0.1, 0.4]}}}"
    reference = load_experiment(
        QUICKSTART, ["reference.throughput_programs_per_s={relative_to: full, " + values + "}"]
    ).reference["throughput_programs_per_s"]
    assert reference.values["mmlu"]["fcfs"] == Range((0.1, 0.4))
    assert reference.span("mmlu", "no_cache") == (0.15, 0.15)
    assert reference.middle("mmlu", "fcfs") == pytest.approx(0.2)
    assert reference.span("mmlu", "full") == (1.0, 1.0)
    assert reference.span("other", "full") is None
