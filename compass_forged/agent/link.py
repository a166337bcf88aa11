"""The link: one live connection to the daemon, opened anew when it is needed and was lost."""

import anyio
import anyio.abc
import anyio.lowlevel

from compass_forged.agent.connection import Connection, ReplyCounts
from compass_forged.agent.endpoint import backoff, open_socket
from compass_forged.agent.errors import ClientClosed, DaemonUnreachable


class Link:
    """Opens connections to one path, at most one at a time.

    Attributes:
        path: the socket's path.
        connection: the last connection, perhaps lost; None before the first and after ``close``.
        opened: how many connections were opened so far.
        counts: the replies that nobody waited for, over all connections.
    """

    def __init__(self, path: str, tasks: anyio.abc.TaskGroup, reconnect_seconds: float) -> None:
        """``tasks`` is where connections are served; whoever owns it closes the link before leaving it."""
        self.path = path
        self.connection: Connection | None = None
        self.opened = 0
        self.counts = ReplyCounts()
        self._tasks = tasks
        self._reconnect_seconds = reconnect_seconds
        self._opening = anyio.Lock()
        self._closed = False

    async def live(self, *, pause: bool) -> Connection:
        """The live connection, opened if there is none, after a short ``pause`` if one has just failed.

        Raises:
            ClientClosed: the link was closed.
            DaemonUnreachable: nobody came to listen within the reconnect time.
        """
        async with self._opening:
            if self.connection is not None and self.connection.lost is None:
                return self.connection
            if pause:
                await anyio.sleep(next(backoff()))
            return await self.open(self._reconnect_seconds)

    async def open(self, seconds: float) -> Connection:
        """A new connection; tries again where that may help, for at most ``seconds``.

        Raises:
            ClientClosed: the link was closed.
            DaemonUnreachable: nobody listens.
        """
        stop_at = anyio.current_time() + seconds
        pauses = backoff()
        while True:
            await anyio.lowlevel.checkpoint()
            if self._closed:
                raise ClientClosed
            try:
                sock = open_socket(self.path)
                break
            except DaemonUnreachable as error:
                pause = next(pauses)
                if not error.transient or anyio.current_time() + pause > stop_at:
                    raise
            await anyio.sleep(pause)
        self.connection = Connection(sock, self.counts)
        self._tasks.start_soon(self.connection.run)
        self.opened += 1
        return self.connection

    def close(self) -> None:
        """End the connection and its calls; nothing is opened from now on."""
        self._closed = True
        if self.connection is not None:
            self.connection.fail("the client was closed")
            self.connection = None
