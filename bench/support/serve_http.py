"""A forge of nothing but bytes: answers every HTTP/1.1 request at once with the same issue. It keeps no state.

It is asyncio's protocol rather than a server, so that the client is the one that runs out of CPU. It prints its port.
"""

import asyncio
import os
import sys

_BODY = b'{"id":1001,"number":7,"body":"' + b"x" * 2000 + b'"}'
_ANSWER = (
    b"HTTP/1.1 201 Created\r\nserver: bench\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    b'content-type: application/json; charset=utf-8\r\netag: W/"0123456789abcdef0123456789abcdef"\r\n'
    b"x-ratelimit-limit: 5000000\r\nx-ratelimit-remaining: 4999999\r\nx-ratelimit-used: 1\r\n"
    b"x-ratelimit-reset: 1767229200\r\nx-ratelimit-resource: core\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class _Requests(asyncio.Protocol):
    """One connection: counts the bytes of each request and answers it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            whole = end + 4 + _content_length(self._received[:end])
            if len(self._received) < whole:
                return
            self._received = self._received[whole:]
            self._transport.write(_ANSWER)


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Requests, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)  # until the parent closes it
    os._exit(0)  # connections that are kept alive have nothing to say goodbye for


if __name__ == "__main__":
    asyncio.run(_serve())
