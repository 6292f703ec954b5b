"""Engine: the public face of the runtime (api.md section 2).

Imports its neighbours, tokens and types; jax comes in through `build`, where it is needed.
Everything here runs on the callers' threads and speaks to the loop by messages.
"""

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sgjax.engine.caller import Caller
from sgjax.engine.config import EngineConfig, JaxSpec, resolve
from sgjax.engine.inputs import RequestIds, read_call
from sgjax.engine.parts import Parts
from sgjax.engine.results import Result
from sgjax.engine.simulated import SimulatedParts, build_simulated
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.schedule import Watcher
from sgjax.sim.replay import Served
from sgjax.sim.trace import Arrival
from sgjax.tokens.base import Tokenizer
from sgjax.types import Delta, Request


class Engine:
    """Run a model in this process.

    Args:
        model: a preset, a folder, a .gguf file, or `random:<preset>`; overrides the config's.
        config: a YAML file or a dict with the keys of `EngineConfig`.
        **overrides: keys of `EngineConfig`; they win over `config`.

    Raises:
        ConfigError: an unknown key or a value that is not allowed.
        ModelLoadError: the model cannot be loaded.
        UnsupportedBackend: a backend that this machine does not have.
    """

    def __init__(
        self,
        model: str | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> None:
        if model is not None:
            overrides["model"] = model
        self.config: EngineConfig = resolve(config, overrides)
        self._parts = _build(self.config)
        self._loop = self._parts.loop
        self._front = self._parts.front
        # An engine that nobody shuts down ends with its last reference.
        weakref.finalize(self, self._front.stop).atexit = False
        self._ids = RequestIds()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self._parts.tokenizer

    def generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        image_data: object = None,
        return_logprob: bool = False,
        logprob_start_len: int = -1,
        top_logprobs_num: int = 0,
        stream: bool = False,
    ) -> Result | list[Result] | Iterator[Result]:
        """Generate from one prompt or a list of them.

        Args:
            prompt: text, or a list of texts.
            sampling_params: a dict for all prompts, or a list of one per prompt.
            input_ids: token ids instead of `prompt`.
            image_data: images; refused unless the model sees.
            return_logprob: report log-probabilities of output tokens; None of those that a jump
                appended, which nobody drew.
            logprob_start_len: with it, prompt log-probabilities from this index on; -1 reports
                none. The first entry's is None.
            top_logprobs_num: with it, likeliest alternatives to report beside each, at most 32.
            stream: return an iterator of partial results, each with the whole text so far.

        Returns:
            A result, a list of results in the order of the prompts, or an iterator. In a list a
            refused request has finish_reason "abort" with the message; others are not harmed.

        Raises:
            SgjaxError: the only request is refused, aborted or fails.
        """
        caller = self._ask(
            prompt,
            sampling_params,
            input_ids,
            image_data,
            return_logprob,
            logprob_start_len,
            top_logprobs_num,
            stream,
        )
        return caller.stream() if stream else caller.wait()

    async def async_generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        image_data: object = None,
        return_logprob: bool = False,
        logprob_start_len: int = -1,
        top_logprobs_num: int = 0,
        stream: bool = False,
    ) -> Result | list[Result] | AsyncIterator[Result]:
        """Generate without blocking the event loop; as `generate`, with an async iterator.

        Cancelling the awaiting task aborts its requests.
        """
        caller = self._ask(
            prompt,
            sampling_params,
            input_ids,
            image_data,
            return_logprob,
            logprob_start_len,
            top_logprobs_num,
            stream,
        )
        return caller.stream_async() if stream else await caller.wait_async()

    def submit(
        self, requests: list[Request], hear: Callable[[int, Delta | Exception], None]
    ) -> None:
        """Enqueue finished `Request`s together: what the language's local backend calls.

        Args:
            requests: with ids from `new_id`.
            hear: called on the loop's thread with a request's index and its delta or error.
        """
        self._front.submit(
            [(r, lambda heard, i=i: hear(i, heard)) for i, r in enumerate(requests)]  # type: ignore[misc]
        )

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Serve a trace on a simulated engine, arrivals on its virtual clock.

        Args:
            trace: requests by time of arrival, counted from now.

        Raises:
            UnsupportedBackend: the engine is a real one, whose clock nobody can turn.
            ConfigError: requests are alive.
        """
        parts = self._parts
        if not isinstance(parts, SimulatedParts):
            raise UnsupportedBackend(
                "a trace is replayed in virtual time; build the engine with executor: {type: sim}"
            )
        return self._loop.call(lambda: parts.replay(trace))

    def watch(self, watcher: Watcher) -> None:
        """Show a watcher every change of the cache and every step from now on."""
        self._loop.call(lambda: self._parts.scheduler.watch(watcher))

    def new_id(self) -> str:
        """Return a request id that is unique in this engine."""
        return self._ids.next()

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Stop expecting so many followers of a hint; never blocks.

        Args:
            hint_id: the hint.
            followers: how many will never be submitted; None means all that were not.
        """
        self._loop.release_hint(hint_id, followers)

    def abort(self, rid: str) -> None:
        """Abort a request by the id its results carry; nothing happens if it is over.

        Raises:
            ConfigError: it is no id.
        """
        if not isinstance(rid, str):
            raise ConfigError(
                f"abort got a {type(rid).__name__}; give the id of one request, a string that "
                "stands in its results' meta_info"
            )
        self._front.abort(rid)

    def hold_clock_while(self, busy: Callable[[], bool] | None) -> None:
        """Let no simulated time pass while `busy()`, so that its pace does not matter.

        A real engine's time cannot be held: nothing happens there.

        Args:
            busy: whether whoever submits is about to; None lets time pass again.
        """
        if isinstance(self._parts, SimulatedParts):
            self._loop.hold_while(busy)

    def now(self) -> float:
        """Return the engine's clock in seconds: virtual where it is simulated."""
        return self._loop.now()

    def flush_cache(self) -> bool:
        """Drop all cached prefixes; return False, and do nothing, while requests are alive."""
        return self._loop.call(self._parts.scheduler.flush_cache)

    def get_server_info(self) -> dict[str, Any]:
        """Return resolved config, device, executor kind and counters."""
        return self._loop.call(self._parts.info)

    def shutdown(self) -> None:
        """Stop the engine and free its memory; requests that are alive fail, followers end."""
        self._front.stop()
        self._parts.release()

    def _ask(
        self,
        prompt: object,
        sampling_params: object,
        input_ids: object,
        image_data: object,
        return_logprob: bool,
        logprob_start_len: int,
        top_logprobs_num: int,
        stream: bool,
    ) -> Caller:
        if image_data is not None:
            raise UnsupportedBackend(
                f"image_data was given, but model {self.config.model!r} takes no images; drop it"
            )
        call = read_call(
            self.tokenizer,
            self._ids,
            prompt,
            sampling_params,
            input_ids,
            return_logprob,
            logprob_start_len,
            top_logprobs_num,
            stream,
        )
        return Caller(self, call)


def _build(config: EngineConfig) -> Parts:
    # Imported late: a simulated engine must not need jax.
    if isinstance(config.executor, JaxSpec):
        from sgjax.engine.build import build

        return build(config)
    return build_simulated(config, config.executor)
