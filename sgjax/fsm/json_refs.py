"""References within a JSON schema.

HOST. Imports json_merge and errors.
"""

from collections.abc import Mapping
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.json_merge import merge


class References:
    """Resolve the references of a schema, which are all to parts of itself.

    Args:
        root: the whole schema, in plain Python.
    """

    def __init__(self, root: Any) -> None:
        self._root = root

    def resolve(self, name: str) -> Any:
        """Return the schema that a local reference names."""
        if not isinstance(name, str) or not name.startswith("#"):
            raise GrammarError(f"json_schema keyword '$ref': {name!r} is not local; inline it")
        target = self._root
        for part in name[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = target[int(key)]
            elif isinstance(target, Mapping) and key in target:
                target = target[key]
            else:
                raise GrammarError(f"json_schema keyword '$ref': there is no {name!r}; define it")
        return target

    def inline(self, schema: Any, path: tuple[str, ...] = ()) -> Any:
        """Return a schema whose outermost reference is resolved."""
        while isinstance(schema, Mapping) and "$ref" in schema:
            name = schema["$ref"]
            if name in path:
                raise GrammarError(f"json_schema keyword '$ref': {name!r} is recursive; unroll it")
            path = (*path, name)
            rest = {k: v for k, v in schema.items() if k != "$ref"}
            target = self.resolve(name)
            schema = merge(self.inline(target, path), rest) if rest else target
        return schema
