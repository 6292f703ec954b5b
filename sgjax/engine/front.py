"""Where requests go in, and how one is made of several: behind a hint of what they share.

HOST, no jax. Imports types and errors. `EngineLoop` is a `Front`; what answers some requests by
asking others (`ExactSampler`) stands before it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from sgjax.errors import RequestAborted
from sgjax.types import Completion, Delta, FinishKind, Request

Heard = Delta | Exception
Listener = Callable[[Heard], None]


class Front(Protocol):
    """Where requests go in."""

    def submit(self, requests: list[tuple[Request, Listener]]) -> None:
        """Enqueue requests together; each listener hears deltas, or what went wrong."""
        ...

    def abort(self, request_id: str) -> None:
        """Abort a request; nothing happens if it is over."""
        ...

    def stop(self) -> None:
        """End all threads behind it; live requests hear that it stopped."""
        ...


class Loop(Front, Protocol):
    """What a front needs of the engine's loop."""

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread."""
        ...

    def release_hint(self, hint_id: str, followers: int | None) -> None:
        """Stop expecting so many followers of a hint."""
        ...


def ask_together(
    front: Front,
    hint: Request,
    requests: Sequence[Request],
    done: Callable[[Completion, list[Completion]], None],
    failed: Callable[[Exception], None],
) -> None:
    """Submit requests behind a hint of what they share.

    Args:
        front: takes them.
        hint: the shared prefix; wants nothing, and does not say yet how many follow.
        requests: at least one, none of them streamed.
        done: called once with the completions of the hint and of the requests, in order, when all
            have ended well.
        failed: called whenever one has not; then `done` never is.
    """
    collected: dict[int, Completion] = {}
    named = [
        dataclasses.replace(hint, followers=len(requests)),
        *(dataclasses.replace(request, after=hint.id) for request in requests),
    ]

    def hear(index: int, heard: Heard) -> None:
        completion = heard if isinstance(heard, Exception) else heard.completion
        assert completion is not None, "none of the requests is streamed"
        if isinstance(completion, Exception):
            failed(completion)
        elif completion.finish.kind is FinishKind.ABORT:
            failed(completion.finish.error or RequestAborted(f"{completion.id!r} was aborted"))
        else:
            collected[index] = completion
            if len(collected) == len(named):
                done(collected[0], [collected[i] for i in range(1, len(named))])

    front.submit(
        [(request, lambda heard, i=i: hear(i, heard)) for i, request in enumerate(named)]  # type: ignore[misc]
    )
