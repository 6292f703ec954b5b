"""Traces of real services: Mooncake (shared prefixes by hash) and Azure (lengths alone).

HOST. Imports errors, numpy and the standard library. Files are the published ones as JSON lines, or
Azure's original CSV; a path is always given, none is shipped. A trace knows prompts by the hashes
of their blocks; keys are made up so that equal blocks get equal keys and unequal ones do not.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, overload

import numpy as np

from sgjax.cache import Keys
from sgjax.errors import ConfigError

BLOCK_TOKENS = 512
"""Tokens a hash of the Mooncake traces stands for."""


class BlockTokens(Sequence[int]):
    """A prompt that is known by its blocks: the keys of block h are h * 512 + (0 .. 511).

    Written out only on demand, so that a waiting trace takes a few bytes a block.
    """

    __slots__ = ("_blocks", "_length")

    def __init__(self, blocks: Iterable[int], length: int) -> None:
        self._blocks = np.array(list(blocks), np.int64)
        self._length = length
        if not len(self._blocks) * BLOCK_TOKENS >= length > (len(self._blocks) - 1) * BLOCK_TOKENS:
            raise ConfigError(f"{len(self._blocks)} blocks do not make a prompt of {length} tokens")

    @property
    def blocks(self) -> tuple[int, ...]:
        """Return the hashes of the blocks, the last perhaps a partial one."""
        return tuple(self._blocks.tolist())

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return list(self.__array__()[index].tolist())
        at = range(self._length)[index]
        return int(self._blocks[at // BLOCK_TOKENS]) * BLOCK_TOKENS + at % BLOCK_TOKENS

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Keys:
        """Return all keys, i64[n]."""
        keys = self._blocks[:, None] * BLOCK_TOKENS + np.arange(BLOCK_TOKENS)
        return keys.reshape(-1)[: self._length].astype(dtype or np.int64, copy=False)


@dataclass(frozen=True)
class Arrival:
    """One request of a trace.

    Attributes:
        time_s: when it arrives, in seconds from the trace's beginning.
        tokens: its prompt.
        output_tokens: tokens it generates, at least 1.
        family: whose it is, for measures of fairness.
    """

    time_s: float
    tokens: Sequence[int]
    output_tokens: int
    family: str = ""


def read_mooncake(path: Path, family: str = "") -> list[Arrival]:
    """Read a Mooncake trace: timestamp (ms), input_length, output_length, hash_ids.

    Outputs have no hashes of their own: what a later prompt repeats of an earlier answer is shared
    only as far as its blocks' hashes say so.

    Raises:
        ConfigError: the file cannot be read or is in another form.
    """
    return [
        Arrival(
            row["timestamp"] / 1000,
            BlockTokens(row["hash_ids"], row["input_length"]),
            max(1, row["output_length"]),
            family,
        )
        for row in _rows(path, ("timestamp", "input_length", "output_length", "hash_ids"))
    ]


def read_azure(path: Path, family: str = "") -> list[Arrival]:
    """Read an Azure trace: JSON lines of t (ms), in, out; or the original CSV.

    It knows lengths alone, so no two prompts share anything.

    Raises:
        ConfigError: the file cannot be read or is in another form.
    """
    fresh = count()
    rows = _azure_csv(path) if path.suffix == ".csv" else _rows(path, ("t", "in", "out"))
    arrivals = []
    for row in rows:
        length = max(1, row["in"])
        blocks = [next(fresh) for _ in range(-(-length // BLOCK_TOKENS))]
        tokens = BlockTokens(blocks, length)
        arrivals.append(Arrival(row["t"] / 1000, tokens, max(1, row["out"]), family))
    return arrivals


def tile(trace: Sequence[Arrival], total: int) -> Iterator[Arrival]:
    """Repeat a Mooncake trace with shifted times and hashes until `total` requests are out.

    Copies share nothing with each other. The result is synthetic: it has the trace's structure and
    load, not its diversity.
    """
    blocks = [arrival.tokens.blocks for arrival in trace if isinstance(arrival.tokens, BlockTokens)]
    assert len(blocks) == len(trace), "only traces of blocks can be tiled"
    shift = 1 + max(map(max, blocks))
    span = trace[-1].time_s + (trace[-1].time_s - trace[0].time_s) / max(1, len(trace) - 1)
    for at in range(total):
        copy, index = divmod(at, len(trace))
        arrival = trace[index]
        tokens = BlockTokens((h + copy * shift for h in blocks[index]), len(arrival.tokens))
        yield replace(arrival, time_s=arrival.time_s + copy * span, tokens=tokens)


def _rows(path: Path, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if not isinstance(row, dict) or any(key not in row for key in keys):
                    raise ConfigError(f"{path}, line {number}: a row needs {', '.join(keys)}")
                yield row
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read a trace from {path}: {error}") from None


def _azure_csv(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            first: datetime | None = None
            for row in csv.DictReader(lines):
                # Seven digits of a second, one more than datetime reads.
                at = datetime.fromisoformat(row["TIMESTAMP"][:26])
                first = first or at
                ms = (at - first).total_seconds() * 1000
                yield {"t": ms, "in": int(row["ContextTokens"]), "out": int(row["GeneratedTokens"])}
    except (OSError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise ConfigError(f"cannot read an Azure trace from {path}: {error!r}") from None
