"""A relay in front of the test server's socket: it counts round trips, and loses answers where a test says so."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import trio

_SOCKET = ".s.PGSQL.5432"
# The two messages of the protocol that the server answers with ReadyForQuery: the end of an extended query, and a
# simple query. https://www.postgresql.org/docs/current/protocol-message-formats.html
_ASKING = (b"S", b"Q")


class Relay:
    """What stands between a bridge and its server.

    Attributes:
        dsn: where to connect instead.
        round_trips: how many messages have been passed on that the server answers before anything else can be asked.
        lose: asked for every such message with its text; True passes it on and drops the connection when the server
            answers, so that the work is done and nobody hears of it.
    """

    def __init__(self, dsn: str, directory: str) -> None:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query))
        self.server = str(Path(query["host"]) / _SOCKET)
        self.dsn = (
            f"{parts.scheme}:///{parts.path.lstrip('/')}?{urlencode(query | {'host': directory}, quote_via=quote)}"
        )
        self.round_trips = 0
        self.lose: Callable[[bytes], bool] = lambda _text: False

    async def carry(self, client: trio.SocketStream) -> None:
        """One connection, to its end."""
        losing = False
        async with await trio.open_unix_socket(self.server) as server, client, trio.open_nursery() as nursery:

            async def back() -> None:
                async for data in server:
                    if losing:
                        break
                    await client.send_all(data)
                nursery.cancel_scope.cancel()

            nursery.start_soon(back)
            messages = _Messages()
            async for data in client:
                for text in messages.feed(data):
                    self.round_trips += 1
                    losing = losing or self.lose(text)
                await server.send_all(data)
            nursery.cancel_scope.cancel()


class _Messages:
    """Splits what a client sends; keeps what has come since the server was last asked."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._since = b""

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """For each message that asks, the bytes from the one before up to it."""
        self._rest += data
        asked: list[bytes] = []
        while True:
            head = 1 if self._begun else 0  # the first message has no type
            if len(self._rest) < head + 4:
                return asked
            size = head + int.from_bytes(self._rest[head : head + 4], "big")
            if len(self._rest) < size:
                return asked
            message, self._rest = self._rest[:size], self._rest[size:]
            self._since += message
            if self._begun and message[:1] in _ASKING:
                asked.append(self._since)
                self._since = b""
            self._begun = True


@asynccontextmanager
async def relayed(dsn: str) -> AsyncGenerator[Relay, None]:
    """A relay to the server of ``dsn`` for the length of the block."""
    with TemporaryDirectory(prefix="forged-relay-") as directory:
        relay = Relay(dsn, directory)
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(Path(directory) / _SOCKET))
        listening.listen()

        async def handle(client: trio.SocketStream) -> None:
            try:
                await relay.carry(client)
            except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                await client.aclose()  # either end may hang up at any moment: that ends the other's

        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, handle, [trio.SocketListener(listening)])
            yield relay
            nursery.cancel_scope.cancel()
