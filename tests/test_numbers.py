"""Numbers without meaning are refused, in every object that YAML can fill.

The objects are found from the types of the engine's and the laboratory's configuration, so that a
new one is held to it, too.
"""

import math
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from sgjax.engine.config import EngineConfig
from sgjax.errors import ConfigError
from sgjax.lab.cluster import ClusterSpec
from sgjax.lab.config import Experiment, parse_experiment
from sgjax.lab.peers.spec import PeerSpec
from sgjax.lab.reference import Range, Reference
from sgjax.lab.workloads import DataSource
from sgjax.lang.spec import LanguageSpec
from sgjax.sim.build import SimSpec
from sgjax.sim.hardware import Hardware, load_hardware, with_constants
from sgjax.typed import validate

ROOTS = (EngineConfig, Experiment, ClusterSpec, PeerSpec, LanguageSpec)
MISSING_VALUES: dict[str, Any] = {
    "keep": 0.5, "slack_tokens": 5, "hardware": "a10g", "low": 1, "high": 2, "median": 5,
    "sigma": 1, "workers": 2, "num_requests": 5, "rate_per_s": 1, "share": 1, "prefix": 4, "own": 4,
    "output": 4, "depth": 2, "step": 2, "name": "e", "claim": "c", "variants": {"a": {}},
    "workloads": {"a": {"type": "mmlu"}}, "file": "t.jsonl",
    "families": {"a": {"share": 1, "prefix": 4, "own": 4, "output": 4}},
}  # fmt: skip
"""Good values of the fields that have no default, by name."""
WITHOUT_ONE_NUMBER = {(Reference, "values"), (Range, "range"), (SimSpec, "constants")}
"""Fields of many numbers, which are looked at by name."""
MAY_BE_0 = {
    "seed", "seeds", "keep", "slack_tokens", "max_wait_s", "hold_s", "k", "output_weight",
    "floor", "max_padding", "settle_s", "compile_s", "mask_s", "pause_s", "tokenize_s",
    "call_s", "token_s", "forced_s", "further_passes",
    "collect_every_s", "sigma", "max_whitespace", "warmup", "DistortionWorkload.samples",
    "demonstrations", "labelled", "prefix", "shots", "examples", "temperature", "mean_within",
    "bars_within", "bars_share", "min_share", "max_lead",
}  # fmt: skip
"""Fields in which none, at once or never means something."""


def objects(kind: Any, found: dict[type, None]) -> dict[type, None]:
    """Find the dataclasses that a type leads to."""
    if is_dataclass(kind) and kind not in found:
        found[kind] = None
        for inner in get_type_hints(kind).values():
            objects(inner, found)
    for inner in get_args(kind):
        objects(inner, found)
    return found


def holds_a_number(kind: Any) -> bool:
    return kind in (int, float) or any(holds_a_number(inner) for inner in get_args(kind))


OBJECTS = [kind for root in ROOTS for kind in objects(root, {})]
NUMBERS = [
    (kind, name, hint)
    for kind in dict.fromkeys(OBJECTS)
    for name, hint in get_type_hints(kind).items()
    if holds_a_number(hint) and (kind, name) not in WITHOUT_ONE_NUMBER
]


def build(kind: type, name: str, hint: Any, value: float) -> None:
    """Build an object with a value, as far as its values are looked at before anything runs."""
    needed = {
        f.name: MISSING_VALUES[f.name]
        for f in fields(kind)
        if f.default is MISSING and f.default_factory is MISSING
    }
    shaped: Any = [value] if get_origin(hint) is tuple else value
    if kind is Experiment:
        parse_experiment({**needed, name: shaped}, "test")
    else:
        built = validate(kind, {**needed, name: shaped}, "test")
        if hasattr(built, "load"):  # a workload
            built.load(DataSource(), seed=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1], ids=str)
@pytest.mark.parametrize(
    ("kind", "name", "hint"), NUMBERS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in NUMBERS]
)
def test_a_number_without_meaning_is_refused(kind, name, hint, value):
    with pytest.raises(ConfigError) as caught:
        build(kind, name, hint, value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "hint"), NUMBERS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in NUMBERS]
)
def test_0_is_refused_where_it_means_nothing(kind, name, hint):
    if {name, f"{kind.__name__}.{name}"} & MAY_BE_0:
        build(kind, name, hint, 0)
    else:
        with pytest.raises(ConfigError, match=name):
            build(kind, name, hint, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1], ids=str)
@pytest.mark.parametrize("name", [f.name for f in fields(Hardware) if f.type is float])
def test_a_devices_constant_without_meaning_is_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        with_constants(load_hardware("a10g"), {name: value})


@pytest.mark.parametrize("numbers", [{"m": {"a": math.nan}}, {"m": {"a": -1}}, {"m": {"a": 0}}])
def test_a_value_of_the_papers_without_meaning_is_refused(numbers):
    with pytest.raises(ConfigError, match="a"):
        validate(Reference, {"values": numbers}, "test")
    [number] = numbers["m"].values()
    with pytest.raises(ConfigError, match="range"):
        validate(Range, {"range": [number, 1]}, "test")


def test_what_is_looked_at_is_not_nothing():
    found = {(kind.__name__, name) for kind, name, _ in NUMBERS}
    assert {("RandomSpec", "seed"), ("SimSpec", "mask_s"), ("TraceWorkload", "tile")} <= found
    assert len(found) > 90
