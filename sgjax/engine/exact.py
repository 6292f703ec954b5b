"""ExactSampler: outputs from the model's own distribution, conditioned on their constraint.

HOST, no jax. Imports schedule's checks, fsm, tokens and types. It stands before the loop and makes
of each constrained request some ordinary ones, so that neither scheduler nor executor know of it::

    compile -> list the outputs --few--> score all of them ------------------------> choose
                                --many-> draw candidates locally -> score them ----> choose

Masking draws each token from what the mask leaves of the model's distribution, renormalised, so an
output gets the probability p(output) / (product of what the masks left): texts that begin well and
end badly come too often. Here an output has its probability p, or the weight p / q where it was
proposed with probability q. What an output is: see `fsm.language.list_outputs`. All runs on the
loop's thread, but for compiling and listing.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sgjax.engine.drawn import check_exact, completion_of, log_probability, log_proposal
from sgjax.engine.front import Listener, Loop, ask_together
from sgjax.errors import ConfigError, PromptTooLong, RequestAborted, SgjaxError
from sgjax.fsm.cache import GrammarCache
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.language import is_own, list_outputs
from sgjax.fsm.resample import choose
from sgjax.fsm.spec import ExactSamplerSpec, GrammarSpec, RetokenizeSpec
from sgjax.schedule.constrain import check_constraint
from sgjax.schedule.policies import mix
from sgjax.tokens.base import Tokenizer
from sgjax.types import (
    Completion,
    Constraint,
    Delta,
    ExactReport,
    FinishKind,
    Request,
    SamplingParams,
    Wants,
)

_LOG = logging.getLogger(__name__)

Output = tuple[int, ...]
Outputs = tuple[Output, ...] | None
"""All outputs of a language, or None where they are too many."""


@dataclass(frozen=True)
class _Draw:
    """One constrained request while it is answered.

    Attributes:
        request, listener: what was asked, and by whom.
        seed: of all that is drawn for it.
        started_s: when it came.
        room: output tokens at most.
        parts: ids of the requests made for it so far.
        hints: completions of the prompt alone that went before them.
    """

    request: Request
    listener: Listener
    seed: int
    started_s: float
    room: int
    parts: list[str] = field(default_factory=list)
    hints: list[Completion] = field(default_factory=list)


class ExactSampler:
    """Answer constrained requests exactly; let others pass.

    Args:
        loop: runs requests.
        grammars: compiles constraints.
        tokenizer: of the model.
        spec: the engine's `grammar`, with an exact sampler.
        seed: for requests without a seed of their own.
        max_context_len: tokens of a prompt and its output.
        now: the executor's clock, in seconds.
    """

    def __init__(
        self,
        loop: Loop,
        grammars: GrammarCache[Grammar],
        tokenizer: Tokenizer,
        spec: GrammarSpec,
        seed: int,
        max_context_len: int,
        now: Callable[[], float],
    ) -> None:
        assert isinstance(spec.sampler, ExactSamplerSpec)
        self._loop = loop
        self._grammars = grammars
        self._tokenizer = tokenizer
        self._jump = spec.jump
        self._sampler = spec.sampler
        self._seed = seed
        self._max_context_len = max_context_len
        self._now = now
        self._languages: GrammarCache[tuple[Grammar, Outputs]]
        self._languages = GrammarCache(self._list, spec.reuse)
        self._draws: dict[str, _Draw] = {}
        self._arrivals = 0

    def submit(self, requests: list[tuple[Request, Listener]]) -> None:
        """Enqueue requests together; each listener hears its output, or what went wrong.

        A request that streams hears its output at its end: it is not known before.

        Raises:
            SgjaxError: the loop was stopped.
        """
        self._loop.submit([r for r in requests if r[0].constraint is None])
        for request, listener in requests:
            if request.constraint is not None:
                self._loop.post(lambda r=request, heard=listener: self._begin(r, heard))  # type: ignore[misc]

    def abort(self, request_id: str) -> None:
        """Abort a request; nothing happens if it is over, or the loop is stopped."""

        def abort() -> None:
            draw = self._draws.get(request_id)
            if draw is not None:
                self._fail(draw, RequestAborted(f"request {request_id!r} was aborted"))

        self._loop.abort(request_id)
        try:
            self._loop.post(abort)
        except SgjaxError:
            return  # the loop has told everybody

    def stop(self) -> None:
        """End the loop, and the threads that list outputs."""
        self._loop.stop()
        self._languages.close()

    # ---------------------------------------------------------------- the stages

    def _list(self, constraint: Constraint) -> tuple[Grammar, Outputs]:
        """Compile a constraint and list its outputs (on a compiler's thread)."""
        grammar = self._grammars.request(constraint).result()
        return grammar, list_outputs(grammar, self._tokenizer, self._sampler.max_strings)

    def _begin(self, request: Request, listener: Listener) -> None:
        params = request.params
        seed = mix(self._seed, self._arrivals) if params.seed is None else params.seed
        self._arrivals += 1
        room = min(params.max_new_tokens, self._max_context_len - len(request.tokens))
        draw = _Draw(request, listener, seed, self._now(), room)
        try:
            check_exact(request)
            if room < 1:
                raise PromptTooLong(
                    f"the prompt has {len(request.tokens)} tokens, but max_context_len is "
                    f"{self._max_context_len} and one token must be generated; shorten the prompt"
                )
            if request.id in self._draws:
                raise ConfigError(f"request id {request.id!r} is in use; give each its own")
        except SgjaxError as error:
            self._forgo(draw)
            _tell(listener, error)
            return
        self._draws[request.id] = draw
        assert request.constraint is not None
        future = self._languages.request(request.constraint)
        future.add_done_callback(lambda done: self._listed(draw, done))

    def _listed(self, draw: _Draw, future: "Future[tuple[Grammar, Outputs]]") -> None:
        """Go on, on the loop's thread, when a language is known."""
        try:
            self._loop.post(lambda: self._guard(draw, lambda: self._open(draw, future)))
        except SgjaxError as error:
            _tell(draw.listener, error)

    def _open(self, draw: _Draw, future: "Future[tuple[Grammar, Outputs]]") -> None:
        grammar, outputs = future.result()
        check_constraint(draw.request, grammar)
        if outputs is None:
            self._propose(draw)
            return
        fitting = [output for output in outputs if len(output) <= draw.room]
        if not fitting:
            raise ConfigError(
                f"none of the {len(outputs)} outputs of the constraint fits into {draw.room} "
                "tokens; raise max_new_tokens, shorten the prompt or change the constraint"
            )
        self._score(draw, fitting, None)

    def _propose(self, draw: _Draw) -> None:
        """Draw candidates with the local sampler, at temperature 1."""
        if isinstance(self._jump, RetokenizeSpec):
            raise ConfigError(
                f"the constraint has more than {self._sampler.max_strings} texts, and of "
                "candidates whose tokens jump: retokenize replaced nobody knows how probable they "
                "were; use jump: tokens, or raise grammar.sampler.max_strings"
            )
        request = draw.request
        requests = [
            Request(
                id=f"{request.id}.draw{index}",
                tokens=request.tokens,
                params=SamplingParams(max_new_tokens=draw.room, seed=mix(draw.seed, 1 + index)),
                constraint=request.constraint,
                return_logprob=True,
                client=request.client,
            )
            for index in range(self._sampler.candidates)
        ]
        self._send(draw, "draws", requests, lambda done: self._weigh(draw, done))

    def _weigh(self, draw: _Draw, candidates: list[Completion]) -> None:
        kept = [
            c
            for c in candidates
            if c.finish.kind is FinishKind.STOP and is_own(self._tokenizer, c.output_ids)
        ]
        if not kept:
            raise ConfigError(
                f"none of {len(candidates)} candidates came to its end within {draw.room} tokens, "
                "written in the tokenizer's own; raise max_new_tokens or grammar.sampler."
                "candidates, or use grammar.mask: canonical"
            )
        self._score(draw, [c.output_ids for c in kept], [log_proposal(c) for c in kept])

    def _score(self, draw: _Draw, outputs: Sequence[Output], log_q: Sequence[float] | None) -> None:
        """Ask for the log-probabilities of all different outputs together, as `select` does."""
        request = draw.request
        different = list(dict.fromkeys(outputs))
        requests = [
            Request(
                id=f"{request.id}.score{index}",
                tokens=(*request.tokens, *output),
                wants=Wants.LOGPROBS,
                logprob_start=len(request.tokens) - 1,
                top_logprobs=request.top_logprobs,
                client=request.client,
            )
            for index, output in enumerate(different)
        ]

        def done(scored: list[Completion]) -> None:
            by_output = dict(zip(different, scored, strict=True))
            log_p = [log_probability(by_output[output]) for output in outputs]
            u = mix(draw.seed, 0) / 2**64
            drawn = self._sampler.candidates
            index, report = choose(log_p, log_q, request.params.temperature, u, drawn)
            self._finish(draw, outputs[index], by_output[outputs[index]], report)

        self._send(draw, "scores", requests, done)

    def _finish(self, draw: _Draw, output: Output, scored: Completion, report: ExactReport) -> None:
        took_s = self._now() - draw.started_s
        completion = completion_of(
            draw.request, output, self._tokenizer, draw.hints[0], scored, report, took_s
        )
        del self._draws[draw.request.id]
        _tell(draw.listener, Delta(draw.request.id, completion.text, output, completion))

    # ---------------------------------------------------------------- requests made for a draw

    def _send(
        self,
        draw: _Draw,
        stage: str,
        requests: list[Request],
        then: Callable[[list[Completion]], None],
    ) -> None:
        """Submit requests behind a hint of the prompt, and go on when all of them are done."""
        hint = Request(
            id=f"{draw.request.id}.{stage}",
            tokens=draw.request.tokens,
            wants=Wants.NOTHING,
            after=None if draw.parts else draw.request.after,
            client=draw.request.client,
        )

        def done(shared: Completion, completions: list[Completion]) -> None:
            draw.hints.append(shared)
            self._guard(draw, lambda: then(completions))

        draw.parts.extend([hint.id, *(request.id for request in requests)])
        ask_together(self._loop, hint, requests, done, lambda error: self._fail(draw, error))

    def _guard(self, draw: _Draw, stage: Callable[[], None]) -> None:
        """Run a stage of a draw that is still wanted; what goes wrong ends its own request only."""
        if not self._alive(draw):
            return
        try:
            stage()
        except Exception as error:
            self._fail(draw, error)

    def _alive(self, draw: _Draw) -> bool:
        return self._draws.get(draw.request.id) is draw

    def _fail(self, draw: _Draw, error: Exception) -> None:
        if not self._alive(draw):
            return
        del self._draws[draw.request.id]
        if draw.parts:
            for part in draw.parts:
                self._loop.abort(part)
        else:
            self._forgo(draw)
        _tell(draw.listener, error)

    def _forgo(self, draw: _Draw) -> None:
        """Tell a request's hint that it will not come."""
        if draw.request.after is not None:
            self._loop.release_hint(draw.request.after, 1)


def _tell(listener: Listener, heard: Delta | Exception) -> None:
    """Call a listener; one that raises harms nobody else."""
    try:
        listener(heard)
    except Exception:
        _LOG.exception("the listener of a constrained request failed")
