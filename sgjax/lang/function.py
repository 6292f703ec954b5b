"""`@function`: programs, and the ways to run them. Imports its neighbours."""

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, final, overload

from sgjax.lang.batch import Job, run_jobs
from sgjax.lang.defaults import global_config
from sgjax.lang.delivery import Delivery
from sgjax.lang.options import Sampling
from sgjax.lang.prefix import constant_prefix
from sgjax.lang.program import Program, RunSettings, current_author
from sgjax.lang.signature import ProgramSignature, check_flags, checked_rows, split_options
from sgjax.lang.spec import ForkSpec
from sgjax.lang.state import ProgramState

if TYPE_CHECKING:
    from sgjax.lang.compiler.compiled import CompiledProgram
    from sgjax.lang.compiler.graph import Graph


@final
class SglFunction:
    """A program: a Python function whose first parameter is the prompt state `s`.

    Args:
        func: the function.
        num_api_spec_tokens: tokens to speculate past a stop (API backends); None does not.
        bound: arguments that are fixed.

    Raises:
        ConfigError: the first parameter is not `s`, or another one cannot be a program's.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        num_api_spec_tokens: int | None = None,
        bound: Mapping[str, Any] | None = None,
    ) -> None:
        self._signature = ProgramSignature(func)
        self.func = func
        self.name = func.__name__
        self.num_api_spec_tokens = num_api_spec_tokens
        self.bound = dict(bound or {})
        functools.update_wrapper(self, func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, like `run`."""
        return self.run(*args, **kwargs)

    def bind(self, **arguments: Any) -> "SglFunction":
        """Return this program with some arguments fixed.

        Raises:
            ConfigError: it has no such parameter.
        """
        self._signature.check_names(arguments)
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

        check_flags(stream=stream)
        options, own = split_options(kwargs)
        arguments = self._signature.complete(args, own, self.bound)
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
        outer = current_author()
        with outer.resting(program.finished) if outer is not None else nullcontext():
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

        check_flags(progress_bar=progress_bar, generator_style=generator_style)
        options, common = split_options(kwargs)
        self._signature.check_names(common)
        rows = [
            self._signature.complete((), {**common, **row}, self.bound)
            for row in checked_rows(self.name, batch_arguments)
        ]
        if (tracer := current_tracer()) is not None:
            tracer.refuse_settings(backend=backend, fork=fork)
            traced: list[Any] = [tracer.call(self, row, options) for row in rows]
            return traced
        settings = self.settings(options, False, backend, fork)
        states = run_jobs(self.job(rows, settings, num_threads, progress_bar))
        return states if generator_style else list(states)

    def trace(self, **arguments: Any) -> "Graph":
        """Return the program's graph.

        Args:
            **arguments: values to build in; parameters without one stay arguments of the graph.

        Raises:
            ProgramError: the program's control flow depends on data; the message names the line.
        """
        from sgjax.lang.compiler.tracer import trace

        self._signature.check_names(arguments)
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

    def settings(
        self, options: Mapping[str, Any], stream: bool, backend: object, fork: ForkSpec | None
    ) -> RunSettings:
        """Return how a run with these options executes."""
        chosen = global_config.backend(backend)
        if self.num_api_spec_tokens is not None:
            from sgjax.lang.backends.speculative import SpeculativeBackend

            if not isinstance(chosen, SpeculativeBackend):
                chosen = SpeculativeBackend(chosen, self.num_api_spec_tokens)
        return RunSettings(chosen, Sampling(options), stream, global_config.fork_or_default(fork))

    def job(
        self,
        rows: Sequence[Mapping[str, Any]],
        settings: RunSettings,
        num_threads: int | Literal["auto"],
        progress_bar: bool = False,
    ) -> Job:
        """Return a batch of this program, with the prefix that all its prompts have."""
        prefix = ""
        if settings.hints and len(rows) > 1:
            prefix = constant_prefix(self.func, rows, settings.backend.chat)
        return Job(self.name, self.func, rows, settings, prefix, num_threads, progress_bar)


def _run_and_rest(job: Callable[[], None], active: Callable[[int], None]) -> None:
    try:
        job()
    finally:
        active(-1)


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
        return SglFunction(func)
    return lambda func: SglFunction(func, num_api_spec_tokens)
