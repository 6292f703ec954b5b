"""OpenAI: programs on any endpoint with OpenAI's API, through the official client.

Imports the Backend protocol; the client (extra `lab`) when one is made. A program without roles
uses the completions API, one with roles the chat API. All requests run on one event loop's thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, final

from sgjax.errors import RequestAborted, UnsupportedBackend
from sgjax.lang.backends.base import (
    Answer,
    Backend,
    Call,
    ChatFormat,
    GenCall,
    GenOutput,
    Hear,
    Hint,
    Piece,
    Prompt,
    SelectCall,
)
from sgjax.lang.backends.openai_records import (
    OutputToken,
    echoed_logprobs,
    finish_reason,
    generation_arguments,
    logprob_meta,
    output_tokens,
    refuse_select,
)
from sgjax.lang.backends.usage import TokenUsage


@final
class RoleNames:
    """Show messages in a state's text by their role's name; chat APIs get them as messages."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Return nothing: the API ends answers itself."""
        return ()

    def role_prefix(self, role: str, previous: str | None = None) -> str:
        """Return the role's name."""
        return f"{role.upper()}: "

    def role_suffix(self, role: str) -> str:
        """Return a line end."""
        return "\n"


@final
class OpenAI(Backend):
    """Run programs on an OpenAI-compatible endpoint.

    Args:
        model: the model's name there.
        base_url: the endpoint; None is OpenAI's own.
        api_key: None lets the client look for one as it documents.
        timeout_s: seconds after which a request fails.

    Attributes:
        token_usage: requests and tokens so far; `reset()` starts anew.

    Raises:
        UnsupportedBackend: the `openai` package is not installed.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        try:
            import openai
        except ImportError:
            raise UnsupportedBackend(
                "sgl.OpenAI needs the official client; install it with: pip install 'sgjax[lab]'"
            ) from None
        self.model = model
        self.token_usage = TokenUsage()
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s)
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._main, name="sgjax-openai", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the backend's thread; requests in flight are dropped, and who waits for one is told.

        Closing it again does nothing.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._drop_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def chat(self) -> ChatFormat:
        """Return how messages look in a state's text."""
        return RoleNames()

    @property
    def takes_hints(self) -> bool:
        """Return that an API takes no hints."""
        return False

    @property
    def continues_messages(self) -> bool:
        """Return that a chat API writes whole messages only."""
        return False

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Start one request per call."""
        for index, call in enumerate(calls):
            if isinstance(call, GenCall):
                self._start(self._generate(call, _answer(hear, index)), _answer(hear, index))
            else:
                self._start(self._score(call, _answer(hear, index)), _answer(hear, index))

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Return None: an API takes no hints."""
        return None

    def release(self, hint: Hint, followers: int) -> None:
        """Do nothing: there are no hints."""

    def flush_cache(self) -> bool:
        """Return False: an API's cache is its own."""
        return False

    def get_server_info(self) -> dict[str, Any]:
        """Return the model's name and the endpoint."""
        return {"backend": "openai", "model": self.model, "base_url": str(self._client.base_url)}

    # ---------------------------------------------------------------- private

    def _main(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _start(self, work: Coroutine[Any, Any, None], answer: Callable[[Answer], None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                answer(RequestAborted("the backend was closed while the request ran"))
            except Exception as error:
                answer(error)

        # Under the lock nothing can slip in behind the end, where nobody would run it.
        with self._closing:
            if not self._closed:
                asyncio.run_coroutine_threadsafe(guarded(), self._loop)
                return
        work.close()
        answer(UnsupportedBackend("this sgl.OpenAI was closed; make a new one"))

    async def _drop_all(self) -> None:
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await self._client.close()

    async def _generate(self, call: GenCall, answer: Callable[[Answer], None]) -> None:
        chat, arguments = generation_arguments(call)
        client: Any = self._client.chat.completions if chat else self._client.completions
        if call.stream:
            answer(await self._streamed(client, call, chat, arguments, answer))
            return
        response = await client.create(model=self.model, **arguments)
        self._count(response.usage)
        samples = [_Sample() for _ in response.choices]
        for sample, choice in zip(samples, response.choices, strict=True):
            sample.take(_text(choice, chat), choice, chat)
        answer(_output(call, samples, response.id, response.usage))

    async def _streamed(
        self,
        client: Any,
        call: GenCall,
        chat: bool,
        arguments: dict[str, Any],
        answer: Callable[[Answer], None],
    ) -> GenOutput:
        usage, request_id = None, None
        samples = [_Sample() for _ in range(call.params.n)]
        stream = await client.create(
            model=self.model, stream=True, stream_options={"include_usage": True}, **arguments
        )
        async for event in stream:
            usage, request_id = event.usage or usage, event.id
            for choice in event.choices:
                piece = (choice.delta.content if chat else choice.text) or ""
                samples[choice.index].take(piece, choice, chat)
                if piece and choice.index == 0:  # whose text the program goes on with
                    answer(Piece(piece))
        self._count(usage)
        return _output(call, samples, request_id, usage)

    async def _score(self, call: SelectCall, answer: Callable[[Answer], None]) -> None:
        refuse_select(call)
        response = await self._client.completions.create(
            model=self.model,
            prompt=[call.prompt.text + choice for choice in call.choices],
            max_tokens=1,
            temperature=0,
            echo=True,
            logprobs=1,
        )
        self._count(response.usage)
        answer(echoed_logprobs(call, response.choices))

    def _count(self, usage: Any) -> None:
        prompt, completion = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
        self.token_usage.add(
            requests=1,
            prompt_tokens=prompt,
            completion_tokens=completion,
            used_tokens=completion,
        )


def _answer(hear: Hear, index: int) -> Callable[[Answer], None]:
    return lambda answer: hear(index, answer)


def _text(choice: Any, chat: bool) -> str:
    return (choice.message.content if chat else choice.text) or ""


class _Sample:
    """One output of a call while it comes in, as a whole or piece by piece."""

    def __init__(self) -> None:
        self.text = ""
        self.reason: str | None = None
        self.tokens: list[OutputToken] | None = None

    def take(self, text: str, choice: Any, chat: bool) -> None:
        """Take in the text of a response's choice, and what else it tells."""
        self.text += text
        self.reason = choice.finish_reason or self.reason
        tokens = output_tokens(choice, chat)
        if tokens is not None:
            self.tokens = [*(self.tokens or ()), *tokens]


def _output(call: GenCall, samples: Sequence[_Sample], request_id: Any, usage: Any) -> GenOutput:
    meta = tuple(
        {
            "id": request_id,
            "prompt_tokens": usage.prompt_tokens if usage else None,
            "completion_tokens": usage.completion_tokens // len(samples) if usage else None,
            "finish_reason": finish_reason(sample.reason),
            **logprob_meta(call, sample.tokens or ()),
        }
        for sample in samples
    )
    tokens = samples[0].tokens
    pieces = None if not call.pieces or tokens is None else tuple(token.text for token in tokens)
    return GenOutput(tuple(sample.text for sample in samples), meta, pieces)
