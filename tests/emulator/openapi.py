"""Answers against GitHub's OpenAPI document: the whole one where it is at hand, else a reduced copy."""

import json
from collections.abc import Iterator
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft4Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT4

FULL = Path(__file__).resolve().parents[3] / "shared" / "contracts" / "github-openapi-subset.json"
EXAMPLES = FULL.parent / "github-examples"
REDUCED = Path(__file__).with_name("openapi_responses.json")

_formats = FormatChecker(formats=())


@_formats.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme and urlsplit(value).netloc)


@_formats.checks("date-time", raises=ValueError)
def _is_datetime(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@_formats.checks("date", raises=ValueError)
def _is_date(value: object) -> bool:
    return not isinstance(value, str) or date.fromisoformat(value).year > 2000


def to_json_schema(schema: Any) -> Any:
    """An OpenAPI 3.0 schema as JSON Schema (draft 4, on which OpenAPI 3.0 rests): ``nullable`` becomes a null type.

    Beside ``type``, null joins the types and the enum. Beside ``$ref`` or a combination without a type, the whole is
    one of two: what stands there, or null.
    """
    if isinstance(schema, list):
        return [to_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    translated = {
        name: to_json_schema(value) for name, value in schema.items() if name not in {"nullable", "example", "examples"}
    }
    if schema.get("nullable") is not True:
        return translated
    if not isinstance(schema.get("type"), str):
        return {"anyOf": [translated, {"type": "null"}]}
    translated["type"] = [schema["type"], "null"]
    if "enum" in translated:
        translated["enum"] = [*translated["enum"], None]
    return translated


def _translate_properties(schema: Any) -> Any:
    """As ``to_json_schema``, for the ``components`` level, whose names are not keywords."""
    return {name: to_json_schema(value) for name, value in schema.items()}


class Document:
    """An OpenAPI document that answers are checked against."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        self.paths: dict[str, Any] = raw["paths"]
        self.raw_schemas: dict[str, Any] = raw["components"]["schemas"]
        self._responses = raw["components"].get("responses", {})
        components = {"components": {"schemas": _translate_properties(self.raw_schemas)}}
        self._registry: Registry[Any] = Registry().with_resource("urn:forge", DRAFT4.create_resource(components))

    def schema_of(self, method: str, path: str, status: int) -> Any:
        """The schema of an answer. Errors that the document leaves out have the shape of its other errors."""
        response = self.paths[path][method.lower()]["responses"].get(str(status))
        if response is None:
            name = "validation-error" if status == 422 else "basic-error"
            return {"$ref": f"#/components/schemas/{name}"}
        if "$ref" in response:
            response = self._responses[response["$ref"].rpartition("/")[2]]
        return response["content"]["application/json"]["schema"]

    def errors(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """What is wrong with an answer; nothing for a valid one."""
        schema = _absolute(to_json_schema(self.schema_of(method, path, status)))
        validator = Draft4Validator(schema, registry=self._registry, format_checker=_formats)
        return [f"{list(error.absolute_path)}: {error.message[:300]}" for error in validator.iter_errors(body)]


def _absolute(schema: Any) -> Any:
    """The schema with its references led to the document's components."""
    if isinstance(schema, dict):
        return {name: f"urn:forge{value}" if name == "$ref" else _absolute(value) for name, value in schema.items()}
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema


@cache
def document(path: Path) -> Document:
    """The document at ``path``, read once."""
    return Document(path)


def documents() -> Iterator[Document]:
    """Every document at hand: the reduced one always, the whole one where it is there."""
    yield document(REDUCED)
    if FULL.exists():
        yield document(FULL)
