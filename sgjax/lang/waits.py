"""Waits: what a stream takes from other streams of its program, once it is there.

Imports ir and ops. A join takes the variables or the texts of a fork's members, a fetch one
variable of any stream. Everything here runs inside the program's messages, like the stream.
"""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sgjax.lang import ir
from sgjax.lang.ops import FetchOp, JoinOp, describe

if TYPE_CHECKING:
    from sgjax.lang.stream import Stream


def begin_join(stream: "Stream", op: JoinOp) -> None:
    """End the members of a fork; go on with their results when all of them are idle."""
    left = len(op.children)

    def arrived() -> None:
        nonlocal left
        left -= 1
        if left == 0 and stream.awaits(op):
            _finish_join(stream, op)

    for child in op.children:
        child.close()
        child.when_idle(arrived)


def begin_fetch(stream: "Stream", op: FetchOp) -> None:
    """Append another stream's variable when it is there."""
    source, future = op.source, Future[Any]()

    def arrived(_: object) -> None:
        if not stream.awaits(op):
            return
        try:
            value = future.result()
            parts = [ir.Text(str(value))] if op.formatted else ir.flatten(ir.as_expr(value))
            for part in parts:
                stream.execute(part)
        except Exception as failure:
            stream.fail(failure, describe(op))
            return
        stream.proceed()

    # Reading answers within a message of the same program, so this is one too.
    future.add_done_callback(lambda done: stream.program.mailbox.post(lambda: arrived(done)))
    source.read(
        lambda: source.has_started and source.done > op.number,
        lambda: source.state.value_of(op.name),
        future,
    )


def _finish_join(stream: "Stream", op: JoinOp) -> None:
    for child in op.children:
        if child.error is not None:
            child.error_read = True
            stream.fail(child.error, child.failed_at)
            return
    if op.gather:
        for name in dict.fromkeys(name for child in op.children for name in child.written):
            wrote = [child.state if name in child.written else None for child in op.children]
            values = [None if state is None else state.variables[name] for state in wrote]
            metas = [None if state is None else state.meta[name] for state in wrote]
            stream.assign(name, values, metas)
    else:
        stream.append("".join(c.state.text[c.forked_at :] for c in op.children))
    stream.proceed()
