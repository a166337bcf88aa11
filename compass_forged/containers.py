"""The containers of this host: which are open, who is bound in them, and the listeners that serve them.

Every change goes to the store first, then into memory, one at a time. Each listener is a supervised task of its own:
a crash costs that container a moment and the others nothing.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

import trio

from compass_forged.errors import ContainerUnknown, StartError
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.listener import (
    CONTAINER_NAME,
    Peer,
    RunDir,
    UnixListener,
    at_once,
    bind_container,
    remove_container_dir,
    serve_listener,
)
from compass_forged.observability import Counters, get_logger
from compass_forged.owner import is_handle
from compass_forged.ports import ContainerSpec, Session, SessionBinding, Store
from compass_forged.scope import check_scope
from compass_forged.sessions import SessionTable
from compass_forged.stream import UnixStream
from compass_forged.supervise import supervise

_log = get_logger(__name__)

UID_MAX = 2**32 - 2
"""The largest uid or gid; the one above means "none" to the kernel."""


@dataclass(slots=True)
class OpenContainer:
    """An open container as the daemon runs it."""

    spec: ContainerSpec
    listening: bool = False
    listener: UnixListener | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stopped: trio.Event = field(default_factory=trio.Event)


class BadRequest(ValueError):
    """An operation's values make no sense: one line naming the value and the rule."""


class Containers:
    """Opens, binds, unbinds and closes; one instance a daemon."""

    def __init__(
        self,
        run_dir: RunDir,
        host_id: str,
        *,
        store: Store,
        sessions: SessionTable,
        hub: Hub,
        gateway: Gateway,
        counters: Counters,
        allowed: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """The run directory must be locked. ``allowed`` returns once a connection may be accepted."""
        self._run_dir = run_dir
        self._host_id = host_id
        self._store = store
        self._sessions = sessions
        self._hub = hub
        self._gateway = gateway
        self._counters = counters
        self._allowed = allowed
        self._open: dict[str, OpenContainer] = {}
        self._changing = trio.StrictFIFOLock()
        self._nursery: trio.Nursery | None = None
        self._stopping = False

    async def run(
        self, specs: Iterable[ContainerSpec], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the listeners' nursery, first of those that ``specs`` restores; until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for spec in specs:
                try:
                    self._serve_from(spec, self._bind(spec))
                except StartError as error:
                    # One container that cannot be restored must not keep the others away.
                    self._open[spec.name] = OpenContainer(spec)
                    self._open[spec.name].stopped.set()
                    _log.error("container not restored", container=spec.name, error=str(error))
            task_status.started()
            await trio.sleep_forever()

    # --- operations -------------------------------------------------------------------------------------------------

    async def open(self, spec: ContainerSpec) -> OpenContainer:
        """Open a container, or change an open one's settings.

        Raises:
            BadRequest: the name, a uid or the group cannot be one.
            StartError: its socket cannot be bound.
            StoreUnavailable: it could not be kept.
        """
        _check_spec(spec)
        async with self._changing:
            if self._stopping:
                raise StartError("the daemon is stopping; open the container once it is back")
            current = self._open.get(spec.name)
            if current is None:
                return await self._open_new(spec)
            await self._store.open_container(self._host_id, spec)
            if current.listening and current.spec.socket_group == spec.socket_group:
                current.spec = spec
                return current
            await self._stop(current)
            return self._serve_from(spec, self._bind(spec))

    async def _open_new(self, spec: ContainerSpec) -> OpenContainer:
        """Bind first: a socket that cannot be had must not be kept, and come back as a failure at every start."""
        first = self._bind(spec)
        try:
            await self._store.open_container(self._host_id, spec)
        except BaseException:
            first.close()
            remove_container_dir(self._run_dir, spec.name)
            raise
        return self._serve_from(spec, first)

    async def close(self, name: str) -> None:
        """Close a container and end its session; one that is not open is fine.

        Raises:
            BadRequest: the name cannot be one.
            StoreUnavailable: it could not be kept; nothing has changed.
        """
        _check_name(name)
        async with self._changing:
            await self._store.close_container(self._host_id, name)
            if session := self._sessions.unbind(name):
                self._hub.unbound(session.session_id)
            current = self._open.pop(name, None)
            if current is not None:
                await self._stop(current)
                self._gateway.forget(name)
                remove_container_dir(self._run_dir, name)

    async def bind(self, binding: SessionBinding) -> Session:
        """Bind a session to an open container.

        Raises:
            BadRequest: a handle, the session id or a scope pattern cannot be one.
            StoreConflict: the accounts, the session or the container say otherwise.
            StoreUnavailable: it could not be kept.
        """
        _check_binding(binding)
        async with self._changing:
            if binding.container not in self._open:
                raise ContainerUnknown(f"container {binding.container[:140]!r} is not open; open it first")
            session = await self._store.bind_session(self._host_id, binding)
            if replaced := self._sessions.bind(session):
                self._hub.unbound(replaced.session_id)
            return session

    async def unbind(self, container: str) -> None:
        """End the container's session; its unsent calls are given up."""
        async with self._changing:
            if container not in self._open:
                raise ContainerUnknown(f"container {container[:140]!r} is not open")
            await self._store.end_session(self._host_id, container)
            if session := self._sessions.unbind(container):
                self._hub.unbound(session.session_id)

    async def recheck(self, sessions: Collection[str] | None) -> list[Session]:
        """End here what the store no longer holds as it is here. Binds nothing and writes nothing.

        Args:
            sessions: which sessions may have changed, by id; None for all. Ids that are not live here cost nothing.

        Returns:
            The sessions that were ended.

        Raises:
            StoreUnavailable: the store could not be asked; nothing has changed.
        """
        async with self._changing:  # an operation of our own that is half done would look like another's
            if sessions is not None and not any(self._sessions.resolve(name) for name in sessions):
                return []
            _, held = await self._store.load_host(self._host_id)
            stale = [session for session in self._sessions if session not in held]
            for session in stale:
                self._sessions.unbind(session.container)
                self._hub.unbound(session.session_id)
            return stale

    def items(self) -> list[OpenContainer]:
        """The open containers, by name."""
        return [self._open[name] for name in sorted(self._open)]

    def get(self, name: str) -> OpenContainer:
        """One open container."""
        return self._open[name]

    def stop_accepting(self) -> None:
        """Accept no connection any more, and open no container; connections that are there are served on."""
        self._stopping = True
        for container in self._open.values():
            container.listening = False
            if container.listener is not None:
                container.listener.close()

    # --- listeners --------------------------------------------------------------------------------------------------

    def _bind(self, spec: ContainerSpec) -> UnixListener:
        """Bind now, so that what is wrong is answered to whoever asked."""
        if self._nursery is None:
            raise StartError("the daemon is not listening: it is starting or stopping; try again")
        return bind_container(self._run_dir, spec.name, group=spec.socket_group)

    def _serve_from(self, spec: ContainerSpec, first: UnixListener) -> OpenContainer:
        """Serve a bound socket under supervision."""
        assert self._nursery is not None  # noqa: S101 -- _bind saw it; it is never taken away while tasks run in it
        container = self._open[spec.name] = OpenContainer(spec, listening=True)
        self._nursery.start_soon(self._serve, container, first, name=f"listener {spec.name}")
        return container

    async def _stop(self, container: OpenContainer) -> None:
        container.scope.cancel()
        await container.stopped.wait()  # bounded: the listener's tasks end at their next checkpoint

    async def _serve(self, container: OpenContainer, first: UnixListener) -> None:
        name = container.spec.name
        bound: list[UnixListener] = [first]

        async def handle(stream: UnixStream, peer: Peer) -> None:
            allowed = container.spec.allowed_uids
            if allowed and peer.uid not in allowed:
                self._counters.add("connections_refused")
                _log.warning("connection refused: uid not allowed", container=name, uid=peer.uid, pid=peer.pid)
                await trio.aclose_forcefully(stream)
                return
            _log.info("connected", container=name, uid=peer.uid, gid=peer.gid, pid=peer.pid)
            await self._gateway.serve_connection(stream, name)

        async def listen() -> None:
            if self._stopping:
                return  # it was about to be started again
            listener = bound.pop() if bound else bind_container(self._run_dir, name, group=container.spec.socket_group)
            listener.allowed = self._allowed
            container.listener = listener
            try:
                await serve_listener(listener, handle, connections=self._gateway.limits.connections_per_container)
            finally:
                listener.close()

        try:
            with container.scope:
                await supervise(f"listener:{name}", listen, counters=self._counters)
        finally:
            container.listening = False
            container.stopped.set()


def _check_name(name: str) -> None:
    if CONTAINER_NAME.fullmatch(name) is None:
        raise BadRequest(
            f"container {name[:140]!r}: a name is 1 to 128 of a-z A-Z 0-9 _ . - and starts with a letter or digit"
        )


def _check_spec(spec: ContainerSpec) -> None:
    _check_name(spec.name)
    for number in (*spec.allowed_uids, *(() if spec.socket_group is None else (spec.socket_group,))):
        if not 0 <= number <= UID_MAX:
            raise BadRequest(f"container {spec.name}: {number} is no uid or gid")


def _check_binding(binding: SessionBinding) -> None:
    for what, word in (("session", binding.session_id), ("agent", binding.agent), ("owner", binding.owner)):
        if not is_handle(word):
            raise BadRequest(
                f"{what} {word[:80]!r}: must be 1 to 39 of a-z 0-9 - and start with a letter or digit, "
                "since it is written into what the agent creates"
            )
    if binding.scope is not None:
        try:
            check_scope(binding.scope)
        except ValueError as error:
            raise BadRequest(str(error)) from error
