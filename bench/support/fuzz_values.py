"""Mutations of values and fields: what stands where something else is meant to stand."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from bench.support.fuzz_grammar import FIELD_NAMES, TAGS, Document
from bench.support.fuzz_msgpack import Token, header, text, wide_header

Verdict: TypeAlias = Literal["same", "refused", "either"]
_T = TypeVar("_T")

BIG_BYTES: Final = 1 << 20


class Mutated(NamedTuple):
    """A payload, and what a decoder must make of it."""

    data: bytes
    verdict: Verdict


Mutation: TypeAlias = Callable[[Random, Document, Sequence[Document]], Mutated]


def pick(rng: Random, items: Sequence[_T]) -> _T:
    """As ``rng.choice``, in a third of the time."""
    return items[int(rng.random() * len(items))]


def replaced(data: bytes, start: int, end: int, new: bytes) -> bytes:
    """``data`` with ``new`` in the place of a part."""
    return data[:start] + new + data[end:]


def of_kind(document: Document, *kinds: str) -> list[Token]:
    """The document's tokens of some kinds."""
    return [token for token in document.tokens if token.kind in kinds]


# --- values ---------------------------------------------------------------------------------------------------------


def _value_token(rng: Random, document: Document) -> Token:
    return pick(rng, [token for token in document.tokens if token.role != "key"])


def type_swaps(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """A value of another type."""
    token = _value_token(rng, document)
    return Mutated(replaced(document.data, token.start, token.end, pick(rng, _ATOMS)), "either")


_ATOMS: Final = (
    *(b"\xc0", b"\xc2", b"\xc3", b"\x00", b"\x7f", b"\xff", b"\xe0", b"\x80", b"\x90", b"\xa0", b"\xc4\x00"),
    *(b"\xca\x7f\xc0\x00\x00", b"\xcb\x7f\xf0" + bytes(6), b"\xcb\x3f\xf0" + bytes(6), b"\xcb\x7f\xf8" + bytes(6)),
    *(b"\xa11", b"\xa4null", b"\xa4true", b"\xc4\x01a", b"\x91\xc0", b"\x81\xa1a\xc0", b"\x81\xc0\xc0", b"\xc1"),
)


def huge_ints(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Ints at and beyond every limit."""
    numbers = [token for token in document.tokens if token.kind == "int" and token.role != "key"]
    token = pick(rng, numbers) if numbers and rng.random() < 0.9 else _value_token(rng, document)
    return Mutated(replaced(document.data, token.start, token.end, pick(rng, _INTS)), "either")


_INTS: Final = (
    *(b"\xcf" + value.to_bytes(8, "big") for value in (0, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)),
    *(
        b"\xd3" + value.to_bytes(8, "big", signed=True)
        for value in (-(2**63), -(2**63) + 1, -(2**31), -1, 0, 2**63 - 1)
    ),
    *(b"\xce\xff\xff\xff\xff", b"\xd2\x80\x00\x00\x00", b"\xd0\x80", b"\xe0", b"\xff"),
)


def extensions(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """An extension or a timestamp, its seconds and nanoseconds out of range as well."""
    token = _value_token(rng, document) if rng.random() < 0.9 else pick(rng, document.tokens)
    odds = rng.random()
    if odds < 0.3:
        size = pick(rng, (1, 2, 4, 8, 16))
        new = bytes((0xD4 + size.bit_length() - 1, pick(rng, (0, 1, 5, 127, 128, 255)))) + rng.randbytes(size)
    elif odds < 0.6:
        new = pick(rng, _TIMES)
    else:
        size = pick(rng, (0, 1, 3, 12, 40))
        new = wide_header("ext", size, pick(rng, (1, 2, 4))) + bytes((pick(rng, (0, 128, 255)),)) + rng.randbytes(size)
    return Mutated(replaced(document.data, token.start, token.end, new), "either")


_TIMES: Final = (
    b"\xd6\xff" + b"\xff" * 4,
    b"\xd6\xff" + bytes(4),
    b"\xd7\xff" + b"\xff" * 8,
    b"\xd7\xff" + bytes(8),
    b"\xd7\xff" + (10**9 << 34).to_bytes(8, "big"),
    b"\xc7\x0c\xff" + bytes(12),
    b"\xc7\x0c\xff" + b"\xff" * 12,
    b"\xc7\x0c\xff" + bytes(4) + (2**63 - 1).to_bytes(8, "big"),
    b"\xc7\x0c\xff" + bytes(4) + (2**63).to_bytes(8, "big"),
    b"\xc7\x0c\xff" + (10**9).to_bytes(4, "big") + bytes(8),
    b"\xc7\x0b\xff" + bytes(11),
)


def invalid_text(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """A str that is no UTF-8: overlong forms, surrogates, beyond the last code point, cut short. Keys too."""
    token = pick(rng, of_kind(document, "str"))
    bad = pick(rng, _NO_UTF8)
    body = document.data[token.body : token.end]
    at = pick(rng, (0, len(body), int(rng.random() * (len(body) + 1))))
    new = body[:at] + bad + body[at:] if rng.random() < 0.5 else body[:at] + bad
    # A reader of replies skips keys that it does not know unread; ``bad`` may also have completed what ``body`` began.
    refused = not _is_text(new) and (token.role != "key" or document.kind == "call")
    data = replaced(document.data, token.start, token.end, header("str", len(new)) + new)
    return Mutated(data, "refused" if refused else "either")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_NO_UTF8: Final = (
    *(b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"),
    *(
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x91",
    ),
)


def tags(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Another word as a tag: misspelt, in capitals, empty, of the other direction, of another type."""
    names = (b"frame", b"arm", b"op", b"reply")
    found = [
        value
        for token in of_kind(document, "map")
        for key, value in token.pairs()
        if document.data[key.body : key.end] in names
    ]
    token = pick(rng, found)
    body = document.data[token.body : token.end]
    odds = rng.random()
    if odds < 0.5:
        new = text(pick(rng, TAGS))
    elif odds < 0.8:
        forms = (body.upper(), body[:-1], body + b"s", body + b"\0", b" " + body, b"", body * 40, b"\xc3\xa9" * 500)
        form = pick(rng, forms)
        new = header("str", len(form)) + form
    else:
        new = pick(rng, _ATOMS)
    return Mutated(replaced(document.data, token.start, token.end, new), "either")


def deep_nesting(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Arrays in arrays, maps in maps, closed or cut off, around the depth at which an interpreter gives up."""
    token = _value_token(rng, document) if rng.random() < 0.9 else document.tokens[0]
    depth = pick(rng, (3, 30, 300)) if rng.random() < 0.7 else pick(rng, (900, 990, 1000, 1100, 3000, 20_000))
    opener = pick(rng, (b"\x91", b"\x81\xa1k", b"\x81\xa5frame", b"\x92\xc0", b"\xdc\x00\x01", b"\x81\x91"))
    closed = b"\xc0" if rng.random() < 0.8 else b""
    return Mutated(replaced(document.data, token.start, token.end, opener * depth + closed), "either")


def big_values(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """A value far over its limit: a long str, a long list, a wide map."""
    token = _value_token(rng, document)
    most = BIG_BYTES - len(document.data) - 16
    size = pick(rng, (129, 257, 513, 4097, 65_536)) if rng.random() < 0.95 else most
    odds = rng.random()
    if odds < 0.5:
        new = header("str", size) + pick(rng, (b"x", b"\x00", b"`")) * size
    elif odds < 0.75:
        new = header("array", size) + pick(rng, (b"\xc0", b"\xa0", b"\x01", b"\x80")) * size
    else:
        new = header("map", size // 2) + b"\xa0\xc0" * (size // 2)
    return Mutated(replaced(document.data, token.start, token.end, new), "either")


# --- fields ---------------------------------------------------------------------------------------------------------


def _with_pairs(data: bytes, token: Token, more: int, at: int, cut: int, new: bytes) -> bytes:
    """``new`` in place of the bytes from ``at`` to ``cut``, inside the map ``token``, whose count grows by ``more``."""
    return data[: token.start] + header("map", token.size + more) + data[token.body : at] + new + data[cut:]


def duplicate_keys(rng: Random, document: Document, others: Sequence[Document]) -> Mutated:
    """A field twice, the second time with the same or another value, at either end."""
    token = pick(rng, [token for token in of_kind(document, "map") if token.size])
    key, value = pick(rng, token.pairs())
    new = document.data[key.start : value.end]
    if rng.random() < 0.6:
        new = document.data[key.start : key.end] + _any_value(rng, others)
    at = token.end if rng.random() < 0.5 else token.body
    return Mutated(_with_pairs(document.data, token, 1, at, at, new), "either")


def unknown_fields(rng: Random, document: Document, others: Sequence[Document]) -> Mutated:
    """A field that no schema has, at any level: near misses, hostile and endless names, keys that are no text."""
    token = pick(rng, of_kind(document, "map"))
    key = _key(rng)
    places = [token.body, *(value.end for _, value in token.pairs())]
    at = pick(rng, places)
    data = _with_pairs(document.data, token, 1, at, at, key + _any_value(rng, others))
    return Mutated(data, "refused" if document.kind == "call" else "either")


def _key(rng: Random) -> bytes:
    odds = rng.random()
    if odds < 0.4:
        name = pick(rng, FIELD_NAMES)
        cut = int(rng.random() * len(name))
        return text(name[:cut] + pick(rng, ("~", "_x", "É", "\n")) + name[cut + 1 :])
    if odds < 0.8:
        return text(pick(rng, _NAMES))
    if odds < 0.81:
        return text(pick(rng, ("x", "` - at `$", "é")) * pick(rng, (300, 60_000)))
    return pick(rng, _NO_TEXT_KEYS)


_NAMES: Final = (
    *(
        "",
        " ",
        "dry_run",
        "Frame",
        "frame ",
        "frame\x00",
        "__class__",
        "\x1b[2J",
        "line\nline",
        "`",
        "``",
        "` - at `$.x`",
    ),
    *(
        " - at `$.call.repo`",
        "`key` in `$",
        "Object missing required field `x`",
        "\u202egnorw",
        "\u2028",
        "ключ",
        "👩‍💻",
    ),
)
_NO_TEXT_KEYS: Final = (
    b"\xc0",
    b"\x01",
    b"\xc3",
    b"\x90",
    b"\x80",
    b"\xcb" + bytes(8),
    b"\xc4\x05frame",
    b"\xd4\x01\x00",
)


def _any_value(rng: Random, others: Sequence[Document]) -> bytes:
    if rng.random() < 0.6:
        return pick(rng, _ATOMS[:-1])
    other = pick(rng, others)
    token = pick(rng, other.tokens)
    return other.data[token.start : token.end]


def missing_fields(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """A field taken out."""
    token = pick(rng, [token for token in of_kind(document, "map") if token.size])
    key, value = pick(rng, token.pairs())
    return Mutated(_with_pairs(document.data, token, -1, key.start, value.end, b""), "either")
