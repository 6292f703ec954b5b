"""What masks cost the host of other systems: time before a constrained token can be sampled.

HOST. Imports schedule's protocol and the simulated executor. Outlines, and SGLang's first release
with its automaton, write the allowed tokens of each constrained sequence into a Python list at each
step, and index a mask with it, which makes a tensor of the list first. That grows with the list.
"""

import numpy as np

from sgjax.schedule import Plan
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
            grammar = row.seq.grammar
            if row.sample and grammar is not None:
                mask = grammar.rows[grammar.mask_row(row.seq.grammar_state)]
                allowed += int(np.bitwise_count(mask).sum())
        return cost(plan) + mask_s * allowed / vocab_size

    return seconds
