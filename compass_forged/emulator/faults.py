"""A TCP proxy on the loopback interface that breaks connections as planned: what an ASGI application cannot do.

Each connection that comes in takes the next plan; without one it is passed through. Counts of bytes are counts on the
wire, heads of HTTP messages included. A plan holds for the whole connection, which may carry several requests; for
one that a client has pooled already there is ``FaultProxy.plan_open``.
"""

import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import trio

from compass_forged.emulator.server import loopback_socket

CHUNK_BYTES = 64 * 1024
CONNECT_DEADLINE = 5.0
"""Seconds to reach the forge behind the proxy."""
PLANS_MAX = 10_000

Ending: TypeAlias = Literal["close", "reset"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to one connection.

    Attributes:
        request_bytes: how much of what the client sends is forwarded before the ending; None for all of it.
        answer_bytes: how much of what the forge sends is passed on before the ending; None for all of it.
        ending: what the client then sees: ``close`` (FIN) or ``reset`` (RST).
        drip_bytes: the answer goes out in pieces of so many bytes.
        drip_delay: seconds before each piece.
        blackhole: nothing is forwarded and nothing is answered, and the connection stays open.
        answer: these bytes are sent instead of the forge's answer, as soon as that begins to arrive.
        refuse: the connection is reset as soon as it is accepted, before anything is read.
    """

    request_bytes: int | None = None
    answer_bytes: int | None = None
    ending: Ending = "close"
    drip_bytes: int | None = None
    drip_delay: float = 0.0
    blackhole: bool = False
    answer: bytes | None = None
    refuse: bool = False


PASS = Plan()
"""Nothing is broken."""


def refuse_connection() -> Plan:
    """Accepted and reset at once."""
    return Plan(refuse=True)


def cut_request(after: int, ending: Ending = "reset") -> Plan:
    """The connection ends once ``after`` bytes of the request were forwarded: the forge sees no whole request."""
    return Plan(request_bytes=after, ending=ending)


def drop_answer(ending: Ending = "close") -> Plan:
    """The request is forwarded whole and carried out; the connection ends before a byte of the answer."""
    return Plan(answer_bytes=0, ending=ending)


def cut_answer(after: int, ending: Ending = "close") -> Plan:
    """The request is carried out; the connection ends after ``after`` bytes of the answer."""
    return Plan(answer_bytes=after, ending=ending)


def drip(size: int, delay: float) -> Plan:
    """The answer comes in pieces of ``size`` bytes, one every ``delay`` seconds."""
    return Plan(drip_bytes=size, drip_delay=delay)


def blackhole() -> Plan:
    """A half-open connection: accepted, then silence, until the client gives up or the proxy ends."""
    return Plan(blackhole=True)


def replace_answer(answer: bytes, ending: Ending = "close") -> Plan:
    """The request is carried out; the client gets these bytes for an answer."""
    return Plan(answer=answer, ending=ending)


BAD_CHUNKING = (
    b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
)
"""An answer whose chunk size is no number."""
GARBLED_HEAD = b"HTTP/1.1 201 Created\r\ncontent-type application/json\r\n\r\n{}"
"""An answer with a header that has no colon."""


def header_bomb(size: int) -> bytes:
    """An answer whose head is ``size`` bytes long and never ends."""
    return b"HTTP/1.1 200 OK\r\nx-bomb: " + b"a" * size


class _Ended(Exception):
    """The plan's ending was reached."""


class FaultProxy:
    """The proxy: plans in, statistics out. Made by ``fault_proxy``.

    Attributes:
        url: the proxy's base URL, without a slash at its end.
        connections: how many connections came in.
        planned: how many of them took a plan as they came in.
    """

    def __init__(self, url: str, target_port: int) -> None:
        self.url = url
        self.connections = 0
        self.planned = 0
        self._target_port = target_port
        self._plans: deque[Plan] = deque()
        self._open: set[_Connection] = set()

    @property
    def open(self) -> int:
        """How many connections are open now."""
        return len(self._open)

    def plan(self, *plans: Plan) -> None:
        """Queue plans for the connections to come, one each.

        Raises:
            ValueError: more than ``PLANS_MAX`` are queued.
        """
        if len(self._plans) + len(plans) > PLANS_MAX:
            raise ValueError(f"plans: at most {PLANS_MAX} can be queued")
        self._plans.extend(plans)

    def plan_open(self, plan: Plan) -> None:
        """Have every connection that is open now follow ``plan`` from its next bytes on: faults of pooled connections.

        Of ``plan``, ``refuse`` and ``blackhole`` have no meaning here.
        """
        for connection in self._open:
            connection.follow(plan)

    def clear(self) -> None:
        """Forget the plans; connections that took theirs keep it."""
        self._plans.clear()

    async def handle(self, client: trio.SocketStream) -> None:
        """Serve one connection to its end."""
        await trio.lowlevel.checkpoint()
        self.connections += 1
        plan = PASS
        if self._plans:
            plan = self._plans.popleft()
            self.planned += 1
        connection = _Connection(client, plan)
        self._open.add(connection)
        try:
            await connection.run(self._target_port)
        except* (_Ended, OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            connection.prepare_close()
        finally:
            self._open.remove(connection)
            client.socket.close()


class _Connection:
    """One client's connection, and the forge's behind it. The counts are of bytes since the plan was taken."""

    def __init__(self, client: trio.SocketStream, plan: Plan) -> None:
        self._client = client
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Go by ``plan`` from now on."""
        self._plan = plan
        self._forwarded = 0
        self._answered = 0

    async def run(self, target_port: int) -> None:
        """Carry bytes until one side ends or the plan does.

        Raises:
            _Ended: the plan's ending was reached (in a group where it was reached under way).
        """
        if self._plan.refuse:
            raise _Ended
        if self._plan.blackhole:
            while await self._client.receive_some(CHUNK_BYTES):
                pass
            return
        with trio.fail_after(CONNECT_DEADLINE):
            forge = await trio.open_tcp_stream("127.0.0.1", target_port)
        async with forge, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, forge, nursery.cancel_scope.cancel)
            nursery.start_soon(self._answer, forge, nursery.cancel_scope.cancel)

    def prepare_close(self) -> None:
        """Have the close send RST instead of FIN, if the plan says so: SO_LINGER on, zero seconds."""
        if self._plan.ending == "reset" or self._plan.refuse:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _forward(self, forge: trio.SocketStream, finish: Callable[[], None]) -> None:
        """Client to forge."""
        while data := bytes(await self._client.receive_some(CHUNK_BYTES)):
            limit = self._plan.request_bytes
            part = data if limit is None else data[: limit - self._forwarded]
            if part:
                await forge.send_all(part)
            self._forwarded += len(part)
            if limit is not None and self._forwarded >= limit:
                raise _Ended
        finish()

    async def _answer(self, forge: trio.SocketStream, finish: Callable[[], None]) -> None:
        """Forge to client."""
        while data := bytes(await forge.receive_some(CHUNK_BYTES)):
            if self._plan.answer is not None:
                await self._client.send_all(self._plan.answer)
                raise _Ended
            limit = self._plan.answer_bytes
            part = data if limit is None else data[: limit - self._answered]
            await self._pass_on(part)
            self._answered += len(part)
            if limit is not None and self._answered >= limit:
                raise _Ended
        finish()

    async def _pass_on(self, data: bytes) -> None:
        size = self._plan.drip_bytes or max(len(data), 1)
        for start in range(0, len(data), size):
            if self._plan.drip_bytes:
                await trio.sleep(self._plan.drip_delay)
            await self._client.send_all(data[start : start + size])
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def fault_proxy(target_port: int, *, port: int = 0) -> AsyncGenerator[FaultProxy]:
    """Run a proxy in front of ``127.0.0.1:target_port`` while the block runs. Open connections end with it.

    Raises:
        OSError: the port is taken.
    """
    bound = loopback_socket("127.0.0.1", port)
    proxy = FaultProxy(f"http://127.0.0.1:{bound.getsockname()[1]}", target_port)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with listener, trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, proxy.handle, [listener])
        try:
            yield proxy
        finally:
            nursery.cancel_scope.cancel()
