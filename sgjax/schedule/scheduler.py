"""The Scheduler: which sequences run, in which order, on which pages.

Imports types, tokens, fsm and its neighbours; no jax. One thread owns it. It plans a step, an
executor runs it, it commits what came back::

    waiting --admit--> running (extending -> decoding) --finish--> gone
       ^                  |
       +----- retract ----+

Pages of a running sequence: the front `shared` tokens' pages belong to the cache and are pinned,
the rest belong to the sequence (see cache.base).
"""

from collections.abc import Callable

from sgjax.errors import ConfigError, RequestAborted, SgjaxError
from sgjax.fsm.grammar import Grammar
from sgjax.schedule.admission import Admission
from sgjax.schedule.ahead import Ahead
from sgjax.schedule.checks import Limits, check_request, prompt_keys
from sgjax.schedule.composition import Draft
from sgjax.schedule.constrain import Constrainer, check_constraint
from sgjax.schedule.guess import add_guesses, confirmed
from sgjax.schedule.outcome import (
    build_completion,
    last_news,
    news,
    no_distribution,
    out_of_pages,
    take_logprob,
    take_prompt_logprobs,
)
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import Plan, PlanRow, StepOutput
from sgjax.schedule.policies import mix
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.stats import SchedulerStats
from sgjax.schedule.strategies import Strategies
from sgjax.schedule.watch import Watcher
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.detokenize import OutputText
from sgjax.types import Delta, FinishKind, FinishReason, Request, Wants


class Scheduler:
    """Plan and commit steps.

    Args:
        pages: pool and prefix cache.
        strategies: how it decides.
        tokenizer: for texts and stop tests.
        limits: sizes of a step and of a sequence.
        seed: for requests without a seed of their own.
        now: clock in seconds (the executor's: virtual in simulation).
        debug_checks: verify the page invariant after every step.
    """

    def __init__(
        self,
        pages: PageKeeper,
        strategies: Strategies,
        tokenizer: Tokenizer,
        limits: Limits,
        seed: int,
        now: Callable[[], float],
        debug_checks: bool = False,
    ) -> None:
        self._pages = pages
        self._policy = strategies.policy
        self._shares_planned = strategies.siblings.shares_planned
        self._composition = strategies.composition
        self._growth = strategies.growth
        self._retract_rule = strategies.retract
        self._tokenizer = tokenizer
        self._limits = limits
        self._seed = seed
        self._now = now
        self._debug_checks = debug_checks
        self._running: dict[str, Sequence] = {}
        self._alive: dict[str, Sequence] = {}
        self._events: list[Delta] = []
        self._watchers: list[Watcher] = []
        self._arrivals = 0
        self._steps = 0
        self.stats = SchedulerStats()
        self._constrainer = Constrainer(strategies.jump, tokenizer, pages, self.stats)
        self._admission = Admission(pages, strategies, limits, self.stats, now)
        self._ahead = Ahead(pages, self._composition, self._growth, limits, self.stats)
        self._hints = self._admission.hints

    # ---------------------------------------------------------------- requests come and go

    def add(self, request: Request, grammar: Grammar | None = None) -> None:
        """Enqueue a request.

        Args:
            request: what is asked.
            grammar: its constraint, compiled.

        Raises:
            PromptTooLong: the prompt leaves no room for a token in the context or in the pool.
            ConfigError: its id is in use, its hint is unknown, or see `check_request`.
        """
        try:
            if request.id in self._alive or self._hints.is_live(request.id):
                raise ConfigError(f"request id {request.id!r} is in use; give each its own")
            keys = prompt_keys(request, self._limits)
            check_request(request, keys, self._limits, self._pages.capacity_tokens)
            check_constraint(request, grammar)
        except SgjaxError:
            self._hints.forgo(request.after, 1)
            raise
        params = request.params
        generates = request.wants is Wants.TOKENS
        own_ends = frozenset() if params.ignore_eos else self._tokenizer.end_ids
        seed = params.seed
        seq = Sequence(
            request=request,
            keys=keys,
            output=OutputText(self._tokenizer, params) if generates else None,
            end_ids=own_ends | frozenset(params.stop_token_ids),
            seed=mix(self._seed, self._arrivals) if seed is None else seed,
            arrival=self._arrivals,
            arrived_s=self._now(),
            max_tokens=self._limits.max_context_len,
        )
        if grammar is not None:
            self._constrainer.begin(seq, grammar)
        self._admission.come(seq)
        self._alive[request.id] = seq
        if request.followers:
            self._hints.announce(request.id, request.followers)
        self._arrivals += 1
        self.stats.requests += 1
        self.stats.prompt_tokens += seq.num_prompt

    def abort(self, request_id: str) -> bool:
        """End a request now, wherever it is; return whether it was alive."""
        seq = self._alive.get(request_id)
        if seq is None:
            return False
        self._fail(seq, RequestAborted(f"request {request_id!r} was aborted"))
        return True

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Stop expecting followers of a hint that have not been submitted."""
        if followers is None:
            self._hints.release(hint_id)
        else:
            self._hints.forgo(hint_id, followers)

    def flush_cache(self) -> bool:
        """Drop all cached prefixes; return False, and do nothing, while requests are alive."""
        if self.has_work:
            return False
        self._hints.drop_pins()
        self._pages.cache.reset()
        return True

    @property
    def num_running(self) -> int:
        """Return the number of sequences that hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Return the number of requests not admitted yet."""
        return len(self._alive) - len(self._running)

    @property
    def has_work(self) -> bool:
        """Return whether any request is alive."""
        return bool(self._alive)

    def take_events(self) -> list[Delta]:
        """Return what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def watch(self, watcher: Watcher) -> None:
        """Show a watcher every change of the cache and every step from now on."""
        self._pages.cache.listen(watcher.changed)
        self._watchers.append(watcher)

    # ---------------------------------------------------------------- plan

    def plan(self) -> Plan | None:
        """Choose the next step: who runs, as the composition says, and whom it admits.

        Returns:
            The step, or None where nothing can run now (then nothing is running).
        """
        rows, moved = self._collect_rows()
        while not rows and (moved or self._unblock()):
            rows, moved = self._collect_rows()
        if not rows:
            return None
        self._steps += 1
        self._growth.step()
        rows = add_guesses(rows, self._pages, self._limits)
        num_tokens = sum(row.num_tokens for row in rows)
        self.stats.planned(len(rows), num_tokens, self._pages.num_used)
        plan = Plan(self._steps, tuple(rows), num_tokens)
        for watcher in self._watchers:
            watcher.planned(plan, self._now())
        return plan

    def _collect_rows(self) -> tuple[list[PlanRow], bool]:
        """Return the rows of one step, and whether any request changed its place meanwhile."""
        retracted = self._grow_running()
        draft = Draft(
            self._limits,
            self._pages,
            self._shares_planned,
            self._composition.whole_prompts,
            self._composition.max_padding,
        )

        def admit(draft: Draft) -> bool:
            # Whoever was just retracted would only be admitted to be retracted again.
            return self._admission.admit(draft, self._running, closed=retracted)

        admitted = self._composition.compose(draft, self._running.values(), admit)
        return draft.rows, retracted or admitted

    def _grow_running(self) -> bool:
        """Give every running sequence pages for its tokens; return whether any lost its place."""
        moved = False
        while True:
            needy, missing = self._pages.lacking(self._running.values())
            if self._pages.make_room(missing):
                self._pages.grow(needy, missing)
                return moved
            moved = True
            if len(self._running) > 1:
                self._retract(self._retract_rule.pick(list(self._running.values())))
            elif not self._hints.drop_pins():
                self._fail(needy[0], out_of_pages(needy[0], self._pages.capacity_tokens))

    def _unblock(self) -> bool:
        """Act where requests wait but nothing can run; return whether anything was done."""
        if self._running:
            return False
        if self._admission.wait():
            return True
        head = self._admission.head()
        if head is not None and not self._hints.drop_pins():
            self._fail(head, out_of_pages(head, self._pages.capacity_tokens))
        return head is not None

    def _retract(self, seq: Sequence) -> None:
        """Send a running sequence back to the queue; its full pages stay in the cache."""
        self._leave(seq)
        self.stats.retractions += 1
        self._growth.retracted(self._running.values())
        self._admission.come_back(seq)

    def _leave(self, seq: Sequence) -> None:
        """Take a sequence off its pages and off the running; wake who waits for its prefix."""
        self._pages.offer(seq, seq.num_computed, last=True)
        if seq.ended:
            # Before the pin drops: a hint's own pin takes over.
            self._admission.release_followers(seq)
        self._pages.release(seq)
        del self._running[seq.request.id]
        self._admission.wake(seq)

    # ---------------------------------------------------------------- commit

    def commit(self, plan: Plan, out: StepOutput) -> list[Delta]:
        """Take in a step's results: append tokens, test for the end, hand pages to the cache.

        Args:
            plan: the step.
            out: what the executor returned for it.

        Returns:
            What requests have to hear, in order; also what `plan` left to say.
        """
        next_tokens = out.next_token.tolist()
        target = sample = 0
        for row in plan.rows:
            seq, index = row.seq, sample
            sample += row.sample + len(row.guesses)
            if row.logprob_from >= 0:
                target = take_prompt_logprobs(row, out, target)
            if seq.ended:
                continue
            seq.num_computed = row.end - len(row.guesses)
            if row.sample:
                if not seq.is_decoding:
                    self._offer_computed(seq)
                    seq.is_decoding = True
                self._append(seq, next_tokens[index], index, out)
                if row.guesses:
                    for further in confirmed(row, self.stats):
                        self._append(seq, next_tokens[index + further], index + further, out)
                if self._composition.jumps_rejoin and not seq.ended and seq.todo > 1:
                    self._leave(seq)
                    self._admission.come_back(seq)
            elif row.end < seq.tokens.length:
                self._offer_computed(seq)
            else:
                self._finish(seq, FinishReason(FinishKind.STOP))
        self._committed(plan, 1)
        return self.take_events()

    def repeats(self, plan: Plan) -> int:
        """Return how often `plan` can run in a row before there is anything to decide.

        Args:
            plan: the step just planned.

        Returns:
            Steps, this one included, in which nobody is admitted, ends, or loses cached pages,
            if no request arrives meanwhile. Commit them with `commit_repeated`.
        """
        if len(plan.rows) < len(self._running):
            return 1
        return self._ahead.repeats(plan, not self._admission.is_idle(len(self._running)))

    def commit_repeated(self, plan: Plan, token: int, times: int) -> None:
        """Take in `times` runs of a plan, as `repeats` allows, that gave every row `token` each."""
        self._ahead.commit(plan, token, times)
        self._steps += times - 1
        self._committed(plan, times)

    def _committed(self, plan: Plan, times: int) -> None:
        if self._debug_checks:
            self._pages.check(self._running.values())
        for watcher in self._watchers:
            watcher.committed(plan, times, self._now())

    def _offer_computed(self, seq: Sequence) -> None:
        if not self._shares_planned:
            self._pages.offer(seq, seq.num_computed)
        self._admission.wake(seq)

    def _append(self, seq: Sequence, token: int, index: int, out: StepOutput) -> None:
        """Append a sampled token and end the sequence if it is time."""
        assert seq.output is not None
        if not 0 <= token < self._limits.vocab_size or self._constrainer.forbids(seq, token):
            self._fail(seq, no_distribution(seq, token))
            return
        seq.tokens.append(token)
        stop = seq.output.append(token)
        if seq.first_token_s < 0:
            seq.first_token_s = self._now()
        take_logprob(seq, token, out, index)
        # A stop string may lie in what a constraint forced before anything was sampled.
        if stop is not None:
            self._finish(seq, FinishReason(FinishKind.STOP, stop))
        elif token in seq.end_ids:
            self._finish(seq, FinishReason(FinishKind.STOP, token))
        elif seq.grammar is not None and (reason := self._constrainer.step(seq, token)):
            self._finish(seq, reason)
        elif seq.max_growth <= 0:
            self._finish(seq, FinishReason(FinishKind.LENGTH))
        elif seq.request.stream:
            self._events.append(news(seq))

    # ---------------------------------------------------------------- ends

    def _finish(self, seq: Sequence, reason: FinishReason) -> None:
        """End a sequence wherever it is, and say so."""
        seq.ended = True
        del self._alive[seq.request.id]
        self._policy.ended(seq)
        if seq.node is not None:
            self._leave(seq)
        else:
            self._admission.release_followers(seq)
        aborted = reason.kind is FinishKind.ABORT
        if not aborted:
            self._admission.ended()
            self._constrainer.count_split_jumps(seq)
        self.stats.aborted += aborted
        self.stats.finished += not aborted
        self.stats.completion_tokens += seq.num_output
        self._events.append(last_news(seq, build_completion(seq, reason, self._now())))

    def _fail(self, seq: Sequence, error: Exception) -> None:
        """End one request with an error; everything else goes on."""
        if seq.node is None:
            self._admission.withdraw(seq)
        self._finish(seq, FinishReason(FinishKind.ABORT, error=error))
