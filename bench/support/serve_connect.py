"""The Connect server of the benchmarks: a unary handler as an ASGI app under uvicorn, a process of its own.

Arguments: the socket, as JSON the reply's payload size for each request's payload size, and which HTTP parser uvicorn
uses, ``httptools`` (in C) or ``h11``. Its handler waits once, as the daemon's provider does. There is no access log.
"""

import asyncio
import gc
import json
import sys
from typing import Any, Literal

import uvicorn  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.connect import CONTENT_TYPE, PATH
from bench.support.processes import raise_descriptor_limit


class App:
    """Answers a POST to the one procedure with as many bytes as the daemon's reply has."""

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


async def _serve(path: str, replies: dict[int, bytes], http: Literal["httptools", "h11"]) -> None:
    config = uvicorn.Config(
        App(replies), uds=path, http=http, loop="asyncio", ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    parent_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), parent_gone.set)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # uvicorn has no event for it
        await asyncio.sleep(0.01)
        if serving.done():
            break
    gc.freeze()
    print("ready", flush=True)
    await parent_gone.wait()
    server.force_exit = True
    server.should_exit = True
    await serving


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    sizes = json.loads(sys.argv[2])
    http: Literal["httptools", "h11"] = "h11" if sys.argv[3] == "h11" else "httptools"
    asyncio.run(_serve(sys.argv[1], {int(request): bytes(reply) for request, reply in sizes.items()}, http))


if __name__ == "__main__":
    main()
