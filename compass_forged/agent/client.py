"""The agent's client: calls over one connection to the daemon, any number in flight, under trio or asyncio.

``forge`` is the one transport method. It returns the result arm of a call that succeeded; a fault of the relay is
raised as ``ForgeFault`` and an in-band failure as ``ForgeCallFailed``.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import PathLike, fsdecode
from typing import Protocol

import anyio
import anyio.lowlevel

from compass_forged.agent.connection import Connection
from compass_forged.agent.errors import AgentError, DaemonUnreachable, ForgeTimeout
from compass_forged.agent.exchange import CALL_SECONDS, RECONNECT_SECONDS, arm_of, frame_of, patience
from compass_forged.agent.link import Link
from compass_forged.wire.schema import ForgeCall, ResultArm

_SEND_ATTEMPTS = 5


class ForgeTransport(Protocol):
    """The one method that tools depend on; a test fakes it."""

    async def forge(self, call: ForgeCall) -> ResultArm:
        """Execute one call and return its result arm, which is never an ``ErrorResult``.

        Raises:
            ForgeFault: the daemon could not take the call to a forge.
            ForgeCallFailed: the call was executed and failed.
            AgentError: no answer could be had; its kinds say why.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """What a client is doing.

    Attributes:
        connected: whether there is a live connection at this moment.
        connections: how many connections were opened so far.
        in_flight: calls that wait for a reply.
        given_up: calls whose callers have gone and whose replies have not come yet.
        late_replies: replies to calls that had been given up; dropped.
        unknown_replies: replies to no call of ours; dropped.
    """

    connected: bool
    connections: int
    in_flight: int
    given_up: int
    late_replies: int
    unknown_replies: int


class ForgeClient:
    """A client of one daemon; made by ``connect``. For many tasks of one event loop, not for many threads."""

    def __init__(self, link: Link, call_seconds: float) -> None:
        """Made by ``connect``, which owns the link."""
        self._link = link
        self._call_seconds = call_seconds

    async def forge(self, call: ForgeCall) -> ResultArm:
        """Execute one call and return its result arm, which is never an ``ErrorResult``.

        Connects anew if the connection was lost, with backoff, within the client's reconnect time. Waits for the
        reply as long as the call's ``timeout_ms`` and 5 s more, or for the client's own time if it has none. A caller
        that is cancelled stops waiting; the call itself is not undone, and its late reply is dropped.

        Raises:
            ForgeFault: the daemon could not take the call to a forge.
            ForgeCallFailed: the call was executed and failed.
            CallRefused: the call cannot be sent as it is (too large, a ``call_id`` in flight, the client is closed).
            DaemonUnreachable: there is no connection and none could be made; nothing was sent.
            ConnectionLost: the connection ended with the call in flight; the outcome is unknown.
            ForgeTimeout: no reply came in time.
            ProtocolViolation: the reply cannot be read.
        """
        frame = frame_of(call)
        # Nothing is sent for a caller who is cancelled already.
        await anyio.lowlevel.checkpoint_if_cancelled()
        seconds = patience(call, self._call_seconds)
        deadline = time.monotonic() + seconds
        for attempt in range(_SEND_ATTEMPTS):
            connection = self._link.connection
            if connection is None or connection.lost is not None:
                connection = await self._connected(seconds, deadline, pause=attempt > 0)
            waiter = connection.post(call.call_id, frame, seconds, deadline)
            if waiter is None:
                continue
            answer = await connection.answer(call.call_id, waiter)
            if isinstance(answer, AgentError):
                raise answer
            if answer is not None:
                return arm_of(answer)
        raise DaemonUnreachable(self._link.path, "it closes every new connection; its log says why", transient=True)

    def statistics(self) -> ClientStatistics:
        """What the client is doing at this moment."""
        connection = self._link.connection
        return ClientStatistics(
            connected=connection is not None and connection.lost is None,
            connections=self._link.opened,
            in_flight=connection.in_flight if connection else 0,
            given_up=connection.given_up if connection else 0,
            late_replies=self._link.counts.late,
            unknown_replies=self._link.counts.unknown,
        )

    async def _connected(self, seconds: float, deadline: float, *, pause: bool) -> Connection:
        try:
            with anyio.fail_after(deadline - time.monotonic()):
                return await self._link.live(pause=pause)
        except TimeoutError:
            raise ForgeTimeout(seconds, "not_sent") from None


@asynccontextmanager
async def connect(
    socket_path: str | PathLike[str],
    *,
    call_seconds: float = CALL_SECONDS,
    reconnect_seconds: float = RECONNECT_SECONDS,
    wait_seconds: float = 0,
) -> AsyncGenerator[ForgeClient, None]:
    """Connect to the daemon and yield a client; leaving the context ends its calls and closes the connection.

    Args:
        socket_path: the container's ``forge.sock``.
        call_seconds: how long a call without ``timeout_ms`` waits for its reply; should be over the daemon's own
            deadlines (15 s for reads and 30 s for writes by default), whose answer says more than a timeout.
        reconnect_seconds: how long a call tries to connect anew after the connection was lost.
        wait_seconds: how long to wait here for a daemon that does not listen yet; 0 for one attempt.

    Raises:
        DaemonUnreachable: nobody listens at the path, or it is no socket, or it may not be used.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        link = Link(fsdecode(socket_path), tasks, reconnect_seconds)
        try:
            await link.open(wait_seconds)
            yield ForgeClient(link, call_seconds)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 -- raised below: the task group would wrap it in a group
            failure = error
        finally:
            link.close()
            tasks.cancel_scope.cancel()
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # it holds this frame
