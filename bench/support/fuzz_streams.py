"""Inputs: what one end of a connection receives, in the pieces in which it receives it, and what must come of it.

Everything follows from a seed and an input's number: inputs come in batches of two thousand, each with a source of
randomness of its own, so that any one of them can be made again at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, NamedTuple, TypeAlias

from bench.support.fuzz_grammar import Document, DocumentKind, Grammar
from bench.support.fuzz_msgpack import NotMessagePack, tokens_of
from bench.support.fuzz_mutations import MUTATIONS
from bench.support.fuzz_values import Mutated, pick
from compass_forged.wire.frames import FRAME_MAX_BYTES

BATCH: Final = 2000
_DOCUMENTS: Final[dict[DocumentKind, int]] = {"call": 36, "reply": 14, "control_request": 8, "control_reply": 6}
_NAMES: Final = tuple(MUTATIONS)
_WEIGHTS: Final = tuple(weight for _, weight in MUTATIONS.values())


class Frame(NamedTuple):
    """A payload as it was made.

    Attributes:
        kind: the decoder that it is meant for.
        value: what decoding must give; None where that is not known.
        refused: whether decoding must fail.
        mutations: what was done to it.
    """

    payload: bytes
    kind: DocumentKind
    value: object
    refused: bool
    mutations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FuzzInput:
    """What arrives on one connection.

    Attributes:
        number: its place under its seed.
        limit: the largest payload that its receiver takes.
        chunks: the bytes, in the pieces in which they come.
        frames: the frames that were meant.
        whole: whether ``chunks`` hold exactly those frames; else the framing itself was tampered with.
        mutations: what was done, to payloads and to the framing.
    """

    number: int
    limit: int
    chunks: tuple[bytes, ...]
    frames: tuple[Frame, ...]
    whole: bool
    mutations: tuple[str, ...]

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.chunks)


Ending: TypeAlias = Literal["clean", "inside", "broken"]


class Split(NamedTuple):
    """The frames of a byte string by the rules; ``ending`` says what is behind them: nothing, a begun frame, none."""

    payloads: list[bytes]
    ending: Ending


def split(data: bytes, limit: int) -> Split:
    """What any receiver must make of ``data``, however it is cut: a second implementation of the framing."""
    payloads: list[bytes] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if len(data) - at < 4:
            return Split(payloads, "inside")
        if size == 0 or size > limit:
            return Split(payloads, "broken")
        if len(data) - at - 4 < size:
            return Split(payloads, "inside")
        payloads.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return Split(payloads, "clean")


def batch(seed: int, index: int, *, limits: bool = True) -> Iterator[FuzzInput]:
    """The inputs of a batch, numbered from ``index * BATCH``; without ``limits`` all have the default limit."""
    rng = Random(f"{seed}:{index}")  # noqa: S311 -- reproducible on purpose
    grammar = Grammar(rng)
    documents = [grammar.document(kind) for kind, count in _DOCUMENTS.items() for _ in range(count)]
    names = rng.choices(_NAMES, _WEIGHTS, k=2 * BATCH)
    for offset in range(BATCH):
        yield _input(rng, documents, names, index * BATCH + offset, limits=limits)


def inputs(seed: int, start: int = 0, *, limits: bool = True) -> Iterator[FuzzInput]:
    """The inputs of a seed from number ``start`` on, without end."""
    index, skip = divmod(start, BATCH)
    while True:
        for place, made in enumerate(batch(seed, index, limits=limits)):
            if place >= skip:
                yield made
        index, skip = index + 1, 0


def _input(rng: Random, documents: Sequence[Document], names: list[str], number: int, *, limits: bool) -> FuzzInput:
    count = 1 if rng.random() < 0.8 else 2 + int(rng.random() * 3)
    frames = tuple(_frame(rng, documents, names) for _ in range(count))
    limit = FRAME_MAX_BYTES
    if limits and rng.random() < 0.1:
        limit = max(1, len(pick(rng, frames).payload) + pick(rng, (-1, 0, 1)))
    data = b"".join(len(frame.payload).to_bytes(4, "big") + frame.payload for frame in frames)
    whole = all(0 < len(frame.payload) <= limit for frame in frames)
    done = tuple(name for frame in frames for name in frame.mutations)
    if rng.random() < 0.15:
        name = pick(rng, FRAMING)
        data, whole, done = _tampered(rng, data, name, limit), False, (*done, name)
    return FuzzInput(number, limit, _cut(rng, data), frames, whole, done)


def _frame(rng: Random, documents: Sequence[Document], names: list[str]) -> Frame:
    document = pick(rng, documents)
    name = pick(rng, names)
    made = MUTATIONS[name][0](rng, document, documents)
    done: tuple[str, ...] = (name,)
    while rng.random() < 0.15 and len(done) < 4 and len(made.data) < 10_000:
        name = pick(rng, names)
        made, done = _again(rng, made, document.kind, documents, name), (*done, name)
    same, refused = made.verdict == "same", made.verdict == "refused"
    return Frame(made.data, document.kind, document.value if same else None, refused, done)


def _again(rng: Random, made: Mutated, kind: DocumentKind, documents: Sequence[Document], name: str) -> Mutated:
    """Mutate what was mutated, if it can still be read; two together may heal each other, so nothing is foretold."""
    try:
        document = Document(kind, made.data, None, tokens_of(made.data))
        again = MUTATIONS[name][0](rng, document, documents)
    except (NotMessagePack, IndexError):  # IndexError: nothing is left of what this mutation looks for
        return Mutated(made.data, made.verdict)
    return Mutated(again.data, made.verdict if again.verdict == "same" else "either")


# --- framing --------------------------------------------------------------------------------------------------------

FRAMING: Final = ("zero_length", "over_limit", "frame_length_lies", "cut_stream", "loose_bytes", "swallowed_bytes")


def _tampered(rng: Random, data: bytes, name: str, limit: int) -> bytes:
    size = int.from_bytes(data[:4], "big")
    match name:
        case "zero_length":
            return data + bytes(4) + data if rng.random() < 0.5 else bytes(4) + data
        case "over_limit":
            length = pick(rng, (limit + 1, 2**31, 2**32 - 1, 0x47455420))
            return data + length.to_bytes(4, "big") + rng.randbytes(int(rng.random() * 40))
        case "frame_length_lies":
            lie = pick(rng, (size - 1, size + 1, size // 2, size * 2, limit, 1, 255, 65535))
            return lie.to_bytes(4, "big") + data[4:]
        case "cut_stream":
            return data[: int(rng.random() * len(data))]
        case "loose_bytes":
            return data + rng.randbytes(1 + int(rng.random() * 8))
        case _:
            at = int(rng.random() * len(data))
            return data[:at] + data[at + 1 + int(rng.random() * 6) :]


def _cut(rng: Random, data: bytes) -> tuple[bytes, ...]:
    """Whole, at random places, or byte by byte."""
    odds = rng.random()
    if odds < 0.6 or len(data) < 2:
        return (data,)
    if odds < 0.62 and len(data) < 400:
        return tuple(data[at : at + 1] for at in range(len(data)))
    near = len(data) if odds < 0.8 else min(len(data), 8)  # within the first header, most of the rest
    cuts = sorted({1 + int(rng.random() * (near - 1)) for _ in range(1 + int(rng.random() * 4))})
    return tuple(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))
