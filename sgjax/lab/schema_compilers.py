"""What compiles JSON schemas into token masks: ours, and others' packages where they are installed.

Imports fsm, tokens and errors; the packages llguidance, xgrammar and outlines_core are imported
only when they are asked for. All are driven alike: compile a schema, then mask, advance, mask, ...
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np

from sgjax.errors import GrammarError
from sgjax.fsm.cache import GrammarCompiler
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.guided import GuidedCompiler
from sgjax.fsm.json_schema import JsonStyle
from sgjax.fsm.kernels import Kernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.fsm.vocabulary import Vocabulary
from sgjax.tokens.base import Tokenizer
from sgjax.types import Constraint, ConstraintKind

Name = Literal["ours", "hybrid", "llguidance", "xgrammar", "outlines_core"]
_PACKAGES: dict[Name, str] = {
    "hybrid": "llguidance",
    "llguidance": "llguidance",
    "xgrammar": "xgrammar",
    "outlines_core": "outlines_core",
}


class Matcher(Protocol):
    """One output that is being written."""

    def mask(self) -> None:
        """Compute the mask of the next token, into wherever the package keeps it."""
        ...

    def advance(self, token: int) -> bool:
        """Take in a token; return whether it was allowed."""
        ...

    def accepts(self) -> bool:
        """Return whether the output may end here."""
        ...


Compile = Callable[[str], Callable[[], Matcher]]
"""Compile the JSON text of a schema into what makes matchers; raise `Refused` if it cannot."""


class Refused(Exception):
    """A schema that a package does not compile, with its reason."""


def is_installed(name: Name) -> bool:
    """Return whether a compiler's package is there."""
    return name == "ours" or importlib.util.find_spec(_PACKAGES[name]) is not None


def load_compiler(name: Name, tokenizer: Tokenizer, kernels: Kernels, spec: GrammarSpec) -> Compile:
    """Return a compiler.

    Args:
        name: which; installed.
        tokenizer: whose vocabulary the masks are over.
        kernels: of ours.
        spec: of ours and, as far as they have such options, of the others: fixed separators or
            bounded white space.
    """
    match name:
        case "ours" | "hybrid":
            return _ours(tokenizer, kernels, spec)
        case "llguidance":
            return _llguidance(tokenizer, spec)
        case "xgrammar":
            return _xgrammar(tokenizer, spec)
        case "outlines_core":
            return _outlines_core(tokenizer, spec)


class _GrammarMatcher:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar.for_request()
        self._state = grammar.start

    def mask(self) -> None:
        self._grammar.mask_row(self._state)

    def advance(self, token: int) -> bool:
        self._state = self._grammar.advance(self._state, token)
        return self._state >= 0

    def accepts(self) -> bool:
        return self._grammar.is_accepting(self._state)


def _ours(tokenizer: Tokenizer, kernels: Kernels, spec: GrammarSpec) -> Compile:
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, kernels, spec)

    def compile_schema(schema: str) -> Callable[[], Matcher]:
        try:
            grammar = compiler(Constraint(ConstraintKind.JSON_SCHEMA, schema))
        except GrammarError as error:
            raise Refused(str(error)) from None
        return lambda: _GrammarMatcher(grammar)

    return compile_schema


def _llguidance(tokenizer: Tokenizer, spec: GrammarSpec) -> Compile:
    compiler = GuidedCompiler(tokenizer, Vocabulary(tokenizer, tokenizer.vocab_size))
    style = JsonStyle(spec.whitespace, spec.max_whitespace, extra=spec.extra_properties)

    def compile_schema(schema: str) -> Callable[[], Matcher]:
        try:
            grammar = compiler(schema, style, spec.max_bytes)
        except GrammarError as error:
            raise Refused(str(error)) from None
        return lambda: _GrammarMatcher(grammar)

    return compile_schema


class _XgrammarMatcher:
    def __init__(self, matcher: Any, num_words: int, end_id: int) -> None:
        self._matcher = matcher
        self._row = np.zeros((1, num_words), np.int32)
        self._end_id = end_id

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._row)

    def advance(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def accepts(self) -> bool:
        return bool(self._matcher.is_completed() or self._matcher.accept_token(self._end_id))


def _xgrammar(tokenizer: Tokenizer, spec: GrammarSpec) -> Compile:
    xgrammar: Any = importlib.import_module("xgrammar")
    (end_id, *_) = sorted(tokenizer.end_ids)
    vocabulary = _token_bytes(tokenizer)
    info = xgrammar.TokenizerInfo(
        vocabulary, xgrammar.VocabType.RAW, stop_token_ids=sorted(tokenizer.end_ids)
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    options: dict[str, Any] = {"any_whitespace": True, "max_whitespace_cnt": spec.max_whitespace}
    if spec.whitespace != "bounded":
        separators = (", ", ": ") if spec.whitespace == "fixed" else (",", ":")
        options = {"any_whitespace": False, "separators": separators}

    def compile_schema(schema: str) -> Callable[[], Matcher]:
        try:
            grammar = compiler.compile_json_schema(
                schema, strict_mode=not spec.extra_properties, **options
            )
        except RuntimeError as error:
            raise Refused(str(error)) from None
        num_words = -(-len(vocabulary) // 32)
        return lambda: _XgrammarMatcher(xgrammar.GrammarMatcher(grammar), num_words, end_id)

    return compile_schema


class _OutlinesMatcher:
    def __init__(self, guide: Any, num_words: int) -> None:
        self._guide = guide
        self._row = np.zeros(num_words, np.uint32)

    def mask(self) -> None:
        self._guide.write_mask_into(self._row.ctypes.data, self._row.size, self._row.itemsize)

    def advance(self, token: int) -> bool:
        try:
            self._guide.advance(token, False)
        except ValueError:
            return False
        return True

    def accepts(self) -> bool:
        return bool(self._guide.is_finished())


def _outlines_core(tokenizer: Tokenizer, spec: GrammarSpec) -> Compile:
    outlines_core: Any = importlib.import_module("outlines_core")
    to_regex: Any = importlib.import_module("outlines_core.json_schema").build_regex_from_schema
    ids: dict[bytes, list[int]] = {}
    skipped = tokenizer.special_ids | tokenizer.end_ids
    for token, data in enumerate(_token_bytes(tokenizer)):
        if data and token not in skipped:
            ids.setdefault(data, []).append(token)
    vocabulary = outlines_core.Vocabulary(min(tokenizer.end_ids), ids)
    # It knows one pattern for all places, so fixed separators can only be allowed.
    space = {"compact": "", "fixed": " ?", "bounded": rf"[ \n\t]{{0,{spec.max_whitespace}}}"}
    num_words = -(-tokenizer.vocab_size // 32)

    def compile_schema(schema: str) -> Callable[[], Matcher]:
        try:
            regex = to_regex(schema, space[spec.whitespace])
            index = outlines_core.Index(regex, vocabulary)
        # The package raises plain exceptions of its own.
        except Exception as error:
            raise Refused(str(error)) from None
        return lambda: _OutlinesMatcher(outlines_core.Guide(index), num_words)

    return compile_schema


def _token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    return [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
