"""Every error sgjax raises on purpose. Imports nothing.

A message says what was wrong, what was got, what is allowed and what to do next, so that it can be
shown at a command line without a traceback.
"""


class SgjaxError(Exception):
    """Root of all errors that sgjax raises on purpose."""


class ConfigError(SgjaxError, ValueError):
    """A configuration value, sampling parameter or argument is unknown or out of range."""


class PromptTooLong(SgjaxError, ValueError):
    """A prompt needs more tokens than the context or the K/V pool holds."""


class GrammarError(SgjaxError, ValueError):
    """A regex, JSON schema or choice list cannot be compiled into a constraint."""


class OutOfPages(SgjaxError, RuntimeError):
    """The K/V pool cannot hold one request, even with everything else evicted."""


class UnsupportedBackend(SgjaxError, RuntimeError):
    """A backend, device or feature was asked for that is not available here."""


class ModelLoadError(SgjaxError, RuntimeError):
    """A model folder or file is missing, truncated, foreign or of an unsupported kind."""


class ProgramError(SgjaxError, RuntimeError):
    """A language-model program failed; the cause is chained."""


class BatchError(ProgramError):
    """Some programs of a batch failed; the first failure is chained.

    Attributes:
        states: all programs' states in the batch's order; reading a failed one raises its error.
    """

    def __init__(self, message: str, states: tuple[object, ...]) -> None:
        super().__init__(message)
        self.states = states


class RequestAborted(SgjaxError, RuntimeError):
    """A request was aborted before it finished."""


class ResultsError(SgjaxError, RuntimeError):
    """An experiment's results cannot be written or read."""
