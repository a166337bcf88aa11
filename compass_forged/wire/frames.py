"""Framing: bytes to frames and back.

A frame is a 4-byte big-endian unsigned length, then that many bytes of payload. The rules:

* the limit is checked on the length, before a byte of payload is stored;
* a length of zero or over the limit cannot be skipped safely: the buffer raises, and stays broken for good;
* the buffer knows bytes only; what they mean is the codec's business.
"""

from struct import Struct as _Packer

HEADER_BYTES = 4
FRAME_MAX_BYTES = 1 << 20
"""The default limit on a request's payload: 1 MiB."""
REPLY_MAX_BYTES = 16 << 20
"""The limit on a reply's payload, which every client accepts: 16 MiB."""

_LENGTH = _Packer(">I")
_LARGE_BYTES = 64 << 10
"""The storage of a frame over this goes with the frame, whatever came behind it; else with the last one in it."""


class FramingError(ValueError):
    """The peer's bytes are no frames: a zero or over-long length. The connection cannot go on."""


def encode_frame(payload: bytes, limit: int = REPLY_MAX_BYTES) -> bytes:
    """One frame around ``payload``.

    Raises:
        FramingError: ours to mend: the payload is empty or over ``limit`` bytes.
    """
    size = len(payload)
    if not 0 < size <= limit:
        raise FramingError(_complaint(size, limit))
    return _LENGTH.pack(size) + payload


class FrameBuffer:
    """Collects received bytes and hands out whole payloads in order.

    Holds at most one incomplete frame besides what one ``feed`` brought: the caller takes frames until ``next_frame``
    returns None before it feeds again. A broken buffer holds nothing.
    """

    __slots__ = ("_complaint", "_data", "_limit", "_start")

    def __init__(self, limit: int = FRAME_MAX_BYTES) -> None:
        """``limit`` is the largest payload accepted, in bytes."""
        self._limit = limit
        self._data: bytes | bytearray = b""
        self._start = 0
        self._complaint = ""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes; a broken buffer drops them."""
        if self._complaint:
            return
        if self._start == len(self._data):  # as a rule: what arrives together is whole frames, and is kept as it came
            self._data = bytes(data)
        else:
            left = self._data
            if isinstance(left, bytes):
                left = bytearray(left[self._start :])
            else:
                del left[: self._start]
            left += data
            self._data = left
        self._start = 0

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and is not yet complete (checked after ``next_frame`` returned None)."""
        return len(self._data) > self._start

    @property
    def frame_bytes(self) -> int:
        """How long the payload of the frame that has begun will be; 0 while that is not known (checked likewise)."""
        if len(self._data) - self._start < HEADER_BYTES:
            return 0
        (size,) = _LENGTH.unpack_from(self._data, self._start)
        return int(size)

    def next_frame(self) -> bytes | None:
        """The next payload, or None if more bytes are needed.

        Raises:
            FramingError: the peer's fault; every later call raises it again.
        """
        if self._complaint:
            raise FramingError(self._complaint)
        available = len(self._data) - self._start
        if available < HEADER_BYTES:
            return None
        (size,) = _LENGTH.unpack_from(self._data, self._start)
        if not 0 < size <= self._limit:
            self._complaint = _complaint(size, self._limit)
            self._data = b""
            self._start = 0
            raise FramingError(self._complaint)
        if available < HEADER_BYTES + size:
            return None
        begin = self._start + HEADER_BYTES
        end = self._start = begin + size
        data = self._data
        if isinstance(data, bytes):
            payload = data[begin:end]
        else:
            with memoryview(data) as view:
                payload = bytes(view[begin:end])
        if end == len(data) or size > _LARGE_BYTES:  # not at the next feed, which may be hours away
            self._data = data[end:]
            self._start = 0
        return payload


def _complaint(size: int, limit: int) -> str:
    if size == 0:
        return "frame: zero-length frame; send a 4-byte length and at least one byte"
    return f"frame: length {size} is over the limit of {limit} bytes; send a smaller frame"
