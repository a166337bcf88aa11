"""The composition root: the only place that wires. ``serve`` is one daemon from its lock to its last reply.

Starting: lock the run directory, open the store, load what was open and bound, build the forges, then listen. Stopping
(SIGTERM, SIGINT or the control socket's drain): accept no connection, refuse new calls, finish those under way within
the drain time, then end every task. A second signal ends at once, but for a record that is being written.
"""

import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import trio

from compass_forged.budget import ResourceStatus
from compass_forged.config import Config, StoreVariable
from compass_forged.connection import GatewayLimits
from compass_forged.containers import Containers
from compass_forged.control.schema import CredentialState
from compass_forged.control.server import CONNECTIONS, ControlDeps, ControlServer
from compass_forged.errors import ConfigError, StartError, StoreError
from compass_forged.forges import keep_identities, learn_identities, open_registry
from compass_forged.gateway import Gateway
from compass_forged.hub import CallDeadlines, Hub
from compass_forged.listener import RunDir
from compass_forged.memory import MemoryWatch
from compass_forged.memory_use import MemorySource, open_memory_source
from compass_forged.observability import Counters, flush_lines, get_logger
from compass_forged.ports import SessionWatch, Store
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.http import CONCURRENCY_MAX
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService, ServiceLimits
from compass_forged.session_watch import follow_sessions
from compass_forged.sessions import SessionTable
from compass_forged.supervise import supervise

if TYPE_CHECKING:
    from compass_forged.store.connect import ConnectParams

_log = get_logger(__name__)

_SPARE_FDS = 64
"""Descriptors for what is no pool: the event loop, lock, log, files of memory and tokens, name lookups."""
_COLLECT_AFTER = 10_000
"""New objects, so that garbage in cycles comes to a few megabytes at most."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon, for whoever started it in process."""

    run_dir: Path
    store: Store
    counters: Counters
    drain: Callable[[], None]


def settle_collector() -> None:
    """Tell the garbage collector of a daemon that has started what it need not do; measured 5 to 15 % of a call.

    What was made while starting lives as long as the daemon, and need not be walked again and again. Hardly anything
    of a call is garbage in a cycle, so looking for it at every 700 new objects, a few calls, finds nothing.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)


async def serve(
    config: Config, *, signals: bool = True, task_status: trio.TaskStatus[Daemon] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a daemon until it is drained.

    Args:
        config: checked by ``load_config``.
        signals: take SIGTERM and SIGINT as drain (only in the main thread).
        task_status: told once containers can connect.

    Raises:
        ConfigError: what the configuration names cannot be used.
        StartError: the host or the store does not let it start.
        RestartsExhausted: a supervised task keeps crashing (in an exception group).
    """
    counters = Counters()
    containers_max = _raise_descriptors(config)
    with RunDir.locked(Path(config.run_dir)) as run_dir:
        async with open_registry(config, counters) as registry, open_store(config) as store:
            await learn_identities(registry)
            await serve_with(
                config,
                run_dir,
                store,
                registry,
                counters,
                containers_max=containers_max,
                signals=signals,
                task_status=task_status,
            )


async def serve_with(
    config: Config,
    run_dir: RunDir,
    store: Store,
    registry: Registry,
    counters: Counters,
    *,
    containers_max: int = sys.maxsize,
    signals: bool = False,
    task_status: trio.TaskStatus[Daemon] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a daemon over a store and a registry that are open already; see ``serve``."""
    async with AsyncExitStack() as stack:
        try:
            source = stack.enter_context(open_memory_source(config.limits.memory_max_bytes))
        except OSError as error:
            raise StartError(f"/proc/self/statm: {error.strerror}; mount /proc") from error
        try:
            # Before anything is loaded: what changes from here on is told.
            watch = await stack.enter_async_context(store.watch_sessions(config.host))
        except StoreError as error:
            raise StartError(f"store: {error}") from error
        await _serve_watching(
            config,
            run_dir,
            store,
            registry,
            counters,
            watch=watch,
            source=source,
            containers_max=containers_max,
            signals=signals,
            task_status=task_status,
        )


async def _serve_watching(
    config: Config,
    run_dir: RunDir,
    store: Store,
    registry: Registry,
    counters: Counters,
    *,
    watch: SessionWatch,
    source: MemorySource,
    containers_max: int,
    signals: bool,
    task_status: trio.TaskStatus[Daemon],
) -> None:
    limits = config.limits
    specs, restored = await store.load_host(config.host)
    if len(specs) > containers_max:
        _log.warning("more containers than descriptors for all their connections", most=containers_max, open=len(specs))
    sessions = SessionTable(restored)
    hub = Hub(
        sessions,
        counters=counters,
        deadlines=CallDeadlines(limits.read_seconds, limits.write_seconds, limits.grace_seconds),
    )
    memory = MemoryWatch(source, counters=counters)
    hub.wire(
        ForgeService(
            store,
            registry,
            ref_secret=await store.ref_secret(),
            counters=counters,
            limits=ServiceLimits(limits.record_seconds, limits.attribution_seconds),
            check_create=memory.check_create,
        )
    )
    gateway = Gateway(sessions, hub.submit, counters=counters, limits=_gateway_limits(config))
    containers = Containers(
        run_dir,
        config.host,
        store=store,
        sessions=sessions,
        hub=hub,
        gateway=gateway,
        counters=counters,
        allowed=memory.connections_allowed,
    )
    stop = trio.Event()
    control = ControlServer(
        ControlDeps(
            run_dir=run_dir,
            host_id=config.host,
            store=store,
            store_name=_store_name(config),
            forges=tuple(f"{entry.provider}:{entry.host}" for entry in registry.entries),
            credentials=partial(_credential_states, registry),
            containers=containers,
            sessions=sessions,
            hub=hub,
            gateway=gateway,
            memory=memory,
            counters=counters,
            drain=stop.set,
        )
    )
    async with trio.open_nursery() as nursery:
        if signals:

            def end_now() -> None:
                hub.stop()
                nursery.cancel_scope.cancel()

            await nursery.start(_signals_to, stop, end_now)
        await _start_supervised(nursery, "lines", flush_lines, counters)
        await _start_supervised(nursery, "hub", hub.run, counters)
        if source.may_have_limit:
            await _start_supervised(nursery, "memory", memory.run, counters)
        await nursery.start(containers.run, specs)
        follow = partial(follow_sessions, watch, containers, counters=counters)
        await _start_supervised(nursery, "sessions", follow, counters)
        await _start_supervised(nursery, "identities", partial(keep_identities, registry), counters)
        await _start_supervised(nursery, "control", control.run, counters)
        _log.info("ready", run_dir=str(run_dir.path), containers=len(specs), sessions=len(restored))
        task_status.started(Daemon(run_dir.path, store, counters, stop.set))
        await stop.wait()
        _log.info("draining", calls_in_flight=hub.in_flight)
        containers.stop_accepting()
        whole = await hub.drain(limits.drain_seconds)
        await gateway.flush(limits.send_seconds)  # the answers of what has just ended
        _log.info("stopped", drained=whole)
        nursery.cancel_scope.cancel()


class _Body(Protocol):
    """A task that tells when it is up."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[None]: ...


class _Up:
    """A task status that sets an event, as often as the task is started again."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: Any = None) -> None:  # trio's signature
        del value
        self.event.set()


async def _start_supervised(nursery: trio.Nursery, name: str, body: _Body, counters: Counters) -> None:
    """Start ``body`` under supervision and wait until it is up; what it raises before that ends the start."""
    up = _Up()

    async def run() -> None:
        await body(task_status=up)

    async def supervised() -> None:
        await supervise(name, run, counters=counters, up=up.event)

    nursery.start_soon(supervised, name=name)
    await up.event.wait()  # bounded: the body is up at once, or raises


async def _signals_to(
    stop: trio.Event, end_now: Callable[[], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for number in received:
            if stop.is_set():
                _log.warning("second signal; ending at once", signal=signal.Signals(number).name)
                end_now()
                return
            stop.set()


# --- parts ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_store(config: Config) -> AsyncGenerator[Store, None]:
    """The configured store, its schema up to date. What a store needs is imported only where it is used.

    Raises:
        StartError: it is out of reach, or cannot be used by this version.
    """
    if config.store == "memory":
        from compass_forged.store.memory import MemoryStore  # noqa: PLC0415 -- see the docstring

        yield MemoryStore()
        return
    from compass_forged.store.postgres import open_postgres_store  # noqa: PLC0415 -- see the docstring

    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(open_database(config))
        opening = open_postgres_store(place, connections=config.limits.store_connections)
        try:
            store = await stack.enter_async_context(opening)
        except StoreError as error:
            raise StartError(f"store: {error}") from error
        yield store


@asynccontextmanager
async def open_database(config: Config) -> AsyncGenerator["ConnectParams", None]:
    """Where the configured Postgres is; the embedded one runs for the length of the block.

    Raises:
        ConfigError: the store is ``memory``, or the DSN cannot be read.
        StartError: the embedded server cannot run here.
    """
    from compass_forged.store.connect import as_params  # noqa: PLC0415 -- only where a database is used

    if config.store == "memory":
        raise ConfigError("store: the memory store has no database; configure embedded or a DSN")
    if config.store == "embedded":
        from compass_forged.store.embedded import embedded_postgres  # noqa: PLC0415 -- likewise

        async with embedded_postgres(Path(config.state_dir)) as params:
            yield params
        return
    yield as_params(os.environ[config.store.env] if isinstance(config.store, StoreVariable) else config.store)


def _gateway_limits(config: Config) -> GatewayLimits:
    limits = config.limits
    return GatewayLimits(
        frame_max_bytes=limits.frame_max_bytes,
        connections_per_container=limits.connections_per_container,
        calls_per_connection=limits.calls_per_connection,
        calls_per_container=limits.calls_per_container,
        outbox_max_bytes=limits.outbox_max_bytes,
        backlog_max_bytes=limits.backlog_max_bytes,
        bodies_max_bytes=limits.bodies_max_bytes,
        idle_seconds=limits.idle_seconds,
        frame_seconds=limits.frame_seconds,
        send_seconds=limits.send_seconds,
    )


def _credential_states(registry: Registry) -> list[CredentialState]:
    """The credentials and their budget gates as ``status`` shows them."""
    return [
        _credential_state(entry, provider.http)
        for entry in registry.entries
        for provider in (entry.author, entry.reviewer)
        if isinstance(provider, GitHubProvider | LinearProvider)
    ]


def _credential_state(entry: Entry, http: ForgeHttp) -> CredentialState:
    credential = http.credential
    gate = http.gate.statistics()
    tightest = min((found for found in gate.budget.resources if found.remaining is not None), key=_left, default=None)
    account = None if entry.identities is None else entry.identities.known(credential.role)
    return CredentialState(
        forge=f"{entry.provider}:{entry.host}",
        role=credential.role,
        account=None if account is None else str(account),
        broken=credential.broken,
        closed_for=round(gate.budget.closed_for, 1),
        paused_for=round(gate.paused_for, 1),
        on_trial=gate.on_trial,
        in_flight=gate.in_flight,
        waiting=sum(gate.waiting.values()),
        points_last_minute=gate.budget.points_last_minute,
        creations_last_hour=gate.budget.creations_last_hour,
        remaining=tightest.remaining if tightest else None,
        limit=tightest.limit if tightest else None,
        resets_in=round(tightest.resets_in, 1) if tightest and tightest.resets_in is not None else None,
    )


def _left(resource: ResourceStatus) -> float:
    """The share of a limit that is left: what is shown is the limit that will be reached first."""
    return (resource.remaining or 0) / (resource.limit or 1)


def _raise_descriptors(config: Config) -> int:
    """Take as many descriptors as the host allows, and check that they are enough for a container's connections.

    Returns:
        How many containers they are enough for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # not allowed here: then what there is must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    others, each = _descriptors_for(config)
    if soft < others + each:
        raise StartError(f"RLIMIT_NOFILE is {soft}; raise it to {others + each} at least (ulimit -n, or LimitNOFILE=)")
    return (soft - others) // each


def _descriptors_for(config: Config) -> tuple[int, int]:
    """How many descriptors the daemon may need besides its containers' sockets, and how many for each container."""
    credentials = sum(role is not None for forge in config.forge for role in (forge.author, forge.reviewer))
    pools = (
        CONCURRENCY_MAX * credentials,
        config.limits.store_connections + 1,  # and the one that listens
        CONNECTIONS + 2,  # the control socket's, its listener and directory
    )
    return sum(pools) + _SPARE_FDS, config.limits.connections_per_container + 2


def _store_name(config: Config) -> str:
    if isinstance(config.store, StoreVariable):
        return f"postgres (${config.store.env})"
    return config.store if config.store in {"embedded", "memory"} else "postgres"
