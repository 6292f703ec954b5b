"""Guesses: forced text that a jump held back, computed before it is known to be right.

Imports its neighbours. Where a jump stops before ` "` because a token like ` "_` may stand there,
the model nearly always goes on with ` "`. So the row is extended by that token too, and the logits
behind it are sampled in the same pass, with the mask and the draw that would be its own later::

    row        ... "name":   "        the last token is a guess
    samples              ^   ^
                         |   '-- taken only if the first sample is the guess
                         '------ taken always

What comes out is what would have come out without the guess, a pass later. A wrong guess costs
a token's work: it is in no output, and its K/V is overwritten before anyone counts on it.
"""

from collections.abc import Iterator

from sgjax.fsm.jump import common_prefix
from sgjax.schedule.checks import Limits
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import PlanRow
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.stats import SchedulerStats


def add_guesses(rows: list[PlanRow], pages: PageKeeper, limits: Limits) -> list[PlanRow]:
    """Extend the rows of a step by what their sequences likely say next.

    Only from what the step leaves: of the token budget, and of pages that nobody runs on. A
    decode that guesses becomes an extend, so it moves behind the decodes.

    Args:
        rows: single-token rows first.
        pages: give room for the guesses.
        limits: of a step.
    """
    if not any(row.seq.held for row in rows):
        return rows
    budget = limits.token_budget - sum(limits.charge(row.num_tokens) for row in rows)
    # Each guess is one more sampled position; an executor has one to spare for every block.
    spare = limits.token_budget // limits.block_tokens
    singles: list[PlanRow] = []
    extends: list[PlanRow] = []
    for row in rows:
        guesses = suppose(row.seq)[:spare] if row.sample and row.seq.held else ()
        if guesses:
            longer = row._replace(end=row.end + len(guesses), guesses=guesses)
            extra = limits.charge(longer.num_tokens) - limits.charge(row.num_tokens)
            if extra <= budget and pages.reserve(row.seq, longer.end):
                budget -= extra
                spare -= len(guesses)
                row = longer
        (singles if row.num_tokens == 1 else extends).append(row)
    return singles + extends


def suppose(seq: Sequence) -> tuple[Sequence, ...]:
    """Return what a sequence becomes if it says what it holds back: one token more each.

    Where the output would end there is nothing to sample, so the last such token is no guess.
    """
    grammar, guesses, at = seq.grammar, list[Sequence](), seq
    assert grammar is not None
    for token in seq.held[: max(seq.max_growth - 1, 0)]:
        state = grammar.advance(at.grammar_state, token)
        if state < 0 or token in seq.end_ids or grammar.is_final(state):
            break
        at = at.supposing(token, state)
        guesses.append(at)
    return tuple(guesses)


def confirmed(row: PlanRow, stats: SchedulerStats) -> Iterator[int]:
    """Yield which of a row's further samples to append next, while its guesses are right.

    Looks at the sequence when it is asked for the next one: a sample counts if the output has
    become what the sample was drawn behind. A jump may have said a guess's tokens, too.

    Args:
        row: its first sample is appended.
        stats: of guesses.
    """
    seq, start = row.seq, row.end - len(row.guesses)
    guessed = row.whole.tokens.view(start).tolist()
    stats.guessed_tokens += len(guessed)
    while True:
        said = seq.tokens.view(start).tolist()
        right = common_prefix(said, guessed)
        if seq.ended:
            break
        seq.num_computed = start + right
        if right < len(said):
            break
        stats.saved_passes += 1
        yield right
    stats.wrong_guesses += len(guessed) - right
