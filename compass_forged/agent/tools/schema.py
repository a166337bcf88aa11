"""JSON Schemas of the tools' parameters, derived from their Structs. Pure.

``plain`` is JSON Schema 2020-12: no ``$ref``, no ``anyOf``, a parameter that may be left out is not required.
``strict`` is the form that model APIs ask for where they promise calls of that shape (OpenAI's and Anthropic's strict
tools): everything is required, what may be left out may be null, and there are only keywords that both support. The
bounds that it cannot hold still stand in the descriptions and are still checked.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from compass_forged.agent.tools.parameters import Selector
from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX

Schema: TypeAlias = dict[str, Any]  # JSON

_REF_PREFIX: Final = "#/$defs/"
_LAST: Final = Selector.__struct_fields__
_NOT_STRICT: Final = frozenset({"maxLength", "maximum", "maxItems", "minimum"})


def plain(struct: type[msgspec.Struct]) -> Schema:
    """The schema of an object with ``struct``'s fields; a fresh one each time."""
    (top,), components = msgspec.json.schema_components([struct], ref_template=_REF_PREFIX + "{name}")
    return _inlined(top, components)


def strict(schema: Schema) -> Schema:
    """The strict form of a plain schema; a fresh one each time."""
    made = {key: value for key, value in schema.items() if key not in _NOT_STRICT}
    if "items" in made:
        made["items"] = strict(made["items"])
    if made.get("type") == "object":
        needed = schema["required"]
        made["properties"] = {
            name: strict(value) if name in needed else _nullable(strict(value))
            for name, value in schema["properties"].items()
        }
        made["required"] = list(made["properties"])
    return made


def bounds(schema: Schema) -> str:
    """What a value of the schema has to be besides its type, in words; "" where there is nothing to say."""
    return "; ".join(_bounds(schema))


def _bounds(schema: Schema) -> Iterable[str]:
    if "enum" in schema:
        yield "one of " + ", ".join(schema["enum"])
    if "pattern" in schema:
        yield "not blank"
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"
    if "maxItems" in schema:
        yield f"at most {schema['maxItems']} of them"
    if "minimum" in schema:
        most = schema["maximum"]
        yield f"an integer from {schema['minimum']} to {'2^63-1' if most == ARTIFACT_NUMBER_MAX else most}"


def _inlined(schema: Schema, components: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        found = components[schema["$ref"].removeprefix(_REF_PREFIX)]
        return _inlined(found, components) | rest
    made = {key: value for key, value in schema.items() if key != "title"}
    if "enum" in made:
        made["type"] = "string"
    if made["type"] == "object":
        made.pop("description", None)  # the Struct's docstring, which is for readers of the code
        parts: dict[str, Schema] = made["properties"]
        order = sorted(parts, key=lambda name: _LAST.index(name) if name in _LAST else -1)
        made["properties"] = {name: _inlined(parts[name], components) for name in order}
    if "items" in made:
        made["items"] = _inlined(made["items"], components)
    if (said := bounds(made)) and "description" in made:
        made["description"] += f" {said[0].upper()}{said[1:]}."
    return made


def _nullable(schema: Schema) -> Schema:
    made = schema | {"type": [schema["type"], "null"], "description": schema["description"] + " null leaves it out."}
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    return made
