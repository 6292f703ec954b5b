"""GrammarCache: each constraint compiled once, beside the engine's loop.

HOST. Imports its neighbours and types. Compilers run on a small pool of threads (native.c leaves
the interpreter free); whoever asks gets a future.
"""

import functools
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sgjax.errors import GrammarError
from sgjax.fsm.canonical import CanonicalGrammar
from sgjax.fsm.grammar import FsmGrammar, Grammar, compile_choices, compile_tree
from sgjax.fsm.guided import GuidedCompiler
from sgjax.fsm.json_schema import JsonStyle, schema_to_tree
from sgjax.fsm.kernels import Kernels
from sgjax.fsm.pairs import CanonicalPairs
from sgjax.fsm.parse import parse
from sgjax.fsm.spec import CanonicalMaskSpec, GrammarSpec
from sgjax.fsm.vocabulary import Vocabulary
from sgjax.tokens.base import Tokenizer
from sgjax.types import Constraint, ConstraintKind

T = TypeVar("T")


class GrammarCompiler:
    """Compile constraints for one vocabulary.

    Args:
        tokenizer: of the model.
        vocab_size: V, the width of masks.
        kernels: the implementation of the hot loops.
        spec: options.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, kernels: Kernels, spec: GrammarSpec
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._spec = spec
        self._lock = threading.Lock()
        self.kernels = kernels

    def __call__(self, constraint: Constraint) -> Grammar:
        """Compile one constraint.

        Raises:
            GrammarError: it cannot be compiled; the message says why.
        """
        with self._lock:
            vocabulary = self._vocabulary
        spec, budget = self._spec, self._spec.budget
        grammar: FsmGrammar
        if constraint.kind is ConstraintKind.CHOICES:
            choices = _read_choices(constraint.source)
            grammar = compile_choices(choices, vocabulary, self.kernels, budget)
        else:
            if constraint.kind is ConstraintKind.JSON_SCHEMA:
                found = self._json(constraint.source, vocabulary)
                if not isinstance(found, FsmGrammar):
                    return found
                grammar = found
            else:
                tree = parse(constraint.source, unicode=spec.unicode)
                grammar = compile_tree(tree, vocabulary, self.kernels, budget)
        if isinstance(spec.mask, CanonicalMaskSpec):
            return CanonicalGrammar(grammar, vocabulary, self._pairs, budget.max_bytes)
        return grammar

    def _json(self, schema: str, vocabulary: Vocabulary) -> Grammar:
        """Compile a schema ourselves, or else, if it is so wanted, through llguidance."""
        spec, budget = self._spec, self._spec.budget
        style = JsonStyle(spec.whitespace, spec.max_whitespace, extra=spec.extra_properties)
        try:
            tree = schema_to_tree(schema, style)
            return compile_tree(tree, vocabulary, self.kernels, budget)
        except GrammarError as error:
            if not spec.guided or isinstance(spec.mask, CanonicalMaskSpec):
                raise
            try:
                return self._guided(schema, style, budget.max_bytes)
            except GrammarError as other:
                raise GrammarError(f"{error}; and {other}") from None

    @functools.cached_property
    def _guided(self) -> GuidedCompiler:
        return GuidedCompiler(self._tokenizer, self._vocabulary)

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self._tokenizer, self._vocab_size, self._spec.level)

    @functools.cached_property
    def _pairs(self) -> CanonicalPairs:
        return CanonicalPairs(self._tokenizer)


@dataclass
class GrammarStats:
    """What compiling took.

    Attributes:
        requests: constraints asked for.
        compiled: constraints compiled.
        failed: constraints refused.
        compile_s: seconds spent compiling.
    """

    requests: int = 0
    compiled: int = 0
    failed: int = 0
    compile_s: float = 0.0


class GrammarCache(Generic[T]):
    """Hand out grammars, or what else is made of a constraint, by constraint; thread-safe.

    Args:
        compiler: makes one.
        reuse: compile each constraint once; else anew at every request (an ablation).
        max_grammars: the least recently used beyond it are forgotten.
        num_threads: compilers at once; 0 compiles on the caller's thread.
    """

    def __init__(
        self,
        compiler: Callable[[Constraint], T],
        reuse: bool = True,
        max_grammars: int = 1024,
        num_threads: int = 2,
    ) -> None:
        self._compiler = compiler
        self._reuse = reuse
        self._max_grammars = max_grammars
        self._futures: dict[Constraint, Future[T]] = {}
        self._lock = threading.RLock()  # the caller's thread may hold it when it compiles
        self._pool: Executor = (
            ThreadPoolExecutor(num_threads, thread_name_prefix="sgjax-grammar")
            if num_threads
            else _AtOnce()
        )
        self.stats = GrammarStats()

    def request(self, constraint: Constraint) -> "Future[T]":
        """Return the grammar's future; who asks for a constraint being compiled shares it."""
        with self._lock:
            self.stats.requests += 1
            future = self._futures.pop(constraint, None) if self._reuse else None
            if future is None:
                future = self._pool.submit(self._compile, constraint)
            if self._reuse:
                self._futures[constraint] = future  # now the most recently used
                if len(self._futures) > self._max_grammars:
                    del self._futures[next(iter(self._futures))]
            return future

    def close(self) -> None:
        """End the threads when they have finished what is being compiled; wait for nobody."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, constraint: Constraint) -> T:
        started_s = time.monotonic()
        try:
            grammar = self._compiler(constraint)
        except Exception:
            with self._lock:
                self.stats.failed += 1
            raise
        with self._lock:
            self.stats.compiled += 1
            self.stats.compile_s += time.monotonic() - started_s
        return grammar


class _AtOnce(Executor):
    """Runs what is submitted on the thread that submits it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _read_choices(source: str) -> list[str]:
    choices = json.loads(source)
    if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
        raise GrammarError(f"choices must be a list of strings, got {source[:80]}")
    return choices
