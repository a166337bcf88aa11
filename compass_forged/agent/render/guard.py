"""Shapes that a value must have to stand outside free text: constrain, don't escape. Pure.

What fails its shape is shown as ``(malformed)``. An escape can be got wrong, or be undone by whoever reads; a value
that holds nothing but the characters of its shape cannot end a line, a fence or a sentence.
"""

import re
from typing import Final

from compass_forged.agent.render.invisible import visible

MALFORMED: Final = "(malformed)"
MORE: Final = "…"
_LOOKED_AT: Final = 8

_ATTR = re.compile(r"[A-Za-z0-9_.:-]{1,100}", re.ASCII)
_LOGIN = re.compile(r"[A-Za-z0-9_.:-]{1,100}(?:\[bot\])?", re.ASCII)
_SLUG = re.compile(r"[A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100})?", re.ASCII)
# RFC 3986: unreserved, reserved and percent.
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,2000}", re.ASCII)
# What base64, base64url, page numbers and UUIDs hold.
_TOKEN = re.compile(r"[A-Za-z0-9_.:+/=~-]{1,2048}", re.ASCII)


def attr(value: str | int) -> str:
    """A word: ``[A-Za-z0-9_.:-]+``, at most 100 characters."""
    return _held(_ATTR, str(value))


def login(value: str) -> str:
    """The name of a forge's account: a word, perhaps with ``[bot]`` behind it."""
    return _held(_LOGIN, value)


def slug(value: str) -> str:
    """``owner/name``, or a team key."""
    return _held(_SLUG, value)


def url(value: str) -> str:
    """An http or https URL of at most 2,000 characters that a URL may hold."""
    return _held(_URL, value)


def token(value: str) -> str:
    """A cursor or an id: opaque, of at most 2,048 characters."""
    return _held(_TOKEN, value)


def flat(text: str, limit: int) -> str:
    """One line of any text, without invisible characters, at most ``limit`` characters long."""
    looked_at = text[: _LOOKED_AT * limit]  # of a far longer text: the time is bounded too
    line = " ".join(visible(looked_at)[0].split())
    if len(line) <= limit and len(looked_at) == len(text):
        return line
    return visible(line[: limit - 1])[0] + MORE  # a joiner whose neighbour was cut off joins nothing


def _held(shape: re.Pattern[str], value: str) -> str:
    return value if shape.fullmatch(value) else MALFORMED
