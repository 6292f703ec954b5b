"""An engine without a model: counts what a cache of whole prefixes would, answers by a rule."""

import time

from sgjax.theory.bound import common_prefix


class BytesTokenizer:
    """One token a byte; enough of the tokenizer protocol for workloads."""

    def encode(self, text, *, add_bos=False):
        return list(text.encode())

    def decode(self, ids, *, skip_special=True):
        return bytes(ids).decode()


class FakeEngine:
    """Serves prompts one by one in order, with an unlimited cache unless `cache.type` is none."""

    def __init__(self, *, answer=None, seconds_per_token=0.0, compiles_in_runs=(0,), **settings):
        self.tokenizer = BytesTokenizer()
        self.settings = {"model": "fake", "dtype": "float32", **settings}
        self.answer = answer or (lambda text: "ABCD"[len(text) % 4])
        self.seconds_per_token = seconds_per_token
        self.compiles_in_runs = compiles_in_runs
        self.seen: list[list[int]] = []
        self.closed = False
        self.runs = 0
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
        ) | dict.fromkeys(("plan_s", "device_s", "commit_s"), 0.0)

    def generate(self, *, input_ids, sampling_params):
        assert sampling_params == {"max_new_tokens": 1, "temperature": 0.0}
        self.counters["compilations"] += self.runs in self.compiles_in_runs
        self.runs += 1
        return [self._serve(ids) for ids in input_ids]

    def _serve(self, ids):
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
        meta = {
            "e2e_latency_s": 0.25,
            "ttft_s": 0.2,
            "completion_tokens": 1,
            "prompt_tokens": len(ids),
            "cached_tokens": hit,
            "finish_reason": {"type": "length"},
        }
        answer = self.answer(self.tokenizer.decode(ids))
        return {"text": f" {answer}", "output_ids": list(answer.encode()), "meta_info": meta}

    def now(self):
        return time.perf_counter()

    def flush_cache(self):
        self.seen.clear()
        return True

    def get_server_info(self):
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
