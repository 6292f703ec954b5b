"""Blocks: the pieces of a prompt template that code movement may put in another order.

Imports graph and nodes. The template is what the program's own stream appends before its first
generation; a block is one sentence or line of it. A block with an argument in it differs from run
to run; only the constant ones before the first of those can be shared.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sgjax.errors import ConfigError
from sgjax.lang.compiler import nodes as g
from sgjax.lang.compiler.graph import Graph

# A sentence ends at its mark and the spaces behind it, a line at its breaks.
_BLOCK = re.compile(r".*?(?:[.!?][\"')\]]*[ \t]+(?=\S)|\n+|$)", re.DOTALL)
_ARGUMENT = re.compile(r"\{(\w+)\}")


@final
@dataclass(frozen=True)
class Block:
    """A sentence or line.

    Attributes:
        parts: constant texts and arguments (`{name}` stands for one).
    """

    parts: tuple[str | g.Argument, ...]

    @property
    def constant(self) -> bool:
        """Return whether it is the same in every run."""
        return all(isinstance(part, str) for part in self.parts)

    @property
    def text(self) -> str:
        """Return the text, with `{name}` for arguments."""
        return "".join(p if isinstance(p, str) else "{" + p.name + "}" for p in self.parts)

    @property
    def constant_text(self) -> str:
        """Return the text without its arguments."""
        return " ".join(part for part in self.parts if isinstance(part, str))

    @property
    def arguments(self) -> frozenset[str]:
        """Return the arguments' names."""
        return frozenset(p.name for p in self.parts if isinstance(p, g.Argument))


@final
@dataclass(frozen=True)
class Template:
    """A graph's beginning, as blocks.

    Attributes:
        graph: where it is from.
        first, last: its nodes are `graph.stream_nodes(0)[first:last]`: texts and arguments.
        blocks: in the graph's order.
    """

    graph: Graph
    first: int
    last: int
    blocks: tuple[Block, ...]


def find_template(graph: Graph) -> Template:
    """Return the blocks of a graph's first stretch of text and arguments.

    Messages of earlier roles belong to the prefix as they are: nothing moves out of a role.
    """
    nodes = graph.stream_nodes(0)
    first = last = 0
    for index, node in enumerate(nodes):
        if isinstance(node, g.ConstantText | g.Argument):
            last = index + 1
        elif any(isinstance(n, g.Argument) for n in nodes[first:last]):
            break
        elif isinstance(node, g.RoleBegin | g.RoleEnd):
            first = last = index + 1
        else:
            break
    return Template(graph, first, last, _blocks(nodes[first:last]))


def parse_template(text: str) -> tuple[Block, ...]:
    """Return the blocks of a template written with `{name}` for arguments."""
    nodes: list[g.Node] = []
    at = 0
    for found in _ARGUMENT.finditer(text):
        nodes.append(g.ConstantText(-1, 0, None, text=text[at : found.start()]))
        nodes.append(g.Argument(-1, 0, None, name=found[1], formatted=True))
        at = found.end()
    nodes.append(g.ConstantText(-1, 0, None, text=text[at:]))
    return _blocks(nodes)


def shared_text(blocks: Sequence[Block]) -> str:
    """Return the constant text with which every prompt of a template begins."""
    shared = ""
    for block in blocks:
        for part in block.parts:
            if not isinstance(part, str):
                return shared
            shared += part
    return shared


def reorder(template: Template, order: Sequence[int]) -> Graph:
    """Return the graph with its template's blocks in another order.

    Args:
        template: of the graph.
        order: indices of blocks, each once.

    Raises:
        ConfigError: `order` is no permutation.
    """
    if sorted(order) != list(range(len(template.blocks))):
        raise ConfigError(f"{list(order)} is no order of {len(template.blocks)} blocks")
    graph = template.graph
    own = graph.stream_nodes(0)
    old, rest = own[template.first : template.last], own[template.last :]
    number = max(node.id for node in graph.nodes) + 1
    prev = own[template.first - 1].id if template.first else None
    fresh: list[g.Node] = []
    for block in joined([template.blocks[index] for index in order]):
        for part in block.parts:
            if isinstance(part, str):
                node: g.Node = g.ConstantText(number, 0, prev, text=part)
            else:
                node = dataclasses.replace(part, id=number, prev=prev)
            fresh.append(node)
            prev, number = number, number + 1
    at = graph.nodes.index(old[0])
    dropped = {node.id for node in old}
    nodes = [node for node in graph.nodes if node.id not in dropped]
    if rest:
        index = nodes.index(rest[0])
        nodes[index] = dataclasses.replace(rest[0], prev=prev)
    nodes[at:at] = fresh
    return dataclasses.replace(graph, nodes=tuple(nodes))


def joined(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks in a new order so that they still stand apart as sentences or lines do.

    A block that came last ends in nothing; moved, it takes the space of the one that comes last
    now.
    """
    out = list(blocks)
    ends = [_ending(block.text) for block in out]
    for index in range(len(out) - 1):
        if not ends[index]:
            gap = ends[-1] or ("\n" if any("\n" in end for end in ends) else " ")
            out[index] = Block((*out[index].parts, gap))
            out[-1] = _without_ending(out[-1])
    return out


def _blocks(nodes: Sequence[g.Node]) -> tuple[Block, ...]:
    """Cut texts and arguments into sentences and lines."""
    blocks: list[Block] = []
    parts: list[str | g.Argument] = []
    for node in nodes:
        if isinstance(node, g.Argument):
            parts.append(node)
            continue
        assert isinstance(node, g.ConstantText)
        for piece in _BLOCK.findall(node.text):
            if piece:
                parts.append(piece)
                if _ending(piece):
                    blocks.append(Block(tuple(parts)))
                    parts = []
    if parts:
        blocks.append(Block(tuple(parts)))
    return tuple(blocks)


def _ending(text: str) -> str:
    """Return the space behind a finished sentence or line."""
    found = re.search(r"(?<=[.!?\"')\]])[ \t]+$|\n+$", text)
    return found[0] if found else ""


def _without_ending(block: Block) -> Block:
    last = block.parts[-1]
    if isinstance(last, str) and (end := _ending(last)):
        kept = last[: -len(end)]
        return Block((*block.parts[:-1], kept) if kept else block.parts[:-1])
    return block
