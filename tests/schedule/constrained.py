"""A scheduler with constraints on the simulator, and the tokenizers and patterns of its tests."""

from sgjax.cache import LruSpec, PagePool, TreeSpec, build_cache
from sgjax.fsm.canonical import CanonicalGrammar
from sgjax.fsm.grammar import compile_regex
from sgjax.fsm.jump import NoJump, PlainString, Retokenize, StableTokens
from sgjax.fsm.kernels import Budget
from sgjax.fsm.pairs import CanonicalPairs
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.vocabulary import Vocabulary
from sgjax.schedule import (
    AdaptiveGrowth,
    LeastProgress,
    Limits,
    Mixed,
    PageKeeper,
    Scheduler,
    Strategies,
    build_policy,
    build_siblings,
)
from sgjax.schedule.spec import AdmitSpec, FcfsSpec
from sgjax.sim import SimExecutor, hashed_tokens, linear_cost
from sgjax.sim.executor import allowed_tokens
from sgjax.types import Constraint, ConstraintKind, Request, SamplingParams
from tests.fsm.small import byte_level, sentencepiece
from tests.schedule.kv_memory import KvMemory

PATTERNS = [
    r'\{"name": "[a-zé東]{1,5}", "house": "(Gryffindor|Hufflepuff)"\}',
    r"(Above|Below) Average|Fair|Excellent",
    r"ab?",
    r"(ab)*",
    r"\{\n    \"name\": \"(Harry Potter|Hermione Granger)\"\n\}",
    r"(red|green) (car|big truck)(, (red|green) (car|big truck)){0,2}",
    r"😀|東京|Zürich",
    r"x{3}y?",
]
MODES = {"none": lambda t: NoJump(), "retokenize": Retokenize, "tokens": StableTokens,
         "string": PlainString}  # fmt: skip
TOKENIZERS = {"byte_level": byte_level, "sentencepiece": sentencepiece}


class Bench:
    """A scheduler over a small tokenizer whose simulated model picks among what masks allow.

    Attributes:
        deltas: what each request heard.
        sampling_rows: rows that sampled, over all steps.
    """

    def __init__(
        self,
        tokenizer,
        jump,
        canonical=False,
        page_size=1,
        pages=600,
        running=8,
        budget=64,
        siblings=AdmitSpec(),  # noqa: B008 - it has no state
    ):
        self.tokenizer = tokenizer
        self.budget, self.running = budget, running
        self.deltas = {}
        self.sampling_rows = 0
        self.vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
        self.pairs = CanonicalPairs(tokenizer)
        self.canonical = canonical
        self.plain = hashed_tokens(tokenizer.vocab_size, 2)
        pool = PagePool(pages + 1, page_size)
        self.pages = PageKeeper(pool, build_cache(TreeSpec(), LruSpec(), pool))
        self.memory = KvMemory(pool.num_pages, page_size)
        self.executor = SimExecutor(allowed_tokens(self.plain), linear_cost(0.02, 0.001))
        self.scheduler = Scheduler(
            pages=self.pages,
            strategies=Strategies(
                policy=build_policy(FcfsSpec()),
                siblings=build_siblings(siblings),
                composition=Mixed(),
                growth=AdaptiveGrowth(0.01, 0.01, 600),
                retract=LeastProgress(),
                jump=jump(tokenizer),
            ),
            tokenizer=tokenizer,
            limits=Limits(running, budget, 16, 400),
            seed=0,
            now=self.executor.now,
            debug_checks=True,
        )
        self.grammars = {}

    def grammar(self, pattern):
        if pattern not in self.grammars:
            inner = compile_regex(pattern, self.vocabulary, PortableKernels(), Budget())
            if self.canonical:
                inner = CanonicalGrammar(inner, self.vocabulary, self.pairs, 1 << 24)
            self.grammars[pattern] = inner
        return self.grammars[pattern]

    def add(self, name, prompt, pattern, new=200, stream=False, **params):
        constraint = Constraint(ConstraintKind.REGEX, pattern) if pattern is not None else None
        sampling = SamplingParams(max_new_tokens=new, **params)
        request = Request(name, tuple(prompt), sampling, constraint=constraint, stream=stream)
        self.scheduler.add(request, self.grammar(pattern) if pattern is not None else None)

    def step(self):
        """Plan, run and commit one step; verify what executors build on."""
        plan = self.scheduler.plan()
        events = self.scheduler.take_events()
        if plan is not None:
            self._check(plan)
            self.memory.run(plan)
            out = self.executor.wait(self.executor.submit(plan))
            assert len(out.next_token) == sum(len(row.sampled) for row in plan.rows)
            self.sampling_rows += sum(row.sample for row in plan.rows)
            events += self.scheduler.commit(plan, out)
        for event in events:
            self.deltas.setdefault(event.id, []).append(event)
        return plan

    def run(self):
        """Step until all have ended; return their completions."""
        while self.scheduler.has_work:
            self.step()
        counts = self.pages.pool.counts()
        assert counts["sequence"] == 0
        assert counts["tree"] == self.pages.cache.num_evictable
        return {name: heard[-1].completion for name, heard in self.deltas.items()}

    def _check(self, plan):
        lengths = [row.num_tokens for row in plan.rows]
        singles = next((i for i, n in enumerate(lengths) if n > 1), len(lengths))
        assert min(lengths[singles:], default=2) > 1, "a single token behind an extend"
        charged = singles + sum(-(-n // 16) * 16 for n in lengths[singles:])
        assert charged <= max(self.budget, singles)
        places = sum(1 + len(row.guesses) for row in plan.rows)
        assert places <= self.running + self.budget // 16, "no shape has so many places"
