"""Constrainer: what a constraint makes of a sequence after each token.

Imports types, tokens, fsm and its neighbours. It advances the grammar, ends what is complete, and
appends forced text (paper, section 3.2); a jump makes the next step's extend longer and nothing
else. Where a jump replaces tokens (mode `retokenize`), their K/V is dropped; what it holds back is
left in `Sequence.held` for `schedule.guess`.
"""

from collections.abc import Sequence as Tokens
from itertools import accumulate

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.jump import Jump, JumpMode
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.stats import SchedulerStats
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.middle import encode_bytes
from sgjax.types import FinishKind, FinishReason, Request, TokenLogprob, Wants


class Constrainer:
    """Step the grammars of sequences.

    Args:
        jump: what happens where text is forced.
        tokenizer: gives the bytes of tokens.
        pages: drops K/V that a jump made stale.
        stats: forced and rolled back tokens are counted there.
    """

    def __init__(
        self, jump: JumpMode, tokenizer: Tokenizer, pages: PageKeeper, stats: SchedulerStats
    ) -> None:
        self._jump = jump
        self._tokenizer = tokenizer
        self._pages = pages
        self._stats = stats

    def begin(self, seq: Sequence, grammar: Grammar) -> None:
        """Put a constraint on a new sequence and append what its output must begin with.

        Args:
            seq: without output; room for one token at least is left to be sampled.
            grammar: the compiled constraint.
        """
        seq.grammar, seq.grammar_state = grammar.for_request(), grammar.start
        self._forward(seq, seq.max_growth - 1)

    def forbids(self, seq: Sequence, token: int) -> bool:
        """Return whether a token came out that the mask forbade: the logits were not finite."""
        grammar = seq.grammar
        if grammar is None:
            return False
        if token in self._tokenizer.end_ids:
            return not grammar.is_accepting(seq.grammar_state)
        return grammar.advance(seq.grammar_state, token) < 0

    def step(self, seq: Sequence, token: int) -> FinishReason | None:
        """Take in a sampled token, which is already appended.

        Args:
            seq: with a grammar.
            token: no end id.

        Returns:
            Why the sequence ends now, if it does.
        """
        grammar = seq.grammar
        assert grammar is not None
        seq.grammar_state = grammar.advance(seq.grammar_state, token)
        seq.held = ()
        assert seq.grammar_state >= 0, f"token {token} was sampled against its mask"
        stop = None
        if not grammar.is_final(seq.grammar_state):
            stop = self._forward(seq, seq.max_growth)
        if stop is not None:
            return FinishReason(FinishKind.STOP, stop)
        if grammar.is_final(seq.grammar_state):
            return FinishReason(FinishKind.STOP)
        return None

    def count_split_jumps(self, seq: Sequence) -> None:
        """Count the jumps of a finished sequence that ended inside a token of its text."""
        if not seq.jump_ends:
            return
        output = seq.tokens.view(seq.num_prompt).tolist()
        text = self._bytes([t for t in output if t not in self._tokenizer.end_ids])
        own = encode_bytes(self._tokenizer, text)
        if own is not None:
            ends = set(accumulate(len(self._tokenizer.token_bytes(t)) for t in own))
            self._stats.split_jumps += sum(end not in ends for end in seq.jump_ends)

    def _forward(self, seq: Sequence, room: int) -> str | None:
        """Append forced text, if there is any; return the stop string it completes, if so."""
        grammar = seq.grammar
        assert grammar is not None
        # Whether anything is forced is asked first: mostly nothing is, and the output is long.
        if room <= 0 or not grammar.forced(seq.grammar_state)[0]:
            return None
        output = seq.tokens.view(seq.num_prompt).tolist()
        found = next_jump(self._jump, grammar, seq.grammar_state, output, room)
        if found is None:
            return None
        seq.held = found[0].held
        return self._apply(seq, output, *found) if found[0].append else None

    def _apply(self, seq: Sequence, output: list[int], jump: Jump, state: int) -> str | None:
        replaced = len(output) - jump.keep
        seq.grammar_state = state
        if replaced:
            self._pages.truncate(seq, seq.num_prompt + jump.keep)
            del seq.output_logprobs[jump.keep :]
            seq.delivered = min(seq.delivered, jump.keep)
        for token in jump.append:
            seq.tokens.append(token)
            if seq.request.return_logprob:
                seq.output_logprobs.append(TokenLogprob(None, token))
        seq.forced += len(jump.append) - replaced
        self._stats.jumps += 1
        self._stats.forced_tokens += len(jump.append)
        self._stats.rolled_back_tokens += replaced
        self._stats.saved_passes += len(jump.append) - replaced
        assert seq.output is not None
        old = self._bytes(output[jump.keep :])
        stop = seq.output.append_forced(self._bytes(jump.append)[len(old) :])
        seq.jump_ends.append(seq.output.num_bytes)
        return stop

    def _bytes(self, tokens: Tokens[int]) -> bytes:
        return b"".join([self._tokenizer.token_bytes(t) for t in tokens])


def next_jump(
    mode: JumpMode, grammar: Grammar, state: int, output: list[int], room: int
) -> tuple[Jump, int] | None:
    """Return the jump that an output takes now, and the grammar's state behind it.

    Args:
        mode: the strategy.
        grammar: the constraint.
        state: its state after the output.
        output: the output tokens so far.
        room: tokens that the output may still grow by.

    Returns:
        None where nothing is forced, nothing fits, or the grammar forbids one of the tokens.
    """
    forced, follow = grammar.forced(state)
    if not forced or room <= 0:
        return None
    jump = mode.jump(output, forced, follow)
    jump = None if jump is None else _fit(jump, len(output), room)
    if jump is None:
        return None
    new: Tokens[int] = jump.append
    if jump.keep < len(output):
        state, new = grammar.start, (*output[: jump.keep], *jump.append)
    for token in new:
        state = grammar.advance(state, token)
        if state < 0:
            return None
    return jump, state


def check_constraint(request: Request, grammar: Grammar | None) -> None:
    """Refuse what cannot be honoured beside a constraint.

    Raises:
        ConfigError, UnsupportedBackend: the message says what.
    """
    if request.constraint is None:
        return
    if grammar is None:
        raise UnsupportedBackend("this engine has no grammar; drop regex, json_schema, choices")
    if request.wants is not Wants.TOKENS:
        raise ConfigError("a constraint was given to a request that generates nothing; drop it")
    if request.params.ignore_eos:
        raise ConfigError(
            "ignore_eos cannot be combined with a constraint, which says itself where the output "
            "ends; drop one"
        )
    if request.params.min_new_tokens:
        raise ConfigError(
            "min_new_tokens cannot be combined with a constraint; let the pattern ask for length"
        )


def _fit(jump: Jump, num_output: int, room: int) -> Jump | None:
    """Return the part of a jump that fits; a jump that replaces tokens fits whole or not at all."""
    grown = jump.keep + len(jump.append) - num_output
    if grown <= room:
        return jump if jump.append or jump.held else None
    return Jump(jump.keep, jump.append[:room]) if jump.keep == num_output else None
