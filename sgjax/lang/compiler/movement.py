"""Code movement for prefix sharing (paper appendix D.2). Imports blocks, checker, the Backend.

A proposer suggests an order of a template's blocks that puts constant text first; the checker has
the last word. The built-in proposer moves only what the checker lets pass; a model's proposal is
taken whole or not at all.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lang.backends.base import Backend
from sgjax.lang.compiler.blocks import Block, find_template, joined, reorder, shared_text
from sgjax.lang.compiler.checker import Violation, check_order
from sgjax.lang.compiler.graph import Graph

CountTokens = Callable[[str], int]
Proposer = Callable[[Sequence[Block]], list[int]]


@dataclass(frozen=True)
class Movement:
    """What code movement did to a graph.

    Attributes:
        graph: the result; the given graph if the proposal was refused.
        order: the proposed order of blocks.
        violations: why the proposal was refused; empty if it was taken.
        before, after: constant text that all prompts begin with.
    """

    graph: Graph
    order: tuple[int, ...]
    violations: tuple[Violation, ...]
    before: str
    after: str

    def gain(self, count_tokens: CountTokens, batch: int = 2) -> int:
        """Return how many tokens a batch of runs need not compute again.

        Args:
            count_tokens: of a text.
            batch: number of runs; the first one computes the prefix.
        """
        return (batch - 1) * (count_tokens(self.after) - count_tokens(self.before))


def move_code(graph: Graph, propose: Proposer | None = None) -> Movement:
    """Reorder a graph's template so that more of it is shared.

    Args:
        graph: the program.
        propose: returns an order of blocks; None takes the built-in rule.
    """
    template = find_template(graph)
    blocks = template.blocks
    order = (propose or propose_safely)(blocks)
    violations = tuple(check_order(blocks, order))
    before = shared_text(blocks)
    if violations:
        return Movement(graph, tuple(order), violations, before, before)
    after = shared_text(joined([blocks[index] for index in order]))
    return Movement(reorder(template, order), tuple(order), (), before, after)


def propose_safely(blocks: Sequence[Block]) -> list[int]:
    """Move each constant block as far forward as the checker lets it, keeping their order."""
    order = list(range(len(blocks)))
    for index, block in enumerate(blocks):
        if not block.constant:
            continue
        start = next((at for at, i in enumerate(order) if not blocks[i].constant), len(order))
        if order.index(index) <= start:
            continue
        for at in range(start, -1, -1):
            moved = [i for i in order if i != index]
            moved.insert(at, index)
            if not check_order(blocks, moved):
                order = moved
                break
    return order


@dataclass(frozen=True)
class Shot:
    """An example for a model: a template's blocks and a good order of them."""

    blocks: Sequence[Block]
    order: Sequence[int]


def propose_by_model(backend: Backend, shots: Sequence[Shot], **options: Any) -> Proposer:
    """Return a proposer that asks a model, shown some examples.

    Args:
        backend: any; a small model proposes badly, which the checker makes harmless.
        shots: examples.
        **options: sampling defaults of the question.

    Raises:
        ConfigError: (from the proposer) the answer is no list of numbers.
    """
    from sgjax.lang.api import gen
    from sgjax.lang.function import SglFunction

    def ask(s: Any, blocks: Sequence[Block]) -> None:
        s += (
            "A prompt is made of numbered blocks. Text in {braces} changes from run to run. Put "
            "blocks without braces first where this does not change what the prompt says: nothing "
            "may move across text that it refers to.\n\n"
        )
        for shot in shots:
            s += describe(shot.blocks) + f"Order: {' '.join(str(i + 1) for i in shot.order)}\n\n"
        s += describe(blocks) + "Order:" + gen("order", stop="\n", max_tokens=64)

    program = SglFunction(ask)

    def propose(blocks: Sequence[Block]) -> list[int]:
        state = program.run(blocks, backend=backend, **{"temperature": 0, **options})
        return parse_order(state["order"], len(blocks))

    return propose


def describe(blocks: Sequence[Block]) -> str:
    """Return blocks as numbered lines."""
    return "".join(f"{i}. {block.text.strip()!r}\n" for i, block in enumerate(blocks, 1))


def parse_order(text: str, count: int) -> list[int]:
    """Return the order that an answer names.

    Raises:
        ConfigError: it names none.
    """
    numbers = [int(number) - 1 for number in re.findall(r"\d+", text)]
    if sorted(numbers) != list(range(count)):
        raise ConfigError(
            f"the proposer answered {text!r}; {count} numbers from 1 to {count} are needed"
        )
    return numbers
