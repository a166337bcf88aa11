"""One MCP connection: lines in, lines out, a bounded number of requests in between.

The SDK's server reads from and writes to the peer itself, through the two streams of this module, without a task or a
queue in between. At the limit of requests no more is read; a peer that does not read its answers ends the connection.
When the peer has closed its side, what is under way is answered first, for a moment: a script may close its end as
soon as it has asked.
"""

from collections import deque
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from compass_forged.agent.mcp.lines import LINE_MAX_BYTES, BadLine, LineBuffer, parsed, written

REQUESTS_MAX: Final = 16
"""How many requests of one connection may be under way."""
WRITE_SECONDS: Final = 10.0
"""How long the peer may take to make room for one message."""
LAST_ANSWERS_SECONDS: Final = 5.0
"""How long answers are waited for once the peer has closed its side."""


class Bytes(Protocol):
    """A stream of bytes, in both directions."""

    async def receive(self) -> bytes:
        """Some bytes; b"" at the end, also where the connection broke."""
        ...

    def send_nowait(self, data: bytes) -> int:
        """Send what goes out right now; how many bytes that were. Not a checkpoint.

        Raises:
            BrokenResourceError: the peer has gone.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Send everything.

        Raises:
            BrokenResourceError: the peer has gone.
        """
        ...


async def serve(
    server: "Server[dict[str, Any]]",
    peer: Bytes,
    *,
    line_max_bytes: int = LINE_MAX_BYTES,
    requests_max: int = REQUESTS_MAX,
) -> None:
    """Serve one connection until the peer closes it, goes, or does not read. Does not close ``peer``."""
    with anyio.CancelScope() as scope:
        writing = _Writing(peer, scope, requests_max)
        reading = _Reading(peer, writing, line_max_bytes)
        options = server.create_initialization_options()
        if not await reading.begins_with_handshake():
            await server.run(reading, writing, options)  # finds out which era it is, at the cost of a task between
            return
        async with server.lifespan(server) as state:
            await serve_loop(server, reading, writing, lifespan_state=state, init_options=options)


class _Stream:
    """What the SDK asks of both its streams besides reading or writing."""

    async def aclose(self) -> None:
        """Nothing: the peer is its owner's to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return


class _Writing(_Stream):
    """Writes messages, each whole, and knows how many requests are not answered yet."""

    def __init__(self, peer: Bytes, connection: anyio.CancelScope, requests_max: int) -> None:
        self._peer = peer
        self._connection = connection
        self._requests_max = requests_max
        self._under_way = 0
        self._ended = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)

    async def begin_request(self) -> None:
        """Wait until one more request may be under way, as a rule not at all. One task calls this."""
        await self._wait_for_at_most(self._requests_max - 1)
        self._under_way += 1

    async def end_request(self) -> None:
        """A request has been answered, or will not be."""
        self._under_way -= 1
        self._ended.set()

    async def all_ended(self) -> None:
        """Wait until no request is under way."""
        await self._wait_for_at_most(0)

    async def _wait_for_at_most(self, requests: int) -> None:
        while self._under_way > requests:
            self._ended = anyio.Event()
            await self._ended.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message.

        Shielded, within its time: a request that is cancelled must not leave half a line behind.

        Raises:
            BrokenResourceError: the peer has gone, or has not read for too long; the connection ends.
        """
        data = written(item.message)
        try:
            if self._turn.locked():
                await self._send_waiting(data)
            elif (sent := self._peer.send_nowait(data)) < len(data):
                await self._send_waiting(data[sent:])
        except anyio.BrokenResourceError:
            self._connection.cancel()
            raise
        if _answers_request(item.message):
            await self.end_request()

    async def _send_waiting(self, data: bytes) -> None:
        with anyio.move_on_after(WRITE_SECONDS, shield=True):
            async with self._turn:
                await self._peer.send(data)
            return
        raise anyio.BrokenResourceError


class _Reading(_Stream):
    """Reads messages; answers itself what is none."""

    def __init__(self, peer: Bytes, writing: _Writing, line_max_bytes: int) -> None:
        self._peer = peer
        self._writing = writing
        self._buffer = LineBuffer(line_max_bytes)
        self._lines: deque[bytes | BadLine] = deque()
        self._first: SessionMessage | None = None
        self._ended = False

    async def begins_with_handshake(self) -> bool:
        """Whether the first message is ``initialize``; it is read all the same."""
        try:
            self._first = await self.receive()
        except anyio.EndOfStream:
            return False
        message = self._first.message
        return isinstance(message, types.JSONRPCRequest) and message.method == "initialize"

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            EndOfStream: the peer has closed its side, and its requests are answered or have had their time.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        while True:
            while self._lines:
                try:
                    return await self._taken(self._lines.popleft())
                except BadLine as error:
                    if error.answer.id is not None:
                        await self._writing.begin_request()  # which the answer ends
                    await self._writing.send(SessionMessage(error.answer))
            data = b"" if self._ended else await self._peer.receive()
            if not data:
                await self._end()
                raise anyio.EndOfStream
            self._lines.extend(self._buffer.feed(data))

    async def _end(self) -> None:
        if not self._ended:
            self._ended = True
            with anyio.move_on_after(LAST_ANSWERS_SECONDS):
                await self._writing.all_ended()

    async def _taken(self, line: bytes | BadLine) -> SessionMessage:
        if isinstance(line, BadLine):
            raise line
        message = parsed(line)
        if not isinstance(message, types.JSONRPCRequest):
            return SessionMessage(message)
        await self._writing.begin_request()
        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._writing.end_request))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _answers_request(message: types.JSONRPCMessage) -> bool:
    return isinstance(message, types.JSONRPCResponse) or (
        isinstance(message, types.JSONRPCError) and message.id is not None
    )
