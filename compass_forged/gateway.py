"""The gateway: the connections of all containers.

The identity of what arrives is the listener that accepted it, nothing else; the container's session is looked up per
call, so that a rebind takes effect at once. What happens on one connection is in ``connection.py``; nothing that it
raises reaches the listener's nursery, so that it costs nobody else anything.
"""

from collections import Counter

import trio

from compass_forged.bodies import BodyBytes
from compass_forged.connection import Connection, GatewayLimits, Relay
from compass_forged.observability import Counters, get_logger
from compass_forged.sessions import SessionTable
from compass_forged.shares import CallSlots, ContainerShare

_log = get_logger(__name__)


class Gateway:
    """Serves the connections of all containers; one instance a daemon."""

    def __init__(
        self, sessions: SessionTable, relay: Relay, *, counters: Counters, limits: GatewayLimits | None = None
    ) -> None:
        """``relay`` answers calls of bound containers."""
        self.sessions = sessions
        self.relay = relay
        self.counters = counters
        self.limits = limits or GatewayLimits()
        self.bodies = BodyBytes(self.limits.bodies_max_bytes)
        self._shares: dict[str, ContainerShare] = {}
        self._connections: Counter[str] = Counter()
        self._open: set[Connection] = set()
        self._paid = trio.lowlevel.ParkingLot()

    async def serve_connection(self, stream: trio.abc.Stream, container: str) -> None:
        """Serve one connection until the peer goes or breaks the rules; raises nothing but Cancelled."""
        self._connections[container] += 1
        connection = Connection(self, stream, container, self.share_of(container))
        self._open.add(connection)
        try:
            async with stream:
                await connection.run()
        except Exception:  # noqa: BLE001 -- an error here must cost its connection alone
            self.counters.add("internal_errors", where="gateway")
            _log.exception("unexpected error on a connection; it was closed", container=container)
        finally:
            self._open.discard(connection)
            self.paid()
            self._connections[container] -= 1
            if not self._connections[container]:
                del self._connections[container]  # names come and go; nothing is kept of those that went

    def share_of(self, container: str) -> ContainerShare:
        """What the container's connections share."""
        share = self._shares.get(container)
        if share is None:
            share = self._shares[container] = ContainerShare(CallSlots(self.limits.calls_per_container))
        return share

    def connections_of(self, container: str) -> int:
        """How many connections of the container are open."""
        return self._connections[container]

    async def flush(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until every reply that is owed has gone out: what a drain ends with.

        Returns:
            Whether none is left.
        """
        with trio.move_on_after(seconds):
            while any(connection.owes for connection in self._open):
                await self._paid.park()
            return True
        return False

    def paid(self) -> None:
        """A connection has sent what it had, or has ended: ``flush`` may look again."""
        if self._paid:
            self._paid.unpark_all()

    def forget(self, container: str) -> None:
        """The container was closed: drop what is kept for it."""
        self._shares.pop(container, None)
        self.bodies.forget(container)
