"""The least of Connect's unary protocol: one POST over HTTP/1.1, the message as its body, and the answer likewise.

The headers are those that Connect asks of a unary call (https://connectrpc.com/docs/protocol#unary-request). HTTP/1.1
has no multiplexing, so that many calls in flight are many connections, each kept alive.
"""

from typing import Final

from bench.support.messages import FrameTemplate

PATH: Final = "/bench.RoundTrip/Call"
CONTENT_TYPE: Final = b"application/proto"
_NUMBER: Final = 1_000_000_000


class HttpTemplate:
    """A frame template's payloads as HTTP requests, all of one size."""

    def __init__(self, frames: FrameTemplate) -> None:
        self._frames = frames
        self._head = (
            b"POST %s HTTP/1.1\r\nhost: bench\r\nconnect-protocol-version: 1\r\ncontent-type: %s\r\n"
            b"content-length: %d\r\n\r\n" % (PATH.encode(), CONTENT_TYPE, len(frames.payload(_NUMBER)))
        )

    def frame(self, number: int) -> bytes:
        """The request of the call ``number``."""
        return self._head + self._frames.payload(number)


def reply_head() -> bytes:
    """How every successful reply begins."""
    return b"HTTP/1.1 200 OK\r\n"
