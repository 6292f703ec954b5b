"""The switches of test_switches.py: optimisations as objects in YAML, and what each should change.

Beside them stands where every other option is tested, so that none can be added and forgotten.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Any, get_args, get_type_hints

import sgjax as sgl
from sgjax.engine.config import EngineConfig
from sgjax.lang.spec import ForkSpec, LanguageSpec, ParallelFork, SequentialFork

FULL = {
    "model": "random:tiny", "dtype": "float32", "max_context_len": 256, "max_running": 4,
    "token_budget": 64, "kv_tokens": 480,  # of six families' stems four fit
}  # fmt: skip
NEW = 12
GREEDY = {"temperature": 0.0, "max_new_tokens": NEW, "ignore_eos": True}
STEMS = ["".join(chr(97 + (i * j + j) % 26) for i in range(96)) for j in (3, 5, 7, 9, 11, 15)]
PROMPTS = [f"{stem} {turn}{pair}?" for turn in (0, 1) for stem in STEMS for pair in (2, 3)]
VERDICT = r'\{"grade": "(Excellent|Above Average|Fair|Below Average)", "year": 20\d\d\}'


@sgl.function
def judge(s, essay):  # type: ignore[no-untyped-def]
    s += essay
    forks = s.fork(2)
    for side, f in enumerate(forks):
        f += f" side {side}:" + sgl.gen("view", max_tokens=NEW, ignore_eos=True)
    s += f" {forks[0]['view']}{forks[1]['view']} so:" + sgl.gen("verdict", regex=VERDICT)


@dataclass(frozen=True)
class Ran:
    """What an engine said, and its counters after the requests and after the programs."""

    texts: tuple[str, ...]
    views: tuple[str, ...]
    verdicts: tuple[str, ...]
    requests: dict[str, Any]
    programs: dict[str, Any]


def run(settings: dict[str, Any], fork: ForkSpec) -> Ran:
    """Serve the requests all at once, then the programs, one after the other."""
    with sgl.Engine(**{**FULL, **settings}, debug_checks=True) as engine:
        results = engine.generate(PROMPTS, GREEDY)
        requests = engine.get_server_info()
        assert engine.flush_cache()
        states = [
            judge.run(essay=essay, backend=engine, fork=fork, temperature=0)
            for essay in PROMPTS[:6:2]
        ]
        views = tuple(state.text().partition(" so:")[0] for state in states)
        verdicts = tuple(state["verdict"] for state in states)
        programs = engine.get_server_info()
    return Ran(tuple(r["text"] for r in results), views, verdicts, requests, programs)


@dataclass(frozen=True)
class Switch:
    """An optimisation taken out.

    Attributes:
        changes: what must be true of the counters with and without it, whole requests or programs.
        settings, fork: what takes it out, or puts another in its place.
        base: settings of both, where it is on other traffic that it matters.
        steers: whether it is the way to a constrained text that it changes.
    """

    changes: Callable[[Ran, Ran], bool]
    settings: dict[str, Any] = field(default_factory=dict)
    fork: ForkSpec = field(default_factory=ParallelFork)
    base: dict[str, Any] = field(default_factory=dict)
    steers: bool = False


def fewer_hits(full: Ran, without: Ran) -> bool:
    return without.requests["cached_tokens"] < full.requests["cached_tokens"]


def more_hits(full: Ran, without: Ran) -> bool:
    return fewer_hits(without, full)


def other_hits(full: Ran, without: Ran) -> bool:
    return fewer_hits(full, without) or more_hits(full, without)


def fewer_steps(full: Ran, without: Ran) -> bool:
    return more_steps(without, full)


def more_steps(full: Ran, without: Ran) -> bool:
    return without.requests["forward_passes"] > full.requests["forward_passes"]


BY_ARRIVAL = {"policy": {"type": "fcfs"}}
ROOMY, TIGHT = {**BY_ARRIVAL, "kv_tokens": 600}, {**BY_ARRIVAL, "kv_tokens": 300}
PASSING = {**ROOMY, "admission": {"type": "pass_over"}}
UNCACHED = {"cache": {"type": "none"}, "kv_tokens": 445, "growth": {"start": 0, "floor": 0}}

SWITCHES = {
    "cache none": Switch(
        lambda full, without: (
            without.programs["cached_tokens"] == 0 < full.requests["cached_tokens"]
        ),
        {"cache": {"type": "none"}},
    ),
    "cache finished": Switch(fewer_hits, {"cache": {"type": "tree", "takes": "finished"}}),
    "cache samples": Switch(fewer_hits, {"cache": {"type": "samples"}}),
    "evicts leaves": Switch(
        lambda full, without: without.requests["evicted_tokens"] > full.requests["evicted_tokens"],
        {"cache": {"type": "tree", "evicts": "leaves"}},
    ),
    "cache table": Switch(fewer_hits, {"cache": {"type": "table"}}),
    "cache manual": Switch(
        lambda full, without: (
            without.requests["cached_tokens"] == 0 < without.programs["cached_tokens"]
        ),
        {"cache": {"type": "manual"}},
    ),
    "cache throttled": Switch(fewer_hits, {"cache": {"type": "throttled", "keep": 0.5}}),
    "cache throttled, finished, leaves": Switch(
        fewer_hits,
        {"cache": {"type": "throttled", "keep": 1.0, "takes": "finished", "evicts": "leaves"}},
    ),
    "eviction lfu": Switch(more_hits, {"eviction": {"type": "lfu"}}, base=ROOMY),
    "eviction lfu_ageing": Switch(more_hits, {"eviction": {"type": "lfu_ageing"}}, base=ROOMY),
    "eviction next_use": Switch(more_hits, {"eviction": {"type": "next_use"}}, base=ROOMY),
    "eviction next_use, otherwise by frequency": Switch(
        more_hits, {"eviction": {"type": "next_use", "otherwise": "lfu_ageing"}}, base=ROOMY
    ),
    "eviction randomized": Switch(
        other_hits, {"eviction": {"type": "randomized", "seed": 1}}, base=ROOMY
    ),
    "policy fcfs": Switch(fewer_hits, {"policy": {"type": "fcfs"}}),
    "policy random": Switch(fewer_hits, {"policy": {"type": "random", "seed": 1}}),
    "policy random anew": Switch(fewer_hits, {"policy": {"type": "random", "anew": True}}),
    "policy dfs_weight": Switch(more_hits, {"policy": {"type": "dfs_weight"}}, base=BY_ARRIVAL),
    "policy aged_lpm": Switch(fewer_hits, {"policy": {"type": "aged_lpm", "max_wait_s": 0}}),
    "policy aged_lpm, held": Switch(
        more_hits,
        {"policy": {"type": "aged_lpm", "max_wait_s": 0, "hold_s": 60}},
        base={"policy": {"type": "aged_lpm", "max_wait_s": 0}},
    ),
    "policy k_lpm": Switch(other_hits, {"policy": {"type": "k_lpm", "k": 1}}),
    "policy hrrn": Switch(more_hits, {"policy": {"type": "hrrn"}}, base=BY_ARRIVAL),
    "policy vtc": Switch(fewer_hits, {"policy": {"type": "vtc"}}),
    "policy dlpm": Switch(more_hits, {"policy": {"type": "dlpm", "quantum": 64}}, base=BY_ARRIVAL),
    "siblings admit": Switch(fewer_hits, {"siblings": {"type": "admit"}}),
    "siblings defer, of long prefixes alone": Switch(
        fewer_hits, {"siblings": {"type": "defer", "min_tokens": 100}}
    ),
    "siblings share_planned": Switch(other_hits, {"siblings": {"type": "share_planned"}}),
    "no hint": Switch(
        lambda full, without: without.programs["requests"] < full.programs["requests"],
        fork=ParallelFork(hint=False),
    ),
    "fork sequential": Switch(
        lambda full, without: (
            without.programs["forward_passes"] > full.programs["forward_passes"]
            and without.programs["mean_batch_size"] < full.programs["mean_batch_size"]
        ),
        fork=SequentialFork(),
    ),
    "samples together": Switch(
        lambda full, without: without.programs["requests"] < full.programs["requests"],
        fork=SequentialFork(samples_together=True),
    ),
    "chunk": Switch(more_steps, {"token_budget": 32}),
    "prompts first": Switch(
        more_steps, {"composition": {"type": "prompts_first", "decode_steps": 4}}
    ),
    "pass over": Switch(fewer_steps, {"admission": {"type": "pass_over"}}, base=TIGHT),
    "pass over, matching all": Switch(
        more_hits, {"admission": {"type": "pass_over", "matches_all": True}}, base=PASSING
    ),
    "pass over, joining at the end": Switch(
        other_hits, {"admission": {"type": "pass_over", "joins_at_end": True}}, base=PASSING
    ),
    "working set": Switch(  # fewer run at once
        more_steps, {"admission": {"type": "working_set", "keep": 1.0}}
    ),
    "growth": Switch(more_steps, {"growth": {"start": 1, "floor": 1}}, base=UNCACHED),
    "page size": Switch(
        lambda full, without: (
            fewer_hits(full, without) and without.requests["cached_tokens"] % 16 == 0
        ),
        {"page_size": 16},
    ),
    "grammar reuse": Switch(
        lambda full, without: (
            (full.programs["grammars"]["compiled"], without.programs["grammars"]["compiled"])
            == (1, len(full.verdicts))
        ),
        {"grammar": {"reuse": False}},
    ),
    "jump none": Switch(
        lambda full, without: (
            without.programs["forced_tokens"] == 0
            and without.programs["forward_passes"] > full.programs["forward_passes"]
        ),
        {"grammar": {"jump": {"type": "none"}}},
        steers=True,
    ),
    "jump retokenize": Switch(
        lambda full, without: without.programs["forced_tokens"] > 0,
        {"grammar": {"jump": {"type": "retokenize"}}},
        steers=True,
    ),
    "mask canonical": Switch(
        lambda full, without: without.programs["forced_tokens"] > 0,
        {"grammar": {"mask": {"type": "canonical"}}},
        steers=True,
    ),
}


ELSEWHERE = {
    "eviction=fifo": "engine/test_same_text.py::test_text_is_the_same_through_evictions",
    "eviction=tlru": "cache/test_orders_zoo.py::"
    "test_tail_optimised_gives_up_short_paths_first_however_recent",
    "eviction=python": "test_own.py::test_an_eviction_order_of_ones_own_is_used",
    "policy=python": "test_own.py::test_a_policy_of_ones_own_orders_the_queue",
    "policy=vtc.output_weight": "schedule/test_policies_zoo.py::"
    "test_virtual_counters_keep_backlogged_clients_within_one_request",
    "policy=dlpm.output_weight": "schedule/test_policies_zoo.py::"
    "test_deficits_bound_what_locality_may_cost_another_client",
    "composition=prompts_first.max_padding": "schedule/test_composition.py::"
    "test_prompts_share_a_step_while_padding_them_to_the_longest_costs_little",
    "composition=prompts_first.jumps_rejoin": "schedule/test_composition.py::"
    "test_who_jumps_forward_waits_behind_who_came_meanwhile_and_says_the_same",
    "growth=adaptive.decay_steps": "schedule/test_growth.py::"
    "test_the_share_sinks_to_its_floor_while_nobody_is_retracted",
    "growth=adaptive.newcomers_in_full": "schedule/test_scheduler.py::"
    "test_newcomers_are_given_room_for_all_they_may_write_in_the_step_that_admits_them",
    "grammar.jump=tokens.guess": "engine/test_guess.py::"
    "test_outputs_and_their_log_probabilities_are_those_without_guesses",
    "grammar.jump=string": "engine/test_constraints.py::"
    "test_mixed_batches_match_their_patterns_and_leave_plain_rows_alone",
    "grammar.sampler=exact": "engine/test_exact.py::"
    "test_the_engine_draws_from_the_true_conditional",
    "grammar.kernels": "fsm/test_masks.py::test_both_kernels_build_the_same_automata_and_rows",
    "grammar.level": "fsm/test_masks.py::"
    "test_a_character_level_grammar_allows_whole_characters_only",
    "grammar.unicode": "fsm/test_language.py::test_classes_are_those_of_re",
    "grammar.whitespace": "fsm/test_json_schema.py::test_every_text_is_valid",
    "grammar.max_whitespace": "fsm/test_json_schema.py::test_every_text_is_valid",
    "grammar.extra_properties": "fsm/test_json_schema.py::"
    "test_extra_properties_cannot_pass_for_listed_ones",
    "grammar.guided": "engine/test_constraints.py::"
    "test_a_recursive_schema_runs_through_llguidance_beside_others",
    "grammar.max_compile_s": "fsm/test_language.py::test_time_budget_is_named",
    "grammar.max_states": "fsm/test_masks.py::test_size_budget_of_masks_is_named",
    "grammar.max_bytes": "fsm/test_masks.py::test_size_budget_of_masks_is_named",
    "grammar.table_bytes": "engine/test_constraints.py::"
    "test_steps_do_not_recompile_for_new_constraints",
    "mesh.tensor": "engine/test_tensor_parallel.py::"
    "test_greedy_tokens_are_the_same_on_any_number_of_devices",
    "attention": "engine/test_same_text.py::test_text_is_the_same_with_every_attention_backend",
    "linear": "models/test_layer_native.py::"
    "test_an_engine_with_native_products_says_so_and_gives_the_same_tokens",
    "shared_prefix=cascade": "engine/test_runs.py::"
    "test_text_is_the_same_with_shared_prefixes_attended_once",
    "shared_prefix=none": "engine/test_runs.py::"
    "test_text_is_the_same_with_shared_prefixes_attended_once",
    "warmup": "engine/test_same_text.py::test_nothing_is_compiled_after_warm_up",
    "num_api_spec_tokens": "lang/test_speculation.py::"
    "test_values_are_those_without_speculation_when_the_template_is_not_followed",
}
"""Options that are no switch of this file -> the test that looks at what they change."""

NO_SWITCH = {
    "model": "another model", "dtype": "other numbers", "kv_dtype": "other numbers",
    "weights=int8": "other numbers", "seed": "other samples", "max_context_len": "room",
    "kv_tokens": "room", "max_running": "room", "programs": "load", "debug_checks": "a check",
    "executor": "a simulated device says other texts",
}  # fmt: skip
"""Options that optimise nothing -> what they are."""


def options(kind: type, where: str = "") -> Iterator[str]:
    """Yield every option that YAML has for an object, as `policy=random` or `cache=tree.takes`."""
    for name, hint in get_type_hints(kind).items():
        inner = _objects(hint)
        if not inner and name not in ("type", "__pydantic_config__"):
            yield where + name
        for one in inner:
            tag = _tag(one)
            if tag is None:
                yield from options(one, f"{where}{name}.")
            else:
                yield f"{where}{name}={tag}"
                yield from options(one, f"{where}{name}={tag}.")


def said(kind: type, settings: dict[str, Any], where: str = "") -> Iterator[str]:
    """Yield the options that settings of an object give."""
    for name, value in settings.items():
        inner = _objects(get_type_hints(kind)[name])
        if not inner:
            yield where + name
            continue
        tagged = _tag(inner[0]) is not None
        tag = value.get("type", _tag(inner[0])) if tagged else None
        [one] = [c for c in inner if _tag(c) == tag]
        own = {key: of for key, of in value.items() if key != "type"}
        if tagged:
            yield f"{where}{name}={tag}"
        yield from said(one, own, f"{where}{name}={tag}." if tagged else f"{where}{name}.")


def without(found: Iterator[str], prefixes: Any) -> list[str]:
    """Leave out options that a prefix names, and all that belongs to them."""
    return [
        option
        for option in found
        if not any(option == p or option.startswith((f"{p}.", f"{p}=")) for p in prefixes)
    ]


def all_options() -> list[str]:
    """Return every option of the engine and of the language, but for those that are the default."""
    default = {f"{f}={_tag(type(v))}" for f, v in vars(EngineConfig()).items() if is_dataclass(v)}
    grammar = vars(EngineConfig().grammar).items()
    default |= {f"grammar.{f}={_tag(type(v))}" for f, v in grammar if is_dataclass(v)}
    default.add("fork=parallel")
    return [o for o in (*options(EngineConfig), *options(LanguageSpec)) if o not in default]


def switched() -> set[str]:
    """Return the options that some switch gives."""
    found = set()
    for switch in SWITCHES.values():
        found.update(said(EngineConfig, switch.settings))
        found.update(said(LanguageSpec, {"fork": vars(switch.fork)}))
    return found


def _objects(hint: Any) -> list[type]:
    return (
        [hint] if is_dataclass(hint) else [o for inner in get_args(hint) for o in _objects(inner)]
    )


def _tag(kind: type) -> str | None:
    hint = get_type_hints(kind).get("type")
    return None if hint is None else str(get_args(hint)[0])
