"""The experiment file: typed YAML with `key=value` overrides.

Imports typed, the lab's workloads, metrics, references and expectations. Below `load_arms` nothing
sees what the user wrote, except that engine settings stay plain data until the engine validates
them.

Four keys of a file say how the others are to be read, and are gone from an `Experiment`. Two hold
overrides, dotted keys with their values, as the command line takes them::

    arms:                              # the same experiment, run in more than one way
      simulated: {base.executor: {type: sim, hardware: a10g, model: llama-2-7b}}
      measured: {base.model: smollm2-135m, workloads.mmlu.num_questions: 100}
    quick:                             # what `sgjax run --quick` changes
      workloads.mmlu.num_questions: 40
      seeds: [0]
    peers: {names: [vllm, llama_cpp]}  # the engines that `sgjax run --peers` adds as variants
    sweep: {kv_tokens: [1000, 2000]}   # a variant more of each variant for each value

An arm's overrides come first (one of them may be `quick`, in place of the file's), then `quick`,
then the command line's, then the sweep. A file without `arms` is run as it stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lab.baselines import load_baseline
from sgjax.lab.cluster import ClusterSpec
from sgjax.lab.expect import parse_expectation
from sgjax.lab.figures.spec import BarsFigure, FigureConfig
from sgjax.lab.metrics import METRICS
from sgjax.lab.overrides import (
    Override,
    override,
    override_what_is_there,
    parse_override,
    sweep,
)
from sgjax.lab.peers.spec import PeerSpec
from sgjax.lab.reference import Arm, Reference
from sgjax.lab.workloads import DataSource, WorkloadConfig
from sgjax.lang.spec import LanguageSpec
from sgjax.typed import FORBID_EXTRA, load_yaml, nearest, validate

ANSWERS = "answers_digest"
"""What expectations may compare beside metrics: the digest of all answers of a variant."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table: what is claimed, what is run, what is expected.

    Attributes:
        name: names the results folder.
        claim: the sentence under test, with the paper's figure where there is one.
        workloads: by name.
        variants: by name, engine settings that differ from `base`; the key `language` says how
            programs run (`LanguageSpec`), `cluster` that several workers serve (`ClusterSpec`),
            `baseline` names settings in configs/baselines that come between, and `peer` another
            engine that runs it (`PeerSpec`).
        base: engine settings of all variants, and their `language`, `cluster` and `baseline`.
        metrics: columns of the table.
        expect: comparisons over `variant.metric`, judged for each workload; or once, see `expect`.
        seeds: each fixes the order of the programs and the engine's seed.
        repeats: timed runs a variant; each begins with an empty cache. A run in which the engine
            compiled something is made again, twice at most.
        warmup: programs that every engine runs untimed before, so that most is compiled.
        interleave: keep the engines of all variants alive and take turns, so that a change of
            the machine's speed meets all alike; false holds one engine at a time in memory.
        reference: what the paper reports, by metric.
        data: where the workloads' data come from.
        figure: what is drawn.
    """

    __pydantic_config__ = FORBID_EXTRA
    name: str
    claim: str
    workloads: dict[str, WorkloadConfig]
    variants: dict[str, dict[str, Any]]
    base: dict[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("throughput_programs_per_s", "cache_hit_rate", "computed_tokens")
    expect: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    repeats: int = 1
    warmup: int = 16
    interleave: bool = True
    reference: dict[str, Reference] = field(default_factory=dict)
    data: DataSource = field(default_factory=DataSource)
    figure: FigureConfig = field(default_factory=BarsFigure)

    @property
    def arm(self) -> Arm:
        """Return how its numbers come about: simulated if all its engines are."""
        executors = [self.engine_settings(name, 0).get("executor") for name in self.variants]
        simulated = all(isinstance(e, dict) and e.get("type") == "sim" for e in executors)
        return "simulated" if simulated else "measured"

    def engine_settings(self, variant: str, seed: int) -> dict[str, Any]:
        """Return the engine settings of a variant: `base`, overridden by the variant's own."""
        settings = self.said_of(variant)
        settings.pop("language", None)
        settings.pop("cluster", None)
        return {**settings, "seed": seed}

    def cluster(self, variant: str) -> ClusterSpec | None:
        """Return which workers serve a variant together; None for one engine.

        Raises:
            ConfigError: what the YAML says of it is not valid.
        """
        said = self.said_of(variant).get("cluster")
        where = f"variant {variant!r}: cluster"
        return None if said is None else validate(ClusterSpec, said, where)

    def language(self, variant: str) -> LanguageSpec:
        """Return how a variant's programs run.

        Raises:
            ConfigError: what the YAML says of it is not valid.
        """
        said = self.said_of(variant).get("language", {})
        return validate(LanguageSpec, said, f"variant {variant!r}: language")

    def peer(self, variant: str) -> PeerSpec | None:
        """Return the other engine that runs a variant, or None where it is ours.

        Raises:
            ConfigError: what the YAML says of it is not valid.
        """
        said = self.said_of(variant).get("peer")
        return None if said is None else validate(PeerSpec, said, f"variant {variant!r}: peer")

    def said_of(self, variant: str) -> dict[str, Any]:
        """Return all that `base`, baselines and the variant say together, checked by nobody yet."""
        settings: dict[str, Any] = {}
        for layer in (self.base, self.variants[variant]):
            own = dict(layer)
            baseline = own.pop("baseline", None)
            if baseline is not None:
                settings = _overlay(settings, load_baseline(baseline))
            settings = _overlay(settings, own)
        return settings


def _overlay(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `own`.

    An object with a tag, such as `cache: {type: none}`, replaces another with one as a whole;
    otherwise the keys of both are put together.
    """
    merged = {**base, **own}
    for key, value in own.items():
        before = base.get(key)
        if not isinstance(value, Mapping) or not isinstance(before, Mapping):
            continue
        if "type" not in value or "type" not in before:
            merged[key] = _overlay(before, value)
    return merged


@dataclass(frozen=True)
class Peers:
    """The file's key `peers`: what `--peers` adds to the arm that is measured.

    Attributes:
        names: of `PEERS`; each becomes a variant of its name.
        expect: expectations that need them.
    """

    __pydantic_config__ = FORBID_EXTRA
    names: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()


def load_arms(
    path: Path,
    overrides: Sequence[str],
    quick: bool = False,
    pythons: Mapping[str, str] | None = None,
) -> tuple[Experiment, ...]:
    """Read an experiment file.

    Args:
        path: the YAML file.
        overrides: `dotted.key=value` with a YAML value, applied in order, to every arm.
        quick: whether to apply what the file says of short runs.
        pythons: interpreters of peers by name, for those that have one; None leaves all peers out.

    Returns:
        One experiment an arm, in the file's order; one alone where the file names no arms.

    Raises:
        ConfigError: the file or an override is not valid; an unknown key is answered with the
            nearest valid one. The file's `quick` must be valid also where it is not asked for.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file of it, or --all --folder {path}")
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of keys to values")
    data = {"name": path.stem, **data}
    given = [parse_override(text) for text in overrides]
    if pythons is None and any(key.split(".")[0] == "peers" for key, _ in given):
        raise ConfigError("what overrides say of peers is used with --peers alone; add it")
    arms = validate(dict[Arm, dict[str, Any]], data.pop("arms", {}), f"{path}: arms")
    loaded = [_load_arm(data, arm, quick, given, pythons, path) for arm in arms.values() or [{}]]
    for key, _ in given:
        problems = [without_effect.get(key, "") for _, without_effect in loaded]
        if all(problems):  # one that names something near says more than the others
            raise ConfigError(f"{path}: {max(problems, key=lambda said: 'did you mean' in said)}")
    return tuple(experiment for experiment, _ in loaded)


def has_short_form(path: Path) -> bool:
    """Return whether a file's short form is another one than its full form."""
    return load_arms(path, [], quick=True) != load_arms(path, [])


def load_experiment(path: Path, overrides: Sequence[str], quick: bool = False) -> Experiment:
    """Read an experiment file that has one arm at most; see `load_arms`."""
    experiments = load_arms(path, overrides, quick)
    if len(experiments) > 1:
        raise ConfigError(f"{path} has {len(experiments)} arms, and one experiment is needed here")
    return experiments[0]


def parse_experiment(data: object, where: str) -> Experiment:
    """Build an experiment from plain data and check what its names refer to."""
    experiment = validate(Experiment, data, where)
    _check(experiment, where)
    return experiment


def _load_arm(
    data: dict[str, Any],
    arm: Mapping[str, Any],
    quick: bool,
    overrides: Sequence[Override],
    pythons: Mapping[str, str] | None,
    path: Path,
) -> tuple[Experiment, dict[str, str]]:
    """Return an arm, and by key why an override of the command line has no effect on it."""
    full = override(data, arm.items())
    short = validate(dict[str, Any], full.pop("quick", {}), f"{path}: quick")
    shortened = override(full, short.items())
    _parse_arm(shortened, f"{path}, quick" if short else str(path))
    begun = shortened if quick else full
    changed, without_effect = override_what_is_there(begun, overrides)
    experiment, peers = _parse_arm(changed, str(path))
    for key, value in overrides:
        others = [(k, v) for k, v in overrides if k != key]
        base = override_what_is_there(begun, others)[0].get("base", {})
        if key.startswith("base.") and _overshadowed(experiment, base):
            without_effect[key] = (
                f"override '{key}={value}' changes nothing: every variant sets this itself; write "
                f"variants.NAME.{key.removeprefix('base.')}=..."
            )
    # What is said of peers must be valid also where they are not asked for.
    with_peers = _add_peers(experiment, peers, pythons or {}, str(path))
    joined = pythons is not None and experiment.arm == "measured"
    return with_peers if joined else experiment, without_effect


def _parse_arm(data: Mapping[str, Any], where: str) -> tuple[Experiment, Peers]:
    swept = sweep(data)
    peers = validate(Peers, swept.pop("peers", {}), f"{where}: peers")
    return parse_experiment(swept, where), peers


def _overshadowed(experiment: Experiment, base: dict[str, Any]) -> bool:
    """Return whether another base differs, and yet makes no difference to any variant."""
    other = replace(experiment, base=base)
    alike = all(experiment.said_of(name) == other.said_of(name) for name in experiment.variants)
    return alike and experiment.base != base


def _add_peers(
    experiment: Experiment, peers: Peers, pythons: Mapping[str, str], where: str
) -> Experiment:
    """Return the experiment with its peers as variants, checked like any other."""
    variants = dict(experiment.variants)
    for name in peers.names:
        if name in variants:
            raise ConfigError(f"{where}: peer {name!r} has the name of a variant; rename that one")
        variants[name] = {"peer": {"name": name, "python": pythons.get(name)}}
    expect = (*experiment.expect, *peers.expect)
    with_peers = replace(experiment, variants=variants, expect=expect)
    _check(with_peers, f"{where}, peers")
    return with_peers


def _check(experiment: Experiment, where: str) -> None:
    for kind in ("workloads", "variants", "seeds"):
        if not getattr(experiment, kind):
            raise ConfigError(f"{where}: {kind} is empty; name at least one")
    for name, least in (("repeats", 1), ("warmup", 0)):
        if getattr(experiment, name) < least:
            raise ConfigError(
                f"{where}: {name}={getattr(experiment, name)} is not allowed; it must be >= {least}"
            )
    if min(experiment.seeds) < 0 or len(set(experiment.seeds)) < len(experiment.seeds):
        raise ConfigError(
            f"{where}: seeds={list(experiment.seeds)} is not allowed; give different numbers, each "
            "0 or more"
        )
    if not experiment.name or Path(experiment.name).name != experiment.name:
        raise ConfigError(f"{where}: name={experiment.name!r} must be usable as a folder's name")
    if not experiment.figure.panels:
        raise ConfigError(f"{where}: figure.panels is empty; name at least one metric")
    for name in experiment.variants:
        if not name.isidentifier():
            raise ConfigError(f"{where}: variant {name!r} must be a name that expectations can use")
        if "seed" in experiment.variants[name] | experiment.base:
            raise ConfigError(f"{where}: set the engine's seed by the experiment's 'seeds'")
        experiment.language(name)
        experiment.cluster(name)
        experiment.peer(name)
    for metric in experiment.metrics + experiment.figure.metrics:
        _known(metric, list(METRICS), f"{where}: unknown metric")
    for source in experiment.expect:
        _check_expectation(experiment, source, where)
    for metric, reference in experiment.reference.items():
        _known(metric, list(METRICS), f"{where}: reference of an unknown metric")
        _check_reference(experiment, reference, f"{where}: reference.{metric}")


def _check_reference(experiment: Experiment, reference: Reference, where: str) -> None:
    if reference.relative_to is not None:
        _known(reference.relative_to, list(experiment.variants), f"{where}: unknown variant")
    for workload, values in reference.values.items():
        _known(workload, list(experiment.workloads), f"{where}: unknown workload")
        for variant in values:
            _known(variant, list(experiment.variants), f"{where}.{workload}: unknown variant")


def _check_expectation(experiment: Experiment, source: str, where: str) -> None:
    expectation = parse_expectation(source)
    for name in expectation.names:
        _known(name.variant, list(experiment.variants), f"{where}: {source!r}: unknown variant")
        _known(name.metric, [*METRICS, ANSWERS], f"{where}: {source!r}: unknown metric")
        if name.workload is not None:
            workloads = list(experiment.workloads)
            _known(name.workload, workloads, f"{where}: {source!r}: unknown workload")
    texts = {name.metric == ANSWERS for name in expectation.names}
    if True in texts and (False in texts or not expectation.only_equates):
        raise ConfigError(f"{where}: {source!r}: compare {ANSWERS} by == or != with another's")


def _known(name: str, allowed: list[str], what: str) -> None:
    if name not in allowed:
        raise ConfigError(f"{what} {name!r}; {nearest(name, allowed)}")
