"""An engine without a model: counts what a cache of whole prefixes would, answers by a rule."""

import itertools
import threading
import time

from sgjax.theory.visits import common_prefix
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Completion, Delta, FinishKind, FinishReason, Wants


class FakeEngine:
    """Serves requests one by one, with an unlimited cache unless `cache.type` is none.

    A run begins with the first request after somebody looked at the counters.
    """

    def __init__(self, *, answer=None, seconds_per_token=0.0, compiles_in_runs=(0,), **settings):
        self.tokenizer = ByteTokenizer()
        self.settings = {"model": "fake", "dtype": "float32", **settings}
        self.answer = answer or (lambda text: "ABCD"[len(text) % 4])
        self.seconds_per_token = seconds_per_token
        self.compiles_in_runs = compiles_in_runs
        self.seen: list[list[int]] = []
        self.closed = False
        self.runs = 0
        self._looked_at = True
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self.counters = dict.fromkeys(
            (
                "prompt_tokens",
                "cached_tokens",
                "computed_tokens",
                "forced_tokens",
                "forward_passes",
                "rows",
                "compilations",
                "evicted_tokens",
            ),
            0,
        ) | dict.fromkeys(("plan_s", "device_s", "commit_s", "cache_s"), 0.0)

    def submit(self, requests, hear):
        for index, request in enumerate(requests):
            with self._lock:
                completion = self._serve(request)
            hear(index, Delta(request.id, completion.text, completion.output_ids, completion))

    def new_id(self):
        return f"r{next(self._ids)}"

    def release_hint(self, hint_id, followers=None):
        pass

    def _serve(self, request):
        if self._looked_at:
            self.counters["compilations"] += self.runs in self.compiles_in_runs
            self.runs += 1
            self._looked_at = False
        ids = list(request.tokens)
        hit = max((common_prefix(old, ids[:-1]) for old in self.seen), default=0)
        if self.settings.get("cache") != {"type": "none"}:
            self.seen.append(ids)
        computed = len(ids) - hit
        time.sleep(computed * self.seconds_per_token)
        for name, amount in (
            ("prompt_tokens", len(ids)),
            ("cached_tokens", hit),
            ("computed_tokens", computed),
            ("forward_passes", 1),
            ("rows", 1),
        ):
            self.counters[name] += amount
        self.counters["device_s"] += computed * self.seconds_per_token
        answer = ""
        if request.wants is Wants.TOKENS:
            assert (request.params.max_new_tokens, request.params.temperature) == (1, 0.0)
            answer = f" {self.answer(self.tokenizer.decode(ids))}"
        return Completion(
            id=request.id,
            text=answer,
            output_ids=tuple(answer.encode()),
            prompt_tokens=len(ids),
            cached_tokens=hit,
            forced_tokens=0,
            finish=FinishReason(FinishKind.LENGTH),
            input_logprobs=None,
            output_logprobs=None,
            queued_s=0.1,
            ttft_s=0.2,
            e2e_s=0.25,
        )

    def hold_clock_while(self, busy):
        pass

    def now(self):
        return time.perf_counter()

    def flush_cache(self):
        self.seen.clear()
        return True

    def get_server_info(self):
        self._looked_at = True
        return {
            "config": self.settings,
            "executor": "cpu",
            "device": "fake device",
            "peak_pages": 7,
            "page_bytes": 100,
            **self.counters,
        }

    def shutdown(self):
        self.closed = True
