"""Certain jumps change no probability: SmolLM2-135M in float32, all cases, every way followed."""

import pytest

import sgjax as sgl
from sgjax.fsm.cache import GrammarCompiler
from sgjax.fsm.jump import NoJump, StableTokens
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.spec import CanonicalMaskSpec, GrammarSpec
from sgjax.lab.spread import Scores, divergence, masked_spread, walk_together
from sgjax.lab.workloads import DataSource, DistortionWorkload
from sgjax.lab.workloads.distortion import MAX_TOKENS
from sgjax.types import Constraint, ConstraintKind

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]

CASES = DistortionWorkload().load(DataSource(), seed=0).cases


def make(path, jump):
    return sgl.Engine(
        str(path),
        dtype="float32",
        max_context_len=128,
        max_running=16,
        token_budget=128,
        kv_tokens=8192,
        grammar={"jump": {"type": jump}, "mask": {"type": "canonical"}},
    )


def greedy(engine):
    params = [{"regex": c.regex, "temperature": 0.0, "max_new_tokens": MAX_TOKENS} for c in CASES]
    return [result["text"] for result in engine.generate([c.prompt for c in CASES], params)]


def test_jumps_to_certain_tokens_change_neither_text_nor_probability_of_any_case(
    smollm2_path,
) -> None:
    with make(smollm2_path, "none") as engine:
        expected = greedy(engine)
    with make(smollm2_path, "tokens") as engine:
        assert greedy(engine) == expected
        assert engine.get_server_info()["forced_tokens"] > 0
        tokenizer = engine.tokenizer
        spec = GrammarSpec(mask=CanonicalMaskSpec())
        compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, PortableKernels(), spec)
        grammars = [compiler(Constraint(ConstraintKind.REGEX, case.regex)) for case in CASES]
        prompts = [tuple(tokenizer.encode(case.prompt, add_bos=True)) for case in CASES]
        scores = Scores(engine, {})
        plain, jumped = (
            walk_together(
                [
                    masked_spread(grammar, jump, tokenizer, prompt, scores, MAX_TOKENS, 0.0)
                    for grammar, prompt in zip(grammars, prompts, strict=True)
                ],
                scores,
            )
            for jump in (NoJump(), StableTokens(tokenizer))
        )
    worst: dict[str, float] = {}
    for case, own, other in zip(CASES, plain, jumped, strict=True):
        assert own.lost == other.lost == 0, case.id
        assert sum(own.texts.values()) == pytest.approx(1)
        distance = abs(divergence(own, other, 1e-300))
        worst[case.kind] = max(worst.get(case.kind, 0.0), distance)
    print(f"largest divergence: {worst}")
    assert len(worst) == 4
    assert max(worst.values()) <= 1e-6
