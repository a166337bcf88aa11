"""Values that an OpenAPI 3.0 schema describes, as hypothesis draws them: no more of the language than GitHub's uses."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]

_TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2018-07-08T16:18:44-04:00", "2026-01-02T03:04:05.678Z"])
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_DEPTH_MAX = 2


class Schemas:
    """Draws from a document's schemas.

    ``hints`` gives strategies for properties by their path from the value drawn, such as ``head.sha`` or ``[].id``.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema that a reference leads to."""
        while "$ref" in schema:
            found: Any = self._document
            for key in schema["$ref"].removeprefix("#/").split("/"):
                found = found[key]
            schema = found
        return schema

    def values(
        self, schema: Mapping[str, Any], hints: Mapping[str, Strategy] | None = None, path: str = "", depth: int = 0
    ) -> Strategy:
        """Values of ``schema``."""
        if hints and path in hints:
            return hints[path]
        schema = self.resolved(schema)
        made = self._plain(schema, hints or {}, path, depth)
        return st.none() | made if schema.get("nullable") else made

    def _plain(  # noqa: PLR0911 -- a table: one return for each kind of schema
        self, schema: Mapping[str, Any], hints: Mapping[str, Strategy], path: str, depth: int
    ) -> Strategy:
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        for name in ("oneOf", "anyOf"):
            if name in schema:
                return st.one_of(*(self.values(each, hints, path, depth) for each in schema[name]))
        if "allOf" in schema:
            parts = [self.values(each, hints, path, depth) for each in schema["allOf"]]
            return parts[0] if len(parts) == 1 else st.tuples(*parts).map(_joined)
        match schema.get("type", "object" if "properties" in schema else "string"):
            case "object":
                return self._object(schema, hints, path, depth)
            case "array":
                inner = self.values(schema.get("items", {}), hints, f"{path}[]", depth + 1)
                return st.lists(inner, max_size=0 if depth > _DEPTH_MAX else 3)
            case "string":
                return self._string(schema)
            case "integer":
                return st.integers(-(2**40), 2**70)
            case "number":
                return st.floats(allow_nan=False, allow_infinity=False)
            case "boolean":
                return st.booleans()
            case other:
                raise AssertionError(f"no such type: {other}")

    def _object(self, schema: Mapping[str, Any], hints: Mapping[str, Strategy], path: str, depth: int) -> Strategy:
        known = schema.get("properties", {})
        required = set(schema.get("required", ()))
        if depth > _DEPTH_MAX:
            known = {name: each for name, each in known.items() if name in required}
        parts = {
            name: self.values(each, hints, f"{path}.{name}".lstrip("."), depth + 1) for name, each in known.items()
        }
        return st.fixed_dictionaries(
            {name: each for name, each in parts.items() if name in required},
            optional={name: each for name, each in parts.items() if name not in required},
        )

    def _string(self, schema: Mapping[str, Any]) -> Strategy:
        match schema.get("format"):
            case "date-time":
                return _TIMES
            case "uri":
                return st.sampled_from(["https://github.com/x/y/pull/1", "https://example.com", "urn:x:y"])
            case _:
                return _TEXT


def _joined(parts: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
