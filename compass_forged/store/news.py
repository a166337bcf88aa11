"""What is known of a host's sessions until somebody asks: many notifications become one piece of news. Trio's side.

Bounded: beyond ``_NAMES_LIMIT`` names the news is that any session may have changed.
"""

from typing import Final

import trio

from compass_forged.ports import SessionNews

_NAMES_LIMIT: Final = 256


class SessionMailbox:
    """The ``SessionWatch`` of both adapters: one reader, filled by whoever hears of a change (no checkpoints)."""

    def __init__(self) -> None:
        """It begins with the news that any session may have changed."""
        self._names: set[str] | None = None
        self._filled = trio.Event()
        self._filled.set()

    def put(self, session_id: str) -> None:
        """A session is no longer what it was."""
        if self._names is not None:
            self._names.add(session_id)
            if len(self._names) > _NAMES_LIMIT:
                self._names = None
        self._filled.set()

    def put_all(self) -> None:
        """Any session may have changed."""
        self._names = None
        self._filled.set()

    async def news(self) -> SessionNews:
        """See ``SessionWatch``; a cancelled wait loses nothing."""
        await self._filled.wait()
        names, self._names = self._names, set()
        self._filled = trio.Event()
        return SessionNews(None if names is None else frozenset(names))
