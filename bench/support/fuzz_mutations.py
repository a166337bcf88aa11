"""Mutations of one payload: each takes a valid document apart where its bytes mean something and breaks one thing.

A mutation returns what must come of it: the same value, a refusal, or either (it cannot know). Here are those of bytes
and lengths, and the table of all.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from bench.support import fuzz_values as values
from bench.support.fuzz_grammar import Document
from bench.support.fuzz_msgpack import header, int_at, wide_header, wide_int, widths_of
from bench.support.fuzz_values import Mutated, Mutation, of_kind, pick, replaced

# --- bytes ----------------------------------------------------------------------------------------------------------


def pristine(_rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Nothing: what is valid must be taken."""
    return Mutated(document.data, "same")


def bit_flips(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """One to eight bits anywhere."""
    data = bytearray(document.data)
    for _ in range(1 + int(rng.random() * 8)):
        data[int(rng.random() * len(data))] ^= 1 << int(rng.random() * 8)
    return Mutated(bytes(data), "either")


def byte_edits(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Bytes overwritten, inserted or taken out; the first bytes of headers most of all."""
    data = bytearray(document.data)
    for _ in range(1 + int(rng.random() * 3)):
        at = pick(rng, document.tokens).start if rng.random() < 0.6 else int(rng.random() * (len(data) + 1))
        new = rng.randbytes(1 + int(rng.random() * 3))
        data[at : at + int(rng.random() * 4)] = new
    return Mutated(bytes(data), "either")


def truncated(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """Cut off before the end: never a whole value."""
    return Mutated(document.data[: 1 + int(rng.random() * (len(document.data) - 1))], "refused")


def bytes_behind(rng: Random, document: Document, others: Sequence[Document]) -> Mutated:
    """A whole value, and something behind it."""
    more = pick(rng, others).data if rng.random() < 0.3 else rng.randbytes(1 + int(rng.random() * 9))
    return Mutated(document.data + more, "refused")


def garbage(rng: Random, _document: Document, _others: Sequence[Document]) -> Mutated:
    """No MessagePack to begin with."""
    if rng.random() < 0.3:
        return Mutated(pick(rng, _STRANGERS), "refused")
    return Mutated(rng.randbytes(1 + int(rng.random() * 60)), "either")


_STRANGERS: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b'{"frame": "call", "call_id": "c"}',
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\xc1",
    b"\x00",
    b"\x80",
    b"\x90",
    b"\xc0",
)


# --- lengths --------------------------------------------------------------------------------------------------------


def length_lies(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """A length that says something else than is there: off by one, huge, zero, in any width."""
    token = pick(rng, of_kind(document, "map", "array", "str", "bin", "ext"))
    odds = rng.random()
    lie = token.size + pick(rng, (-1, 1, 2)) if odds < 0.5 else pick(rng, _LENGTHS)
    lie = max(0, lie)
    if lie == token.size:
        lie += 1
    if odds < 0.25 and token.kind in {"map", "array", "str"}:
        head = header(token.kind, lie)
    else:
        widths = [width for width in widths_of(token.kind) if lie < 1 << (8 * width)] or [4]
        head = wide_header(token.kind, lie, pick(rng, widths))
    return Mutated(replaced(document.data, token.start, token.body, head), "either")


_LENGTHS: Final = (0, 1, 15, 16, 31, 32, 127, 255, 256, 65535, 65536, 2**20, 2**27, 2**31 - 1, 2**31, 2**32 - 1)


def wider_headers(rng: Random, document: Document, _others: Sequence[Document]) -> Mutated:
    """The same values under headers longer than they need: still the same message."""
    data = document.data
    for token in reversed(document.tokens):  # from the back, so that places in front stay true
        if rng.random() < 0.5:
            continue
        if token.kind == "int":
            data = replaced(data, token.start, token.end, pick(rng, wide_int(int_at(document.data, token))))
        elif token.kind in {"str", "array", "map"}:
            widths = [width for width in widths_of(token.kind) if token.size < 1 << (8 * width)]
            data = replaced(data, token.start, token.body, wide_header(token.kind, token.size, pick(rng, widths)))
    return Mutated(data, "same")


def splices(rng: Random, document: Document, others: Sequence[Document]) -> Mutated:
    """Parts of two messages: one's head and the other's tail, or one value in the place of another."""
    other = pick(rng, others)
    mine, theirs = pick(rng, document.tokens), pick(rng, other.tokens)
    if rng.random() < 0.5:
        return Mutated(document.data[: mine.start] + other.data[theirs.start :], "either")
    part = other.data[theirs.start : theirs.end]
    return Mutated(replaced(document.data, mine.start, mine.end, part), "either")


MUTATIONS: Final[dict[str, tuple[Mutation, float]]] = {
    "pristine": (pristine, 2.5),
    "bit_flips": (bit_flips, 2.0),
    "byte_edits": (byte_edits, 2.0),
    "truncated": (truncated, 1.0),
    "bytes_behind": (bytes_behind, 0.5),
    "garbage": (garbage, 0.5),
    "length_lies": (length_lies, 2.5),
    "wider_headers": (wider_headers, 1.0),
    "type_swaps": (values.type_swaps, 2.0),
    "huge_ints": (values.huge_ints, 1.0),
    "extensions": (values.extensions, 1.5),
    "invalid_text": (values.invalid_text, 1.5),
    "tags": (values.tags, 1.0),
    "deep_nesting": (values.deep_nesting, 0.3),
    "big_values": (values.big_values, 0.05),
    "duplicate_keys": (values.duplicate_keys, 1.0),
    "unknown_fields": (values.unknown_fields, 1.0),
    "missing_fields": (values.missing_fields, 0.5),
    "splices": (splices, 1.5),
}
"""Each mutation by name, and its weight: the dear ones are rare."""
