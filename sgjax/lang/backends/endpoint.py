"""RuntimeEndpoint: programs on sgjax's own HTTP server. Imports errors.

The server has its own issue; until it lands, making one is refused.
"""

from typing import NoReturn, final

from sgjax.errors import UnsupportedBackend


@final
class RuntimeEndpoint:
    """Run programs on a server.

    Args:
        url: where it listens.

    Raises:
        UnsupportedBackend: always, until the server exists.
    """

    def __init__(self, url: str) -> NoReturn:
        raise UnsupportedBackend(
            f"RuntimeEndpoint({url!r}): sgjax has no HTTP server yet; use sgl.Engine(...) in this "
            "process, or sgl.OpenAI(model, base_url=...) for a server with OpenAI's API"
        )
