"""A bare ASGI handler under uvicorn: Connect's unary call when nothing is decoded and nothing is checked.

Arguments: the socket, and as JSON the size of the reply's message for each size of a request's message. It waits once,
as the daemon's provider does. ``serve_app`` also serves the Connect contender.
"""

import asyncio
import json
import sys
from typing import Any

import uvicorn  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.connect import CONTENT_TYPE, PATH
from bench.support.processes import raise_descriptor_limit, settle_collector


class App:
    """Answers a POST to the one procedure with as many bytes as the contender's reply has."""

    def __init__(self, replies: dict[int, bytes]) -> None:
        """``replies`` by the size of the request's message."""
        self._replies = replies

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        headers = dict(scope["headers"])
        if scope["method"] != "POST" or scope["path"] != PATH or headers.get(b"content-type") != CONTENT_TYPE:
            await self._answer(send, 404, b"")
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await asyncio.sleep(0)
        await self._answer(send, 200, self._replies[len(body)])

    async def _answer(self, send: Any, status: int, body: bytes) -> None:
        headers = [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _serve(path: str, app: Any) -> None:
    config = uvicorn.Config(
        app, uds=path, http="httptools", loop="asyncio", ws="none", lifespan="off", access_log=False, log_config=None
    )
    server = uvicorn.Server(config)
    parent_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), parent_gone.set)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # uvicorn has no event for it
        await asyncio.sleep(0.01)
        if serving.done():
            break
    settle_collector()
    print("ready", flush=True)
    await parent_gone.wait()
    server.force_exit = True
    server.should_exit = True
    await serving


def serve_app(path: str, app: Any) -> None:
    """Serve an ASGI app on a Unix socket until standard input closes: uvicorn, its parser in C, no access log."""
    raise_descriptor_limit()
    asyncio.run(_serve(path, app))


def main() -> None:
    """Serve until standard input closes."""
    sizes = json.loads(sys.argv[2])
    serve_app(sys.argv[1], App({int(request): bytes(reply) for request, reply in sizes.items()}))


if __name__ == "__main__":
    main()
