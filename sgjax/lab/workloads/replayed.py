"""What all workloads share whose requests arrive over time: a task that replays a trace.

Imports sim's trace, theory, errors and the workload protocol. Such tasks run on simulated engines
only.
"""

import pathlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgjax.errors import ProgramError
from sgjax.lab.workloads.base import LabEngine, Outcome, Ran, refuse_language
from sgjax.lang.spec import LanguageSpec
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival, BlockTokens, tile
from sgjax.theory.belady import belady_hits
from sgjax.theory.visits import Path, Visit


@dataclass(frozen=True)
class ReplayTask:
    """Requests with their arrivals.

    Attributes:
        arrivals: in order of time.
        copies: how often they come, one after the other, with nothing in common (`tile`).
    """

    arrivals: tuple[Arrival, ...]
    copies: int = 1

    @property
    def num_programs(self) -> int:
        """Return the number of requests."""
        return self.copies * len(self.arrivals)

    def first(self, count: int) -> "ReplayTask":
        """Return the task of the first requests alone, of the first copy at most."""
        return ReplayTask(self.arrivals[:count])

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Replay the requests on the engine's virtual clock; `language` must say nothing.

        Copies are made while they are served, so a million requests take no memory. As they have
        nothing in common, the bound of one is the bound of all; Belady's is not asked for then.
        """
        refuse_language(language, "a trace")
        repeated = self.copies > 1
        trace = tile(self.arrivals, self.num_programs) if repeated else self.arrivals
        held = _forget_peak()
        started_s = time.process_time()
        served = engine.replay(trace)
        host_s = time.process_time() - started_s
        if served.refused:
            at = int(np.flatnonzero(np.isnan(served.e2e_s))[0])
            raise ProgramError(
                f"{served.refused} requests of the trace do not fit, the first with "
                f"{served.prompt_tokens[at]} tokens; raise kv_tokens and max_context_len, or drop "
                "long requests (max_tokens)"
            )
        metrics = {"host_us_per_request": 1e6 * host_s / max(1, self.num_programs)}
        if held is not None:
            metrics["peak_host_bytes"] = max(0.0, _memory("VmHWM") - held)
        if not repeated:
            info = engine.get_server_info()
            order = np.argsort(served.arrived_s + served.queued_s, kind="stable")
            metrics["belady_cache_hit_rate"] = best_eviction(
                [self.arrivals[i] for i in order],
                info["config"]["page_size"],
                info["pages"]["total"] - 1,  # but for the scratch page
            )
        return Ran(_outcomes(served), tuple(map(_visit, self.arrivals)), metrics)


def best_eviction(arrivals: Sequence[Arrival], page_size: int, num_pages: int) -> float:
    """Return the hit rate that no order of eviction betters for requests admitted in this order.

    A request counts with the pages of its prompt alone, which it gets all at once. Whoever runs
    beside it, and its answer, take more; so this bounds what is served in parallel, too.

    Args:
        arrivals: in the order of admission.
        page_size: S.
        num_pages: that the pool holds.
    """
    requests = [_path(arrival, page_size) for arrival in arrivals]
    hits = sum(belady_hits(requests, num_pages))
    return page_size * hits / max(1, sum(request.prompt_tokens for request in requests))


def _path(arrival: Arrival, page_size: int) -> Path:
    """Return a prompt's pages, each known by the hash of its tokens."""
    keys = np.asarray(arrival.tokens, np.int64)
    full, length = len(keys) // page_size, len(keys)
    pages = tuple((hash(keys[i * page_size : (i + 1) * page_size].tobytes()),) for i in range(full))
    return Path(pages, (length - 1) // page_size, -(-length // page_size), length)


def _forget_peak() -> float | None:
    """Begin to measure the process's peak memory anew; return what it holds now.

    Where earlier work of the process stays in its peak (all but Linux), nothing is measured: None.
    """
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _memory("VmRSS")


def _memory(name: str) -> float:
    """Return bytes of a line of Linux's account of this process."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024.0 * next(int(line.split()[1]) for line in status.splitlines() if name in line)


def _visit(arrival: Arrival) -> Visit:
    """Return a request's prompt; one that is known by its blocks as their hashes, a block a token.

    Answers are made up and lead into no other prompt, so they are left out.
    """
    tokens = arrival.tokens
    return Visit(tuple(tokens.blocks if isinstance(tokens, BlockTokens) else tokens))


def _outcomes(served: Served) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(
            answer="",
            correct=None,
            latency_s=float(served.e2e_s[i]),
            ttft_s=float(served.ttft_s[i]),
            completion_tokens=int(served.output_tokens[i]),
            queued_s=float(served.queued_s[i]),
            family=family,
        )
        for i, family in enumerate(served.families)
    )
