"""A worker: one engine in one process, driven by JSON lines over a pipe.

    python -m remote.worker        (in sgjax/lab/peers)

The first line in is the settings {engine, model, dtype, threads, options}; the first line out says
{"about": {...}} or {"error": "..."}. Then each line in is a job of the caller, each line out what
it took. Standard library only, so that it runs in every peer's Python.
"""

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any, TextIO

from remote.base import Outputs, Peer


def main() -> None:
    """Load the engine, then answer jobs until the pipe closes."""
    answers = _own_stdout()
    settings = json.loads(sys.stdin.readline())
    try:
        module = importlib.import_module(f"remote.run_{settings.pop('engine')}")
        peer: Peer = module.load(**settings)
        _answer(answers, {"about": peer.about()})
    except Exception as error:
        _answer(answers, _failure(error))
        return
    for line in sys.stdin:
        try:
            _answer(answers, run(peer, json.loads(line)))
        except Exception as error:
            _answer(answers, _failure(error))


def run(peer: Peer, job: dict[str, Any]) -> dict[str, Any]:
    """Run one job and return {outputs, seconds, compiled}; what it counts is the job's affair."""
    before, start = peer.compilations(), time.perf_counter()
    if job["kind"] == "decode":
        decoded = peer.decode(job["prompts"], job["new"])
        outputs, seconds, count = decoded.outputs, decoded.seconds, decoded.tokens
    elif job["kind"] == "batch":
        outputs, count = peer.generate(job["prompts"], job["new"]), job["count"]
        seconds = time.perf_counter() - start
    elif job["kind"] == "forget":
        peer.forget()
        outputs, seconds, count = [], 0.0, 0
    elif job["kind"] == "chat":
        outputs, count = _chat(peer, job), job["count"]
        seconds = time.perf_counter() - start
    else:
        raise ValueError(f"unknown kind of job {job['kind']!r}")
    return {
        "outputs": outputs,
        "seconds": seconds,
        "count": count,
        "compiled": peer.compilations() - before,
    }


def _chat(peer: Peer, job: dict[str, Any]) -> Outputs:
    """Let all users speak in turns; a prompt is the chat so far, with the engine's own answers."""
    chats: Outputs = [[] for _ in job["turns"][0]]
    answers: Outputs = [[] for _ in chats]
    for messages in job["turns"]:
        chats = [
            chat + answer + message
            for chat, answer, message in zip(chats, answers, messages, strict=True)
        ]
        answers = peer.generate(chats, job["new"])
    return answers


def _own_stdout() -> TextIO:
    """Return the pipe, and send what engines print to standard error."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _answer(pipe: TextIO, message: dict[str, Any]) -> None:
    pipe.write(json.dumps(message) + "\n")
    pipe.flush()


def _failure(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    message = str(error).strip().partition("\n")[0]
    return {"error": f"{type(error).__name__}: {message}"}


if __name__ == "__main__":
    main()
