"""This process's standard input and output as a stream of bytes, without a thread.

A descriptor is waited on and then used, and is left in the blocking mode in which it came: others may share its open
file, and its mode with it. While MCP is spoken, descriptor 0 is empty and 1 is standard error, so that a stray print
cannot break a line of the protocol.
"""

import os
import select
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import anyio
import anyio.lowlevel

_RECEIVE_BYTES: Final = 64 << 10
_SEND_BYTES: Final = select.PIPE_BUF
"""So much a pipe takes at once without blocking, once it is writable (pipe(7)); a socket takes more."""


class Stdio:
    """The two descriptors that ``standard_io`` took over."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._room = select.poll()
        self._room.register(writing, select.POLLOUT)

    async def receive(self) -> bytes:
        """Some bytes; b"" at the end."""
        await _wait(anyio.wait_readable, self._reading)
        try:
            return os.read(self._reading, _RECEIVE_BYTES)
        except ConnectionResetError:
            return b""

    def send_nowait(self, data: bytes) -> int:
        """Send what goes out without blocking; how many bytes that were.

        Raises:
            BrokenResourceError: nobody reads any more.
        """
        if not self._room.poll(0):
            return 0
        try:
            return os.write(self._writing, data[:_SEND_BYTES])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise anyio.BrokenResourceError from error

    async def send(self, data: bytes) -> None:
        """Send everything.

        Raises:
            BrokenResourceError: nobody reads any more.
        """
        at = 0
        while at < len(data):
            await _wait(anyio.wait_writable, self._writing)
            at += self.send_nowait(data[at:])


async def _wait(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a file or a null device: epoll does not take it, since it never blocks (epoll_ctl(2))
        await anyio.lowlevel.checkpoint()


@contextmanager
def standard_io() -> Generator[Stdio, None, None]:
    """Take over standard input and output for the length of the block."""
    reading, writing = os.dup(0), os.dup(1)
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        try:
            yield Stdio(reading, writing)
        finally:
            os.dup2(reading, 0)
            os.dup2(writing, 1)
    finally:
        os.close(reading)
        os.close(writing)
