"""Run one variant of an experiment once, and record what its cache and scheduler did.

Imports the lab, cache and schedule.
"""

from collections.abc import Callable
from typing import Any, Protocol

from sgjax.cache import Keys
from sgjax.errors import ConfigError
from sgjax.lab.config import Experiment
from sgjax.lab.views.recorder import Describe, Recorder, Recording
from sgjax.lab.workloads import LabEngine
from sgjax.schedule import Watcher
from sgjax.tokens.base import Tokenizer
from sgjax.typed import nearest

SHOWN_TOKENS = 24
"""So many tokens of an edge are turned into text."""


class WatchedEngine(LabEngine, Protocol):
    """An engine that can be watched, as `sgjax.Engine` can."""

    def watch(self, watcher: Watcher) -> None:
        """Show a watcher every change of the cache and every step from now on."""
        ...


BuildWatched = Callable[[dict[str, Any]], WatchedEngine]


def record_run(
    experiment: Experiment,
    workload: str,
    variant: str,
    first: int,
    build_engine: BuildWatched,
) -> Recording:
    """Run the first programs of a workload, with the first seed, and record it.

    On a real device they run once before, unseen, so that nothing is compiled meanwhile.

    Raises:
        ConfigError: the workload or variant is unknown, the variant is served by several workers,
            or the data is not there.
    """
    for name, allowed in ((workload, experiment.workloads), (variant, experiment.variants)):
        if name not in allowed:
            raise ConfigError(f"the experiment has no {name!r}; {nearest(name, list(allowed))}")
    if experiment.cluster(variant) is not None:
        raise ConfigError(
            f"variant {variant!r} is served by several workers, and the views show the tree of "
            "one; choose a variant without 'cluster'"
        )
    seed = experiment.seeds[0]
    task = experiment.workloads[workload].load(experiment.data, seed).first(first)
    engine = build_engine(experiment.engine_settings(variant, seed))
    try:
        title = f"{experiment.name}, {variant} on {workload}: {task.num_programs} programs"
        language = experiment.language(variant)
        if experiment.arm == "measured":
            task.run(engine, language)
            engine.flush_cache()
        recorder = Recorder(title, describe_by(engine.tokenizer))
        engine.watch(recorder)
        task.run(engine, language)
        return recorder.recording()
    finally:
        engine.shutdown()


def describe_by(tokenizer: Tokenizer) -> Describe:
    """Return a description of tokens: their text, or their numbers where they have none."""

    def describe(key: Keys) -> str:
        ids = key[:SHOWN_TOKENS].tolist()
        if max(ids) < tokenizer.vocab_size:
            return tokenizer.decode(ids, skip_special=False)
        return "tokens " + " ".join(map(str, ids))

    return describe
