"""What stands before the scheduler in the first releases of SGLang: a tokenizer and a pause.

HOST. Imports schedule and its neighbours. Their server was three processes: one tokenizes
requests, one after another; one runs the model, and after a step that ended a request sleeps
before it looks at what came (`extend_dependency_time`), so that those who depend on it may come.
"""

from collections import deque

from sgjax.schedule import Entrance, Sequence
from sgjax.sim.calls import CallSpec, Walks
from sgjax.sim.executor import SimExecutor


class TokenizerAndPause(Entrance):
    """Tokenize requests one after another on the virtual clock; pause before a look.

    Args:
        executor: whose clock it is.
        tokenize_s: seconds that a token of a prompt takes.
        pause_s: seconds since the last step before which nobody looks, if a request has ended
            since the last look.
        calls: what a call takes beside its tokens; the further choices of a walked select are no
            calls.
    """

    def __init__(
        self, executor: SimExecutor, tokenize_s: float, pause_s: float, calls: CallSpec
    ) -> None:
        self._executor = executor
        self._tokenize_s = tokenize_s
        self._pause_s = pause_s
        self._call_s = calls.call_s
        self._walks = Walks() if calls.selects == "walked" else None
        self._has_ended = False
        self._free_s = 0.0
        self._coming: deque[tuple[float, Sequence]] = deque()

    def keeps(self, seq: Sequence) -> bool:
        """Begin to tokenize a request when all before it are done."""
        if not self._tokenize_s and not self._call_s:
            return False
        self._free_s = max(self._free_s, self._executor.now())
        if self._walks is None or not self._walks.is_spared(seq):
            self._free_s += self._call_s + self._tokenize_s * seq.num_prompt
        self._coming.append((self._free_s, seq))
        return True

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is being tokenized and no pause is due."""
        return not self._coming and not (self._has_ended and self._pause_s)

    def look(self) -> list[Sequence]:
        """Pause if somebody ended, then return whose prompts are tokenized."""
        if self._has_ended:
            self._executor.advance_to(self._executor.stepped_s + self._pause_s)
            self._has_ended = False
        there: list[Sequence] = []
        while self._coming and self._coming[0][0] <= self._executor.now():
            there.append(self._coming.popleft()[1])
        return there

    def wait(self) -> bool:
        """Let time pass until the next prompt is tokenized."""
        if self._coming:
            self._executor.advance_to(self._coming[0][0])
            return True
        return False

    def remove(self, seq: Sequence) -> None:
        """Forget a request; the time its prompt takes is spent all the same."""
        self._coming = deque(entry for entry in self._coming if entry[1] is not seq)

    def ended(self) -> None:
        """Note that a pause is due."""
        self._has_ended = True
