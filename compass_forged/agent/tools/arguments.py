"""A model's parameters, checked: a mapping to a Struct, or one line that says what is wrong and what is known. Pure."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec

from compass_forged.agent.render.invisible import is_blank
from compass_forged.agent.tools.parameters import Selector, SubmitReview
from compass_forged.agent.tools.schema import Schema, bounds

_Parameters = TypeVar("_Parameters", bound=Selector)

_NAME_MAX_CHARS: Final = 64
# msgspec names a missing field and the place only in its text; tests hold these forms.
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`")
_WORDS: Final = {"string": "text", "integer": "an integer", "boolean": "true or false", "array": "a list"}


class BadParameters(ValueError):
    """The model's parameters do not fit; its text is one line that names the parameter."""


def checked(struct: type[_Parameters], schema: Schema, given: object) -> _Parameters:
    """``given`` as a ``struct``, whose plain schema is ``schema``.

    An explicit null counts as absent, as the schema's strict form has it; 7.0 is an integer, as JSON Schema has it.

    Raises:
        BadParameters: an unknown or missing parameter, or one of a wrong type or out of its bounds.
    """
    if not isinstance(given, Mapping):
        raise BadParameters("expected an object with the tool's parameters")
    try:
        values = _tidied(given, schema, "")
    except RecursionError:
        raise BadParameters("the parameters are nested too deeply") from None
    try:
        parameters = msgspec.convert(values, struct)
    except msgspec.ValidationError as error:
        raise BadParameters(_explained(str(error), schema)) from error
    for problem in _problems(parameters):
        raise BadParameters(problem)
    return parameters


def _tidied(value: object, schema: Schema, place: str) -> Any:  # Any: JSON, checked by the caller
    """``value`` without nulls; its names and texts are known to be sound."""
    if isinstance(value, str):
        _check_text(value, schema, place)
        return value
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        items: Schema = schema.get("items", {})
        return [_tidied(each, items, f"{place}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        known: Schema = schema.get("properties", {})
        return {
            _known(name, known, place): _tidied(each, known[name], f"{place}.{name}" if place else name)
            for name, each in value.items()
            if each is not None or name not in known
        }
    return value


def _known(name: object, known: Schema, place: str) -> str:
    if isinstance(name, str) and name in known:
        return name
    shown = str(name)[:_NAME_MAX_CHARS]
    near = get_close_matches(shown, known, n=1)
    where = f"{place}: " if place else ""
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
    raise BadParameters(f"{where}unknown parameter {shown!a}; {hint}")


def _check_text(text: str, schema: Schema, place: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadParameters(
                f"{place}: holds a lone surrogate ({text[error.start]!a} at character {error.start}), "
                "which is no text; leave it out"
            ) from None
    if "pattern" in schema and is_blank(text):
        raise BadParameters(f"{place}: must not be blank")


def _explained(text: str, schema: Schema) -> str:
    found = _PLACE.search(text)
    place = found["path"] if found else ""
    if missing := _MISSING.match(text):
        name = f"{place}.{missing['field']}" if place else missing["field"]
        return f"{name}: required parameter is missing"
    part = schema
    for name in re.findall(r"\w+|\[", place):
        if name == "[":
            part = part["items"]
        elif not name.isdigit():
            part = part["properties"][name]
    said = bounds(part)
    what = _WORDS.get(part["type"], "an object")
    wanted = said if said.startswith(("one of", "an integer")) else f"{what}{', ' if said else ''}{said}"
    return f"{place}: expected {wanted}"


def _problems(parameters: Selector) -> Iterator[str]:
    """What no schema says: rules on several parameters together."""
    if parameters.forge_host is not msgspec.UNSET and parameters.forge_provider is msgspec.UNSET:
        yield "forge_host: needs forge_provider; name the provider, or leave the host out"
    if isinstance(parameters, SubmitReview):
        yield from _review_problems(parameters)


def _review_problems(review: SubmitReview) -> Iterator[str]:
    if review.verdict != "approve" and (review.body is msgspec.UNSET or is_blank(review.body)):
        yield f"body: must not be blank in a review whose verdict is {review.verdict}; only approve needs none"
    for index, comment in enumerate(review.comments or ()):
        if comment.start_line is msgspec.UNSET:
            if comment.start_side is not msgspec.UNSET:
                yield f"comments[{index}].start_side: needs start_line"
        elif comment.start_line > comment.line and comment.start_side in {msgspec.UNSET, comment.side or "RIGHT"}:
            yield f"comments[{index}].start_line: must not be after line, which is the last line"
