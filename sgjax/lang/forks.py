"""ForkGroup: the members of a fork, as a user's function holds them. Imports errors and appendable.

The same for states that run and for states that are traced.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar, final

from sgjax.errors import ConfigError, ProgramError
from sgjax.lang.appendable import Appendable

JoinMode = Literal["gather_variable", "concate_and_append"]
S = TypeVar("S", bound=Appendable)


@final
class ForkGroup(Generic[S]):
    """The copies that `fork` made, in order.

    Args:
        states: the copies.
        join: ends them; called with whether variables are gathered.
    """

    def __init__(self, states: list[S], join: Callable[[bool], None]) -> None:
        self._states = states
        self._join = join
        self._joined = False

    def __getitem__(self, index: int) -> S:
        return self._states[index]

    def __setitem__(self, index: int, state: S) -> None:
        """Allow `group[i] += expr`, which assigns the state it got back."""
        if state is not self._states[index]:
            raise ConfigError("a fork's member cannot be replaced; append to it with +=")

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[S]:
        return iter(self._states)

    def __iadd__(self, other: object) -> "ForkGroup[S]":
        """Append to every member: one expression for all, a list of one each, or a function of i.

        Raises:
            ConfigError: a list of another length.
        """
        if isinstance(other, list | tuple):
            if len(other) != len(self._states):
                raise ConfigError(
                    f"{len(other)} expressions were appended to a fork of {len(self._states)}; "
                    "give one for all, or one each"
                )
            parts: list[Any] = list(other)
        elif callable(other):
            parts = [other(index) for index in range(len(self._states))]
        else:
            parts = [other] * len(self._states)
        for state, part in zip(self._states, parts, strict=True):
            state += part
        return self

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """End the members and bring their results back.

        Args:
            mode: "gather_variable" stores each variable that a member set since the fork as a list
                in the parent, in the members' order, None where a member did not set it.
                "concate_and_append" appends the members' new texts to the parent's.

        Raises:
            ConfigError: another mode.
            ProgramError: they were joined already.
        """
        if mode not in ("gather_variable", "concate_and_append"):
            raise ConfigError(
                f"join({mode!r}) is not allowed; use 'gather_variable' or 'concate_and_append'"
            )
        if self._joined:
            raise ProgramError("the fork was joined already; its members give their results once")
        self._joined = True
        self._join(mode == "gather_variable")


def check_copies(n: object) -> None:
    """Refuse what is no number of copies.

    Raises:
        ConfigError: it is no integer, or below 1.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigError(f"fork({n!r}) is not allowed; give the number of copies, at least 1")
