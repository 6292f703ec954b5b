"""GrowingArray: the tokens and the pages of a sequence, which grow at their end. Imports numpy."""

from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


@final
class GrowingArray(Generic[T]):
    """A one-dimensional array; appending is amortised O(1).

    Args:
        values: what it begins with; its type is the array's.
    """

    __slots__ = ("_data", "length")

    def __init__(self, values: NDArray[T]) -> None:
        self.length = len(values)
        self._data: NDArray[T] = np.empty(self.length + 64, values.dtype)
        self._data[: self.length] = values

    def view(self, start: int = 0, end: int | None = None) -> NDArray[T]:
        """Return values [start, end) without a copy; valid until the next change."""
        return self._data[start : self.length if end is None else end]

    def __getitem__(self, index: int) -> Any:
        """Return the value at an index, which is one of them, as a Python number."""
        return self._data.item(index)

    def append(self, value: int) -> None:
        """Append one value."""
        if self.length == len(self._data):
            self._data = np.concatenate([self._data, np.empty_like(self._data)])
        self._data[self.length] = value
        self.length += 1

    def extend(self, values: NDArray[T]) -> None:
        """Append values."""
        self._lengthen(len(values))[:] = values

    def append_many(self, value: int, count: int) -> None:
        """Append one value `count` times."""
        self._lengthen(count)[:] = value

    def replace_front(self, values: NDArray[T]) -> None:
        """Overwrite the first values."""
        self._data[: len(values)] = values

    def truncate(self, length: int) -> None:
        """Drop all values from index `length` on."""
        self.length = length

    def _lengthen(self, count: int) -> NDArray[T]:
        """Return the place of `count` more values."""
        start, self.length = self.length, self.length + count
        if self.length > len(self._data):
            grown = np.empty(max(self.length, 2 * len(self._data)), self._data.dtype)
            grown[:start] = self._data[:start]
            self._data = grown
        return self._data[start : self.length]
