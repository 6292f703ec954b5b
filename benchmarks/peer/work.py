"""What every engine is asked: jobs as plain data, made of the questions that ship with sgjax.

A job says what to run (see sgjax/lab/peers/remote/worker.py) and how much that counts. Prompts of
different repeats begin differently, so that no engine finds them in its cache; what a job's own
prompts share, all may make use of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.lab.questions import shipped_questions
from sgjax.tokens.base import Tokenizer

Job = dict[str, Any]

STRIDE = 37
"""Tokens between the beginnings of two texts; coprime to most lengths, so all are visited."""


class Texts:
    """Endless pieces of one text, each beginning elsewhere."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        self._at = 0

    def take(self, length: int) -> list[int]:
        """Return the next piece of so many tokens."""
        self._at = (self._at + STRIDE) % len(self._tokens)
        rounds = -(-(self._at + length) // len(self._tokens))
        return (self._tokens * rounds)[self._at : self._at + length]


def question_texts(tokenizer: Tokenizer) -> Texts:
    """Return the shipped questions with their answers, as tokens."""
    shots, questions = shipped_questions()
    text = "\n\n".join(f"{q.text()} {q.letter}" for q in (*shots, *questions))
    return Texts(tokenizer.encode(text))


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        unit: of the rate.
        fresh: whether each repeat has prompts of its own.
        make: a job of its sizes.
    """

    name: str
    title: str
    unit: str
    fresh: bool
    make: Callable[[Texts], Job]


def prefill(length: int) -> Workload:
    """Compute a prompt and one token."""

    def make(texts: Texts) -> Job:
        return {"kind": "batch", "prompts": [texts.take(length)], "new": 1, "count": length}

    return Workload(f"prefill_{length}", f"prefill {length}", "tok/s", True, make)


def decode(batch: int, new: int, context: int = 490) -> Workload:
    """Decode so many sequences of `context` tokens, on average over the time measured."""

    def make(texts: Texts) -> Job:
        prompts = [texts.take(context - new // 2) for _ in range(batch)]
        return {"kind": "decode", "prompts": prompts, "new": new}

    return Workload(f"decode_{batch}", f"decode, batch {batch}", "tok/s", False, make)


def shared_prefix(requests: int = 64, shared: int = 600, new: int = 8) -> Workload:
    """Answer questions (45 to 75 tokens) that share their shots, as in MMLU."""

    def make(texts: Texts) -> Job:
        shots = texts.take(shared)
        prompts = [shots + texts.take(45 + i * 7 % 31) for i in range(requests)]
        return {"kind": "batch", "prompts": prompts, "new": new, "count": requests}

    return Workload("mmlu", f"MMLU-like, {requests} requests", "requests/s", True, make)


def chat(users: int = 12, turns: int = 4, shared: int = 100, new: int = 32) -> Workload:
    """Let users with one system prompt chat in turns, each turn adding 30 to 50 tokens."""

    def make(texts: Texts) -> Job:
        system = texts.take(shared)
        said = [[texts.take(30 + u * 7 % 21) for u in range(users)] for _ in range(turns)]
        said[0] = [system + message for message in said[0]]
        return {"kind": "chat", "turns": said, "new": new, "count": users * turns}

    return Workload("chat", f"chat, {users} users × {turns} turns", "turns/s", True, make)


def small_part(job: Job) -> Job:
    """Return a job of the same kind that takes little time: it warms up what compiles nothing."""
    few = {"prompts": job.get("prompts", [])[:2], "turns": [t[:2] for t in job.get("turns", [])]}
    return {**job, **few, "new": 2}


WORKLOADS = (
    prefill(128),
    prefill(512),
    prefill(1024),
    decode(1, new=64),
    decode(8, new=32),
    decode(32, new=16),
    shared_prefix(),
    chat(),
)
