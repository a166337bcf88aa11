"""Closing connections over which nothing happens: off unless configured, as an agent keeps one for a whole session."""

from collections.abc import Callable

import trio


class IdleClock:
    """How long one connection has been idle: since its last byte came or its last call was answered."""

    __slots__ = ("_since", "seconds")

    def __init__(self, seconds: float) -> None:
        """``seconds`` without anything end the connection; 0 is never."""
        self.seconds = seconds
        self._since = trio.current_time()

    def touch(self) -> None:
        """Something happened just now."""
        self._since = trio.current_time()

    async def receive(self, stream: trio.abc.Stream, most: int, busy: Callable[[], bool]) -> bytes | None:
        """What ``stream`` brings next; b"" once the peer has closed, None once the connection has been idle too long.

        Args:
            stream: the connection.
            most: how many bytes at once.
            busy: whether a call is under way or a reply not yet sent; a busy connection is not idle.
        """
        self.touch()  # bytes that came before, if only the end of a frame
        while True:
            with trio.move_on_at(self._since + self.seconds):
                data = await stream.receive_some(most)
                self.touch()
                return bytes(data)
            if busy():
                self.touch()
            elif trio.current_time() >= self._since + self.seconds:
                return None
