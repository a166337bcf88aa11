"""The forge over HTTP on the loopback interface: hypercorn's trio worker inside the caller's nursery."""

import ipaddress
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config, Sockets
from hypercorn.trio import serve
from starlette.types import ASGIApp, Receive, Scope, Send

from compass_forged.emulator.asgi import SERVED

START_DEADLINE = 10.0
"""Seconds within which the server must listen."""
GRACE = 0.5
"""Seconds that requests in flight get at shutdown."""
BACKLOG = 128


class NotLoopback(ValueError):
    """The address to bind is no loopback address: the forge has no TLS and made-up accounts, and stays on its host."""


def loopback_socket(host: str, port: int) -> socket.socket:
    """A listening TCP socket on a loopback address; port 0 takes a free one.

    Raises:
        NotLoopback: ``host`` is another address, or a name (which might come to mean another address).
        OSError: the port is taken.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise NotLoopback(f"bind {host!r}: not an address; use 127.0.0.1 or ::1") from None
    if not address.is_loopback:
        raise NotLoopback(f"bind {host}: not a loopback address; use 127.0.0.1 or ::1")
    bound = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)  # noqa: PLR2004 -- IP version
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


class _OneSocket(Config):
    """A configuration around a socket that is bound already: how its port is known before the server starts."""

    def __init__(self, bound: socket.socket) -> None:
        super().__init__()
        self._bound = bound
        self.graceful_timeout = GRACE
        self.shutdown_timeout = GRACE
        self.keep_alive_timeout = 60.0
        self.include_date_header = False  # the forge's clock gives the date
        self.include_server_header = False
        self.accesslog = None
        quiet = logging.getLogger("compass_forged.emulator.server")
        quiet.setLevel(logging.WARNING)
        self.errorlog = quiet
        # Larger than GitHub's own limit on headers; the faults with headers are on the answers' side.
        self.h11_max_incomplete_size = 64 * 1024

    def create_sockets(self) -> Sockets:
        """The one socket, which listens already."""
        return Sockets([], [self._bound], [])


@asynccontextmanager
async def serve_forge(forge: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
    """Serve a half of the forge while the block runs; gives the base URL, without a slash at its end.

    At the end of the block requests in flight get ``GRACE`` seconds. A fault of the server itself is raised out of
    the block.

    Raises:
        NotLoopback: ``host`` is no loopback address.
        OSError: the port is taken.
    """
    bound = loopback_socket(host, port)
    number = bound.getsockname()[1]
    stop = trio.Event()
    server = partial(serve, _served(forge), _OneSocket(bound), shutdown_trigger=stop.wait, mode="asgi")
    with bound:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(START_DEADLINE):
                await nursery.start(server)
            try:
                yield f"http://{f'[{host}]' if ':' in host else host}:{number}"
            finally:
                stop.set()


def _served(forge: ASGIApp) -> Any:
    """The forge, told that a real connection carries its answers."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await forge({**scope, SERVED: True}, receive, send)

    return app
