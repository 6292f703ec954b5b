"""The command line's `experiments`: those that ship, to be run by name or copied.

Imports typer and the lab; heavy modules only in the commands that need them.
"""

from typing import Annotated

import typer

experiments = typer.Typer(no_args_is_help=True, help="The experiments that ship.")


@experiments.command("list")
def list_experiments() -> None:
    """List the experiments that ship, with their claims; `sgjax run NAME` runs one."""
    from rich.console import Console
    from rich.table import Table

    from sgjax.lab.config import load_arms
    from sgjax.shipped import shipped_experiments

    table = Table("experiment", "runs", "claim")
    for path in sorted(shipped_experiments().glob("*.yaml")):
        arms = load_arms(path, [])
        table.add_row(path.stem, ", ".join(arm.arm for arm in arms), arms[0].claim)
    Console().print(table)


@experiments.command("show")
def show_experiment(name: Annotated[str, typer.Argument(help="An experiment's name.")]) -> None:
    """Print an experiment's file: `sgjax experiments show NAME > mine.yaml` makes a copy."""
    from sgjax.shipped import find_experiment

    print(find_experiment(name).read_text(encoding="utf-8"), end="")
