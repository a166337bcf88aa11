"""A daemon's host side over real sockets: containers, gateway, hub and control over a store in memory."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import trio

from compass_forged.connection import GatewayLimits
from compass_forged.containers import Containers
from compass_forged.control.client import ControlClient
from compass_forged.control.server import ControlDeps, ControlServer
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.listener import RunDir
from compass_forged.memory import MemoryWatch
from compass_forged.memory_use import MemoryUse
from compass_forged.observability import Counters
from compass_forged.sessions import SessionTable
from compass_forged.store.memory import MemoryStore
from tests.support.core import RawClient, Script, ScriptedCaller

_Found = TypeVar("_Found")

HOST = "host-1"


class Host:
    """What a test steers and looks at."""

    def __init__(self, run_dir: RunDir, store: MemoryStore, sessions: SessionTable, script: Script | None) -> None:
        self.run_dir = run_dir
        self.store = store
        self.sessions = sessions
        self.counters = Counters()
        self.caller = ScriptedCaller(script)
        self.hub = Hub(sessions, counters=self.counters)
        self.hub.wire(self.caller)
        limits = GatewayLimits(connections_per_container=4)
        self.gateway = Gateway(sessions, self.hub.submit, counters=self.counters, limits=limits)
        self.memory_use = MemoryUse(1, 100)
        self.memory = MemoryWatch(lambda: self.memory_use, counters=self.counters, hand_back=lambda: None)
        self.containers = Containers(
            run_dir,
            HOST,
            store=store,
            sessions=sessions,
            hub=self.hub,
            gateway=self.gateway,
            counters=self.counters,
            allowed=self.memory.connections_allowed,
        )
        self.drained = trio.Event()
        self.control = ControlServer(
            ControlDeps(
                run_dir=run_dir,
                host_id=HOST,
                store=store,
                store_name="memory",
                credentials=list,
                forges=("github:github.com",),
                containers=self.containers,
                sessions=sessions,
                hub=self.hub,
                gateway=self.gateway,
                memory=self.memory,
                counters=self.counters,
                drain=self.drained.set,
            )
        )

    async def connect(self, container: str = "c1") -> RawClient:
        """An agent's connection to a container's socket."""
        return RawClient(await trio.open_unix_socket(str(self.run_dir.container_socket(container))))

    async def control_stream(self) -> trio.SocketStream:
        """A bare connection to the control socket."""
        return await trio.open_unix_socket(str(self.run_dir.control_socket))

    async def ask(self, question: Callable[[ControlClient], _Found]) -> _Found:
        """What a runner's client, in a thread of its own, answers to ``question``."""
        return await trio.to_thread.run_sync(self._ask, question)

    def _ask(self, question: Callable[[ControlClient], _Found]) -> _Found:
        with ControlClient(self.run_dir.control_socket, timeout_seconds=20) as client:
            return question(client)


@asynccontextmanager
async def host(path: Path, store: MemoryStore | None = None, *, script: Script | None = None) -> AsyncIterator[Host]:
    """A host in ``path``, restored from ``store``; ends whole."""
    store = store or MemoryStore()
    with RunDir.locked(path) as run_dir:
        specs, sessions = await store.load_host(HOST)
        made = Host(run_dir, store, SessionTable(sessions), script)
        async with trio.open_nursery() as nursery:
            await nursery.start(made.hub.run)
            await nursery.start(made.containers.run, specs)
            await nursery.start(made.control.run)
            yield made
            nursery.cancel_scope.cancel()


@contextmanager
def away(store: MemoryStore) -> Iterator[None]:
    """The store is out of reach meanwhile."""
    store.available = False
    try:
        yield
    finally:
        store.available = True


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; a test's own deadline ends it where it never does."""
    while not holds():  # noqa: ASYNC110 -- what is waited for is the daemon's, which has no event for a test
        await trio.sleep(0.001)
