"""From the automaton over characters to the minimal automaton over their UTF-8 bytes.

HOST. Imports numpy, automaton, template and kernels' records. A state of the character automaton
keeps its place; what its non-ASCII characters add are states *inside* a character, shared wherever
the rest of the character leads to the same places. So the result is minimal because its input is.

A character class has one shape of such inner states (see `template`) however often it is repeated.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.automaton import Alphabet, CharDfa
from sgjax.fsm.kernels import DEAD, Bools, ByteTable, Ints
from sgjax.fsm.portable import steps_to_end
from sgjax.fsm.template import build_template


class ByteDfa:
    """The minimal automaton over bytes; state 0 is the start, from every state one can accept.

    Args:
        table: its transitions.
        boundary: bool[S] whether a state lies between characters.
    """

    def __init__(self, table: ByteTable, boundary: Bools) -> None:
        self.table = table
        self.boundary = boundary
        self._width = table.delta.shape[1]
        self._delta = memoryview(table.delta.reshape(-1))  # type: ignore[arg-type]
        self._row_of = memoryview(table.row_of)  # type: ignore[arg-type]
        self._class = table.byte_class.tobytes()

    @property
    def num_states(self) -> int:
        """Return S."""
        return len(self.table.row_of)

    @property
    def num_bytes(self) -> int:
        """Return the memory of the transitions."""
        t = self.table
        return t.delta.nbytes + t.row_of.nbytes + t.accepting.nbytes + self.boundary.nbytes

    def walk(self, state: int, data: bytes) -> int:
        """Return the state after some bytes, -1 where they do not match."""
        delta, row_of, byte_class, width = self._delta, self._row_of, self._class, self._width
        for byte in data:
            step = delta[row_of[state] * width + byte_class[byte]]
            if step == DEAD:
                return -1
            state += step
        return state

    def matches(self, data: bytes) -> bool:
        """Return whether all of `data` is in the language."""
        state = self.walk(0, data)
        return state >= 0 and bool(self.table.accepting[state])

    def targets(self, state: int) -> Ints:
        """Return i32[256], the state each byte leads to, -1 for none."""
        steps = self.table.delta[self.table.row_of[state]][self.table.byte_class]
        return np.where(steps == DEAD, -1, state + steps)

    @cached_property
    def distance(self) -> Ints:
        """Return i32[S], the fewest bytes from each state to the end of a text."""
        return steps_to_end(_targets(self.table.delta[self.table.row_of]), self.table.accepting)

    @cached_property
    def live_bytes(self) -> frozenset[int]:
        """Return the bytes that occur in any text of the language."""
        live = (self.table.delta != DEAD).any(axis=0)
        return frozenset(np.flatnonzero(live[self.table.byte_class]).tolist())

    @cached_property
    def num_edges(self) -> NDArray[np.int64]:
        """Return i64[S], the number of bytes that leave each state."""
        sizes = np.bincount(self.table.byte_class, minlength=self._width)
        per_row: NDArray[np.int64] = ((self.table.delta != DEAD) * sizes).sum(axis=1)
        return per_row[self.table.row_of]


def build_byte_dfa(chars: CharDfa) -> ByteDfa:
    """Build the byte automaton of a character automaton."""
    expansion = _Expansion(chars)
    order = expansion.order()
    rows = expansion.rows()
    # Successors of a state come right after it, so that the copies of a repeat differ by an
    # offset only and share their rows.
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order))
    rows = rows[order]
    steps = place[rows]
    steps -= np.arange(len(order), dtype=np.int32)[:, None]
    steps[rows < 0] = DEAD
    delta, row_of = _unique_rows(steps)
    inner = len(order) - chars.num_states
    accepting = np.concatenate([chars.accepting, np.zeros(inner, np.bool_)])[order]
    table = ByteTable(expansion.byte_class, row_of, delta, accepting)
    return ByteDfa(table, order < chars.num_states)


def without_bytes(dfa: ByteDfa, absent: frozenset[int]) -> ByteDfa:
    """Return the automaton of those texts that hold none of some bytes; states keep numbers.

    Raises:
        GrammarError: no text is left.
    """
    table = dfa.table
    byte_class = table.byte_class.copy()
    dead_class = table.delta.shape[1]
    if dead_class > 255:  # every byte is a class of its own already
        delta = table.delta.copy()
        delta[:, byte_class[list(absent)]] = DEAD
    else:
        byte_class[list(absent)] = dead_class
        delta = np.pad(table.delta, ((0, 0), (0, 1)), constant_values=DEAD)
    unread = np.setdiff1d(np.arange(delta.shape[1]), byte_class)
    delta[:, unread] = DEAD  # else a class of absent bytes would keep states alive
    steps = delta[table.row_of]
    trans = _targets(steps)
    alive = steps_to_end(trans, table.accepting) >= 0
    if not alive[0]:
        raise GrammarError(
            "every text of the pattern holds a byte that no token of this vocabulary has"
        )
    steps[~alive[trans]] = DEAD
    delta, row_of = _unique_rows(steps)
    return ByteDfa(ByteTable(byte_class, row_of, delta, table.accepting), dfa.boundary)


def _targets(steps: Ints) -> Ints:
    """Return i32[S, C] targets of the differences of all states; -1 for none."""
    states = np.arange(len(steps), dtype=np.int32)[:, None]
    return np.where(steps == DEAD, -1, states + steps)


class _Expansion:
    """States and rows of the byte automaton; character states first, then inner ones."""

    def __init__(self, chars: CharDfa) -> None:
        self._chars = chars
        self._ascii = chars.alphabet.class_of_codes(range(128))
        self._high_starts, self._high_classes = _high_intervals(chars.alphabet)
        # By pattern of leaves: the choice and the open targets of each node.
        self._templates: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
        self._choices: dict[bytes, int] = {}
        self._choice_list: list[NDArray[np.uint8]] = []
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        # Per kind of choice: which states are of it, and their targets.
        self._members: list[list[int]] = []
        self._targets: list[list[tuple[int, ...]]] = []
        self._owners: list[int] = []  # the character state at which each inner one was made
        used = np.unique(self._high_classes[self._high_classes >= 0])
        self._used = {c: i for i, c in enumerate(used.tolist())}
        high = chars.trans[:, used]
        for state in np.flatnonzero((high >= 0).any(axis=1)).tolist():
            self._expand(state, high[state].tolist())
        self.byte_class = self._classes()

    def order(self) -> NDArray[np.int64]:
        """Return all states, each character state followed by the inner ones made for it."""
        S = self._chars.num_states
        owners = np.concatenate([np.arange(S), np.array(self._owners, np.int64)])
        return np.argsort(owners, kind="stable")

    def rows(self) -> Ints:
        """Return i32[S', C] targets, -1 for none."""
        C = int(self.byte_class.max()) + 1
        S = self._chars.num_states
        rows = np.full((S + len(self._owners), C), -1, np.int32)
        rows[:S, self.byte_class[:128]] = self._chars.trans[:, self._ascii]
        first_high = int(self.byte_class[:128].max()) + 1
        of_class = np.zeros(C - first_high, np.int64)  # one byte of each class, from 0x80
        of_class[self.byte_class[128:].astype(np.int64) - first_high] = np.arange(128)
        for choice, members, targets in zip(
            self._choice_list, self._members, self._targets, strict=True
        ):
            table = np.array(targets, np.int32).reshape(len(members), -1)
            table = np.concatenate([np.full((len(members), 1), -1, np.int32), table], axis=1)
            rows[np.array(members), first_high:] = table[:, choice[of_class]]
        return rows

    def _expand(self, state: int, of_class: list[int]) -> None:
        """Make the inner states that a character state's non-ASCII characters need."""
        leaves: dict[int, int] = {}
        pattern = tuple([-1 if t < 0 else leaves.setdefault(t, len(leaves)) for t in of_class])
        template = self._templates.get(pattern)
        if template is None:
            used = self._used
            intervals = [-1 if c < 0 else pattern[used[c]] for c in self._high_classes.tolist()]
            template = [
                (self._choice_key(node.choice), node.targets)
                for node in build_template(self._high_starts, intervals)
            ]
            self._templates[pattern] = template
        ends = list(leaves)
        made: list[int] = []

        def filled(codes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([ends[-1 - code] if code < 0 else made[code] for code in codes])

        *inner, root = template
        for choice, codes in inner:
            made.append(self._inner(choice, filled(codes), state))
        choice, codes = root  # the state itself
        self._members[choice].append(state)
        self._targets[choice].append(filled(codes))

    def _inner(self, key: int, targets: tuple[int, ...], owner: int) -> int:
        number = self._numbers.get((key, targets))
        if number is None:
            number = self._chars.num_states + len(self._owners)
            self._numbers[key, targets] = number
            self._owners.append(owner)
            self._members[key].append(number)
            self._targets[key].append(targets)
        return number

    def _choice_key(self, choice: NDArray[np.uint8]) -> int:
        key = self._choices.setdefault(choice.tobytes(), len(self._choices))
        if key == len(self._choice_list):
            self._choice_list.append(choice)
            self._members.append([])
            self._targets.append([])
        return key

    def _classes(self) -> NDArray[np.uint8]:
        """Return the class of each byte: as the pattern tells characters and inner bytes apart."""
        _, low = np.unique(self._ascii, return_inverse=True)
        high = np.zeros(128, np.int64)
        if self._choice_list:
            _, high = np.unique(np.stack(self._choice_list), axis=1, return_inverse=True)
        classes = np.concatenate([low, low.max() + 1 + high.reshape(-1)])
        return classes.astype(np.uint8)


def _high_intervals(alphabet: Alphabet) -> tuple[list[int], Ints]:
    """Return the alphabet's intervals from code point 0x80 on."""
    first = int(np.searchsorted(alphabet.starts, 0x80, side="right")) - 1
    starts = alphabet.starts[first:].tolist()
    starts[0] = 0x80
    return starts, alphabet.class_of[first:]


def _unique_rows(rows: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows, and which of them each row is."""
    numbers: dict[bytes, int] = {}
    row_of = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    unique = np.frombuffer(b"".join(numbers), np.int32).reshape(-1, rows.shape[1])
    return np.ascontiguousarray(unique), np.array(row_of, np.int32)
