"""The GGUF container: metadata and tensors of one file.

HOST. Imports numpy, the `gguf` package (its numbers and its dequantisation) and errors. The header
is parsed here: the package's reader makes four arrays for each string of a vocabulary, which takes
seconds where this takes a few hundredths.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from sgjax.errors import ModelLoadError

SUPPORTED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")
"""Kinds of tensors that are read; all are dequantised to float32."""

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies.

    Attributes:
        kind: name of its quantisation.
        shape: slowest dimension first, as numpy has it.
        start: byte offset in the file.
        num_bytes: its size in the file.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class GgufFile:
    """Read one file; tensors are read from disk when asked for.

    Raises:
        ModelLoadError: the file is missing, foreign, truncated, or holds tensors of an unsupported
            kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        header = _Header(path, self._data)
        self.metadata: Mapping[str, Any] = header.metadata
        self.tensors: Mapping[str, TensorInfo] = header.tensors

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a tensor, dequantised.

        Raises:
            ModelLoadError: there is no such tensor.
        """
        info = self.tensors.get(name)
        if info is None:
            raise ModelLoadError(
                f"{self.path} has no tensor {name!r}; it holds {len(self.tensors)} others and may "
                "be a part of a split model: merge the parts into one file"
            )
        raw = np.frombuffer(self._data, np.uint8, info.num_bytes, info.start)
        quantised = raw.reshape(*info.shape[:-1], -1)
        kind = gguf.GGMLQuantizationType[info.kind]
        values: NDArray[np.float32] = gguf.quants.dequantize(quantised, kind)
        return values.reshape(info.shape)


class _Header:
    """Parse the header front to back."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = len(_MAGIC)
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            self._parse()
        except (struct.error, KeyError, ValueError, TypeError, RecursionError) as error:
            raise ModelLoadError(
                f"{path} is damaged or truncated: its header breaks off at byte {self._at} of "
                f"{len(data)} ({error}); download it again"
            ) from None

    def _parse(self) -> None:
        version = self._scalar("I")
        if version not in (2, 3):
            raise ModelLoadError(
                f"{self._path} is a GGUF file of version {version} (or of a big-endian machine); "
                "versions 2 and 3, little-endian, are supported: convert it anew"
            )
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        for _ in range(num_keys):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        places = []
        for _ in range(num_tensors):
            name = self._string()
            shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))[::-1]
            places.append((name, shape, self._scalar("I"), self._scalar("Q")))
        alignment = int(self.metadata.get("general.alignment", 32))
        if alignment < 1:
            raise ValueError(f"alignment {alignment}")
        start = -(-self._at // alignment) * alignment
        for name, shape, kind, offset in places:
            self.tensors[name] = self._tensor(name, shape, kind, start + offset)

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> TensorInfo:
        known = {int(k): k.name for k in gguf.GGMLQuantizationType}
        label = known.get(kind, f"number {kind}")
        if label not in SUPPORTED:
            raise ModelLoadError(
                f"{self._path}: tensor {name!r} has quantisation {label}; supported are "
                f"{', '.join(SUPPORTED)}: use a file quantised to one of these"
            )
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        if not shape or shape[-1] % block:
            raise ValueError(f"tensor {name!r} has shape {shape} in blocks of {block}")
        size = math.prod(shape) // block * block_bytes
        if start + size > len(self._data):
            raise ModelLoadError(
                f"{self._path} is truncated: tensor {name!r} ends at byte {start + size}, the file "
                f"at {len(self._data)}; download it again"
            )
        return TensorInfo(label, shape, start, size)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(_SCALARS[kind])
        inner, count = self._scalar("I"), self._scalar("Q")
        if inner in (_STRING, _ARRAY):
            return [self._value(inner) for _ in range(count)]
        code = f"<{self._fits(count, struct.calcsize(_SCALARS[inner]))}{_SCALARS[inner]}"
        values = list(struct.unpack_from(code, self._data, self._at))
        self._at += struct.calcsize(code)
        return values

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        size = self._fits(self._scalar("Q"), 1)
        text = self._data[self._at : self._at + size].decode()
        self._at += size
        return text

    def _fits(self, count: int, item_bytes: int) -> int:
        """Return `count` if so many items can follow (a damaged count must not allocate)."""
        if count * item_bytes > len(self._data) - self._at:
            raise ValueError(f"{count} items of {item_bytes} bytes do not fit")
        return count


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
            if begins == _MAGIC:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}; check the path") from None
    raise ModelLoadError(
        f"{path} is no GGUF file: it begins with {begins!r} instead of {_MAGIC!r}; give a .gguf "
        "file, or a folder with config.json and safetensors"
    )
