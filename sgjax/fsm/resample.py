"""Choose one of some weighed outputs: the last step of exact sampling.

HOST. Imports numpy and types.
"""

from collections.abc import Sequence

import numpy as np

from sgjax.types import ExactReport


def choose(
    log_p: Sequence[float],
    log_q: Sequence[float] | None,
    temperature: float,
    u: float,
    drawn: int = 0,
) -> tuple[int, ExactReport]:
    """Choose an output from p^(1 / temperature), normalised over the language.

    Args:
        log_p: the model's log-probability of each output, at least one.
        log_q: log-probability with which each was proposed (sampling importance resampling: its
            weight is p / q); None where the outputs are all there are, each once.
        temperature: of whole outputs; 0 takes the most probable, the first of equals.
        u: uniform in [0, 1).
        drawn: with `log_q`, how many were proposed, those of no weight among them.

    Returns:
        Its index, and how it was chosen.
    """
    p = np.asarray(log_p, np.float64)
    q = np.zeros_like(p) if log_q is None else np.asarray(log_q, np.float64)
    language = _log_sum(p - q) - (0.0 if log_q is None else np.log(drawn))
    if temperature == 0:
        index = int(np.argmax(p))
        weights = np.exp(p - q - (p - q).max())
    else:
        tempered = p / temperature - q
        weights = np.exp(tempered - tempered.max())
        running = np.cumsum(weights)
        index = int(np.searchsorted(running, u * running[-1], side="right"))
        index = min(index, len(p) - 1)
    return index, ExactReport(
        enumerated=log_q is None,
        weighed=len(p),
        language_logprob=float(language),
        conditional_logprob=float(p[index] - language),
        effective_sample_size=(
            None if log_q is None else float(weights.sum() ** 2 / (weights**2).sum())
        ),
    )


def _log_sum(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(x.max() + np.log(np.exp(x - x.max()).sum()))
