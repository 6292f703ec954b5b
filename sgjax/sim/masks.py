"""What masks cost the host of other systems: time before a constrained token can be sampled.

HOST. Imports schedule's protocol and the simulated executor. Outlines, and SGLang's first release
with its automaton, write the allowed tokens of each constrained sequence into a Python list at each
step, and index a mask with it, which makes a tensor of the list first. That grows with the list.
"""

import numpy as np

from sgjax.schedule import Plan, Sequence
from sgjax.sim.executor import Cost


def with_masks(cost: Cost, mask_s: float, vocab_size: int) -> Cost:
    """Return a cost that adds the masks of a step's constrained samples.

    Args:
        cost: of a step without them.
        mask_s: seconds of a mask that allows the whole vocabulary; others take their share.
        vocab_size: tokens of the vocabulary.
    """

    def seconds(plan: Plan) -> float:
        allowed = 0
        for row in plan.rows:
            if row.sample and row.seq.grammar is not None:
                allowed += sum(map(_num_allowed, (row.seq, *row.guesses)))
        return cost(plan) + mask_s * allowed / vocab_size

    return seconds


def _num_allowed(seq: Sequence) -> int:
    grammar = seq.grammar
    assert grammar is not None
    mask = grammar.rows[grammar.mask_row(seq.grammar_state)]
    return int(np.bitwise_count(mask).sum())
