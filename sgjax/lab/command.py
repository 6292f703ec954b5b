"""What `sgjax run` does with its options: one experiment, or all of a folder.

Imports the lab, rich, models' presets and the engine's configuration. Engines and checkpoints come
from functions that are passed in.
"""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from sgjax.engine.config import resolve
from sgjax.errors import ConfigError, SgjaxError
from sgjax.lab.campaign import run_all
from sgjax.lab.config import Experiment, has_short_form, load_arms
from sgjax.lab.peers.spec import PeerSpec
from sgjax.lab.plot import redraw
from sgjax.lab.records import Asked
from sgjax.lab.runner import BuildEngine, Finished, run_experiment

FAILED, INTERRUPTED = 1, 130
"""Exit codes; that after Ctrl-C is as shells have it."""


@dataclass(frozen=True)
class RunCommand:
    """Run experiments' files as the command line says.

    Attributes:
        overrides: `dotted.key=value`, for every experiment.
        quick: whether to run short forms.
        resume: whether to go on in the newest results of the same experiment.
        pythons: interpreters of peers by name; None runs no peers.
        out: the folder that holds all results.
        console: where progress and tables go.
        build_engine: builds an engine for a variant.
        fetch_model: fetches a preset's checkpoint, in the open.
    """

    overrides: Sequence[str]
    quick: bool
    resume: bool
    pythons: Mapping[str, str] | None
    out: Path
    console: Console
    build_engine: BuildEngine
    fetch_model: Callable[[str], None]

    def one(self, file: Path) -> int:
        """Run one experiment, print and draw it; return the exit code."""
        finished = self._run(file, "")
        say = self.console.print
        if finished.interrupted:
            where = f" in {finished.directory}" if finished.num_records else ""
            say(f"Stopped; {finished.num_records} timed runs are kept{where}", soft_wrap=True)
            say("--resume goes on from there")
            return INTERRUPTED
        say_written(self.console, redraw(finished.directory, self.console))
        for failure in finished.failures:
            print(f"sgjax: {failure.arm}, not finished: {failure.error}", file=sys.stderr)
        return FAILED if finished.failures else 0

    def all(self, folder: Path, budget_s: float | None) -> int:
        """Run all experiments of a folder and write the index; return the exit code."""
        files = sorted(folder.glob("*.yaml"))
        if not files:
            raise ConfigError(f"{folder} holds no experiments; give a folder of *.yaml files")
        campaign = run_all(files, self.out, self._run_and_forget, self.console, budget_s)
        say_written(self.console, [campaign.index])
        if campaign.interrupted:
            return INTERRUPTED
        return FAILED if any(entry.crash for entry in campaign.entries) else 0

    def _run(self, file: Path, title: str) -> Finished:
        arms = load_arms(file, self.overrides, self.quick, self.pythons)
        self._fetch_models(arms)
        asked = Asked(self.quick and has_short_form(file), tuple(self.overrides))
        return run_experiment(
            arms, self.out, self.build_engine, self.console, self.resume, title, asked
        )

    def _run_and_forget(self, file: Path, title: str) -> Finished:
        """Run an experiment; free its programs: those of many exceed a process's memory maps."""
        try:
            return self._run(file, title)
        finally:
            if "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
                gc.collect()

    def _fetch_models(self, arms: Sequence[Experiment]) -> None:
        """Fetch the checkpoints that the arms' variants need, before anything is drawn."""
        for arm in arms:
            own = [name for name in arm.variants if arm.peer(name) is None]
            try:
                models = [resolve(None, arm.engine_settings(name, 0)).model for name in own]
                for model in dict.fromkeys(models):
                    self.fetch_model(model)
            except SgjaxError:
                pass  # the arm's own run says so, and the other arms go on


def read_pythons(given: Sequence[str]) -> dict[str, str]:
    """Return peers' Pythons by name, written `NAME=PYTHON`.

    Raises:
        ConfigError: one is not written so, or names no peer.
    """
    pairs = [text.partition("=") for text in given]
    for text, (_, equals, python) in zip(given, pairs, strict=True):
        if not (equals and python):
            raise ConfigError(f"peer {text!r} is not allowed; write NAME=PYTHON")
    return {PeerSpec(name).name: python for name, _, python in pairs}


def say_written(console: Console, files: Sequence[Path]) -> None:
    """Say which files were written, and where."""
    console.print("Written: " + ", ".join(file.name for file in files), highlight=False)
    console.print(f"     in: {files[0].parent}", soft_wrap=True, highlight=False)
