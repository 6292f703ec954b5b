"""The tracer: run a program on stand-ins and record what it appends. Imports nodes, placeholder."""

import contextvars
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, final

from sgjax.errors import ProgramError
from sgjax.lang import ir
from sgjax.lang.appendable import Appendable
from sgjax.lang.compiler import nodes as g
from sgjax.lang.compiler.graph import Graph
from sgjax.lang.compiler.placeholder import Marks, Placeholder, failed_line, user_line
from sgjax.lang.forks import ForkGroup, check_copies
from sgjax.lang.options import CONSTRAINTS, frozen_options

if TYPE_CHECKING:
    from sgjax.lang.function import SglFunction

_CURRENT: contextvars.ContextVar["Tracer | None"] = contextvars.ContextVar("tracer", default=None)


def current_tracer() -> "Tracer | None":
    """Return the tracer of the trace under way in this context, or None."""
    return _CURRENT.get()


def trace(function: "SglFunction", known: Mapping[str, Any]) -> Graph:
    """Return a program's graph.

    Args:
        function: the program.
        known: arguments with values; the others become arguments of the graph.

    Raises:
        ProgramError: control flow depends on data, or the function fails while it is traced.
    """
    tracer = Tracer()
    arguments: dict[str, Any] = {}
    unknown: list[str] = []
    defaults: list[tuple[str, Any]] = []
    for name, parameter in function.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ProgramError(
                f"program {function.name!r} takes *{name}, which has no place in a graph; name its "
                "arguments"
            )
        if name in known:
            arguments[name] = known[name]
            continue
        unknown.append(name)
        if parameter.default is not inspect.Parameter.empty:
            defaults.append((name, parameter.default))
        arguments[name] = tracer.marks.placeholder(f"argument {name!r}", name)
    token = _CURRENT.set(tracer)
    try:
        tracer.call(function, arguments, {})
    finally:
        _CURRENT.reset(token)
    graph = Graph(
        function.name, tuple(unknown), tuple(defaults), tuple(tracer.streams), tuple(tracer.nodes)
    )
    graph.check()
    return graph


@final
class Tracer:
    """What is recorded of one trace."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.nodes: list[g.Node] = []
        self.streams: list[str] = []

    def call(
        self, function: "SglFunction", arguments: Mapping[str, Any], options: Mapping[str, Any]
    ) -> "TracedState":
        """Record a program's run as a stream of its own.

        Args:
            function: the program.
            arguments: its arguments, placeholders among them.
            options: sampling defaults of this run; they become options of its gens.
        """
        state = TracedState(self, self.stream(function.name), dict(frozen_options(options)))
        try:
            state.ret_value = function.func(state, **arguments)
        except ProgramError:
            raise
        except Exception as error:
            raise ProgramError(
                f"{failed_line(error)}: program {function.name!r} failed while it was "
                f"traced: {type(error).__name__}: {error}"
            ) from error
        return state

    def refuse_settings(self, **settings: Any) -> None:
        """Refuse what a nested run was given and has no place in a graph.

        Args:
            **settings: arguments of `run` by name; None or False means that they were not given.

        Raises:
            ProgramError: one was.
        """
        given = [name for name, value in settings.items() if value not in (None, False)]
        if given:
            raise ProgramError(
                f"{user_line()}: a nested run was given {' and '.join(given)}, which has no place "
                "in a graph; give it to the run of the compiled program"
            )

    def stream(self, name: str) -> int:
        """Return the number of a new stream."""
        self.streams.append(name)
        return len(self.streams) - 1

    def add(self, kind: type[g.Node], stream: int, prev: int | None, **fields: Any) -> int:
        """Record a node; return its id."""
        node = kind(len(self.nodes), stream, prev, **fields)
        self.nodes.append(node)
        return node.id


@final
class TracedState(Appendable):
    """Stands for a ProgramState: records what is appended, hands out placeholders."""

    def __init__(self, tracer: Tracer, stream: int, options: Mapping[str, Any]) -> None:
        self.ret_value: Any = None
        self._tracer = tracer
        self._stream = stream
        self._options = options
        self._last: int | None = None
        self._writers: dict[str, int] = {}
        self._own: set[str] = set()

    def _append(self, exprs: Sequence[ir.Expr]) -> None:
        for expr in exprs:
            self._record(expr)

    def set_var(self, name: str, value: Any) -> None:
        """Record a constant."""
        self._tracer.marks.refuse_in(value, "stored with set_var")
        self._write(name, self._node(g.SetVar, name=name, value=value))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def fork(self, n: int = 1) -> "ForkGroup[TracedState]":
        """Record a fork."""
        if isinstance(n, Placeholder):
            n.refuse("is a number of forks")
        check_copies(n)
        children = [self._tracer.stream(self._tracer.streams[self._stream]) for _ in range(n)]
        fork = self._node(g.Fork, children=tuple(children))
        states = []
        for index, child in enumerate(children):
            state = TracedState(self._tracer, child, self._options)
            state._writers = dict(self._writers)
            state._last = self._tracer.add(g.GetForkItem, child, None, deps=(fork,), index=index)
            states.append(state)
        return ForkGroup(states, lambda gather: self._join(states, gather))

    @contextmanager
    def copy(self) -> Iterator["TracedState"]:
        """Record a copy."""
        group = self.fork(1)
        yield group[0]
        group.join()

    def __getitem__(self, name: str) -> Placeholder:
        if name not in self._writers:
            known = ", ".join(sorted(self._writers)) or "none"
            raise KeyError(f"variable {name!r} is not set; variables here: {known}")
        writer = self._writers[name]
        return self._tracer.marks.placeholder(f"variable {name!r}", (self._stream, name, writer))

    def get_var(self, name: str) -> Placeholder:
        """Return a variable's placeholder."""
        return self[name]

    def __contains__(self, name: str) -> bool:
        return name in self._writers

    def sync(self) -> None:
        """Record nothing: a graph has no waiting."""

    def _cannot(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{user_line()}: {what} is not known while tracing; run the program instead of "
            "compiling it"
        )

    def text(self) -> NoReturn:
        """Refuse."""
        self._cannot("the prompt's text()")

    def messages(self) -> NoReturn:
        """Refuse."""
        self._cannot("messages()")

    def get_meta_info(self, name: str) -> NoReturn:
        """Refuse."""
        self._cannot(f"the meta info of {name!r}")

    def error(self) -> NoReturn:
        """Refuse."""
        self._cannot("error()")

    def text_iter(self, var: str | None = None) -> NoReturn:
        """Refuse."""
        self._cannot("text_iter()")

    def text_async_iter(self, var: str | None = None) -> NoReturn:
        """Refuse."""
        self._cannot("text_async_iter()")

    # ---------------------------------------------------------------- private

    def _node(self, kind: type[g.Node], **fields: Any) -> int:
        self._last = self._tracer.add(kind, self._stream, self._last, **fields)
        return self._last

    def _write(self, name: str | None, node: int) -> None:
        if name is not None:
            self._writers[name] = node
            self._own.add(name)

    def _record(self, expr: ir.Expr) -> None:
        match expr:
            case Placeholder():
                self._value(expr, formatted=False)
            case ir.Text(value=value):
                for part in self._tracer.marks.split(value):
                    if isinstance(part, str):
                        self._node(g.ConstantText, text=part)
                    else:
                        self._value(part, formatted=True)
            case ir.Gen():
                self._gen(expr)
            case ir.Select():
                self._select(expr)
            case ir.RoleBegin(role=role):
                self._node(g.RoleBegin, role=role)
            case ir.RoleEnd(role=role):
                self._node(g.RoleEnd, role=role)
            case ir.ScopeBegin(name=name):
                self._node(g.ScopeBegin, name=name)
            case ir.ScopeEnd(name=name):
                self._write(name, self._node(g.ScopeEnd, name=name))
            case ir.SetVar(name=name, value=value):
                self.set_var(name, value)
            case ir.Image(source=source):
                self._node(g.Image, **_source(source))
            case ir.Video(path=path, num_frames=num_frames):
                self._node(g.Video, **_source(path), num_frames=num_frames)

    def _value(self, placeholder: Placeholder, formatted: bool) -> None:
        if isinstance(placeholder.ref, str):
            self._node(g.Argument, name=placeholder.ref, formatted=formatted)
            return
        stream, name, writer = placeholder.ref
        self._node(g.Variable, deps=(writer,), source=stream, name=name, formatted=formatted)

    def _gen(self, expr: ir.Gen) -> None:
        own = dict(expr.options)
        if expr.dtype is not None:
            own["dtype"] = expr.dtype
        merged = dict(self._options)
        if CONSTRAINTS & own.keys():
            merged = {k: v for k, v in merged.items() if k not in CONSTRAINTS}
        merged.update(own)
        dtype = merged.pop("dtype", None)
        self._tracer.marks.refuse_in([*merged.values(), dtype], "an option of gen")
        node = self._node(
            g.Gen,
            name=expr.name,
            options=tuple(sorted(merged.items())),
            dtype=dtype.__name__ if dtype else None,
        )
        self._write(expr.name, node)

    def _select(self, expr: ir.Select) -> None:
        self._tracer.marks.refuse_in([*expr.choices, expr.temperature], "an option of select")
        node = self._node(
            g.Select,
            name=expr.name,
            choices=expr.choices,
            temperature=expr.temperature,
            method=expr.method.name,
            append=expr.append,
        )
        self._write(expr.name, node)

    def _join(self, states: list["TracedState"], gather: bool) -> None:
        node = self._node(
            g.Join,
            deps=tuple(state._last for state in states),
            children=tuple(state._stream for state in states),
            mode="gather_variable" if gather else "concate_and_append",
        )
        if gather:
            for name in dict.fromkeys(n for state in states for n in sorted(state._own)):
                self._write(name, node)


def _source(source: Any) -> dict[str, Any]:
    if isinstance(source, Placeholder) and isinstance(source.ref, str):
        return {"argument": source.ref}
    if isinstance(source, str):
        return {"path": source}
    raise ProgramError(
        f"{user_line()}: a {type(source).__name__} as an image has no place in a graph; give a "
        "path, or make it an argument"
    )
