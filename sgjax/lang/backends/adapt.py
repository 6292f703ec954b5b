"""From what a user gives as `backend=` to a Backend. Imports the backends, no engine and no jax."""

from sgjax.errors import UnsupportedBackend
from sgjax.lang.backends.base import Backend
from sgjax.lang.backends.local import EngineLike, LocalBackend


def as_backend(given: object) -> Backend:
    """Return a backend as it is, or an engine wrapped in one.

    Raises:
        UnsupportedBackend: it is neither.
    """
    if isinstance(given, Backend):
        return given
    if isinstance(given, EngineLike):
        return LocalBackend(given)
    raise UnsupportedBackend(
        f"a {type(given).__name__} is no backend; give sgl.Engine, sgl.OpenAI, sgl.RuntimeEndpoint "
        "or sgl.ScriptedBackend"
    )
