"""The least of a client of Connect's unary protocol: one POST over HTTP/1.1, and its answer.

The headers are those of a unary call with a deadline (https://connectrpc.com/docs/protocol#unary-request); the body is
a protobuf message. No compression is asked for. HTTP/1.1 has no multiplexing, so that many calls in flight are many
connections, each kept alive.
"""

import re
import socket
from typing import Final

from bench.support.messages import Template
from bench.support.processes import ChildFailed
from bench.support.protobufs import METHOD, SERVICE, TIMEOUT_SECONDS

PATH: Final = f"/{SERVICE}/{METHOD}"
CONTENT_TYPE: Final = b"application/proto"
REPLY_HEAD: Final = b"HTTP/1.1 200 OK\r\n"
"""How every successful reply begins."""
_NUMBER: Final = 1_000_000_000
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
_CHUNKED: Final = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked\r\n")


class HttpTemplate:
    """Encoded messages as HTTP requests, all of one size."""

    def __init__(self, messages: Template) -> None:
        self._messages = messages
        self._head = (
            b"POST %s HTTP/1.1\r\nhost: bench\r\nconnect-protocol-version: 1\r\nconnect-timeout-ms: %d\r\n"
            b"content-type: %s\r\ncontent-length: %d\r\n\r\n"
            % (PATH.encode(), TIMEOUT_SECONDS * 1000, CONTENT_TYPE, len(messages.message(_NUMBER)))
        )

    def frame(self, number: int) -> bytes:
        """The request of the call ``number``."""
        return self._head + self._messages.message(number)


def reply_bytes(path: str, template: HttpTemplate, seconds: float) -> int:
    """The size of a server's whole reply to a call, head included.

    Raises:
        ChildFailed: it is no success, or did not come within ``seconds``.
    """
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(path)
            connection.sendall(template.frame(_NUMBER))
            while not _is_whole(received):
                data = connection.recv(1 << 16)
                if not data:
                    raise ChildFailed(f"Connect's server ended its reply early: {received[:200]!r}")
                received += data
        except TimeoutError as error:
            raise ChildFailed(f"Connect's server has not answered: {received[:200]!r}") from error
    if not received.startswith(REPLY_HEAD):
        raise ChildFailed(f"Connect's server refuses the benchmark's call: {received[:200]!r}")
    return len(received)


def _is_whole(received: bytes) -> bool:
    head, blank, body = received.partition(b"\r\n\r\n")
    if not blank:
        return False
    if length := _LENGTH.search(head + b"\r\n"):
        return len(body) >= int(length[1])
    return _CHUNKED.search(head + b"\r\n") is not None and body.endswith(b"0\r\n\r\n")
