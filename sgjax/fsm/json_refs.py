"""References within a JSON schema.

HOST. Imports json_merge and errors.
"""

import json
from collections.abc import Mapping
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.json_merge import merge

_MAX_PARTS = 20_000


class References:
    """Resolve the references of a schema, which are all to parts of itself.

    References to references can unfold into very many parts, so these are counted.

    Args:
        root: the whole schema, in plain Python.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._parts = 0

    def count_parts(self, count: int = 1) -> None:
        """Count parts of the unfolded schema.

        Raises:
            GrammarError: there are too many.
        """
        self._parts += count
        if self._parts > _MAX_PARTS:
            raise GrammarError(
                "json_schema: with references ($ref), combinations (oneOf) and values (enum) it "
                f"unfolds into more than {_MAX_PARTS} parts; simplify it"
            )

    def check_resource(self, schema: Mapping[str, Any]) -> None:
        """Refuse a part with an `$id` of its own, if its references mean parts of itself."""
        name = schema.get("$id", "#")
        own = name != self._root.get("$id") and not str(name).startswith("#")
        if own and '"$ref"' in json.dumps(schema, default=str):
            raise GrammarError(
                "json_schema keyword '$id' in a part that holds references is not supported, as "
                "they would mean places in that part; drop it"
            )

    def resolve(self, name: str) -> Any:
        """Return the schema that a local reference names."""
        if not isinstance(name, str) or not name.startswith("#"):
            raise GrammarError(f"json_schema keyword '$ref': {name!r} is not local; inline it")
        target = self._root
        for part in name[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, Mapping) and key in target:
                target = target[key]
            else:
                raise GrammarError(f"json_schema keyword '$ref': there is no {name!r}; define it")
        return target

    def inline(self, schema: Any, path: tuple[str, ...] = ()) -> Any:
        """Return a schema whose outermost reference is resolved."""
        self.count_parts()
        while isinstance(schema, Mapping) and "$ref" in schema:
            name = schema["$ref"]
            if name in path:
                raise GrammarError(f"json_schema keyword '$ref': {name!r} is recursive; unroll it")
            path = (*path, name)
            rest = {k: v for k, v in schema.items() if k != "$ref"}
            target = self.resolve(name)
            schema = merge(self.inline(target, path), rest) if rest else target
        return schema
