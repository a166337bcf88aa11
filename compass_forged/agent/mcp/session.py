"""One MCP connection: lines in, lines out, a bounded number of requests in between.

At the limit of requests no more is read, and a peer that does not read its answers stops being served once the one
that is being written has waited too long. When the peer has closed its side, what is under way is answered first, for
a moment: a script may close its end as soon as it has asked.
"""

from typing import Any, Final, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from compass_forged.agent.mcp.lines import LINE_MAX_BYTES, BadLine, LineBuffer, parsed, written

REQUESTS_MAX: Final = 16
"""How many requests of one connection may be under way."""
WRITE_SECONDS: Final = 10.0
"""How long the peer may take to make room for one message."""
LAST_ANSWERS_SECONDS: Final = 5.0
"""How long answers are waited for once the peer has closed its side."""

_Incoming = SessionMessage | Exception


class Bytes(Protocol):
    """A stream of bytes, in both directions."""

    async def receive(self) -> bytes:
        """Some bytes; b"" at the end, also where the connection broke."""
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
    await _Session(server, peer, line_max_bytes, requests_max).run()


class _Session:
    def __init__(self, server: "Server[dict[str, Any]]", peer: Bytes, line_max_bytes: int, requests_max: int) -> None:
        self._server = server
        self._peer = peer
        self._lines = LineBuffer(line_max_bytes)
        self._requests_max = requests_max
        self._slots = anyio.Semaphore(requests_max, fast_acquire=True)

    async def run(self) -> None:
        incoming_send, incoming = anyio.create_memory_object_stream[_Incoming](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
        answers = outgoing.clone()  # the server closes its own
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, incoming_send, answers)
            tasks.start_soon(self._write, outgoing_receive, tasks.cancel_scope)
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    async def _read(
        self, incoming: MemoryObjectSendStream[_Incoming], answers: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        """Hand on what the peer sends; closing ``incoming`` is what ends the server."""
        async with incoming, answers:
            try:
                while data := await self._peer.receive():
                    for line in self._lines.feed(data):
                        await self._take(line, incoming, answers)
                with anyio.move_on_after(LAST_ANSWERS_SECONDS):
                    for _ in range(self._requests_max):
                        await self._slots.acquire()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the writer or the server has ended: the peer has gone

    async def _take(
        self,
        line: bytes | BadLine,
        incoming: MemoryObjectSendStream[_Incoming],
        answers: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        try:
            if isinstance(line, BadLine):
                raise line
            message = parsed(line)
        except BadLine as error:
            await answers.send(SessionMessage(error.answer))
            return
        metadata = None
        if isinstance(message, types.JSONRPCRequest):
            await self._slots.acquire()
            metadata = ServerMessageMetadata(on_request_unanswered=self._release)
        await incoming.send(SessionMessage(message, metadata))

    async def _release(self) -> None:
        self._slots.release()

    async def _write(self, outgoing: MemoryObjectReceiveStream[SessionMessage], session: anyio.CancelScope) -> None:
        """Write what the server and the reader say until both have ended, or the peer has: that ends the session."""
        async with outgoing:
            async for each in outgoing:
                try:
                    with anyio.fail_after(WRITE_SECONDS):
                        await self._peer.send(written(each.message))
                except (TimeoutError, anyio.BrokenResourceError):
                    break
                if _answers_request(each.message):
                    self._slots.release()
        session.cancel()


def _answers_request(message: types.JSONRPCMessage) -> bool:
    return isinstance(message, types.JSONRPCResponse) or (
        isinstance(message, types.JSONRPCError) and message.id is not None
    )
