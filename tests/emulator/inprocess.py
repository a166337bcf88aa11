"""The bundled forge without sockets: an httpx transport that shows scripted faults as a real connection would.

httpx's own ASGI transport works with the forge too, but for dropped connections and truncated bodies, which it cannot
show.
"""

from collections.abc import AsyncIterator, Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any

import httpx
import trio
from starlette.types import ASGIApp

from compass_forged.emulator.app import Forge
from compass_forged.emulator.asgi import ConnectionDropped

BASE_URL = "http://forge.test"
TOKENS = {"forge-author": "author-token", "forge-reviewer": "reviewer-token", "outsider": "outsider-token"}
START = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


class Hand:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class _Body(httpx.AsyncByteStream):
    def __init__(self, body: bytes, complete: bool) -> None:
        self._body = body
        self._complete = complete
        self._given = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._given:
            self._given = True
            return self._body
        if not self._complete:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        raise StopAsyncIteration


class ForgeTransport(httpx.AsyncBaseTransport):
    """Calls the forge in the client's own task, so that a MockClock governs every wait."""

    def __init__(self, forge: ASGIApp) -> None:
        self._forge = forge

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        try:
            await self._forge(scope, receive, send)
        except ConnectionDropped as error:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.") from error
        start, *bodies = sent
        complete = not bodies[-1].get("more_body", False)
        content = b"".join(part["body"] for part in bodies)
        return httpx.Response(start["status"], headers=start["headers"], stream=_Body(content, complete))


def client(forge: Forge, token: str | None = None, headers: Iterable[tuple[str, str]] = ()) -> httpx.AsyncClient:
    """A client of ``forge`` that speaks with ``token``."""
    credentials = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(
        transport=ForgeTransport(forge), base_url=BASE_URL, headers={**credentials, **dict(headers)}
    )
