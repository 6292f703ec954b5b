"""LMQL on llama.cpp, through its Python interface: one query after another.

LMQL 0.7.3 hands its masks over in a form that llama.cpp of today does not take; greedy text needs
none.
"""

from importlib.metadata import version
from typing import Any

import lmql
from remote.text import CONTEXT, TextPeer


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> TextPeer:
    """Return the model of a GGUF file, whose tensors already have the dtype.

    Args:
        model: the GGUF file.
        dtype: its own.
        threads: of llama.cpp.
        options: `tokenizer`, a Hugging Face folder, and what llama.cpp's model takes.
    """
    loaded = lmql.model(
        f"local:llama.cpp:{model}", **{"n_ctx": CONTEXT, "n_threads": threads, **options}
    )

    def answer(text: str, new: int) -> str:
        try:
            said: str = loaded.generate_sync(text, max_tokens=new, temperature=0.0)
        except ValueError as error:  # how it says that an end token follows the text
            if "No result returned" not in str(error):
                raise
            return ""
        return said

    return TextPeer(answer, model, {"lmql": version("lmql")})
