"""PeerEngine: another engine where an experiment expects ours.

Imports the lab, tokens and types. Requests that come within a moment go to the peer together, as
one call of what it has for batches; programs of several turns therefore run turn by turn.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, final

from sgjax.errors import ConfigError, ProgramError, SgjaxError, UnsupportedBackend
from sgjax.lab.metrics import COUNTERS
from sgjax.lab.peers.process import PeerProcess
from sgjax.lab.peers.spec import PeerSpec
from sgjax.lang.backends.local import Heard
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival
from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, Delta, FinishKind, FinishReason, Request, Wants

MOMENT_S = 0.01
"""Requests that follow each other within this time are one batch."""
KNOWN_METRICS = (
    "throughput_programs_per_s",
    "throughput_tokens_per_s",
    "latency_mean_s",
    "latency_p50_s",
    "latency_p99_s",
    "optimal_cache_hit_rate",
    "reachable_cache_hit_rate",
    "prompt_tokens",
    "completion_tokens",
    "accuracy",
    "compilations",
)
"""What can be said of an engine that is seen from outside alone."""

Asked = tuple[Request, Callable[[Heard], None]]


@final
class PeerEngine:
    """Serve requests by a peer's process.

    Args:
        process: the peer, started.
        spec: which it is.
        tokenizer: the model's, for texts.
        model, dtype: named in results.

    Raises:
        UnsupportedBackend: the peer did not start.
    """

    def __init__(
        self, process: PeerProcess, spec: PeerSpec, tokenizer: Tokenizer, model: str, dtype: str
    ) -> None:
        if process.error is not None:
            raise UnsupportedBackend(f"{spec.name}: {process.error}")
        self._process = process
        self._tokenizer = tokenizer
        self._config = {"model": model, "dtype": dtype, "peer": spec.name, "about": process.about}
        self._asked: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._ids = count()
        self._asking = threading.Lock()
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._thread = threading.Thread(target=self._serve, name="sgjax-peer", daemon=True)
        self._thread.start()

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self._tokenizer

    def submit(self, requests: list[Request], hear: Callable[[int, Heard], None]) -> None:
        """Enqueue requests together; what a peer has not is refused."""
        for index, request in enumerate(requests):
            heard = _refusal(request)
            if heard is not None:
                hear(index, heard)
            elif request.wants is Wants.NOTHING:  # a hint: peers find prefixes, or not, themselves
                hear(index, _delta(request, (), "", 0.0))
            else:
                self._asked.put((request, lambda heard, i=index: hear(i, heard)))  # type: ignore[misc]

    def new_id(self) -> str:
        """Return a request id that is unique in this engine."""
        return f"p{next(self._ids)}"

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Do nothing: no hint is kept."""
        del hint_id, followers

    def now(self) -> float:
        """Return the clock in seconds."""
        return time.perf_counter()

    def hold_clock_while(self, busy: Callable[[], bool] | None) -> None:
        """Do nothing: real time cannot be held."""
        del busy

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Refuse: a peer's clock cannot be turned."""
        raise UnsupportedBackend("a peer runs in real time; replay traces on a simulated engine")

    def flush_cache(self) -> bool:
        """Let the peer forget all prompts.

        Raises:
            ProgramError: it cannot.
        """
        self._ask({"kind": "forget"})
        return True

    def get_server_info(self) -> dict[str, Any]:
        """Return configuration and counters; `known_metrics` says which metrics mean something."""
        return {
            "config": self._config,
            "executor": "cpu",
            "device": "cpu",
            "known_metrics": KNOWN_METRICS,
            "peak_pages": 0,
            "page_bytes": 0,
            **self._counters,
        }

    def shutdown(self) -> None:
        """End the peer's process."""
        self._asked.put(None)
        self._thread.join()
        self._process.close()

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            batch, ended = [asked], False
            while not ended:
                try:
                    following = self._asked.get(timeout=MOMENT_S)
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                else:
                    batch.append(following)
            for length in sorted({r.params.max_new_tokens for r, _ in batch}):
                self._answer([a for a in batch if a[0].params.max_new_tokens == length], length)
            if ended:
                return

    def _answer(self, batch: list[Asked], length: int) -> None:
        """Run prompts that want so many tokens as one batch."""
        prompts = [list(request.tokens) for request, _ in batch]
        job = {"kind": "batch", "prompts": prompts, "new": length, "count": len(batch)}
        begin = time.perf_counter()
        try:
            answer = self._ask(job)
        except SgjaxError as error:
            for _, hear in batch:
                hear(error)
            return
        elapsed_s = time.perf_counter() - begin
        self._counters["prompt_tokens"] += sum(map(len, prompts))
        self._counters["forward_passes"] += 1
        self._counters["compilations"] += answer["compiled"]
        for (request, hear), ids in zip(batch, answer["outputs"], strict=True):
            hear(_delta(request, tuple(ids), self._tokenizer.decode(ids), elapsed_s))

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        with self._asking:
            answer = self._process.ask(job)
        if answer.get("error"):
            raise ProgramError(f"{self._config['peer']}: {answer['error']}")
        return answer


def _refusal(request: Request) -> ConfigError | None:
    """Return why a peer cannot serve a request, or None."""
    params = request.params
    problems = {
        "log-probabilities (select)": request.wants is Wants.LOGPROBS or request.return_logprob,
        "constraints": request.constraint is not None,
        "sampling (temperature > 0)": params.temperature > 0,
        "stop strings": bool(params.stop or params.stop_token_ids),
        "end tokens": params.max_new_tokens > 1 and not params.ignore_eos,
    }
    wrong = [name for name, there in problems.items() if there]
    if request.wants is Wants.NOTHING or not wrong:
        return None
    return ConfigError(
        f"peers are asked for greedy tokens of a given number alone, not for {', '.join(wrong)}; "
        "leave them out of this experiment"
    )


def _delta(request: Request, ids: tuple[int, ...], text: str, elapsed_s: float) -> Delta:
    completion = Completion(
        id=request.id,
        text=text,
        output_ids=ids,
        prompt_tokens=len(request.tokens),
        cached_tokens=0,
        forced_tokens=0,
        finish=FinishReason(FinishKind.LENGTH),
        input_logprobs=None,
        output_logprobs=None,
        queued_s=0.0,
        ttft_s=elapsed_s,
        e2e_s=elapsed_s,
    )
    return Delta(request.id, text, ids, completion)
