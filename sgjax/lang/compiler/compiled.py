"""CompiledProgram: a graph that runs. Imports graph, nodes, state and function's settings.

The graph is executed on the interpreter's streams, without the user's Python: what a stream fetches
from another one is an expression that waits, so a compiled program holds no thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang import ir
from sgjax.lang.compiler import nodes as g
from sgjax.lang.compiler.graph import Graph
from sgjax.lang.forks import ForkGroup
from sgjax.lang.function import SglFunction
from sgjax.lang.signature import RESERVED, checked_rows
from sgjax.lang.state import ProgramState


@final
class CompiledProgram:
    """A traced program.

    Args:
        graph: what to execute.
        num_api_spec_tokens: as in `@function`.
    """

    def __init__(self, graph: Graph, num_api_spec_tokens: int | None = None) -> None:
        self.graph = graph
        self.num_api_spec_tokens = num_api_spec_tokens
        program = SglFunction(_named(self._execute, graph), num_api_spec_tokens)
        self._program = program

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run the graph; takes the arguments of `SglFunction.run`."""
        options, arguments = self._split(args, kwargs)
        state: ProgramState = self._program.run(arguments=arguments, **options)
        return state

    def run_batch(
        self, batch_arguments: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[ProgramState] | Iterator[ProgramState]:
        """Run the graph on many sets of arguments; takes the options of `SglFunction.run_batch`."""
        rows = [
            {"arguments": self._complete(row)}
            for row in checked_rows(self.graph.name, batch_arguments)
        ]
        states: list[ProgramState] | Iterator[ProgramState]
        states = self._program.run_batch(rows, **options)
        return states

    def _split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        names = self.graph.arguments
        if len(args) > len(names):
            raise ConfigError(f"{self.graph.name} takes {len(names)} arguments, not {len(args)}")
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise ConfigError(f"{self.graph.name}: argument {min(twice)!r} was given twice")
        options = {k: v for k, v in kwargs.items() if k not in names}
        if unknown := options.keys() - RESERVED:
            raise ConfigError(
                f"{self.graph.name} has no argument {min(unknown)!r}; its arguments are: "
                f"{', '.join(names) or 'none'}; those of run are: {', '.join(sorted(RESERVED))}"
            )
        given.update({k: v for k, v in kwargs.items() if k in names})
        return options, self._complete(given)

    def _complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        complete = {**dict(self.graph.defaults), **given}
        wrong = set(complete) ^ set(self.graph.arguments)
        if wrong:
            raise ConfigError(
                f"{self.graph.name}: arguments {sorted(wrong)} are missing or unknown; its "
                f"arguments are: {', '.join(self.graph.arguments) or 'none'}"
            )
        return complete

    def _execute(self, s: ProgramState, arguments: Mapping[str, Any]) -> None:
        states: dict[int, ProgramState] = {0: s}
        groups: dict[int, ForkGroup[ProgramState]] = {}
        for node in self.graph.nodes:
            if node.stream not in states and not isinstance(node, g.GetForkItem):
                states[node.stream] = s.new_root()
            match node:
                case g.Fork(children=children):
                    groups[node.id] = states[node.stream].fork(len(children))
                case g.GetForkItem(index=index, deps=(fork,)):
                    states[node.stream] = groups[fork][index]
                case g.Join(children=children, mode=mode):
                    _group_of(self.graph, children, groups).join(mode)  # type: ignore[arg-type]
                case g.Variable(source=source, name=name, formatted=formatted):
                    states[node.stream].append_variable(states[source], name, formatted)
                case _:
                    states[node.stream] += _expr(node, arguments)


def _named(execute: Any, graph: Graph) -> Any:
    def program(s: ProgramState, arguments: Mapping[str, Any]) -> None:
        execute(s, arguments)

    program.__name__ = graph.name
    return program


def _group_of(
    graph: Graph, children: tuple[int, ...], groups: Mapping[int, ForkGroup[ProgramState]]
) -> ForkGroup[ProgramState]:
    for node in graph.nodes:
        if isinstance(node, g.Fork) and node.children == children:
            return groups[node.id]
    raise ConfigError(f"graph {graph.name!r} joins streams {children}, which no fork made")


def _expr(node: g.Node, arguments: Mapping[str, Any]) -> Any:
    match node:
        case g.ConstantText(text=text):
            return text
        case g.Argument(name=name, formatted=formatted):
            return str(arguments[name]) if formatted else arguments[name]
        case g.Gen() | g.Select():
            return node.expr()
        case g.RoleBegin(role=role):
            return ir.RoleBegin(role)
        case g.RoleEnd(role=role):
            return ir.RoleEnd(role)
        case g.ScopeBegin(name=name):
            return ir.ScopeBegin(name)
        case g.ScopeEnd(name=name):
            return ir.ScopeEnd(name)
        case g.SetVar(name=name, value=value):
            return ir.SetVar(name, value)
        case g.Image(path=path, argument=argument):
            return ir.Image(path if argument is None else arguments[argument])
        case g.Video(path=path, argument=argument, num_frames=num_frames):
            return ir.Video(str(path if argument is None else arguments[argument]), num_frames)
    raise ConfigError(f"a graph cannot execute a {node.kind}")
