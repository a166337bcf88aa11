"""One connection of a container, from received bytes to sent replies.

One reader, one writer, one nursery for the calls of a connection. At a limit the reader stops reading (backpressure);
it does not fail. Every frame gets one answer. A frame that does not decode costs its sender a fault, and bytes that are
no frames cost the connection.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import trio

from compass_forged.bodies import BodyBytes, Purse
from compass_forged.errors import Fault
from compass_forged.idle import IdleClock
from compass_forged.life import fault_frame
from compass_forged.observability import Counters, get_logger
from compass_forged.sessions import SessionTable
from compass_forged.shares import CallSlots, ContainerShare
from compass_forged.stream import UnixStream
from compass_forged.wire.codec import DecodeError, decode_call, encode_reply
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES, FrameBuffer, FramingError, encode_frame
from compass_forged.wire.schema import ErrorResult, FaultFrame, ForgeCall, ReplyFrame, ResultFrame

_log = get_logger(__name__)

_RECEIVE_BYTES: Final = 64 << 10
_SLICE_BYTES: Final = 256 << 10
"""The clock of a send is renewed after so much of it: a peer that keeps reading is never dropped."""
_LARGE_BYTES: Final = 512 << 10
"""Only answers over this are kept from a container that does not read: what answers a write is always shorter."""


class Pending(Protocol):
    """A call that has been relayed and not answered yet."""

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        ...


Relay: TypeAlias = Callable[[str, ForgeCall, Callable[[ReplyFrame], None]], Pending | None]
"""Takes (session id, call, answer): the hub's ``submit``, or a second hop's. It calls ``answer`` once, now or later."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits of the gateway; times in seconds, sizes in bytes.

    Attributes:
        frame_max_bytes: the largest request payload.
        connections_per_container: open connections; further ones wait in the listen backlog.
        calls_per_connection: calls in flight on one connection.
        calls_per_container: calls in flight over all of a container's connections.
        outbox_max_bytes: replies waiting to be sent; above it the reader stops reading.
        backlog_max_bytes: replies of a container waiting to be sent, over all its connections; above it large answers
            become ``resource_exhausted``.
        bodies_max_bytes: requests held of all containers together, from the moment a frame's length is known to the
            answer of its call; at it readers stop and take turns. No less than ``frame_max_bytes``.
        idle_seconds: a connection over which nothing happens for this long is closed; 0 is never.
        frame_seconds: from a frame's first byte the rest must come within this; the clock stands while the daemon
            itself is not reading.
        send_seconds: a client that does not take its replies for this long is dropped.
    """

    frame_max_bytes: int = FRAME_MAX_BYTES
    connections_per_container: int = 16
    calls_per_connection: int = 64
    calls_per_container: int = 128
    outbox_max_bytes: int = 1 << 20
    backlog_max_bytes: int = 64 << 20
    bodies_max_bytes: int = 128 << 20
    idle_seconds: float = 0.0
    frame_seconds: float = 10.0
    send_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.bodies_max_bytes < self.frame_max_bytes:
            raise ValueError("bodies_max_bytes must be at least frame_max_bytes, or the largest frame waits for ever")


class Home(Protocol):
    """What a connection needs of the gateway."""

    @property
    def sessions(self) -> SessionTable:
        """Which session a container is bound to."""
        ...

    @property
    def relay(self) -> Relay:
        """Where calls go."""
        ...

    @property
    def counters(self) -> Counters:
        """The daemon's."""
        ...

    @property
    def limits(self) -> GatewayLimits:
        """Limits and clocks."""
        ...

    @property
    def bodies(self) -> BodyBytes:
        """The bound on requests held of all containers."""
        ...

    def paid(self) -> None:
        """The connection has sent what it had."""
        ...


class Connection:
    """One connection's state: the calls in flight, by id, and the replies that wait to be sent."""

    __slots__ = (
        "_backlog", "_changed", "_container", "_container_slots", "_corked", "_finishing", "_gateway", "_idle",
        "_in_flight", "_limits", "_nursery", "_outbox", "_outbox_bytes", "_purse", "_scope", "_send_nowait", "_slots",
        "_stream", "_turn", "_writer", "_writing",
    )  # fmt: skip

    def __init__(self, gateway: Home, stream: trio.abc.Stream, container: str, share: ContainerShare) -> None:
        """Take ``stream`` over, on which the container's listener has accepted somebody."""
        self._gateway = gateway
        self._limits = gateway.limits
        self._stream = stream
        self._send_nowait = stream.send_nowait if isinstance(stream, UnixStream) else None
        self._container = container
        self._container_slots = share.calls
        self._backlog = share.backlog
        self._turn = share.turn
        self._purse = Purse(gateway.bodies, container)
        self._idle = IdleClock(self._limits.idle_seconds) if self._limits.idle_seconds else None
        self._in_flight: dict[str, Pending | None] = {}
        self._slots = CallSlots(self._limits.calls_per_connection)
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._corked = False
        self._writing = False
        self._finishing = False
        self._nursery: trio.Nursery | None = None
        self._writer = False
        self._scope = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def owes(self) -> bool:
        """Whether a call is under way, or a reply not yet sent."""
        return bool(self._in_flight) or self._outbox_bytes > 0

    async def run(self) -> None:
        """Serve until the peer goes, stalls or breaks the rules."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    try:
                        await self._read()
                    finally:
                        self._hang_up()  # an answer from now on might want a writer, for which it would be too late
                    self._finishing = True
                    self._changed.unpark_all()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            _log.debug("connection lost", container=self._container)
        finally:
            self._backlog.bytes -= self._outbox_bytes
            self._outbox_bytes = 0

    def _hang_up(self) -> None:
        """The peer is gone, and reading is over: nobody waits for what is under way."""
        self._purse.empty()
        pending, self._in_flight = self._in_flight, {}
        for call in pending.values():
            self._container_slots.give()
            if call is not None:
                call.abandon()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
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
                self._uncork()
                return
            if payload is not None:
                left = math.inf
                if not self._purse.begin(len(payload)):
                    await self._room_for(len(payload))
                if self._turn.over:
                    self._uncork()
                    await self._turn.rest()
                self._turn.take(len(payload))
                self._corked = True
                await self._accept(payload)
                continue
            self._uncork()
            if not buffer.in_frame:
                data = await (self._stream.receive_some(_RECEIVE_BYTES) if self._idle is None else self._unless_idle())
            else:
                if (size := buffer.frame_bytes) and not self._purse.begin(size):
                    await self._room_for(size)
                left = min(left, self._limits.frame_seconds)
                began = trio.current_time()
                data = None
                with trio.move_on_after(max(0.0, left)):  # bytes that came late may have used it up
                    data = await self._stream.receive_some(_RECEIVE_BYTES)
                if data is None:
                    seconds = self._limits.frame_seconds
                    self._refuse(Fault("invalid_argument", f"frame: not complete {seconds:g} s after its first byte"))
                    return
                left -= trio.current_time() - began
            if not data:
                return
            buffer.feed(data)
            del data  # 64 KB, of each idle connection

    async def _room_for(self, size: int) -> None:
        """Wait until what all containers hold leaves room for the frame at hand."""
        self._uncork()
        self._gateway.counters.add("body_waits")
        await self._purse.wait(size)

    async def _unless_idle(self) -> bytes:
        """What comes next; b"" once the connection has been idle for too long, as if the peer had closed."""
        assert self._idle is not None  # noqa: S101 -- the caller has looked
        data = await self._idle.receive(self._stream, _RECEIVE_BYTES, lambda: self.owes)
        if data is None:
            self._gateway.counters.add("connections_idle_closed")
            _log.info("idle connection closed", container=self._container)
        return data or b""

    async def _accept(self, payload: bytes) -> None:
        """Answer a frame at once, or start its call once there is room for it."""
        if self._outbox_bytes > self._limits.outbox_max_bytes:
            self._uncork()  # what waits may go out right here, and then nobody would wake this
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
        self._in_flight[call.call_id] = None
        if not (self._slots.free and self._container_slots.free):
            self._uncork()
        await self._take_slots(call.call_id)
        self._relay(call)

    async def _take_slots(self, call_id: str) -> None:
        """Bounded: calls in flight end at their deadlines, and their slots are handed on."""
        try:
            await self._slots.take()
            await self._container_slots.take()
        except BaseException:
            # The connection ends, its own slots with it. None of the container's is held for this call.
            del self._in_flight[call_id]
            raise

    def _refuse(self, fault: Fault, call_id: str = "") -> None:
        self._purse.drop()
        self._gateway.counters.add("frames_refused")
        self._send(fault_frame(fault, call_id))

    # --- calls ------------------------------------------------------------------------------------------------------

    def _relay(self, call: ForgeCall) -> None:
        """Hand a call on under the session that the container is bound to right now."""
        call_id = call.call_id
        session_id = self._gateway.sessions.session_of(self._container)
        if session_id is None:
            self._gateway.counters.add("calls_unbound")
            unbound = Fault("permission_denied", "this container is bound to no session")
            self._answer(fault_frame(unbound, call_id))
            return
        try:
            pending = self._gateway.relay(session_id, call, self._answer)
        except Exception:  # noqa: BLE001 -- every frame gets an answer
            self._gateway.counters.add("internal_errors", where="relay")
            _log.exception("the relay failed", container=self._container)
            pending = None
        if call_id not in self._in_flight:
            return  # answered already
        if pending is None:
            nothing = Fault("internal", "the relay gave no answer; the daemon's log says why")
            self._answer(fault_frame(nothing, call_id))
        else:
            self._in_flight[call_id] = pending
            self._purse.keep(call_id)

    def _answer(self, reply: ReplyFrame) -> None:
        """A call's reply: its id is free, and its slots, before it can be seen."""
        if reply.call_id not in self._in_flight:
            return  # the connection has gone, and has abandoned the call
        del self._in_flight[reply.call_id]
        self._slots.give()
        self._container_slots.give()
        self._purse.answered(reply.call_id)
        if self._idle is not None:
            self._idle.touch()
        try:
            self._send(reply)
        except Exception:  # noqa: BLE001 -- raised on, it would end the hub's workers, and every container's calls
            self._gateway.counters.add("internal_errors", where="gateway")
            _log.exception("a reply could not be sent; its connection is closed", container=self._container)
            self._scope.cancel()

    # --- writing ----------------------------------------------------------------------------------------------------

    def _send(self, reply: ReplyFrame) -> None:
        """Send at once where nothing waits and no other call is under way; else join what waits.

        While frames that have arrived are being taken, replies are kept together, and go out with the last of them.
        """
        frame = _framed(reply)
        if not self._corked and self._send_nowait is not None and not self._outbox_bytes and not self._in_flight:
            frame = self._send_directly(self._send_nowait, frame)
            if not frame:
                return
        elif len(frame) > _LARGE_BYTES and self._backlog.bytes + len(frame) > self._limits.backlog_max_bytes:
            frame = _framed(_too_much(reply))
        first = not self._outbox
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        self._backlog.bytes += len(frame)
        if first and not self._corked:  # who waits beside others has had the writer woken by the first of them
            self._wake_writer()

    def _uncork(self) -> None:
        """The frames at hand are taken: send what was answered meanwhile, or leave it to the writer if that is busy."""
        if not self._corked:
            return
        self._corked = False
        if not self._outbox:
            return
        if self._send_nowait is not None and not self._writing:
            size = self._outbox_bytes
            rest = self._send_directly(self._send_nowait, b"".join(self._outbox))
            self._outbox = [rest] if rest else []
            self._outbox_bytes = len(rest)
            self._backlog.bytes -= size - len(rest)
        if self._outbox:
            self._wake_writer()

    def _wake_writer(self) -> None:
        """A connection has no writer until it needs one: an idle one is a task less, and a third less memory."""
        if self._writer or self._nursery is None:
            self._changed.unpark_all()
        else:
            self._writer = True
            self._nursery.start_soon(self._write)

    def _send_directly(self, send_nowait: Callable[[bytes], int], frame: bytes) -> bytes:
        """Send what the socket takes right now; what is left."""
        try:
            sent = send_nowait(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The connection's matter, in whatever task this is; its reader may not see that the peer has gone.
            self._scope.cancel()
            return b""
        if sent == len(frame):
            self._gateway.paid()
            return b""
        return frame[sent:]

    async def _write(self) -> None:
        """Send what is ready in one go; end the connection when the peer does not take it in time."""
        while True:
            while not self._outbox:
                if self._finishing:
                    return
                await self._changed.park()
            batch, self._outbox = memoryview(b"".join(self._outbox)), []
            self._writing = True
            if not await self._send_in_time(batch):
                self._gateway.counters.add("clients_dropped")
                _log.warning("client does not take its replies; dropped", container=self._container)
                self._scope.cancel()
                return
            del batch  # megabytes, perhaps, and the next may be hours away
            self._writing = False
            self._gateway.paid()

    async def _send_in_time(self, batch: memoryview) -> bool:
        """Whether the peer took all of it."""
        for at in range(0, len(batch), _SLICE_BYTES):
            part = batch[at : at + _SLICE_BYTES]
            with trio.move_on_after(self._limits.send_seconds) as sending:
                await self._stream.send_all(part)
            if sending.cancelled_caught:
                return False
            self._outbox_bytes -= len(part)
            self._backlog.bytes -= len(part)
            self._changed.unpark_all()
        return True


def _framed(reply: ReplyFrame) -> bytes:
    try:
        return encode_frame(encode_reply(reply))
    except (FramingError, UnicodeEncodeError, OverflowError):  # too long, no text, a number past 64 bits
        _log.exception("a reply could not be framed", call_id=reply.call_id)
        return encode_frame(encode_reply(_unframeable(reply)))


def _too_much(reply: ReplyFrame) -> ReplyFrame:
    message = "replies to this container are waiting to be read; read them, then ask again"
    error = ErrorResult(code="resource_exhausted", message=message, retry_after_ms=1000)
    return ResultFrame(call_id=reply.call_id, result=error)


def _unframeable(reply: ReplyFrame) -> ReplyFrame:
    message = f"the answer cannot be sent: over {REPLY_MAX_BYTES} bytes, or no valid text"
    if isinstance(reply, FaultFrame):
        return FaultFrame(call_id=reply.call_id, code="internal", message=message)
    return ResultFrame(call_id=reply.call_id, result=ErrorResult(code="internal", message=message))
