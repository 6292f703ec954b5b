"""Images as chat APIs take them: data URLs. Imports errors."""

import base64
import io
from pathlib import Path
from typing import Any

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lang.backends.base import Media
from sgjax.lang.ir import Image

_MAGIC = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def image_part(media: Media) -> dict[str, Any]:
    """Return an image as a part of a message's content.

    Raises:
        UnsupportedBackend: it is a video.
        ConfigError: the file cannot be read, or is no PNG, JPEG, GIF or WebP.
    """
    if not isinstance(media.source, Image):
        raise UnsupportedBackend("chat APIs take no video; append its frames with sgl.image")
    data = _bytes(media.source.source)
    kind = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)
    if kind is None:
        raise ConfigError("sgl.image: the data is no PNG, JPEG, GIF or WebP file; convert it")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _bytes(source: Any) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | Path):
        try:
            return Path(source).read_bytes()
        except OSError as error:
            raise ConfigError(f"sgl.image: cannot read {source}: {error}") from None
    from PIL import Image as Pillow

    if isinstance(source, Pillow.Image):
        out = io.BytesIO()
        source.save(out, format="PNG")
        return out.getvalue()
    raise ConfigError(
        f"sgl.image: a {type(source).__name__} is no image; give a path, bytes or a PIL image"
    )
