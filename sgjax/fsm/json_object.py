"""Objects of JSON Schema: which properties they have, in which order, and what their values are.

HOST. Imports its neighbours (json_*, parse, tree) and errors. A part of `json_schema`, which turns
the schemas of single properties into texts. Listed properties come in the schema's order; those
that are not listed, where there are any, behind them.
"""

import json
from collections.abc import Callable
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm import json_text as jt
from sgjax.fsm.json_keywords import count_of
from sgjax.fsm.json_merge import Schema, merge
from sgjax.fsm.json_refs import References
from sgjax.fsm.parse import parse_search
from sgjax.fsm.tree import ANYTHING, Both, Cat, Members, Node, Without, matches_text

Path = tuple[str, ...]
"""The references on the way to a schema."""


class Objects:
    """Return the texts of the objects that schemas describe.

    Args:
        value: returns the texts of the values that a property's schema allows.
        refs: the references of the whole schema.
        marks: punctuation.
        extra: whether objects get properties that are not listed wherever they are allowed.
    """

    def __init__(
        self,
        value: Callable[[Any, Path], Node],
        refs: References,
        marks: jt.Marks,
        extra: bool,
    ) -> None:
        self._value = value
        self._refs = refs
        self._marks = marks
        self._wants_extra = extra

    def texts(self, schema: Schema, path: Path) -> Node:
        """Return the texts of the objects that a schema allows.

        Args:
            schema: its keywords for other types are left alone.
            path: the references on the way here, to find recursion.

        Raises:
            GrammarError: its bound of the number of properties would not always be met.
        """
        least, most = count_of(schema, "minProperties"), count_of(schema, "maxProperties")
        members = self._members(schema, path)
        whole: Node = jt.bracket("{}", members, self._marks)
        empty = jt.literal({}, self._marks)
        needed = sum(needed for _, needed in members.parts)
        if most == 0:
            whole = Both(whole, empty)
        elif most is not None and (members.more is not None or len(members.parts) > most):
            raise GrammarError("json_schema keyword 'maxProperties' is not supported here")
        if least == 1 and not needed:
            whole = Without(whole, empty)
        elif least is not None and needed < least:
            raise GrammarError("json_schema keyword 'minProperties' is not supported here")
        return whole

    def _members(self, schema: Schema, path: Path) -> Members:
        """Return the members of the objects, of whatever number."""
        known: Schema = schema.get("properties", {})
        required = list(dict.fromkeys(schema.get("required", [])))
        patterns: Schema = schema.get("patternProperties", {})
        pairs: list[tuple[Node, bool]] = []
        for name, part in known.items():
            for pattern, also in patterns.items():
                if matches_text(parse_search(pattern), name):
                    part = merge(self._refs.inline(part, path), self._refs.inline(also, path))
            self._add_pair(pairs, schema, name, self._value(part, path))
        extra = self._extra(schema, path)
        for name in required:
            if name not in known:
                part = self._unlisted(name, schema, path)
                self._add_pair(pairs, schema, name, self._value(part, path))
        keys = [*known, *(n for n in required if n not in known)]
        more = self._more(extra, keys, schema)
        return Members(tuple(pairs), self._marks.comma, more)

    def _add_pair(
        self, pairs: list[tuple[Node, bool]], schema: Schema, name: str, value: Node
    ) -> None:
        """Add a property; what can have no value, or not this name, is there only if it must."""
        needed = name in schema.get("required", [])
        allowed = schema.get("propertyNames", True)
        if allowed is not True:
            fits = matches_text(self._name(allowed), json.dumps(name, ensure_ascii=False))
            value = value if fits else jt.NOTHING
        if needed or value != jt.NOTHING:
            pairs.append((jt.member(jt.text(name), value, self._marks), needed))

    def _name(self, schema: Any) -> Node:
        """Return the texts of the names that `propertyNames` allows."""
        return self._value(merge({"type": "string"}, self._refs.inline(schema)), ())

    def _unlisted(self, name: str, schema: Schema, path: Path) -> Any:
        """Return the schema of a required property that `properties` does not list."""
        found: Any = None
        for pattern, part in schema.get("patternProperties", {}).items():
            if matches_text(parse_search(pattern), name):
                part = self._refs.inline(part, path)
                found = part if found is None else merge(found, part)
        return found if found is not None else schema.get("additionalProperties", True)

    def _extra(self, schema: Schema, path: Path) -> list[tuple[Node, Node]]:
        """Return (names, texts of values) of properties that are not listed."""
        patterns: Schema = schema.get("patternProperties", {})
        out = []
        languages = [parse_search(pattern) for pattern in patterns]
        for i, (language, part) in enumerate(zip(languages, patterns.values(), strict=True)):
            for other in languages[:i] + languages[i + 1 :]:
                # A name of two patterns would have to fit both schemas: left out.
                language = Without(language, other)
            out.append((language, self._value(part, path)))
        rest = schema.get("additionalProperties")
        if rest is None and schema.get("properties") and not self._wants_extra:
            rest = False  # allowed, but nothing asks for more than what is listed
        if rest is not False:
            names: Node = ANYTHING
            for language in languages:
                names = Without(names, language)
            out.append((names, self._value(True if rest is None else rest, path)))
        return out

    def _more(self, extra: list[tuple[Node, Node]], keys: list[str], schema: Schema) -> Node | None:
        """Return one unlisted member, or None where there can be none."""
        ways = []
        allowed = schema.get("propertyNames")
        for names, value in extra:
            if value == jt.NOTHING:
                continue
            if keys:
                names = Without(names, jt.alt([jt.text(key) for key in keys]))
            spelt = jt.string(names)
            if allowed is not None:
                spelt = Both(spelt, self._name(allowed))
            ways.append(Cat((spelt, self._marks.colon, value)))
        return jt.alt(ways) if ways else None
