"""How large the nondeterministic automaton of a tree is, told before it is built.

HOST. Imports parse's tree and kernels' budget. A few characters can ask for millions of states, as
`((a{0,100}){0,100}){0,100}` does; counting them takes microseconds, building them seconds.
"""

from sgjax.fsm.kernels import Budget
from sgjax.fsm.tree import Alt, Both, Cat, Chars, Members, Node, Repeat, Without


def check_size(tree: Node, budget: Budget) -> None:
    """Refuse a tree that certainly needs too many states.

    Raises:
        GrammarError: it does; the message names the budget.
    """
    _Count(budget).of(tree)


class _Count:
    """Counts a lower bound of states; parts that occur in several places are counted once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, int] = {}

    def of(self, node: Node) -> int:
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._count(node)
            if found > self._budget.max_states:
                raise self._budget.too_many_states()
        return found

    def _count(self, node: Node) -> int:
        match node:
            case Chars():
                return 1
            case Cat(parts) | Alt(parts):
                return sum(map(self.of, parts))
            case Repeat(body, low, high):
                size = self.of(body)
                return size * max(low, 1 if high is None else high)
            case Members(parts, separator, more):
                apart = self.of(separator)
                end = 0 if more is None else self.of(more)
                return end + sum(apart + self.of(part) for part, _ in parts)
            case Both(left, right) | Without(left, right):
                self.of(left)  # each becomes an automaton by itself, and only then one of both
                self.of(right)
                return 0
            case _:
                raise AssertionError(f"{type(node).__name__} is no part of a parsed tree")
