"""A transport to a server of raw bytes on loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport
from compass_forged.providers.urls import BaseUrl

Serve = Callable[[trio.SocketStream], Awaitable[None]]
READ = HttpRequest("GET", ("repos", "acme", "site"))
WRITE = HttpRequest("POST", ("repos", "acme", "site", "issues"), json={"title": "é"})
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[HttpTransport]:
    """A raw TCP server on loopback, and a transport to it."""

    async def handler(stream: trio.SocketStream) -> None:
        try:
            await serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client has gone, as some of these tests have it

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handler, listeners)
        port = listeners[0].socket.getsockname()[1]
        async with HttpTransport(BaseUrl.parse(f"http://127.0.0.1:{port}")) as transport:
            yield transport
        nursery.cancel_scope.cancel()


async def receive_request(stream: trio.SocketStream) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some()
        if not part:
            return received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        part = await stream.receive_some()
        if not part:
            return b""  # torn
        body += part
    return head + b"\r\n\r\n" + body


async def exchange(transport: HttpTransport, request: HttpRequest = READ, **more: Any) -> HttpAnswer:
    return await transport.exchange(request, headers={"User-Agent": "t"}, authorization="Bearer canary", **more)
