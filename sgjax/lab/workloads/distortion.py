"""Distortion: how far constrained outputs are from the model's own distribution (appendix B.3).

A fixed file of cases, each a prompt with and without its choices listed, a small language and the
right answer, in the classes of the paper's discussion: one text only (`deterministic`),
alternatives of equal and of different length, and nested ones. A run asks every case once greedily
and some times at temperature 1, which measures speed, accuracy and compliance; then it works out
the probability of every text, exactly (`lab.spread`), and compares it with the model's own
conditional distribution. Imports fsm, the lab's spreads and the workload protocol.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, get_args

from sgjax.errors import ConfigError
from sgjax.fsm.cache import GrammarCompiler
from sgjax.fsm.jump import JumpMode, NoJump
from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import CanonicalMaskSpec, ExactSamplerSpec, GrammarSpec, build_jump
from sgjax.lab.spread import (
    Scores,
    Spread,
    Step,
    ask_all,
    divergence,
    masked_spread,
    over_texts,
    true_outputs,
    walk_together,
)
from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, refuse_language, require
from sgjax.lab.workloads.text import read_rows
from sgjax.lang.spec import LanguageSpec
from sgjax.models.pull import default_cache_dir
from sgjax.theory.visits import Visit
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA, validate
from sgjax.types import Completion, Constraint, ConstraintKind, Request, SamplingParams

SHIPPED = Path(__file__).parents[1] / "data" / "distortion_cases.jsonl"
MAX_TEXTS = 256
"""Most texts of a case's language."""
MAX_TOKENS = 96
"""Most tokens of an output, for any way to write it."""

Kind = Literal["deterministic", "equal_length", "different_length", "nested"]
KEYS = ("id", "kind", "prompt", "prompt_listed", "regex", "answer")


@dataclass(frozen=True)
class Case:
    """One constraint with its prompt.

    Attributes:
        id: names it.
        kind: its class.
        prompt: what is asked.
        regex: its language, of at most MAX_TEXTS texts.
        answer: the right one.
    """

    id: str
    kind: Kind
    prompt: str
    regex: str
    answer: str


@dataclass(frozen=True)
class DistortionTask:
    """Cases, and how they are measured.

    Attributes:
        cases: in the file's order.
        samples: outputs drawn of each, beside the greedy one.
        seed: of the samples.
        least: ways to write a text that are less probable are not followed; 0 draws only.
        scored: log-probabilities by model and dtype: of no variant, so that each is asked for once.
    """

    cases: tuple[Case, ...]
    samples: int
    seed: int
    least: float
    scored: dict[tuple[str, str], dict[Step, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def num_programs(self) -> int:
        """Return the number of cases."""
        return len(self.cases)

    def first(self, count: int) -> "DistortionTask":
        """Return the task of the first cases, drawn only: what a warm-up needs."""
        return DistortionTask(self.cases[:count], self.samples, self.seed, 0)

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Draw outputs of all cases, then work out their distributions."""
        refuse_language(language, "distortion")
        if not self.cases:
            return Ran((), ())
        tokenizer = engine.tokenizer
        requests = [request for case in self.cases for request in self._requests(case, engine)]
        started_s = engine.now()
        drawn = ask_all(engine, requests)
        took_s = engine.now() - started_s
        each = [drawn[i : i + 1 + self.samples] for i in range(0, len(drawn), 1 + self.samples)]
        outcomes = tuple(
            Outcome(
                answer=greedy.text,
                correct=greedy.text == case.answer,
                latency_s=greedy.e2e_s,
                ttft_s=greedy.ttft_s,
                completion_tokens=sum(len(c.output_ids) for c in (greedy, *sampled)),
            )
            for case, (greedy, *sampled) in zip(self.cases, each, strict=True)
        )
        keeps = [
            re.fullmatch(case.regex, completion.text, re.ASCII) is not None
            for case, own in zip(self.cases, each, strict=True)
            for completion in own
        ]
        visits = [
            Visit(tuple(r.tokens), c.output_ids) for r, c in zip(requests, drawn, strict=True)
        ]
        metrics = {"answers_per_s": len(drawn) / took_s, "valid_outputs": fmean(keeps)}
        if self.least:
            metrics |= self._distances(engine, tokenizer, each)
        return Ran(outcomes, tuple(visits), metrics)

    def _requests(self, case: Case, engine: LabEngine) -> list[Request]:
        """Return a case's greedy request and its samples."""
        constraint = Constraint(ConstraintKind.REGEX, case.regex)
        tokens = tuple(engine.tokenizer.encode(case.prompt, add_bos=True))
        return [
            Request(
                engine.new_id(),
                tokens,
                SamplingParams(
                    max_new_tokens=MAX_TOKENS,
                    temperature=1.0 if sample else 0.0,
                    seed=self.seed * 1_000_003 + sample,
                ),
                constraint=constraint,
            )
            for sample in range(1 + self.samples)
        ]

    def _distances(
        self, engine: LabEngine, tokenizer: Tokenizer, each: Sequence[Sequence[Completion]]
    ) -> dict[str, float]:
        """Return the divergences over all cases, as metrics."""
        info = engine.get_server_info()
        spec = validate(GrammarSpec, info["config"]["grammar"], "the engine's grammar")
        kernels = load_kernels(spec.kernels, default_cache_dir() / "native")
        compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, kernels, spec)
        model = (info["config"]["model"], info["config"]["dtype"])
        scores = Scores(engine, self.scored.setdefault(model, {}))
        prompts = [tuple(tokenizer.encode(case.prompt, add_bos=True)) for case in self.cases]
        grammars = [compiler(Constraint(ConstraintKind.REGEX, c.regex)) for c in self.cases]
        known = list(zip(grammars, prompts, strict=True))
        outputs = walk_together(
            [true_outputs(g, tokenizer, prompt, scores, MAX_TEXTS) for g, prompt in known], scores
        )
        if isinstance(spec.sampler, ExactSamplerSpec):
            found = [
                {
                    "kl_nats": _said_distance(own, drawn),
                    "answer_probability": _right(case, over_texts(own, tokenizer)),
                }
                for case, own, drawn in zip(self.cases, outputs, each, strict=True)
            ]
        else:
            jumps: tuple[JumpMode, ...] = (build_jump(spec.jump, tokenizer), NoJump())
            # Under canonical masks a text has one way, so there are few: all are followed.
            least = 0.0 if isinstance(spec.mask, CanonicalMaskSpec) else self.least
            spreads, plain = (
                walk_together(
                    [
                        masked_spread(g, jump, tokenizer, prompt, scores, MAX_TOKENS, least)
                        for g, prompt in known
                    ],
                    scores,
                )
                for jump in jumps
            )
            found = [
                self._distances_of(case, over_texts(own, tokenizer), spread, reference)
                for case, own, spread, reference in zip(
                    self.cases, outputs, spreads, plain, strict=True
                )
            ]
        return _means([case.kind for case in self.cases], found)

    def _distances_of(
        self, case: Case, truth: Spread, spread: Spread, plain: Spread
    ) -> dict[str, float]:
        """Return how far a case's distribution is from the true one and from that without jumps."""
        return {
            "kl_nats": divergence(truth, spread, self.least),
            "kl_of_jump_nats": divergence(plain, spread, self.least),
            "answer_probability": _right(case, spread),
            "lost_probability": spread.lost,
        }


@dataclass(frozen=True)
class DistortionWorkload:
    """The cases, asked with or without their choices.

    Attributes:
        type: the tag.
        listed: whether the prompt lists the choices (the workaround of appendix B.3).
        kinds: which classes; None takes all.
        samples: outputs drawn of each case at temperature 1.
        least: ways to write a text that are less probable than this are not followed where masks
            allow several, and a text that is lost so counts as this probable.
        cases: a file of other cases; None takes ours, which were fixed before any result was seen.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["distortion"] = "distortion"
    listed: bool = False
    kinds: tuple[Kind, ...] | None = None
    samples: int = 4
    least: float = 1e-3
    cases: str | None = None

    def load(self, data: DataSource, seed: int) -> DistortionTask:
        """Read the cases; the seed is that of the samples, and `data` is not used."""
        del data
        require(self, "least", samples=0)
        if self.least >= 1:
            raise ConfigError(f"distortion: least={self.least} is not allowed; it must be < 1")
        path = SHIPPED if self.cases is None else Path(self.cases)
        prompt = "prompt_listed" if self.listed else "prompt"
        cases = [
            Case(row["id"], row["kind"], row[prompt], row["regex"], row["answer"])
            for row in read_rows(path, KEYS)
            if self.kinds is None or row["kind"] in self.kinds
        ]
        unknown = {case.kind for case in cases} - set(get_args(Kind))
        if unknown or not cases:
            raise ConfigError(
                f"{path}: no cases of the kinds asked for, or unknown kinds {sorted(unknown)}; "
                f"allowed: {json.dumps(get_args(Kind))}"
            )
        return DistortionTask(tuple(cases), self.samples, seed, self.least)


def _said_distance(outputs: Mapping[tuple[int, ...], float], drawn: Sequence[Completion]) -> float:
    """Return KL to what an exact engine says it draws from, as far as its draws tell it."""
    said = {c.output_ids: c.exact.conditional_logprob for c in drawn if c.exact is not None}
    return sum(outputs[o] * (math.log(outputs[o]) - said[o]) for o in said)


def _right(case: Case, spread: Spread) -> float:
    return spread.texts.get(case.answer.encode(), 0.0)


def _means(kinds: Sequence[Kind], found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return means over the cases, and of the divergence over those of each kind too."""
    means = {name: fmean(case[name] for case in found) for name in found[0]}
    for kind in dict.fromkeys(kinds):
        own = [case["kl_nats"] for case, its in zip(found, kinds, strict=True) if its == kind]
        means[f"kl_{kind}_nats"] = fmean(own)
    return means | {"kl_max_nats": max(case["kl_nats"] for case in found)}
