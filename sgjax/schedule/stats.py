"""Counters of a scheduler. Imports nothing of sgjax."""

from dataclasses import dataclass


@dataclass
class SchedulerStats:
    """Counted since the start; all are sums, but for the peak.

    Attributes:
        requests, finished, aborted: requests that came, ended well, ended by abort or failure.
        prompt_tokens: tokens of all prompts.
        cached_tokens: those found in the cache at first admission.
        computed_tokens: new tokens over all steps.
        completion_tokens: output tokens of all requests.
        jumps: how often forced text was appended.
        split_jumps: jumps that ended inside a token of the finished output's own tokenisation;
            outputs that are no whole text are left out.
        forced_tokens: output tokens appended by jump-forward.
        rolled_back_tokens: output tokens that a jump replaced.
        guessed_tokens: held-back tokens that were computed before they were sampled.
        wrong_guesses: those of them that the output did not take. They are no rolled-back tokens:
            they never were in an output.
        saved_passes: passes of a row that jumps saved: an output's tokens less those that a pass
            was made for, so forced less rolled back tokens, and samples taken behind guesses;
            below 0 where jumps cost more than they bring.
        forward_passes: steps.
        rows: rows over all steps; rows / forward_passes is the mean batch size.
        retractions: sequences sent back to the queue.
        peak_pages: most pages in use by sequences and tree at once.
    """

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0
    jumps: int = 0
    split_jumps: int = 0
    forced_tokens: int = 0
    rolled_back_tokens: int = 0
    guessed_tokens: int = 0
    wrong_guesses: int = 0
    saved_passes: int = 0
    forward_passes: int = 0
    rows: int = 0
    retractions: int = 0
    peak_pages: int = 0

    def planned(self, num_rows: int, num_tokens: int, used_pages: int, steps: int = 1) -> None:
        """Count equal steps; `used_pages` is the most over all of them."""
        self.forward_passes += steps
        self.rows += steps * num_rows
        self.computed_tokens += steps * num_tokens
        self.peak_pages = max(self.peak_pages, used_pages)
