"""The control socket's server: thin over ``Containers``, for the daemon's own user and root alone."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from compass_forged import __version__
from compass_forged.containers import BadRequest, Containers, OpenContainer
from compass_forged.control import schema
from compass_forged.errors import ContainerUnknown, StartError, StoreConflict, StoreUnavailable
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.listener import Peer, RunDir, bind_control, serve_listener
from compass_forged.memory import MemoryWatch
from compass_forged.observability import Counters, get_logger
from compass_forged.policy import clean_message
from compass_forged.ports import ContainerSpec, SessionBinding, Store
from compass_forged.sessions import SessionTable
from compass_forged.stream import UnixStream
from compass_forged.wire.frames import FRAME_MAX_BYTES, FrameBuffer, FramingError, encode_frame

_log = get_logger(__name__)

_RECEIVE_BYTES = 64 << 10
CONNECTIONS: Final = 16
"""Open connections; further ones wait in the listen backlog."""
_SEND_SECONDS = 10.0
_FRAME_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ControlDeps:
    """What the control socket shows and steers."""

    run_dir: RunDir
    host_id: str
    store: Store
    store_name: str
    forges: tuple[str, ...]
    credentials: Callable[[], list[schema.CredentialState]]
    containers: Containers
    sessions: SessionTable
    hub: Hub
    gateway: Gateway
    memory: MemoryWatch
    counters: Counters
    drain: Callable[[], None]


class ControlServer:
    """Serves ``control.sock``; ``run`` is supervised."""

    def __init__(self, deps: ControlDeps) -> None:
        self._deps = deps

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind and serve until cancelled.

        Raises:
            StartError: the socket cannot be bound.
        """
        listener = bind_control(self._deps.run_dir)
        try:
            task_status.started()
            await serve_listener(listener, self._handle, connections=CONNECTIONS)
        finally:
            listener.close()

    async def _handle(self, stream: UnixStream, peer: Peer) -> None:
        try:
            async with stream:
                if peer.uid not in {0, os.geteuid()}:
                    _log.warning("control connection refused: uid not allowed", uid=peer.uid, pid=peer.pid)
                    return
                await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            _log.info("control connection lost", error=str(error))
        except Exception:  # noqa: BLE001 -- an error here must cost its connection alone
            self._deps.counters.add("internal_errors", where="control")
            _log.exception("unexpected error on the control socket")

    async def _serve(self, stream: UnixStream) -> None:
        buffer = FrameBuffer(FRAME_MAX_BYTES)
        complaint = ""
        while not complaint:
            try:
                payload = await _next_request(stream, buffer)
            except FramingError as error:
                complaint = str(error)
                reply: schema.ControlReply = schema.ErrorReply(code="invalid_argument", message=complaint)
            else:
                if payload is None:
                    return
                reply = await self._answer(payload)
            with trio.fail_after(_SEND_SECONDS):
                await stream.send_all(encode_frame(schema.encode(reply)))

    async def _answer(self, payload: bytes) -> schema.ControlReply:  # noqa: PLR0911 -- a table of errors
        try:
            return await self._do(schema.decode_request(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return schema.ErrorReply(code="invalid_argument", message=clean_message(str(error)))
        except BadRequest as error:
            return schema.ErrorReply(code="invalid_argument", message=str(error))
        except ContainerUnknown as error:
            return schema.ErrorReply(code="not_found", message=str(error))
        except StoreConflict as error:
            return schema.ErrorReply(code="conflict", message=str(error))
        except StoreUnavailable as error:
            return schema.ErrorReply(code="unavailable", message=f"{error}; nothing was changed, try again")
        except StartError as error:
            return schema.ErrorReply(code="unavailable", message=str(error))
        except Exception:  # noqa: BLE001 -- every request gets an answer
            self._deps.counters.add("internal_errors", where="control")
            _log.exception("unexpected error in a control operation")
            return schema.ErrorReply(code="internal", message="the daemon failed; its log says why")

    async def _do(self, request: schema.ControlRequest) -> schema.ControlReply:  # noqa: PLR0911 -- one per operation
        containers = self._deps.containers
        match request:
            case schema.OpenContainer():
                spec = ContainerSpec(request.name, tuple(request.allowed_uids), request.socket_group)
                return schema.ContainerReply(container=self._state(await containers.open(spec)))
            case schema.CloseContainer():
                await containers.close(request.name)
                return schema.ClosedReply(name=request.name)
            case schema.BindSession():
                scope = None if request.scope is None else tuple(request.scope)
                await containers.bind(
                    SessionBinding(request.container, request.session_id, request.agent, request.owner, scope)
                )
                return schema.ContainerReply(container=self._state(containers.get(request.container)))
            case schema.UnbindSession():
                await containers.unbind(request.container)
                return schema.ContainerReply(container=self._state(containers.get(request.container)))
            case schema.ListContainers():
                return schema.ContainersReply(containers=[self._state(item) for item in containers.items()])
            case schema.GetStatus():
                return self._status()
            case schema.Drain():
                self._deps.drain()
                return schema.DrainingReply()

    def _state(self, container: OpenContainer) -> schema.ContainerState:
        spec = container.spec
        session_id = self._deps.sessions.session_of(spec.name)
        session = self._deps.sessions.resolve(session_id) if session_id else None
        return schema.ContainerState(
            name=spec.name,
            socket=str(self._deps.run_dir.container_socket(spec.name)),
            listening=container.listening,
            allowed_uids=list(spec.allowed_uids),
            socket_group=spec.socket_group,
            connections=self._deps.gateway.connections_of(spec.name),
            session=None
            if session is None
            else schema.SessionState(
                session_id=session.session_id,
                agent=session.account.agent,
                owner=session.account.owner,
                scope=None if session.scope is None else list(session.scope),
            ),
        )

    def _status(self) -> schema.StatusReply:
        deps = self._deps
        return schema.StatusReply(
            version=__version__,
            pid=os.getpid(),
            host_id=deps.host_id,
            store=deps.store_name,
            store_available=deps.store.available,
            draining=deps.hub.draining,
            containers=len(deps.containers.items()),
            sessions=len(deps.sessions),
            calls_in_flight=deps.hub.in_flight,
            forges=list(deps.forges),
            credentials=deps.credentials(),
            memory=_memory_state(deps.memory),
            request_bytes_held=deps.gateway.bodies.held,
            counters=[
                schema.CounterRow(name=name, labels=labels, count=count) for name, labels, count in deps.counters.rows()
            ],
        )


def _memory_state(memory: MemoryWatch) -> schema.MemoryState:
    memory.look()
    return schema.MemoryState(stage=memory.stage, used=memory.use.used, limit=memory.use.limit)


async def _next_request(stream: UnixStream, buffer: FrameBuffer) -> bytes | None:
    """The next request's payload; None once the peer has gone.

    Raises:
        TooSlowError: a frame was not whole in time, counted from its first byte.
        FramingError: what came is no frame.
    """
    with trio.fail_at(math.inf) as scope:
        while (payload := buffer.next_frame()) is None:
            if buffer.in_frame and scope.deadline == math.inf:
                scope.deadline = trio.current_time() + _FRAME_SECONDS
            data = await stream.receive_some(_RECEIVE_BYTES)
            if not data:
                return None
            buffer.feed(data)
    return payload
