"""The command line. Imports anything; heavy modules only in the commands that need them.

A mistake of the user's ends in one line on stderr and exit code 1 (2 for the usage of the command
line itself); `sgjax --debug COMMAND ...` shows the traceback.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from sgjax.errors import SgjaxError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class _Commands(TyperGroup):
    """Commands whose `SgjaxError` becomes one line on stderr, unless --debug is given."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SgjaxError as error:
            if ctx.params["debug"]:
                raise
            print(f"sgjax: {type(error).__name__}: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from sgjax.lab.provenance import versions

        print(f"sgjax {versions()['sgjax']}")
        raise typer.Exit


@app.callback()
def sgjax(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it, exit."),
    ] = False,
) -> None:
    """SGLang's language and runtime in JAX, for research."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The experiment, a YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted keys, YAML values.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("results"),
) -> None:
    """Run an experiment; draw its table, figure and report."""
    from sgjax.lab.config import load_experiment
    from sgjax.lab.plot import redraw
    from sgjax.lab.runner import run_experiment

    experiment = load_experiment(file, overrides or [])
    console = Console()
    finished = run_experiment(experiment, out, _build_engine, console)
    if finished.interrupted:
        where = f" in {finished.directory}" if finished.num_records else ""
        console.print(f"Stopped; {finished.num_records} timed runs are kept{where}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED)
    _say_written(console, redraw(finished.directory, console))


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="A results folder, or its results.jsonl.")],
) -> None:
    """Redraw table, figure and report from results alone."""
    from sgjax.lab.plot import redraw

    console = Console()
    _say_written(console, redraw(results, console))


def main() -> None:
    """Run the command line."""
    app()


def _build_engine(settings: dict[str, Any]) -> Any:
    from sgjax import Engine

    return Engine(**settings)


def _say_written(console: Console, files: list[Path]) -> None:
    console.print("Written: " + ", ".join(file.name for file in files), highlight=False)
    console.print(f"     in: {files[0].parent}", soft_wrap=True, highlight=False)
