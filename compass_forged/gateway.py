"""The gateway: what happens on one container's connection, from received bytes to sent replies.

One reader, one writer, one nursery for the calls of a connection. The identity of what arrives is the listener that
accepted it, nothing else; the container's session is looked up per call, so that a rebind takes effect at once.

At a limit the reader stops reading (backpressure); it does not fail. Every frame gets one answer. A frame that does
not decode costs its sender a fault, bytes that are no frames cost the connection, and neither costs anybody else
anything: nothing that a connection's handler raises reaches the listener's nursery.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import trio

from compass_forged.errors import Fault
from compass_forged.hub import fault_frame
from compass_forged.observability import Counters, get_logger
from compass_forged.sessions import SessionTable
from compass_forged.wire.codec import DecodeError, decode_call, encode_reply
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES, FrameBuffer, FramingError, encode_frame
from compass_forged.wire.schema import ErrorResult, FaultFrame, ForgeCall, ReplyFrame, ResultFrame

_log = get_logger(__name__)

_RECEIVE_BYTES = 64 << 10

Relay: TypeAlias = Callable[[str, ForgeCall], Awaitable[ReplyFrame | None]]
"""(session id, call) to its reply: the hub's, or a second hop's."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits of the gateway; times in seconds, sizes in bytes.

    Attributes:
        frame_max_bytes: the largest request payload.
        connections_per_container: open connections; further ones wait in the listen backlog.
        calls_per_connection: calls in flight on one connection.
        calls_per_container: calls in flight over all of a container's connections.
        outbox_max_bytes: replies waiting to be sent; above it the reader stops reading.
        frame_seconds: from a frame's first byte the rest must come within this; the clock stands while the daemon
            itself is not reading.
        send_seconds: a client that does not take its replies for this long is dropped.
    """

    frame_max_bytes: int = FRAME_MAX_BYTES
    connections_per_container: int = 16
    calls_per_connection: int = 64
    calls_per_container: int = 128
    outbox_max_bytes: int = 1 << 20
    frame_seconds: float = 10.0
    send_seconds: float = 10.0


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
        self._container_slots: dict[str, trio.Semaphore] = {}
        self._connections: Counter[str] = Counter()
        self._open: set[_Connection] = set()
        self._paid = trio.lowlevel.ParkingLot()

    async def serve_connection(self, stream: trio.abc.Stream, container: str) -> None:
        """Serve one connection until the peer goes or breaks the rules; raises nothing but Cancelled."""
        self._connections[container] += 1
        connection = _Connection(self, stream, container)
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

    def slots_of(self, container: str) -> trio.Semaphore:
        """The container's slots for calls in flight, shared by its connections."""
        slots = self._container_slots.get(container)
        if slots is None:
            slots = self._container_slots[container] = trio.Semaphore(self.limits.calls_per_container)
        return slots

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
        self._paid.unpark_all()

    def forget(self, container: str) -> None:
        """The container was closed: drop what is kept for it."""
        self._container_slots.pop(container, None)


class _Connection:
    """One connection's state: the calls in flight, by id, and the replies that wait to be sent."""

    def __init__(self, gateway: Gateway, stream: trio.abc.Stream, container: str) -> None:
        self._gateway = gateway
        self._limits = gateway.limits
        self._stream = stream
        self._container = container
        self._in_flight: set[str] = set()
        self._slots = trio.Semaphore(self._limits.calls_per_connection)
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._finishing = False
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def owes(self) -> bool:
        """Whether a call is under way, or a reply not yet sent."""
        return bool(self._in_flight) or self._outbox_bytes > 0

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                async with trio.open_nursery() as calls:
                    await self._read(calls)
                    calls.cancel_scope.cancel()  # the peer is gone: its reads and unsent writes go too
                self._finishing = True
                self._changed.unpark_all()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            _log.debug("connection lost", container=self._container)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self, calls: trio.Nursery) -> None:
        """Read and start calls until the peer closes, stalls in a frame, or sends what is no frame.

        A frame's clock counts only while this waits for bytes, so that the daemon's own backpressure is not held
        against the peer.
        """
        buffer = FrameBuffer(self._limits.frame_max_bytes)
        left = math.inf
        while True:
            try:
                payload = buffer.next_frame()
            except FramingError as error:
                self._refuse(Fault("invalid_argument", str(error)))
                return
            if payload is not None:
                left = math.inf
                await self._accept(payload, calls)
                continue
            if buffer.in_frame:
                left = min(left, self._limits.frame_seconds)
            began = trio.current_time()
            with trio.move_on_after(max(0.0, left)):  # bytes that came late may have used it up
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    return
                buffer.feed(data)
                left -= trio.current_time() - began
                continue
            seconds = self._limits.frame_seconds
            self._refuse(Fault("invalid_argument", f"frame: not complete {seconds:g} s after its first byte"))
            return

    async def _accept(self, payload: bytes, calls: trio.Nursery) -> None:
        """Answer a frame at once, or start its call once there is room for it."""
        while self._outbox_bytes > self._limits.outbox_max_bytes:
            await self._changed.park()  # bounded: the writer drains the outbox or drops the connection in time
        try:
            call = decode_call(payload)
        except DecodeError as error:
            self._refuse(Fault("invalid_argument", str(error)), error.call_id)
            return
        if call.call_id in self._in_flight:
            self._refuse(Fault("invalid_argument", "call_id: already in flight on this connection"), call.call_id)
            return
        self._in_flight.add(call.call_id)
        container_slots = self._gateway.slots_of(self._container)
        await self._slots.acquire()
        await container_slots.acquire()
        calls.start_soon(self._call, call, container_slots)

    def _refuse(self, fault: Fault, call_id: str = "") -> None:
        self._gateway.counters.add("frames_refused")
        self._send(fault_frame(fault, call_id))

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, call: ForgeCall, container_slots: trio.Semaphore) -> None:
        try:
            reply = await self._relayed(call)
            self._in_flight.discard(call.call_id)  # before the reply can be seen: its id is free then
            self._send(reply)
        finally:
            self._in_flight.discard(call.call_id)
            self._slots.release()
            container_slots.release()

    async def _relayed(self, call: ForgeCall) -> ReplyFrame:
        session_id = self._gateway.sessions.session_of(self._container)
        if session_id is None:
            self._gateway.counters.add("calls_unbound")
            return fault_frame(Fault("permission_denied", "this container is bound to no session"), call.call_id)
        try:
            reply = await self._gateway.relay(session_id, call)
        except Exception:  # noqa: BLE001 -- every frame gets an answer
            self._gateway.counters.add("internal_errors", where="relay")
            _log.exception("the relay failed", container=self._container)
            reply = None
        if reply is None:
            return fault_frame(Fault("internal", "the relay gave no answer; the daemon's log says why"), call.call_id)
        return reply

    # --- writing ----------------------------------------------------------------------------------------------------

    def _send(self, reply: ReplyFrame) -> None:
        frame = _framed(reply)
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        self._changed.unpark_all()

    async def _write(self, connection: trio.CancelScope) -> None:
        """Send what is ready in one go; end the connection when the peer does not take it in time."""
        while True:
            while not self._outbox:
                if self._finishing:
                    return
                await self._changed.park()
            batch, self._outbox = b"".join(self._outbox), []
            with trio.move_on_after(self._limits.send_seconds) as sending:
                await self._stream.send_all(batch)
            if sending.cancelled_caught:
                self._gateway.counters.add("clients_dropped")
                _log.warning("client does not take its replies; dropped", container=self._container)
                connection.cancel()
                return
            self._outbox_bytes -= len(batch)
            self._changed.unpark_all()
            self._gateway.paid()


def _framed(reply: ReplyFrame) -> bytes:
    try:
        return encode_frame(encode_reply(reply))
    except (FramingError, UnicodeEncodeError):
        _log.exception("a reply could not be framed", call_id=reply.call_id)
        return encode_frame(encode_reply(_unframeable(reply)))


def _unframeable(reply: ReplyFrame) -> ReplyFrame:
    message = f"the answer cannot be sent: over {REPLY_MAX_BYTES} bytes, or no valid text"
    if isinstance(reply, FaultFrame):
        return FaultFrame(call_id=reply.call_id, code="internal", message=message)
    return ResultFrame(call_id=reply.call_id, result=ErrorResult(code="internal", message=message))
