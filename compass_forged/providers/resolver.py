"""Looking up names, in threads of a bounded number of our own.

A look-up cannot be ended: its thread lives on when the caller has left. With a resolver that does not answer, the
threads that trio lends to the whole process would all hang in look-ups; here at most ``THREADS_MAX`` do, and who comes
while they are taken is refused at once. Nothing has been sent then, so that a write may be tried again.
"""

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import trio

THREADS_MAX: Final = 8

LookUp = Callable[..., Any]  # socket.getaddrinfo's many forms
_BUSY = "too many names are being looked up; the resolver does not keep up"


class BoundedResolver(trio.abc.HostnameResolver):
    """Looks names up as the standard library does, at most ``threads`` at a time."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo, *, threads: int = THREADS_MAX) -> None:
        """``look_up`` stands in for ``socket.getaddrinfo`` in tests."""
        self._look_up = look_up
        self._limiter = trio.CapacityLimiter(threads)

    @property
    def busy(self) -> int:
        """How many threads are in a look-up, those included whose caller has left."""
        return int(self._limiter.borrowed_tokens)

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 -- trio's signature
        proto: int = 0,
        flags: int = 0,
    ) -> Any:  # what socket.getaddrinfo returns
        """As ``socket.getaddrinfo``.

        Raises:
            OSError: also when all threads are taken.
        """
        return await self._in_thread(self._look_up, host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:  # likewise, of getnameinfo
        """As ``socket.getnameinfo``; raises as ``getaddrinfo``."""
        return await self._in_thread(socket.getnameinfo, sockaddr, flags)

    async def _in_thread(self, look_up: LookUp, *arguments: object) -> Any:
        if self._limiter.available_tokens < 1:
            await trio.lowlevel.checkpoint()
            raise socket.gaierror(socket.EAI_AGAIN, _BUSY)
        return await trio.to_thread.run_sync(look_up, *arguments, limiter=self._limiter, abandon_on_cancel=True)


@contextmanager
def bounded_look_ups(resolver: BoundedResolver | None = None) -> Generator[BoundedResolver]:
    """Have everything in this trio run that connects by name use one bounded resolver, for the length of the block."""
    own = resolver or BoundedResolver()
    before = trio.socket.set_custom_hostname_resolver(own)
    try:
        yield own
    finally:
        trio.socket.set_custom_hostname_resolver(before)
