"""The command line's `view`: pages that show what a cache and a scheduler did.

Imports typer and the lab; heavy modules only in the commands that need them.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgjax.errors import ResultsError

RECORDING = "recording.json"
views = typer.Typer(no_args_is_help=True, help="Pages of the prefix tree and the schedule.")
Out = Annotated[Path, typer.Option(help="Folder for the pages.")]


@views.command()
def figure3(out: Out = Path("results/views")) -> None:
    """Replay the nine steps of the paper's Figure 3."""
    from sgjax.lab.views.figure3 import figure3 as record
    from sgjax.lab.views.pages import tree_page

    _write(out, {"figure3.html": tree_page(record())})


@views.command()
def run(
    file: Annotated[
        str, typer.Argument(help="The experiment, a YAML file or the name of one that ships.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted keys, YAML values.")
    ] = None,
    variant: Annotated[str | None, typer.Option(help="Its first, if not given.")] = None,
    workload: Annotated[str | None, typer.Option(help="Its first, if not given.")] = None,
    arm: Annotated[str | None, typer.Option(help="simulated or measured; or the first.")] = None,
    first: Annotated[int, typer.Option(help="Programs to run.", min=1)] = 40,
    out: Out = Path("results/views"),
) -> None:
    """Run the first programs of one variant; show its tree, step by step, and its schedule."""
    from sgjax import Engine
    from sgjax.errors import ConfigError
    from sgjax.lab.config import load_arms
    from sgjax.lab.views.record import record_run
    from sgjax.shipped import find_experiment

    arms = load_arms(find_experiment(file), overrides or [])
    chosen = [e for e in arms if arm in (None, e.arm)]
    if not chosen:
        raise ConfigError(f"arm={arm!r} is not allowed; {file} has {[e.arm for e in arms]}")

    def build_engine(settings: dict[str, Any]) -> Engine:
        return Engine(**settings)

    experiment = chosen[0]
    recording = record_run(
        experiment,
        workload or next(iter(experiment.workloads)),
        variant or next(iter(experiment.variants)),
        first,
        build_engine,
    )
    _write(out, {RECORDING: recording.to_json()})
    draw(out / RECORDING)


@views.command()
def draw(
    recording: Annotated[Path, typer.Argument(help=f"A {RECORDING} of `view run`.")],
) -> None:
    """Draw the pages of a recording again, beside it."""
    from sgjax.lab.views.pages import schedule_page, tree_page
    from sgjax.lab.views.recorder import Recording

    try:
        text = recording.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read the recording: {error}") from None
    found = Recording.from_json(text)
    pages = {"tree.html": tree_page(found), "schedule.html": schedule_page(found)}
    _write(recording.parent, pages)


def _write(out: Path, files: dict[str, str]) -> None:
    from sgjax.lab.records import make_folder, write_atomically

    make_folder(out)
    for name, text in files.items():
        write_atomically(out / name, text.encode())
        print(f"Written: {out / name}")
