"""What constraints cost, and whether they are exact, on real vocabularies.

Compile and mask times of a file of constraints; masks of many patterns against an independent brute
force over the whole vocabulary in every state; model calls of each jump mode when the model writes
a given text; schemas compiled and judged on their own instances.

    python benchmarks/grammar.py times --tokenizer model.gguf --constraints constraints.jsonl
    python benchmarks/grammar.py exact --tokenizer FOLDER --patterns 200
    python benchmarks/grammar.py calls --tokenizer model.gguf --constraints constraints.jsonl
    python benchmarks/grammar.py schemas --tokenizer model.gguf --schemas schemas.jsonl
"""

import argparse
import collections
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sgjax.engine.assemble import build_pages, build_scheduler
from sgjax.engine.config import EngineConfig
from sgjax.errors import GrammarError
from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.grammar import FsmGrammar, Grammar, compile_regex
from sgjax.fsm.jump import JumpMode, NoJump, PlainString, Retokenize, StableTokens
from sgjax.fsm.kernels import Budget, Kernels
from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.fsm.vocabulary import Vocabulary, unpack_ids
from sgjax.models.gguf_file import GgufFile
from sgjax.models.pull import default_cache_dir
from sgjax.schedule import SchedulerStats, Sequence
from sgjax.schedule.entrance import Open
from sgjax.sim import SimExecutor, linear_cost
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.gguf import tokenizer_from_gguf
from sgjax.tokens.hf import tokenizer_from_folder
from sgjax.types import Constraint, ConstraintKind, Request, SamplingParams

PIECES = [
    "a", "b", "name", '"', "é", "東", "京", "😀", ".", " ", "Average", ", ", "\n   ", r"\{", r"\d",
    r"\w", r"\s", r"\S", r"[\w ]", "[a-z]", "[^a-m\n]", "[é-東]", "[0-9a-f]",
]  # fmt: skip


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["times", "exact", "calls", "schemas"])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a .gguf file or a folder")
    parser.add_argument("--constraints", type=Path)
    parser.add_argument("--schemas", type=Path)
    parser.add_argument("--patterns", type=int, default=200)
    parser.add_argument("--kernels", default="c", choices=["c", "numpy"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--extra", action="store_true", help="schemas: unlisted properties too")
    args = parser.parse_args()
    tokenizer = read_tokenizer(args.tokenizer)
    kernels = load_kernels(args.kernels, default_cache_dir() / "native")
    if args.what == "times":
        times(tokenizer, kernels, read_lines(args.constraints), args.repeats)
    elif args.what == "exact":
        exact(tokenizer, kernels, args.patterns)
    elif args.what == "calls":
        calls(tokenizer, kernels, read_lines(args.constraints))
    else:
        schemas(tokenizer, kernels, read_lines(args.schemas), args.extra)


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a GGUF file or a Hugging Face folder."""
    if path.is_dir():
        return tokenizer_from_folder(path)
    return tokenizer_from_gguf(GgufFile(path).metadata)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def times(tokenizer: Tokenizer, kernels: Kernels, rows: list[dict[str, Any]], repeats: int) -> None:
    """Print compile times: processor time of this thread, the best of some repeats."""
    started = time.perf_counter()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    print(f"vocabulary of {vocabulary.size}: trie built in {time.perf_counter() - started:.2f} s")
    for unicode in (False, True):
        totals = []
        print(f"\n{'unicode' if unicode else 'ascii'} classes: id, states, masks, kB, ms")
        for row in rows:
            if "regex" not in row:
                continue
            best = np.inf
            for _ in range(repeats):
                started = time.thread_time()
                grammar = compile_regex(
                    row["regex"], vocabulary, kernels, Budget(), unicode=unicode
                )
                best = min(best, (time.thread_time() - started) * 1e3)
            totals.append(best)
            states, masks = grammar.dfa.num_states, len(grammar.rows)
            kilobytes = grammar.num_bytes / 1e3
            print(f"  {row['id']:12} {states:6} {masks:5} {kilobytes:8.0f} {best:9.2f}")
        print(f"  median {np.median(totals):.2f} ms, max {max(totals):.2f} ms")
    lookups(tokenizer, kernels, rows)


def lookups(tokenizer: Tokenizer, kernels: Kernels, rows: list[dict[str, Any]]) -> None:
    """Print what a cached constraint and one constrained step cost the host."""
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, kernels, GrammarSpec())
    cache = GrammarCache(compiler)
    constraint = Constraint(ConstraintKind.REGEX, rows[0]["regex"])
    grammar = cache.request(constraint).result()
    print(f"\ncached lookup {per_call(lambda: cache.request(constraint).result()):.2f} us")
    tokens = tokenizer.encode(rows[0]["samples"][0])

    def steps() -> None:
        state = grammar.start
        for token in tokens:
            state = grammar.advance(state, token)
            grammar.is_final(state)
            grammar.mask_row(state)
            grammar.forced(state)

    print(f"grammar's part of a row and step {per_call(steps) / len(tokens):.2f} us")
    cache.close()


def per_call(function: Callable[[], object], count: int = 2000) -> float:
    """Return microseconds of this thread's processor time that a call takes, best of three."""
    best = np.inf
    for _ in range(3):
        started = time.thread_time()
        for _ in range(count):
            function()
        best = min(best, (time.thread_time() - started) / count * 1e6)
    return float(best)


def exact(tokenizer: Tokenizer, kernels: Kernels, count: int) -> None:
    """Compare the masks of random patterns with brute force, bit by bit."""
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    matrix, lengths = token_matrix(vocabulary)
    rng = random.Random(20261129)
    states = wrong = bits = texts = 0
    for number in range(count):
        pattern = random_regex(rng, 3)
        try:
            grammar = compile_regex(pattern, vocabulary, kernels, Budget())
        except GrammarError as error:
            print(f"  {pattern!r}: {error}")
            continue
        trans = np.stack([grammar.dfa.targets(s) for s in range(grammar.dfa.num_states)])
        trans = np.concatenate([trans, np.full((1, 256), -1, np.int32)])  # -1 stays -1
        chosen = range(grammar.dfa.num_states)
        for state in chosen:
            at = np.full(len(matrix), state)
            for column in range(matrix.shape[1]):
                inside = (lengths > column) & (at >= 0)
                if not inside.any():
                    break
                at[inside] = trans[at[inside], matrix[inside, column]]
            expected = (at >= 0) & (lengths > 0)
            if grammar.is_accepting(state):
                expected[sorted(vocabulary.end_ids)] = True
            row = grammar.mask_row(state)
            got = np.zeros(len(matrix), bool)
            got[unpack_ids(grammar.rows[row])] = True
            wrong += int((expected != got).sum())
            bits += len(matrix)
            states += 1
        texts += check_texts(grammar, pattern, tokenizer, rng)
        if number % 50 == 49:
            print(f"  {number + 1} patterns, {states} states, {wrong} wrong bits", flush=True)
    print(
        f"{states} states x {len(matrix)} tokens = {bits} bits: {wrong} wrong; {texts} texts match"
    )


def token_matrix(vocabulary: Vocabulary) -> tuple[Any, Any]:
    """Return the tokens' bytes as a padded matrix u8[V, L], and their lengths."""
    longest = max(map(len, vocabulary.token_bytes))
    padded = b"".join([data.ljust(longest, b"\0") for data in vocabulary.token_bytes])
    lengths = np.array([len(data) for data in vocabulary.token_bytes])
    return np.frombuffer(padded, np.uint8).reshape(-1, longest), lengths


def check_texts(grammar: FsmGrammar, pattern: str, tokenizer: Tokenizer, rng: random.Random) -> int:
    """Walk over the masks at random; every completed text must match the pattern by `re`."""
    done = 0
    for _ in range(5):
        state, data = grammar.start, b""
        for _ in range(30):
            row = grammar.mask_row(state)
            allowed = unpack_ids(grammar.rows[row]).tolist()
            # Without end ids (a bare tokenizer.json names none) a finished text has no way on.
            token = rng.choice(allowed) if allowed else -1
            if token < 0 or token in tokenizer.end_ids:
                assert re.fullmatch(pattern, data.decode(), re.ASCII), (pattern, data)
                done += 1
                break
            data += tokenizer.token_bytes(token)
            state = grammar.advance(state, token)
    return done


def random_regex(rng: random.Random, depth: int) -> str:
    """Return a random pattern."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(PIECES)
    if kind < 0.6:
        return random_regex(rng, depth - 1) + random_regex(rng, depth - 1)
    if kind < 0.8:
        return f"(?:{random_regex(rng, depth - 1)}|{random_regex(rng, depth - 1)})"
    return f"(?:{random_regex(rng, depth - 1)})" + rng.choice(["*", "+", "?", "{1,3}", "{2}"])


def calls(tokenizer: Tokenizer, kernels: Kernels, rows: list[dict[str, Any]]) -> None:
    """Print the model calls of each jump mode where the model writes each constraint's sample.

    The scheduler plans them, so what is counted is what an engine would run. A call is a pass that
    samples; the pass for the end token of a text that could go on is not counted.
    """
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    modes: dict[str, JumpMode] = {
        "none": NoJump(),
        "tokens": StableTokens(tokenizer),
        "tokens, no guesses": StableTokens(tokenizer, guess=False),
        "retokenize": Retokenize(tokenizer),
        "string": PlainString(tokenizer),
    }
    compiler = GrammarCompiler(
        tokenizer, tokenizer.vocab_size, kernels, GrammarSpec(whitespace="fixed")
    )
    for row in rows:
        if not row["samples"]:
            continue
        text = row["samples"][0]
        if "regex" in row:
            grammar: Grammar = compile_regex(row["regex"], vocabulary, kernels, Budget())
        else:
            schema = json.dumps(row["json_schema"])
            grammar = compiler(Constraint(ConstraintKind.JSON_SCHEMA, schema))
        target = row.get("model_calls", {}).get("target_tokens_mode", "none given")
        canonical = tokenizer.encode(text)
        print(f"{row['id']}: {len(canonical)} tokens, target {target}")
        for name, mode in modes.items():
            passes, stats, output = write(grammar, canonical, mode, tokenizer)
            own = " not canonical" * (output != canonical)
            print(
                f"  {name:18} {passes:4} calls, {stats.rolled_back_tokens} rolled back, "
                f"{stats.guessed_tokens} guessed, {stats.wrong_guesses} wrongly{own}"
            )


def write(
    grammar: Grammar, canonical: list[int], mode: JumpMode, tokenizer: Tokenizer
) -> tuple[int, SchedulerStats, list[int]]:
    """Return passes, counters and output, all but its end, when a model writes given tokens.

    Where a jump has left a boundary that they do not have, the rest is written in tokens of its
    own.
    """
    constraint = Constraint(ConstraintKind.REGEX, "")  # what it says is in the grammar
    text = b"".join([tokenizer.token_bytes(i) for i in canonical])
    end = min(tokenizer.end_ids)

    def say(seq: Sequence) -> int:
        output = seq.tokens.view(seq.num_prompt).tolist()
        if canonical[: len(output)] == output:
            return [*canonical, end][len(output)]
        written = b"".join([tokenizer.token_bytes(i) for i in output])
        return [*tokenizer.encode(text[len(written) :].decode()), end][0]

    config = EngineConfig(model="", kv_tokens=4096, max_context_len=2048, token_budget=2048)
    executor = SimExecutor(say, linear_cost(0.0, 0.0))
    scheduler = build_scheduler(
        config, build_pages(config), tokenizer, tokenizer.vocab_size, executor.now, mode, Open()
    )
    params = SamplingParams(max_new_tokens=1024)
    scheduler.add(Request("r", (canonical[0],), params, constraint=constraint), grammar)
    passes, completion = 0, None
    while completion is None:
        plan = scheduler.plan()
        assert plan is not None
        out = executor.wait(executor.submit(plan))
        passes += int(out.next_token[0]) != end
        events = scheduler.commit(plan, out)
        completion = events[-1].completion if events else None
    return passes, scheduler.stats, [i for i in completion.output_ids if i != end]


def schemas(
    tokenizer: Tokenizer, kernels: Kernels, rows: list[dict[str, Any]], extra: bool
) -> None:
    """Print how many schemas compile and judge their own instances right, alone and hybrid."""
    for guided in (False, True):
        spec = GrammarSpec(whitespace="fixed", guided=guided, extra_properties=extra)
        compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, kernels, spec)
        counts: collections.Counter[str] = collections.Counter()
        seconds = []
        for row in rows:
            started = time.perf_counter()
            try:
                schema = json.dumps(row["schema"])
                grammar = compiler(Constraint(ConstraintKind.JSON_SCHEMA, schema))
            except GrammarError as error:
                counts["refused"] += 1
                print(f"  {row['id']}: {str(error)[:160]}")
                continue
            seconds.append(time.perf_counter() - started)
            verdicts = [
                (test["valid"], accepts(grammar, tokenizer, test["data"])) for test in row["tests"]
            ]
            counts["passing"] += all(valid == got for valid, got in verdicts)
            counts["false accepts"] += sum(got and not valid for valid, got in verdicts)
            counts["false rejects"] += sum(valid and not got for valid, got in verdicts)
        p50, p90, most = np.quantile(seconds, [0.5, 0.9, 1.0]) * 1e3
        print(f"guided={guided}: {dict(counts)}; compile ms {p50:.0f}/{p90:.0f}/{most:.0f}")


def accepts(grammar: Grammar, tokenizer: Tokenizer, value: object) -> bool:
    """Return whether a grammar lets the canonical tokens of a JSON value through, to an end."""
    grammar = grammar.for_request()
    state = grammar.start
    for token in tokenizer.encode(json.dumps(value, ensure_ascii=False)):
        state = grammar.advance(state, token)
        if state < 0:
            return False
    return grammar.is_accepting(state)


if __name__ == "__main__":
    main()
