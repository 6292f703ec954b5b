"""From a tree of regular operations to the minimal automaton over characters.

HOST. Imports numpy, charset, parse's tree, size and kernels. Characters that a pattern never tells
apart are one class, so an automaton is an array i32[S, C] with few columns. This is the paper's
character-level FSM; `utf8.py` makes the byte automaton out of it.
"""

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.charset import MAX_CODE_POINT, SURROGATES, CharSet
from sgjax.fsm.kernels import Bools, Budget, Ints, Kernels, Nfa
from sgjax.fsm.size import check_size
from sgjax.fsm.tree import Alt, Both, Cat, Chars, Members, Node, Repeat, Without


@dataclass(frozen=True)
class Alphabet:
    """The classes of characters that a pattern tells apart.

    Attributes:
        starts: i64[n] first code points of the intervals that make up all of Unicode.
        class_of: i32[n] class of each interval; -1 for surrogates.
        members: for each character set of the pattern, bool[C].
    """

    starts: NDArray[np.int64]
    class_of: Ints
    members: dict[CharSet, Bools]

    @property
    def num_classes(self) -> int:
        """Return C."""
        return int(self.class_of.max(initial=-1)) + 1

    def class_of_codes(self, codes: Sequence[int]) -> Ints:
        """Return the classes of code points, -1 for surrogates."""
        return self.class_of[np.searchsorted(self.starts, codes, side="right") - 1]


@dataclass(frozen=True)
class CharDfa:
    """The minimal automaton over characters; state 0 is the start, every state can accept.

    Attributes:
        alphabet: what its columns mean.
        trans: i32[S, C], -1 where nothing matches.
        accepting: bool[S].
    """

    alphabet: Alphabet
    trans: Ints
    accepting: Bools

    @property
    def num_states(self) -> int:
        """Return S."""
        return len(self.trans)

    def matches(self, text: str) -> bool:
        """Return whether the whole text is in the language."""
        state = 0
        for c in self.alphabet.class_of_codes([ord(char) for char in text]).tolist():
            state = int(self.trans[state, c]) if c >= 0 else -1
            if state < 0:
                return False
        return bool(self.accepting[state])


def build_char_dfa(tree: Node, kernels: Kernels, budget: Budget) -> CharDfa:
    """Build the minimal automaton of a tree.

    Raises:
        GrammarError: nothing matches, or a budget is used up.
    """
    check_size(tree, budget)
    alphabet = build_alphabet(_charsets(tree))
    builder = _Builder(alphabet, kernels, budget, time.monotonic() + budget.max_s)
    trans, accepting = builder.dfa(tree)
    if not len(trans):
        raise GrammarError("the pattern matches no text at all; every generation would be stuck")
    return CharDfa(alphabet, trans, accepting)


def build_alphabet(charsets: Iterable[CharSet]) -> Alphabet:
    """Return the coarsest classes in which every character set is a union of classes."""
    sets = sorted(charsets)
    first, last = SURROGATES
    toggles: dict[int, int] = {0: 0, first: 0, last + 1: 0}
    for number, chars in enumerate(sets):
        for low, high in chars:
            toggles[low] = toggles.get(low, 0) ^ (1 << number)
            if high < MAX_CODE_POINT:
                toggles[high + 1] = toggles.get(high + 1, 0) ^ (1 << number)
    classes: dict[int, int] = {}
    starts, class_of = sorted(toggles), []
    inside = 0  # bit per character set
    for start in starts:
        inside ^= toggles[start]
        class_of.append(-1 if start == first else classes.setdefault(inside, len(classes)))
    members = {
        chars: np.array([bool(key >> number & 1) for key in classes], np.bool_)
        for number, chars in enumerate(sets)
    }
    return Alphabet(np.array(starts, np.int64), np.array(class_of, np.int32), members)


def _charsets(tree: Node) -> set[CharSet]:
    """Return the character sets in a tree; parts that occur repeatedly are looked at once."""
    found: set[CharSet] = set()
    seen: set[int] = set()
    todo = [tree]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case Chars(chars):
                found.add(chars)
            case Cat(parts) | Alt(parts):
                todo += parts
            case Repeat(body, _, _):
                todo.append(body)
            case Both(left, right) | Without(left, right):
                todo += (left, right)
            case Members(members, separator, more):
                todo.append(separator)
                todo += [part for part, _ in members]
                todo += [] if more is None else [more]
    return found


class _Builder:
    """Turn trees into automata over one alphabet."""

    def __init__(
        self, alphabet: Alphabet, kernels: Kernels, budget: Budget, deadline: float
    ) -> None:
        self.alphabet = alphabet
        self.kernels = kernels
        self.budget = budget
        self._deadline = deadline
        self._products: dict[Both | Without, tuple[Ints, Bools]] = {}

    def dfa(self, node: Node) -> tuple[Ints, Bools]:
        """Return the minimal automaton of a tree, without states if it matches nothing."""
        if isinstance(node, Both | Without):
            if node not in self._products:  # schemas repeat the same few many times
                self._products[node] = self._product(node)
            return self._products[node]
        thompson = _Thompson(self)
        final = thompson.add(node, 0)
        self.check_time()
        left_s = self._deadline - time.monotonic()
        budget = Budget(self.budget.max_states, left_s, self.budget.max_bytes)
        return self.kernels.minimize(*self.kernels.determinize(thompson.nfa(final), budget))

    def check_time(self) -> None:
        """Raise a GrammarError where the time budget is used up."""
        if time.monotonic() > self._deadline:
            raise self.budget.out_of_time()

    def _product(self, node: Both | Without) -> tuple[Ints, Bools]:
        a, a_accepting = self.dfa(node.left)
        b, b_accepting = self.dfa(node.right)
        wants_both = isinstance(node, Both)
        if not len(a) or (not len(b) and wants_both):
            return a[:0], a_accepting[:0]
        # State len(b) of the right side is dead; it loses an intersection, wins a difference.
        b = np.concatenate([b, np.full((1, b.shape[1]), -1, np.int32)])
        b_accepting = np.append(b_accepting, False)
        width = len(b)
        numbers = {0: 0}
        order = [0]
        rows: list[list[int]] = []
        for pair in order:  # grows while it is walked
            s, t = divmod(pair, width)
            to_b = np.where(b[t] >= 0, b[t], width - 1)
            goes = (a[s] >= 0) & ((b[t] >= 0) | (not wants_both))
            row = [-1] * a.shape[1]
            for c in np.flatnonzero(goes).tolist():
                target = int(a[s, c]) * width + int(to_b[c])
                if target not in numbers:
                    numbers[target] = len(order)
                    order.append(target)
                row[c] = numbers[target]
            rows.append(row)
            if len(order) > self.budget.max_states:
                raise self.budget.too_many_states()
            self.check_time()
        left, right = np.divmod(np.array(order), width)
        accepting = a_accepting[left] & (b_accepting[right] == wants_both)
        return self.kernels.minimize(np.array(rows, np.int32), accepting)


class _Thompson:
    """Collect a nondeterministic automaton; state 0 is its start."""

    def __init__(self, builder: _Builder) -> None:
        self._builder = builder
        self._eps: list[list[int]] = [[]]
        self._edges: list[list[tuple[int, int]]] = [[]]
        self._sets: list[Bools] = []
        self._set_numbers: dict[CharSet | bytes, int] = {}

    def add(self, node: Node, start: int) -> int:
        """Add a tree from state `start` on; return the state it ends in."""
        match node:
            case Chars(chars):
                end = self._state()
                number = self._set(chars, self._builder.alphabet.members[chars])
                self._edges[start].append((number, end))
            case Cat(parts):
                end = start
                for part in parts:
                    end = self.add(part, end)
            case Alt(parts):
                end = self._state()
                for part in parts:
                    self._eps[self.add(part, start)].append(end)
            case Repeat(body, low, high):
                end = self._repeat(body, low, high, start)
            case Both() | Without():
                end = self._embed(*self._builder.dfa(node), start)
            case Members():
                end = self._members(node, start)
            case _:
                raise AssertionError(f"{type(node).__name__} is no part of a parsed tree")
        return end

    def nfa(self, final: int) -> Nfa:
        """Return what was added."""
        C = max(1, self._builder.alphabet.num_classes)
        sets = np.array(self._sets, np.bool_).reshape(-1, C)
        flat = [edge for edges in self._edges for edge in edges]
        edges = np.array(flat, np.int32).reshape(-1, 2)
        return Nfa(
            num_states=len(self._eps),
            start=0,
            final=final,
            eps_first=_firsts(self._eps),
            eps_dst=np.array(list(itertools.chain.from_iterable(self._eps)), np.int32),
            edge_first=_firsts(self._edges),
            edge_set=np.ascontiguousarray(edges[:, 0]),
            edge_dst=np.ascontiguousarray(edges[:, 1]),
            sets=sets,
        )

    def _repeat(self, body: Node, low: int, high: int | None, start: int) -> int:
        end, size = start, len(self._eps)
        for count in range(low):
            end = self.add(body, end)
            if count == 0 and len(self._eps) == size:
                return end  # a repeat of the empty string, however often
        if high is None:
            # A state of its own for the loop, so that nothing else gets into it.
            loop = self._state()
            self._eps[end].append(loop)
            self._eps[self.add(body, loop)].append(loop)
            end = self._state()
            self._eps[loop].append(end)
            return end
        if high == low:
            return end
        out = self._state()
        self._eps[end].append(out)
        size = len(self._eps)
        for _ in range(high - low):
            end = self.add(body, end)
            self._eps[end].append(out)
            if len(self._eps) == size:
                break
        return out

    def _members(self, node: Members, start: int) -> int:
        """Add members: `before` has read none so far, `after` at least one."""
        before, after = start, self._state()
        for part, needed in node.parts:
            first = self._state()
            self._eps[before].append(first)
            self._eps[self.add(node.separator, after)].append(first)
            behind = self._state()
            self._eps[self.add(part, first)].append(behind)
            if needed:
                before = self._state()  # out of reach: one has been read now
            else:
                self._eps[after].append(behind)
            after = behind
        end = self._state()
        if node.more is not None:
            first, behind = self._state(), self._state()
            self._eps[before].append(first)
            self._eps[after].append(behind)
            self._eps[self.add(node.more, first)].append(behind)
            self._eps[self.add(node.separator, behind)].append(first)
            after = behind
        self._eps[before].append(end)
        self._eps[after].append(end)
        return end

    def _embed(self, trans: Ints, accepting: Bools, start: int) -> int:
        """Add a finished automaton; classes with one source and target become one edge."""
        base = len(self._eps)
        for _ in range(len(trans) + 1):
            self._state()
        end = base + len(trans)
        if len(trans):
            self._eps[start].append(base)
        for state, row in enumerate(trans):
            for target in np.unique(row[row >= 0]).tolist():
                number = self._set((row == target).tobytes(), row == target)
                self._edges[base + state].append((number, base + target))
            if accepting[state]:
                self._eps[base + state].append(end)
        return end

    def _set(self, key: CharSet | bytes, members: Bools) -> int:
        number = self._set_numbers.setdefault(key, len(self._sets))
        if number == len(self._sets):
            self._sets.append(members)
        return number

    def _state(self) -> int:
        if len(self._eps) >= self._builder.budget.max_states:
            raise self._builder.budget.too_many_states()
        if len(self._eps) % 1024 == 0:
            self._builder.check_time()
        self._eps.append([])
        self._edges.append([])
        return len(self._eps) - 1


def _firsts(groups: list[list[int]] | list[list[tuple[int, int]]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(g) for g in groups])]).astype(np.int32)
