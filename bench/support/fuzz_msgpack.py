"""A small reader of MessagePack that keeps places instead of values, so that a mutation knows where it cuts.

Written from the format's specification (https://github.com/msgpack/msgpack/blob/master/spec.md) and independent of the
library that the product decodes with.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["map", "array", "str", "bin", "ext", "int", "float", "nil", "bool"]
Role: TypeAlias = Literal["root", "key", "value", "item"]

_DEPTH_MAX: Final = 64


class NotMessagePack(ValueError):
    """The bytes are not exactly one value, or nest too deeply to be worth a walk."""


@dataclass(slots=True)
class Token:
    """One value inside encoded bytes.

    Attributes:
        start: where its header begins.
        body: where its header ends.
        end: behind its last byte.
        size: bytes of a str, bin or ext; items of an array; pairs of a map; else 0.
        depth: 0 for the root.
        parts: of a map the tokens of key, value, key, value; of an array its items.
    """

    kind: Kind
    role: Role
    start: int
    body: int
    end: int
    size: int
    depth: int
    parts: list["Token"] = field(default_factory=list)

    def pairs(self) -> list[tuple["Token", "Token"]]:
        """A map's keys with their values."""
        return list(zip(self.parts[::2], self.parts[1::2], strict=True))


def tokens_of(data: bytes) -> list[Token]:
    """Every value of ``data``, the root first, in the order of their starts.

    Raises:
        NotMessagePack: see there.
    """
    found: list[Token] = []
    try:
        end = _walk(data, 0, 0, "root", found)
    except (IndexError, struct.error) as error:
        raise NotMessagePack("cut short") from error
    if end != len(data):
        raise NotMessagePack("bytes behind the value")
    return found


# first byte: kind, bytes of the length field behind it, bytes added to the length (an ext's type byte)
_SIZED: Final[dict[int, tuple[Kind, int]]] = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("array", 2),
    0xDD: ("array", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
# first byte: kind, bytes behind it in all
_FIXED: Final[dict[int, tuple[Kind, int]]] = {
    0xC0: ("nil", 0),
    0xC2: ("bool", 0),
    0xC3: ("bool", 0),
    0xCA: ("float", 4),
    0xCB: ("float", 8),
    **{0xCC + power: ("int", 1 << power) for power in range(4)},
    **{0xD0 + power: ("int", 1 << power) for power in range(4)},
    **{0xD4 + power: ("ext", 1 + (1 << power)) for power in range(5)},
}


def _head(data: bytes, at: int) -> tuple[Kind, int, int]:
    """Kind, where the header ends, and the size, of the value at ``at``."""
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return "int", at + 1, 0
    if first < 0x90:
        return "map", at + 1, first & 0x0F
    if first < 0xA0:
        return "array", at + 1, first & 0x0F
    if first < 0xC0:
        return "str", at + 1, first & 0x1F
    if first in _FIXED:
        kind, behind = _FIXED[first]
        return kind, at + 1, behind
    if first not in _SIZED:
        raise NotMessagePack(f"reserved byte at {at}")
    kind, width = _SIZED[first]
    if at + 1 + width > len(data):
        raise NotMessagePack("cut short")
    return kind, at + 1 + width, int.from_bytes(data[at + 1 : at + 1 + width], "big")


def _walk(data: bytes, at: int, depth: int, role: Role, found: list[Token]) -> int:
    """Append the value at ``at`` and what is in it; where it ends."""
    if depth > _DEPTH_MAX:
        raise NotMessagePack("nested too deeply")
    kind, body, size = _head(data, at)
    token = Token(kind, role, at, body, body, size, depth)
    found.append(token)
    end = body
    if kind in {"map", "array"}:
        roles: tuple[Role, Role] = ("key", "value") if kind == "map" else ("item", "item")
        count = size * 2 if kind == "map" else size
        for index in range(count):
            place = len(found)
            end = _walk(data, end, depth + 1, roles[index % 2], found)
            token.parts.append(found[place])
    elif kind == "ext" and data[at] >= 0xC7 and data[at] <= 0xC9:
        end = body + 1 + size  # the type byte
    elif kind in {"str", "bin", "ext", "int", "float"}:
        end = body + size
    if end > len(data):
        raise NotMessagePack("cut short")
    token.end = end
    return end


# --- headers ---------------------------------------------------------------------------------------------------------

_MARKS: Final[dict[Kind, dict[int, int]]] = {
    "str": {1: 0xD9, 2: 0xDA, 4: 0xDB},
    "bin": {1: 0xC4, 2: 0xC5, 4: 0xC6},
    "ext": {1: 0xC7, 2: 0xC8, 4: 0xC9},
    "array": {2: 0xDC, 4: 0xDD},
    "map": {2: 0xDE, 4: 0xDF},
}
_SHORT: Final[dict[Kind, tuple[int, int]]] = {"str": (0xA0, 31), "array": (0x90, 15), "map": (0x80, 15)}


def widths_of(kind: Kind) -> list[int]:
    """The length fields that a kind can have, in bytes; [] where it has none."""
    return list(_MARKS.get(kind, {}))


def wide_header(kind: Kind, size: int, width: int) -> bytes:
    """A header with a length field of ``width`` bytes, whatever it says: ``size`` is cut to fit."""
    return bytes((_MARKS[kind][width],)) + (size & ((1 << (8 * width)) - 1)).to_bytes(width, "big")


def header(kind: Kind, size: int) -> bytes:
    """The shortest true header of a str, bin, array or map."""
    mark, most = _SHORT.get(kind, (0, -1))
    if size <= most:
        return bytes((mark | size,))
    width = next(width for width in _MARKS[kind] if size < 1 << (8 * width))
    return wide_header(kind, size, width)


def text(value: str) -> bytes:
    """A str, encoded."""
    data = value.encode()
    return header("str", len(data)) + data


def wide_int(value: int) -> list[bytes]:
    """Every encoding of an int that is not the shortest one and still means ``value``."""
    forms: list[tuple[int, str, int, int]] = [
        (0xCC, ">B", 0, 1 << 8),
        (0xCD, ">H", 0, 1 << 16),
        (0xCE, ">I", 0, 1 << 32),
        (0xCF, ">Q", 0, 1 << 64),
        (0xD0, ">b", -(1 << 7), 1 << 7),
        (0xD1, ">h", -(1 << 15), 1 << 15),
        (0xD2, ">i", -(1 << 31), 1 << 31),
        (0xD3, ">q", -(1 << 63), 1 << 63),
    ]
    return [bytes((mark,)) + struct.pack(form, value) for mark, form, low, high in forms if low <= value < high]


_INT_FORMS: Final[dict[int, str]] = dict(
    zip(range(0xCC, 0xD4), (">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True)
)


def int_at(data: bytes, token: Token) -> int:
    """The value of an int token."""
    first = data[token.start]
    if first in _INT_FORMS:
        unpack: Callable[..., tuple[int]] = struct.Struct(_INT_FORMS[first]).unpack_from
        return unpack(data, token.body)[0]
    return first if first < 0x80 else first - 0x100
