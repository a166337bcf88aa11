"""Framing under any split, and at its limits."""

import struct
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.wire.frames import (
    FRAME_MAX_BYTES,
    REPLY_MAX_BYTES,
    FrameBuffer,
    FramingError,
    encode_frame,
)

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


def drain(buffer: FrameBuffer) -> list[bytes]:
    payloads = []
    while (payload := buffer.next_frame()) is not None:
        payloads.append(payload)
    return payloads


def receive(stream: bytes, cuts: list[int]) -> list[bytes]:
    """What comes out when the stream arrives in pieces cut at ``cuts``."""
    buffer = FrameBuffer(limit=300)
    payloads = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for begin, end in pairwise(edges):
        buffer.feed(stream[begin:end])
        payloads += drain(buffer)
    assert not buffer.in_frame
    return payloads


@given(PAYLOADS, st.lists(st.integers(min_value=0), max_size=20))
def test_any_split_gives_the_same_payloads(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, payloads))
    assert receive(stream, cuts) == payloads
    assert receive(stream, []) == payloads
    assert receive(stream, list(range(len(stream)))) == payloads


@given(PAYLOADS, st.binary(min_size=1, max_size=3))
def test_bytes_behind_the_last_frame_wait_for_the_rest(payloads: list[bytes], behind: bytes) -> None:
    buffer = FrameBuffer()
    buffer.feed(b"".join(map(encode_frame, payloads)) + behind)
    assert drain(buffer) == payloads
    assert buffer.in_frame


@given(st.binary(max_size=2000), st.lists(st.integers(min_value=0), max_size=8))
def test_any_bytes_give_frames_or_one_typed_error_that_stays(data: bytes, cuts: list[int]) -> None:
    def outcome(edges: list[int]) -> tuple[list[bytes], str, bool]:
        buffer = FrameBuffer(limit=64)
        payloads: list[bytes] = []
        for begin, end in pairwise(edges):
            buffer.feed(data[begin:end])
            try:
                while (payload := buffer.next_frame()) is not None:
                    payloads.append(payload)
            except FramingError as error:
                complaint = str(error)
                break
        else:
            return payloads, "", buffer.in_frame
        with pytest.raises(FramingError) as again:
            buffer.next_frame()
        assert str(again.value) == complaint
        return payloads, complaint, buffer.in_frame

    whole = outcome([0, len(data)])
    assert outcome(sorted([0, len(data), *(cut % (len(data) + 1) for cut in cuts)])) == whole


@pytest.mark.parametrize("limit", [1, 300, FRAME_MAX_BYTES, REPLY_MAX_BYTES])
def test_the_limit_itself_passes_and_one_more_does_not(limit: int) -> None:
    for size in {max(limit - 1, 1), limit}:
        buffer = FrameBuffer(limit)
        buffer.feed(encode_frame(bytes(size), limit))
        assert buffer.next_frame() == bytes(size)
    with pytest.raises(FramingError, match=f"length {limit + 1} is over the limit of {limit} bytes"):
        encode_frame(bytes(limit + 1), limit)
    buffer = FrameBuffer(limit)
    buffer.feed(struct.pack(">I", limit + 1))
    with pytest.raises(FramingError, match=f"length {limit + 1} is over the limit of {limit} bytes"):
        buffer.next_frame()


def test_the_default_limits_are_those_of_the_protocol() -> None:
    assert FRAME_MAX_BYTES == 1024 * 1024
    assert REPLY_MAX_BYTES == 16 * 1024 * 1024


@pytest.mark.parametrize("header", [b"\0\0\0\0", b"\xff\xff\xff\xff", struct.pack(">I", FRAME_MAX_BYTES + 1)])
def test_a_bad_length_is_refused_on_its_four_bytes_and_nothing_is_stored_behind_it(header: bytes) -> None:
    buffer = FrameBuffer()
    buffer.feed(header[:3])
    assert buffer.next_frame() is None
    buffer.feed(header[3:] + b"payload")
    for _ in range(3):
        with pytest.raises(FramingError, match="frame: "):
            buffer.next_frame()
        buffer.feed(encode_frame(b"good"))
        assert not buffer.in_frame
    assert len(buffer._data) == 0


def test_frames_before_a_bad_length_are_handed_out() -> None:
    buffer = FrameBuffer()
    buffer.feed(encode_frame(b"one") + encode_frame(b"two") + b"\0\0\0\0")
    assert buffer.next_frame() == b"one"
    assert buffer.next_frame() == b"two"
    with pytest.raises(FramingError, match="zero-length frame"):
        buffer.next_frame()


def test_an_empty_payload_is_not_sent() -> None:
    with pytest.raises(FramingError, match="zero-length frame"):
        encode_frame(b"")


def test_the_length_is_four_bytes_big_endian() -> None:
    assert encode_frame(b"abc") == b"\0\0\0\x03abc"
    assert encode_frame(bytes(0x010203))[:4] == b"\0\x01\x02\x03"


def test_what_was_taken_is_not_kept() -> None:
    buffer = FrameBuffer()
    for _ in range(100):
        buffer.feed(encode_frame(bytes(1000)) + b"\0")
        assert buffer.next_frame() == bytes(1000)
        buffer.feed(b"\0\0\x01x")
        assert buffer.next_frame() == b"x"
    assert len(buffer._data) < 2000


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_can_be_fed(kind: type) -> None:
    buffer = FrameBuffer()
    buffer.feed(kind(encode_frame(b"x")))
    payload = buffer.next_frame()
    assert payload == b"x"
    assert type(payload) is bytes


def test_the_storage_of_a_large_frame_goes_with_it_and_what_follows_stays() -> None:
    small = encode_frame(b"x" * 100)
    buffer = FrameBuffer()
    buffer.feed(encode_frame(b"y" * FRAME_MAX_BYTES) + small)
    before = sys.getsizeof(buffer._data)
    assert buffer.next_frame() == b"y" * FRAME_MAX_BYTES
    assert sys.getsizeof(buffer._data) < before - FRAME_MAX_BYTES + 1000
    assert buffer.next_frame() == b"x" * 100
    assert not buffer.in_frame
    assert sys.getsizeof(buffer._data) < 100


@pytest.mark.parametrize("pieces", [1, 2])
def test_nothing_is_stored_once_every_frame_was_taken(pieces: int) -> None:
    frames = encode_frame(b"x" * 3000) * 2
    buffer = FrameBuffer()
    for at in range(0, len(frames), len(frames) // pieces):
        buffer.feed(frames[at : at + len(frames) // pieces])
    assert drain(buffer) == [b"x" * 3000] * 2
    assert sys.getsizeof(buffer._data) < 100


def test_how_long_a_frame_will_be_is_known_from_its_fourth_byte_on() -> None:
    frame = encode_frame(b"x" * 300)
    buffer = FrameBuffer()
    for at, byte in enumerate(frame[:-1]):
        assert buffer.frame_bytes == (300 if at >= 4 else 0)
        buffer.feed(bytes([byte]))
        assert buffer.next_frame() is None
    buffer.feed(frame[-1:] + frame[:2])
    assert buffer.next_frame() == b"x" * 300
    assert buffer.frame_bytes == 0
