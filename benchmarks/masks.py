"""Measure what constraints cost the host while a model writes, in processor time.

A constrained row and step (its mask's place on the device, its advance), and canonical masks: new
ones along the samples of a file of constraints, and known ones.

    python benchmarks/masks.py --tokenizer model.gguf --constraints constraints.jsonl
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from grammar import per_call, read_lines, read_tokenizer

from sgjax.cache import NoCache, PagePool
from sgjax.engine.masks import MaskTable
from sgjax.fsm.canonical import CanonicalGrammar
from sgjax.fsm.grammar import FsmGrammar, compile_regex
from sgjax.fsm.jump import StableTokens
from sgjax.fsm.kernels import Budget, Kernels
from sgjax.fsm.native import load_kernels
from sgjax.fsm.pairs import CanonicalPairs
from sgjax.fsm.vocabulary import Vocabulary
from sgjax.models.pull import default_cache_dir
from sgjax.schedule import PageKeeper, Plan, PlanRow, SchedulerStats, Sequence
from sgjax.schedule.constrain import Constrainer
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.detokenize import OutputText
from sgjax.types import Request, SamplingParams


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a .gguf file or a folder")
    parser.add_argument("--constraints", type=Path, required=True, help="the first is the essay")
    args = parser.parse_args()
    tokenizer = read_tokenizer(args.tokenizer)
    kernels = load_kernels("auto", default_cache_dir() / "native")
    rows = read_lines(args.constraints)
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    essay = compile_regex(rows[0]["regex"], vocabulary, kernels, Budget())
    print(f"host time of a constrained row and step {row_and_step(essay, tokenizer):.2f} us")
    canonical(tokenizer, kernels, vocabulary, rows)


def row_and_step(grammar: FsmGrammar, tokenizer: Tokenizer) -> float:
    """Return microseconds that a constraint costs a row and step: its mask's place, its advance.

    In free text, where nothing is forced, with 16 rows a step.
    """
    stats = SchedulerStats()
    pages = PageKeeper(PagePool(2, 1), NoCache(1))
    constrainer = Constrainer(StableTokens(tokenizer), tokenizer, pages, stats)
    table = MaskTable(grammar.rows.shape[1], 32 << 20, 16)
    rows = []
    token = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b" a")
    for i in range(16):
        request = Request(f"r{i}", (5,), SamplingParams(max_new_tokens=10**6))
        keys = np.array([5], np.int64)
        seq = Sequence(request, keys, OutputText(tokenizer, request.params), frozenset(), 0, 0, 0.0,
                       10**6)  # fmt: skip
        seq.grammar, seq.grammar_state = grammar, grammar.start
        for begun in tokenizer.encode('{"summary": "a'):
            seq.grammar_state = grammar.advance(seq.grammar_state, begun)
        rows.append(PlanRow(seq, 0, 1, sample=True))
    plan = Plan(0, tuple(rows), 0)

    def step() -> None:
        table.rows(plan)
        for row in rows:
            assert not constrainer.forbids(row.seq, token)
            constrainer.step(row.seq, token)

    step()
    return per_call(step, 200) / len(rows)


def canonical(
    tokenizer: Tokenizer, kernels: Kernels, vocabulary: Vocabulary, rows: list[dict[str, Any]]
) -> None:
    """Print what the canonical masks along each constraint's sample cost, first and again."""
    pairs = CanonicalPairs(tokenizer)
    print("id; ms of a mask that is new: median, largest; us of one that is known")
    patterns = [(row["id"], row["regex"], row["samples"][0]) for row in rows if "regex" in row]
    for name, pattern, text in [*patterns, ("anything", r"(.|\n)*", patterns[0][2])]:
        inner = compile_regex(pattern, vocabulary, kernels, Budget())
        grammar = CanonicalGrammar(inner, vocabulary, pairs, Budget().max_bytes)
        state, states, took = grammar.start, [], []
        for token in tokenizer.encode(text):
            started = time.thread_time()
            grammar.mask_row(state)
            took.append((time.thread_time() - started) * 1e3)
            states.append(state)
            state = grammar.advance(state, token)
        print(f"  {name:12} {np.median(took):8.2f} {max(took):8.1f} {known(grammar, states):6.2f}")


def known(grammar: CanonicalGrammar, states: list[int]) -> float:
    """Return microseconds that a mask takes to be found again."""
    return per_call(lambda: [grammar.mask_row(state) for state in states], 100) / len(states)


if __name__ == "__main__":
    main()
