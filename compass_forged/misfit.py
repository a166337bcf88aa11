"""What msgspec says of a value that does not fit, in the words of who wrote the value. Pure.

msgspec tells the place and the kind in its text alone (msgspec 0.20, ``_core.c``); tests hold its forms.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

TOML_KINDS: Final[Mapping[str, str]] = {"object": "a table", "array": "a list"}
JSON_KINDS: Final[Mapping[str, str]] = {"object": "an object", "array": "a list"}

_KINDS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
}
_PLACE: Final = re.compile(r" - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_UNKNOWN_WORD: Final = re.compile(r"Invalid enum value (?P<word>.*)", re.DOTALL)
_QUOTED: Final = re.compile(r"`([^`]*)`")


def explain(error: msgspec.ValidationError, kinds: Mapping[str, str]) -> tuple[str, str]:
    """The place of the value, "" for the whole, and what is wrong with it.

    Args:
        error: from ``msgspec.convert``.
        kinds: what an object and an array are called where the value was written.
    """
    text = str(error)
    found = _PLACE.search(text)
    what, path = (text[: found.start()], found["path"]) if found else (text, "")
    if missing := _MISSING.fullmatch(what):
        return ".".join(filter(None, (path, missing["field"]))), "missing"
    if unknown := _UNKNOWN_WORD.fullmatch(what):
        return path, f"unknown value {unknown['word']}"
    named = _QUOTED.sub(lambda quoted: _named(quoted[1], {**_KINDS, **kinds}), what)
    return path, named[:1].lower() + named[1:]


def _named(kind: str, kinds: Mapping[str, str]) -> str:
    """``str | object | null``, say, as "a text or a table": what may be null is left out rather than written."""
    return " or ".join(kinds.get(one, one) for one in kind.split(" | ") if one != "null" or kind == "null")
