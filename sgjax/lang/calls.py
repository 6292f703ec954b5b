"""Calls: what a stream asks a backend for an expression. Imports ir and the backend's records."""

from typing import TYPE_CHECKING

from sgjax.lang import ir
from sgjax.lang.backends.base import GenCall, Hint, SelectCall
from sgjax.lang.choices import check_temperature

if TYPE_CHECKING:
    from sgjax.lang.stream import Stream


def gen_call(stream: "Stream", op: ir.Gen, number: int) -> GenCall:
    """Return the call of a generation.

    Args:
        stream: that asks.
        op: the generation.
        number: of this generation in its stream; with the stream's place it fixes the seed.

    Raises:
        ConfigError: an option is not allowed.
    """
    settings, state = stream.program.settings, stream.state
    stop = settings.backend.chat.stop if state.role == "assistant" else ()
    report = settings.sampling.report(op)
    return GenCall(
        prompt=state.prompt(),
        params=settings.sampling.params(op, stop, (*stream.place, number)),
        name=op.name,
        stream_id=stream.id,
        program=stream.place[0],
        stream=settings.stream,
        return_logprob=report.return_logprob,
        logprob_start=report.logprob_start_len,
        top_logprobs=report.top_logprobs_num,
        after=_announced(stream),
    )


def select_call(stream: "Stream", op: ir.Select) -> SelectCall:
    """Return the call that scores a select's choices.

    Raises:
        ConfigError: its method cannot draw.
    """
    check_temperature(op.method, op.temperature)
    return SelectCall(
        prompt=stream.state.prompt(),
        choices=op.choices,
        unconditional=op.method.unconditional,
        tokenisations=op.method.tokenisations,
        name=op.name,
        stream_id=stream.id,
        program=stream.place[0],
        hint=stream.program.settings.hints,
        after=_announced(stream),
    )


def _announced(stream: "Stream") -> Hint | None:
    return None if stream.announced is None else stream.announced.hint
