"""Grammar: a compiled constraint, as the scheduler and the executor see it.

HOST. Imports its neighbours and types. A grammar is immutable and shared by all requests with the
same constraint; what a request keeps is a state, an int.
"""

import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.automaton import build_char_dfa
from sgjax.fsm.compress import CompressedFsm
from sgjax.fsm.kernels import Budget, Kernels, RowStore
from sgjax.fsm.parse import parse
from sgjax.fsm.table import TokenTable
from sgjax.fsm.tree import EMPTY, Alt, Cat, Chars, Node
from sgjax.fsm.utf8 import ByteDfa, build_byte_dfa, without_bytes
from sgjax.fsm.vocabulary import Vocabulary


class Grammar(Protocol):
    """Which tokens may come next, and what must."""

    @property
    def start(self) -> int:
        """Return the state before any text."""
        ...

    @property
    def store(self) -> RowStore:
        """Return where its masks are kept."""
        ...

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W] distinct masks; lazy grammars append to it, rows never change."""
        ...

    @property
    def dfa(self) -> ByteDfa | None:
        """Return the automaton over the bytes of its texts; None where the package keeps it."""
        ...

    def for_request(self) -> "Grammar":
        """Return the grammar that one request steps through: itself, where states are shared."""
        ...

    def mask_row(self, state: int) -> int:
        """Return the index in `rows` of the tokens allowed in a state."""
        ...

    def advance(self, state: int, token_id: int) -> int:
        """Return the state after a token, -1 if it is not allowed (end ids lead nowhere)."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Return whether the text may end here."""
        ...

    def is_final(self, state: int) -> bool:
        """Return whether the text may end here and nothing can follow."""
        ...

    def forced(self, state: int) -> tuple[bytes, frozenset[int] | None]:
        """Return the bytes that must follow, whole characters at their end, and what can then.

        The second part is the set of bytes that can follow them, None where that is not known.
        """
        ...


class FsmGrammar:
    """A grammar over the automaton of a regex.

    Args:
        dfa: its byte automaton.
        vocabulary: the tokens.
        kernels: walks the vocabulary.
        max_bytes: size budget of the masks.

    Raises:
        GrammarError: no token sequence spells any text of the language, or the masks are too big.
    """

    start = 0

    def __init__(
        self, dfa: ByteDfa, vocabulary: Vocabulary, kernels: Kernels, max_bytes: int
    ) -> None:
        absent = dfa.live_bytes - vocabulary.bytes
        self.dfa = without_bytes(dfa, absent) if absent else dfa
        self.compressed = CompressedFsm(self.dfa)
        self._table = TokenTable(self.dfa, vocabulary, kernels, max_bytes)
        self._follow: dict[int, frozenset[int]] = {}
        accepting = self.dfa.table.accepting
        self._accepting: bytes = accepting.tobytes()
        self._final: bytes = (accepting & (self.dfa.num_edges == 0)).tobytes()

    @property
    def store(self) -> RowStore:
        """Return where its masks are kept."""
        return self._table.store

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W] distinct masks."""
        return self._table.rows

    def for_request(self) -> "FsmGrammar":
        """Return this grammar: it is shared by all requests."""
        return self

    @property
    def num_bytes(self) -> int:
        """Return the memory of masks and automaton."""
        return self.rows.nbytes + self.dfa.num_bytes

    def mask_row(self, state: int) -> int:
        """See `Grammar`."""
        return self._table.row(state)

    def advance(self, state: int, token_id: int) -> int:
        """See `Grammar`."""
        return self._table.advance(state, token_id)

    def is_accepting(self, state: int) -> bool:
        """See `Grammar`."""
        return self._accepting[state] != 0

    def is_final(self, state: int) -> bool:
        """See `Grammar`."""
        return self._final[state] != 0

    def forced(self, state: int) -> tuple[bytes, frozenset[int] | None]:
        """See `Grammar`."""
        data, end = self.compressed.forced(state)
        if not data:
            return data, None
        follow = self._follow.get(end)
        if follow is None:
            follow = frozenset(np.flatnonzero(self.dfa.targets(end) >= 0).tolist())
            self._follow[end] = follow
        return data, follow


def compile_regex(
    pattern: str, vocabulary: Vocabulary, kernels: Kernels, budget: Budget, *, unicode: bool = False
) -> FsmGrammar:
    """Compile a regex.

    Args:
        pattern: in the syntax of `re`; the language is what `re.fullmatch` accepts.
        vocabulary: the tokens.
        kernels: the implementation of the hot loops.
        budget: what compiling may take.
        unicode: `\\w`, `\\d`, `\\s` and case are Unicode's; else ASCII's.

    Raises:
        GrammarError: what is wrong with the pattern, or which budget it exceeds.
    """
    return compile_tree(parse(pattern, unicode=unicode), vocabulary, kernels, budget)


def compile_choices(
    choices: list[str], vocabulary: Vocabulary, kernels: Kernels, budget: Budget
) -> FsmGrammar:
    """Compile a list of literal alternatives.

    Raises:
        GrammarError: the list is empty, or a choice cannot be written as UTF-8.
    """
    parts: list[Node] = []
    for choice in choices:
        if any(0xD800 <= ord(c) <= 0xDFFF for c in choice):
            raise GrammarError(f"choice {choice!r} holds half of a surrogate pair; remove it")
        chars: list[Node] = [Chars(((ord(c), ord(c)),)) for c in choice]
        parts.append(Cat(tuple(chars)) if chars else EMPTY)
    if not parts:
        raise GrammarError("the list of choices is empty; give at least one")
    return compile_tree(Alt(tuple(parts)), vocabulary, kernels, budget)


def compile_tree(
    tree: Node, vocabulary: Vocabulary, kernels: Kernels, budget: Budget
) -> FsmGrammar:
    """Compile a parsed pattern; as `compile_regex`."""
    deadline = time.monotonic() + budget.max_s
    try:
        chars = build_char_dfa(tree, kernels, budget)
    except RecursionError:
        raise GrammarError("the pattern is nested too deeply; simplify it") from None
    dfa = build_byte_dfa(chars)
    if dfa.num_states > budget.max_states:
        raise budget.too_many_states()
    if time.monotonic() > deadline:
        raise budget.out_of_time()
    return FsmGrammar(dfa, vocabulary, kernels, budget.max_bytes)
