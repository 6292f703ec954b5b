"""A small server with OpenAI's API, for testing the official client against.

It answers from a function of the prompt, cut at stops and length as a model's server would, and
counts what it is asked. Tokens are those of `ScriptedBackend`.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sgjax.lang.backends.scripted import tokens_of

Write = Callable[[Any], str]
"""What the model would write: from the prompt text, or from the chat messages."""


class ApiServer(ThreadingHTTPServer):
    """Serve on a free local port.

    Attributes:
        requests: bodies of all requests, in order.
    """

    daemon_threads = True

    def __init__(self, write: Write) -> None:
        self.write = write
        self.requests: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        self.server.requests.append(body)
        chat = self.path.endswith("/chat/completions")
        if body.get("model") != "scripted":
            self._send(404, {"error": {"message": f"no model {body.get('model')}", "code": 404}})
            return
        if body.get("stream"):
            self._stream(body, chat)
            return
        prompts = body["prompt"] if isinstance(body.get("prompt"), list) else [None]
        choices = []
        completion = 0
        for prompt in prompts:
            for _ in range(body.get("n") or 1):
                choice, used = _choice(self.server.write, body, chat, prompt)
                choice["index"] = len(choices)
                choices.append(choice)
                completion += used
        self._send(200, {**_head(chat), "choices": choices, "usage": _usage(body, completion)})

    def _stream(self, body: dict[str, Any], chat: bool) -> None:
        tokens, reason = _tokens(self.server.write, body, chat, None)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        events: list[dict[str, Any]] = []
        samples = body.get("n") or 1
        for index, token in enumerate(tokens):
            last = reason if index == len(tokens) - 1 else None
            part: dict[str, Any] = {"delta": {"content": token}} if chat else {"text": token}
            part |= {"finish_reason": last, "logprobs": _logprobs([token], body, chat)}
            events += [{"choices": [{"index": sample, **part}]} for sample in range(samples)]
        events.append({"choices": [], "usage": _usage(body, samples * len(tokens))})
        for event in events:
            self.wfile.write(f"data: {json.dumps({**_head(chat), **event})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(write: Write) -> Iterator[ApiServer]:
    """Run a server for a `with` block."""
    server = ApiServer(write)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _head(chat: bool) -> dict[str, Any]:
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "cmpl-1", "object": kind, "created": 0, "model": "scripted"}


def _prompt_text(body: dict[str, Any]) -> str:
    if "messages" in body:
        return " ".join(str(m["content"]) for m in body["messages"])
    prompt = body["prompt"]
    return prompt if isinstance(prompt, str) else "".join(prompt)


def _usage(body: dict[str, Any], completion: int) -> dict[str, int]:
    prompt = len(tokens_of(_prompt_text(body)))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _tokens(
    write: Write, body: dict[str, Any], chat: bool, prompt: str | None
) -> tuple[list[str], str]:
    source = body["messages"] if chat else prompt if prompt is not None else body["prompt"]
    tokens = tokens_of(write(source))
    reason = "stop"
    if len(tokens) > body["max_tokens"]:
        tokens, reason = tokens[: body["max_tokens"]], "length"
    text = "".join(tokens)
    ends = [text.find(stop) for stop in body.get("stop") or [] if stop in text]
    if ends:
        tokens, reason = tokens_of(text[: min(ends)]), "stop"
    return tokens, reason


def _choice(
    write: Write, body: dict[str, Any], chat: bool, prompt: str | None
) -> tuple[dict[str, Any], int]:
    tokens, reason = _tokens(write, body, chat, prompt)
    text = "".join(tokens)
    if chat:
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        choice["logprobs"] = _logprobs(tokens, body, chat)
        return {**choice, "finish_reason": reason}, len(tokens)
    shown = [*tokens_of(prompt or body["prompt"]), *tokens] if body.get("echo") else tokens
    logprobs = _logprobs(shown, body, chat)
    choice = {"text": "".join(shown), "finish_reason": reason, "logprobs": logprobs}
    return choice, len(tokens)


def _logprobs(tokens: list[str], body: dict[str, Any], chat: bool) -> dict[str, Any] | None:
    """What an API tells of tokens: words with more vowels are likelier; "other" is never."""
    if not body.get("logprobs"):
        return None
    values = [-5.0 + sum(c in "aeiou" for c in token) for token in tokens]
    tops = [{"other": -9.0, token: value} for token, value in zip(tokens, values, strict=True)]
    if not chat:
        return {
            "tokens": tokens,
            "token_logprobs": [None, *values[1:]] if body.get("echo") else values,
            "text_offset": [sum(map(len, tokens[:i])) for i in range(len(tokens))],
            "top_logprobs": tops,
        }
    told = [
        {"token": token, "logprob": value, "bytes": None, "top_logprobs": [
            {"token": t, "logprob": v, "bytes": None} for t, v in top.items()
        ] if body.get("top_logprobs") else []}
        for token, value, top in zip(tokens, values, tops, strict=True)
    ]  # fmt: skip
    return {"content": told, "refusal": None}
