"""What a worker asks of an engine. Standard library only."""

from dataclasses import dataclass
from typing import Protocol

Prompts = list[list[int]]
Outputs = list[list[int]]


@dataclass(frozen=True)
class Decoded:
    """What a decode phase gave.

    Attributes:
        outputs: token ids of each prompt.
        seconds: from the moment all sequences had their first token to the last token.
        tokens: tokens that came in that time.
    """

    outputs: Outputs
    seconds: float
    tokens: int


class Peer(Protocol):
    """An engine with a model, kept alive; greedy, and end tokens do not end anything."""

    def about(self) -> dict[str, str]:
        """Return versions and settings that results must name."""
        ...

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """Return `new` tokens of each prompt; all prompts are there from the start."""
        ...

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """Bring the prompts' K/V in, untimed or kept from before; then time `new` - 1 steps."""
        ...

    def forget(self) -> None:
        """Drop every prompt that is kept from calls before."""
        ...

    def compilations(self) -> int:
        """Return how many programs were compiled so far; a run that adds to it does not count."""
        ...
