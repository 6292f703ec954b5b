"""Recorder: note what a cache and a scheduler did, as plain data that the views draw.

Imports cache, schedule and types. The tree is rebuilt from the cache's events alone; who pins what,
and which request ran when, comes from the plans.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgjax.cache import CacheEvent, EventKind, Keys
from sgjax.errors import ResultsError
from sgjax.schedule import Plan, PlanRow
from sgjax.types import Wants

Describe = Callable[[Keys], str]
"""Return tokens as text to read."""


@dataclass(frozen=True)
class Change:
    """One change of the tree.

    Attributes:
        kind: `insert`, `split`, `trim` or `evict`.
        node: the node inserted, trimmed or evicted, or a split's new upper half.
        parent: its parent.
        tokens, text: of its edge after the change.
        lower: of a split, the half that keeps its id, with its edge after the change; else None.
    """

    kind: str
    node: int
    parent: int
    tokens: int
    text: str
    lower: tuple[int, int, str] | None = None


@dataclass(frozen=True)
class Frame:
    """What happened between two looks at the tree.

    Attributes:
        title, note: in words.
        time_s: when, on the engine's clock.
        changes: of the tree, in order.
        pins: by request, the node up to which it holds its path.
    """

    title: str
    note: str
    time_s: float
    changes: tuple[Change, ...]
    pins: Mapping[str, int]


@dataclass(frozen=True)
class Span:
    """A time in which a request did one thing.

    Attributes:
        kind: `extend` (a prompt or a part of it), `decode`, `wait`, `stall` (running, but not in
            the step) or `retracted`.
        begin_s, end_s: on the engine's clock.
        tokens: computed in it.
    """

    kind: str
    begin_s: float
    end_s: float
    tokens: int


@dataclass(frozen=True)
class Lane:
    """A request's way through the schedule.

    Attributes:
        id, client: of the request; a client groups requests for fairness.
        kind: `request`, `hint` (nothing is wanted back) or `score` (log-probabilities alone).
        prompt, cached: tokens of its prompt, and those found cached at its admission.
        spans: in order of time.
    """

    id: str
    client: str
    kind: str
    prompt: int
    cached: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Recording:
    """A run, or a part of one, as the views draw it.

    Attributes:
        title: what was run.
        frames: the tree's history.
        lanes: the requests, by arrival; empty where there was no schedule.
    """

    title: str
    frames: tuple[Frame, ...]
    lanes: tuple[Lane, ...]

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Recording":
        """Return the recording of `to_json`.

        Raises:
            ResultsError: the text is no recording.
        """
        try:
            data = json.loads(text)
            frames = [
                Frame(**{**f, "changes": tuple(_change(c) for c in f["changes"])})
                for f in data["frames"]
            ]
            lanes = [
                Lane(**{**lane, "spans": tuple(Span(**s) for s in lane["spans"])})
                for lane in data["lanes"]
            ]
            return cls(data["title"], tuple(frames), tuple(lanes))
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"this is no recording: {error!r}") from None


def _change(data: dict[str, Any]) -> Change:
    lower = data.pop("lower")
    return Change(**data, lower=None if lower is None else tuple(lower))


@dataclass
class _Node:
    key: Keys
    children: dict[int, "_Node"] = field(default_factory=dict)


@dataclass
class _Lane:
    client: str
    kind: str
    arrived_s: float
    prompt: int
    cached: int
    reached: int
    spans: list[Span]


WANTED = {Wants.TOKENS: "request", Wants.NOTHING: "hint", Wants.LOGPROBS: "score"}


class Recorder:
    """Record what is shown to it; implements `Watcher`.

    Args:
        title: what is run.
        describe: turns tokens into text.
    """

    def __init__(self, title: str, describe: Describe) -> None:
        self._title = title
        self._describe = describe
        self._nodes: dict[int, _Node] = {}
        self._changes: list[Change] = []
        self._frames: list[Frame] = []
        self._lanes: dict[str, _Lane] = {}
        self._pins: dict[str, int] = {}
        self._begin_s = 0.0

    def changed(self, event: CacheEvent) -> None:
        """Note a change of the tree."""
        nodes, parent = self._nodes, self._nodes.setdefault(event.parent, _Node(_NO_KEY))
        lower = None
        if event.kind is EventKind.EVICT:
            del nodes[event.node], parent.children[event.node]
        elif event.kind is EventKind.TRIM:
            nodes[event.node].key = event.key
        else:
            nodes[event.node] = _Node(event.key)
            if event.kind is EventKind.SPLIT:
                lower = self._cut(parent, event)
            parent.children[event.node] = nodes[event.node]
        text = self._describe(event.key)
        self._changes.append(
            Change(event.kind.value, event.node, event.parent, len(event.key), text, lower)
        )

    def _cut(self, parent: _Node, event: CacheEvent) -> tuple[int, int, str]:
        """Hang the lower half of a split below its new upper half; return it."""
        size = len(event.key)
        below = next(
            node_id
            for node_id, node in parent.children.items()
            if np.array_equal(node.key[:size], event.key)
        )
        node = parent.children.pop(below)
        node.key = node.key[size:]
        self._nodes[event.node].children[below] = node
        return below, len(node.key), self._describe(node.key)

    def planned(self, plan: Plan, now_s: float) -> None:
        """Note who holds what, and when the step began."""
        self._begin_s = now_s
        self._pins = {}
        for row in plan.rows:
            if row.seq.node is not None:
                self._pins[row.seq.request.id] = row.seq.node.id

    def committed(self, plan: Plan, times: int, now_s: float) -> None:
        """Note what the step did to the tree and its requests."""
        for row in plan.rows:
            self._extend_lane(row, times, now_s)
        extends = sum(row.num_tokens > 1 for row in plan.rows)
        parts = [f"{len(plan.rows) - extends} decode"] * (extends < len(plan.rows))
        parts += [f"{extends} extend by {plan.num_tokens - len(plan.rows) + extends} tokens"] * (
            extends > 0
        )
        steps = f"steps {plan.step}–{plan.step + times - 1}" if times > 1 else f"step {plan.step}"
        self.look(steps, ", ".join(parts), now_s, self._pins)

    def look(self, title: str, note: str, time_s: float, pins: Mapping[str, int]) -> None:
        """End a frame: what was noted since the last one happened in it."""
        self._frames.append(Frame(title, note, time_s, tuple(self._changes), dict(pins)))
        self._changes.clear()

    def recording(self) -> Recording:
        """Return what was recorded so far."""
        lanes = [
            Lane(name, lane.client, lane.kind, lane.prompt, lane.cached, tuple(lane.spans))
            for name, lane in sorted(self._lanes.items(), key=lambda item: item[1].arrived_s)
        ]
        return Recording(self._title, tuple(self._frames), tuple(lanes))

    def _extend_lane(self, row: PlanRow, times: int, now_s: float) -> None:
        seq = row.seq
        lane = self._lanes.get(seq.request.id)
        if lane is None:
            lane = self._lanes[seq.request.id] = _Lane(
                seq.request.client,
                WANTED[seq.request.wants],
                seq.arrived_s,
                seq.num_prompt,
                seq.cached_tokens,
                row.start,
                [Span("wait", seq.arrived_s, self._begin_s, 0)],
            )
        elif self._begin_s > lane.spans[-1].end_s:
            kind = "retracted" if row.start < lane.reached else "stall"
            lane.spans.append(Span(kind, lane.spans[-1].end_s, self._begin_s, 0))
        kind = "decode" if row.start >= seq.num_prompt and row.num_tokens == 1 else "extend"
        last, tokens = lane.spans[-1], row.num_tokens + times - 1
        if kind == last.kind == "decode":
            lane.spans[-1] = Span(kind, last.begin_s, now_s, last.tokens + tokens)
        else:
            lane.spans.append(Span(kind, self._begin_s, now_s, tokens))
        lane.reached = row.end + times - 1


_NO_KEY: Keys = np.empty(0, np.int64)
