"""`@function`: programs, and the ways to run them. Imports its neighbours."""

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, final, overload

from sgjax.errors import ConfigError
from sgjax.lang.batch import Job, run_jobs
from sgjax.lang.defaults import global_config
from sgjax.lang.delivery import Delivery
from sgjax.lang.options import OPTIONS, Sampling
from sgjax.lang.prefix import constant_prefix
from sgjax.lang.program import Program, RunSettings
from sgjax.lang.spec import ForkSpec
from sgjax.lang.state import ProgramState

if TYPE_CHECKING:
    from sgjax.lang.compiler.compiled import CompiledProgram
    from sgjax.lang.compiler.graph import Graph

RESERVED = OPTIONS | {"stream", "backend", "fork", "num_threads", "progress_bar", "generator_style"}
"""Arguments of `run` and `run_batch`, which no parameter of a program may be called."""


@final
class SglFunction:
    """A program: a Python function whose first parameter is the prompt state `s`.

    Args:
        func: the function.
        num_api_spec_tokens: tokens to speculate past a stop (API backends); None does not.
        bound: arguments that are fixed.

    Raises:
        ConfigError: the first parameter is not `s`, or one has a name that `run` uses itself.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        num_api_spec_tokens: int | None = None,
        bound: Mapping[str, Any] | None = None,
    ) -> None:
        self.func = func
        self.name = func.__name__
        self.num_api_spec_tokens = num_api_spec_tokens
        self.bound = dict(bound or {})
        self._signature = _signature(func)
        functools.update_wrapper(self, func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, like `run`."""
        return self.run(*args, **kwargs)

    def bind(self, **arguments: Any) -> "SglFunction":
        """Return this program with some arguments fixed.

        Raises:
            ConfigError: it has no such parameter.
        """
        self._check_names(arguments)
        return SglFunction(self.func, self.num_api_spec_tokens, {**self.bound, **arguments})

    def run(
        self,
        *args: Any,
        stream: bool = False,
        backend: object = None,
        fork: ForkSpec | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the program.

        Args:
            *args: the program's arguments, without `s`.
            stream: return at once, and ask the backend for pieces of text.
            backend: a backend or an engine; None takes the default.
            fork: how forks run; None takes `global_config.fork`.
            **kwargs: the program's arguments, and sampling defaults: see `options.OPTIONS`.

        Returns:
            The final state; with `stream` the state in the making.

        Raises:
            ProgramError: the function raised, or a stream failed; chained to the cause.
            ConfigError: unknown arguments.

        Inside a trace the program becomes a stream of the graph.
        """
        from sgjax.lang.compiler.tracer import current_tracer

        _check_flags(stream=stream)
        options, arguments = self.split(args, kwargs)
        if (tracer := current_tracer()) is not None:
            tracer.refuse_settings(stream=stream, backend=backend, fork=fork)
            return tracer.call(self, arguments, options)
        settings = self.settings(options, stream, backend, fork)
        active = settings.backend.active
        program = Program(settings, Delivery(1, active), self.name, shared=stream)
        state = ProgramState(program.root)
        job = functools.partial(program.run, functools.partial(self.func, state, **arguments))
        active(1)
        if stream:
            run = functools.partial(_run_and_rest, job, active)
            threading.Thread(target=run, name=self.name, daemon=True).start()
            return state
        _run_and_rest(job, active)
        program.finished.result()
        if (error := program.error()) is not None:
            raise error
        return state

    @overload
    def run_batch(
        self,
        batch_arguments: Sequence[Mapping[str, Any]],
        *,
        generator_style: Literal[False] = False,
        **kwargs: Any,
    ) -> list[ProgramState]: ...

    @overload
    def run_batch(
        self,
        batch_arguments: Sequence[Mapping[str, Any]],
        *,
        generator_style: Literal[True],
        **kwargs: Any,
    ) -> Iterator[ProgramState]: ...

    def run_batch(
        self,
        batch_arguments: Sequence[Mapping[str, Any]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        backend: object = None,
        fork: ForkSpec | None = None,
        **kwargs: Any,
    ) -> list[ProgramState] | Iterator[ProgramState]:
        """Run the program on many sets of arguments at once.

        A program holds one of the threads only while its own Python runs or waits for a value, so
        programs that read nothing inside are all in flight together, whatever their number; where
        they read, at most `num_threads` run at a time.

        Args:
            batch_arguments: one dict of arguments per program.
            num_threads: how many functions run at once; "auto" takes up to 64.
            progress_bar: show one.
            generator_style: yield states in order as they finish instead of returning a list.
            backend, fork, **kwargs: as in `run`.

        Returns:
            The states in the order of the arguments.

        Raises:
            BatchError: programs failed; raised when all have ended, with all states in it.
            ConfigError: arguments that do not fit the program.
        """
        from sgjax.lang.compiler.tracer import current_tracer

        _check_flags(progress_bar=progress_bar, generator_style=generator_style)
        options, common = self.split((), kwargs, complete=False)
        rows = [
            self.arguments((), {**common, **row})
            for row in checked_rows(self.name, batch_arguments)
        ]
        if (tracer := current_tracer()) is not None:
            tracer.refuse_settings(backend=backend, fork=fork)
            traced: list[Any] = [tracer.call(self, row, options) for row in rows]
            return traced
        settings = self.settings(options, False, backend, fork)
        prefix = ""
        if settings.hints and len(rows) > 1:
            prefix = constant_prefix(self.func, rows, settings.backend.chat)
        job = Job(self.name, self.func, rows, settings, prefix, num_threads, progress_bar)
        states = run_jobs(job)
        return states if generator_style else list(states)

    def trace(self, **arguments: Any) -> "Graph":
        """Return the program's graph.

        Args:
            **arguments: values to build in; parameters without one stay arguments of the graph.

        Raises:
            ProgramError: the program's control flow depends on data; the message names the line.
        """
        from sgjax.lang.compiler.tracer import trace

        self._check_names(arguments)
        return trace(self, {**self.bound, **arguments})

    def compile(self) -> "CompiledProgram":
        """Trace the program and return its graph as something that runs."""
        from sgjax.lang.compiler.compiled import CompiledProgram

        return CompiledProgram(self.trace(), self.num_api_spec_tokens)

    # ---------------------------------------------------------------- for its neighbours

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return the program's parameters, without `s`."""
        return self._signature.parameters

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, with those that are bound.

        Raises:
            ConfigError: they do not fit the program.
        """
        try:
            given = self._signature.bind_partial(*args, **kwargs).arguments
            return dict(self._signature.bind(**{**self.bound, **given}).arguments)
        except TypeError as error:
            allowed = ", ".join(self.parameters) or "none"
            raise ConfigError(
                f"{self.name}: {error}; its arguments are: {allowed}; sampling defaults are: "
                f"{', '.join(sorted(OPTIONS))}"
            ) from None

    def split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], complete: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return sampling defaults and the program's own arguments.

        Args:
            args, kwargs: as given to `run`.
            complete: whether these are all of the program's arguments.
        """
        options = {key: value for key, value in kwargs.items() if key in OPTIONS}
        rest = {key: value for key, value in kwargs.items() if key not in OPTIONS}
        if complete:
            return options, self.arguments(args, rest)
        self._check_names(rest)
        return options, rest

    def settings(
        self, options: Mapping[str, Any], stream: bool, backend: object, fork: ForkSpec | None
    ) -> RunSettings:
        """Return how a run with these options executes."""
        return run_settings(options, stream, backend, fork, self.num_api_spec_tokens)

    def _check_names(self, arguments: Mapping[str, Any]) -> None:
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            raise ConfigError(
                f"{self.name} has no parameter {unknown[0]!r}; it has: "
                f"{', '.join(self.parameters) or 'none'}"
            )


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r} is not allowed; it must be True or False")


def checked_rows(name: str, rows: object) -> list[Mapping[str, Any]]:
    """Return the rows of a batch of the program `name`, if they are some.

    Raises:
        ConfigError: they are no rows, or one is no mapping.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str):
        kind = type(rows).__name__
        raise ConfigError(f"{name}: a batch is a {kind}; give a list, a dict of arguments each")
    checked = list(rows)
    for row in checked:
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"{name}: a batch holds {row!r}; give a dict of arguments per program"
            )
    return checked


def _run_and_rest(job: Callable[[], None], active: Callable[[int], None]) -> None:
    try:
        job()
    finally:
        active(-1)


def run_settings(
    options: Mapping[str, Any],
    stream: bool,
    backend: object,
    fork: ForkSpec | None,
    num_api_spec_tokens: int | None,
) -> RunSettings:
    """Return how programs execute that were given these arguments of `run`."""
    chosen = global_config.backend(backend)
    if num_api_spec_tokens is not None:
        from sgjax.lang.backends.speculative import SpeculativeBackend

        if not isinstance(chosen, SpeculativeBackend):
            chosen = SpeculativeBackend(chosen, num_api_spec_tokens)
    return RunSettings(chosen, Sampling(options), stream, global_config.fork_or_default(fork))


@overload
def function(func: Callable[..., Any]) -> SglFunction: ...


@overload
def function(
    *, num_api_spec_tokens: int | None = None
) -> Callable[[Callable[..., Any]], SglFunction]: ...


def function(
    func: Callable[..., Any] | None = None, *, num_api_spec_tokens: int | None = None
) -> SglFunction | Callable[[Callable[..., Any]], SglFunction]:
    """Make a program of a Python function whose first parameter is `s`.

    Args:
        func: the function.
        num_api_spec_tokens: let API models run this many tokens past a stop, and use what they
            wrote for the gens that follow (paper section 5).
    """
    if func is not None:
        if not callable(func):
            raise ConfigError(f"function takes a Python function, not {func!r}")
        return SglFunction(func)
    return lambda func: SglFunction(func, num_api_spec_tokens)


def _signature(func: Callable[..., Any]) -> inspect.Signature:
    for kind, is_kind in (
        ("an async function", inspect.iscoroutinefunction),
        ("a generator", inspect.isgeneratorfunction),
        ("an async generator", inspect.isasyncgenfunction),
    ):
        if is_kind(func):
            raise ConfigError(
                f"{func.__name__} is {kind}, and calling it runs nothing; write a plain function: "
                "`s += ...` returns at once anyway"
            )
    signature = inspect.signature(func)
    names = list(signature.parameters)
    if not names or names[0] != "s":
        raise ConfigError(
            f"the first parameter of {func.__name__} must be named 's' (the prompt state); it has: "
            f"{', '.join(names) or 'none'}"
        )
    taken = RESERVED & set(names[1:])
    if taken:
        raise ConfigError(
            f"{func.__name__} has a parameter {min(taken)!r}, which is an argument of run itself; "
            "rename it"
        )
    return signature.replace(parameters=list(signature.parameters.values())[1:])
