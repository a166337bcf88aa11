"""What a daemon hears of its host's sessions from others that use its Postgres, and how it holds the host."""

from collections.abc import Mapping
from typing import Final

from compass_forged.errors import StoreUnavailable
from compass_forged.observability import get_logger
from compass_forged.store import rules
from compass_forged.store.jobs import Executor
from compass_forged.store.news import SessionMailbox
from compass_forged.store.statements import Statement

_log = get_logger(__name__)

CHANNEL: Final = "compass_forged_sessions"
"""As the triggers of the schema name it."""


class HostEars:
    """The bridge's ``Ears`` for one host; what they hear goes into a mailbox.

    The first connection must get hold of the host. A later one that does not (the server has not noticed yet that the
    one before is gone, or a second daemon was faster) listens all the same, says so once, and keeps trying.
    """

    def __init__(self, host: str, sql: Mapping[str, Statement], mailbox: SessionMailbox) -> None:
        self._host = host
        self._sql = sql
        self._mailbox = mailbox
        self._begun = False
        self._holds = False
        self._complained = False

    def heard(self, payload: str) -> None:
        """A session of some host is no longer what it was. Any role may notify: this is a hint and no more."""
        host, _, session_id = payload.partition(" ")
        if host == self._host and rules.HANDLE.fullmatch(session_id):
            self._mailbox.put(session_id)

    def listening(self) -> None:
        """Whatever was told before is lost."""
        self._begun = True
        self._mailbox.put_all()

    async def tend(self, executor: Executor, *, fresh: bool) -> None:
        """See that the host is held, and that a connection that listened still does (asyncio land)."""
        if fresh:
            self._holds = False
        elif not (await executor.fetch(self._sql["still_listening"], CHANNEL))[0]["listening"]:
            # As behind a pooler that lends a server connection for one transaction.
            raise StoreUnavailable("the connection does not listen any more; connect without a transaction pooler")
        if not self._holds:
            self._holds = (await executor.fetch(self._sql["claim_host"], self._host))[0]["held"]
            self._judge()

    def _judge(self) -> None:
        if self._holds:
            self._complained = False
        elif not self._begun:
            raise rules.host_taken(self._host)
        elif not self._complained:
            self._complained = True
            _log.error("host_id is held by another connection; is there a second daemon under it?", host=self._host)
