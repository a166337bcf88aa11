"""The bridge from trio to Postgres: the only module that knows asyncpg and trio_asyncio.

A few connections, each owned by a worker coroutine in asyncio land, take jobs from one bounded queue. Measured, this
costs half of a bridge per call and a third of a pool's acquire. The rules:

* A caller waits for its answer under a deadline and leaves at once when it is cancelled. Its job is then dropped if it
  still waits; once begun it runs to its end, which the server's statement timeout bounds: a write that was cancelled
  half way has usually been committed anyway, and a cancel request would cost a connection of its own.
* A connection that has shown any error is reset before its next job, and replaced if it cannot be.
* A connection that is lost is opened again with a growing, jittered delay. While there is none at all, calls fail at
  once instead of waiting, and so do those in the queue.
* What others notify is heard on a connection of its own, which is opened again when it is lost. It is asked every few
  seconds: a peer that went away without a word is not noticed by listening alone.
* Rows that wait together are sent together (``jobs.py``), and each has its own answer.
* Nothing of asyncpg leaves: callers see rows, and the kinds of ``StoreError``.
"""

import asyncio
import contextvars
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import asyncpg
import outcome
import trio
import trio_asyncio

from compass_forged.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable, ValueRefused
from compass_forged.observability import get_logger
from compass_forged.store.connect import ConnectParams
from compass_forged.store.jobs import Executor, Job, Joint, Row, Work, joined, take_joined
from compass_forged.store.lanes import FairQueue
from compass_forged.store.statements import Statement
from compass_forged.store.unwrap import unwrapped

T = TypeVar("T")
ErrorMaker = Callable[[], StoreError]

_log = get_logger(__name__)
_QUEUE_LIMIT: Final = 1024
_LANE_LIMIT: Final = 256
"""How many calls may wait in all, and of one asker. A container has half as many calls in flight."""
JOIN_AT_MOST: Final = 32
"""How many rows go in one statement. Of 64 that wait, two connections then write half each while the other half's
callers are told; more in one statement makes a row hardly cheaper."""
_BACKOFF_FIRST_SECONDS: Final = 0.05
_BACKOFF_MAX_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_RESET_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 5.0
_KEEPALIVE: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""A host that is lost without a word lets go of its locks within half a minute; by the system's defaults, two hours."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long what may take, in seconds.

    Attributes:
        statement: one statement, measured by the server.
        lock: waiting for one lock, measured by the server.
        answer: a whole call, waiting in the queue included, measured here; a server that hangs is given up after it.
        connect: opening one connection.
    """

    statement: float = 2.0
    lock: float = 1.0
    answer: float = 5.0
    connect: float = 5.0


class Ears(Protocol):
    """Who listens. What is not awaited must neither raise nor block."""

    def heard(self, payload: str) -> None:
        """A notification came."""
        ...

    def listening(self) -> None:
        """The connection listens, for the first time or again: what was told before is lost."""
        ...

    async def tend(self, executor: Executor, *, fresh: bool) -> None:
        """Run on each new connection before it listens (``fresh``), and every few seconds afterwards (asyncio land).

        What it raises costs the connection; on the first connection of all it is raised by ``Bridge.listen``.
        """
        ...


class Bridge:
    """A small crew of connections to one Postgres. Made by ``open_bridge``."""

    def __init__(
        self,
        params: ConnectParams,
        *,
        connections: int,
        timeouts: Timeouts,
        constraints: Mapping[str, ErrorMaker],
        join_at_most: int,
    ) -> None:
        self._params = params
        self._join_at_most = join_at_most
        self._timeouts = timeouts
        self._constraints = constraints
        self._queue: FairQueue[Job[Any]] = FairQueue()
        self._idle: list[_Worker] = []
        self._workers = [_Worker(self) for _ in range(connections)]
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: set[_Listener] = set()
        self._land: tuple[asyncio.AbstractEventLoop, contextvars.Context] | None = None
        self._connected = 0
        self._waking = False
        self._closing = False
        self._stop = trio.Event()

    @property
    def available(self) -> bool:
        """Whether at least one connection stands, as far as is known without asking."""
        return self._connected > 0 and not self._closing

    async def fetch(self, statement: Statement, *arguments: object, lane: object = None) -> list[Row]:
        """The rows of one statement, in a transaction of its own.

        ``lane`` says for whom: those who wait are served in turns, so that one asker of much delays itself alone.

        Raises:
            StoreUnavailable: no connection, no answer in time, or too many calls waiting.
            ValueRefused: an argument breaks a rule of the schema that has no error of its own.
            SchemaMismatch: the statement does not fit the schema.
            StoreError: what the constraint table names for a violated constraint.
        """
        job: Job[list[Row]] = Job(
            lambda executor: executor.fetch(statement, *arguments), in_transaction=False, lane=lane
        )
        return await self._call(job)

    async def write(self, row: Joint, *, lane: object = None) -> bool:
        """Send one row, with others if some wait that fit; says whether the statement answered it with a row.

        Raises:
            StoreError: as in ``fetch``, and never for another row's fault.
        """
        rows = await self._call(joined(row, lane))
        return bool(rows)

    async def transaction(self, work: Work[T]) -> T:
        """Run ``work`` in one transaction; an exception out of it rolls back and is raised here.

        ``work`` runs in asyncio land: it awaits its executor and nothing else. It runs again, up to three times, when
        the server ends the transaction for a deadlock, so that it must not change anything outside.

        Raises:
            StoreError: as in ``fetch``.
        """
        return await self._call(Job(work, in_transaction=True))

    @asynccontextmanager
    async def listen(self, channel: str, ears: Ears) -> AsyncGenerator[None, None]:
        """Listen on a channel, on a connection of its own, for the length of the block.

        Raises:
            StoreUnavailable: no connection can be had, on entering; within the block one that is lost is replaced.
            StoreError: what ``ears.tend`` raised on entering.
        """
        if self._land is None or self._closing:
            raise self.unavailable("no connection")
        loop, context = self._land
        listener = _Listener(self, channel, ears)
        self._listeners.add(listener)
        listener.task = loop.create_task(listener.run(), context=context.copy())
        try:
            await listener.begun.wait()  # bounded: connecting and tending have their times
            if listener.failure is not None:
                raise listener.failure
            yield
        finally:
            listener.stop()
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await listener.ended.wait()
            self._listeners.discard(listener)

    async def _call(self, job: Job[T]) -> T:
        if not self.available:
            await trio.lowlevel.checkpoint()
            raise self.unavailable("no connection")
        if len(self._queue) >= _QUEUE_LIMIT or self._queue.waiting_in(job.lane) >= _LANE_LIMIT:
            await trio.lowlevel.checkpoint()
            raise self.unavailable("too many calls are waiting already")
        self._queue.put(job.lane, job)
        self._wake_one()
        try:
            with trio.move_on_after(self._timeouts.answer):
                await job.done.wait()
        finally:
            # Cancelled or late: a job that no worker has taken must not run for nobody.
            if job.answer is None:
                job.left = True
                self._queue.remove(job.lane, job)
        if job.answer is None:
            raise self.unavailable(f"no answer within {self._timeouts.answer:g} s")
        return job.answer.unwrap()

    def unavailable(self, why: str) -> StoreUnavailable:
        """The error for a store out of reach; it names the place, never the password."""
        return StoreUnavailable(f"the store at {self._params.shown} is unavailable: {why}")

    def _wake_one(self) -> None:
        # One at a time: it takes along what has come by then, and wakes the next if that was not all.
        if self._queue and self._idle and not self._waking:
            self._waking = True
            self._idle.pop().wake()

    # What follows is the workers' side.

    def take(self) -> "Job[Any] | None":
        """The next job, or None where nothing waits."""
        job = take_joined(self._queue, self._join_at_most)
        self._wake_one()
        return job

    def put_back(self, jobs: "Sequence[Job[Any]]") -> None:
        """Have jobs that were begun in vain wait again, before all others."""
        for job in reversed(jobs):
            self._queue.put_back(job.lane, job)
        self._wake_one()

    def park(self, worker: "_Worker") -> None:
        """Note that the worker waits for a job."""
        self._idle.append(worker)

    def unpark(self, worker: "_Worker") -> None:
        """The worker no longer waits, for whatever reason it woke."""
        if worker in self._idle:
            self._idle.remove(worker)
        else:
            self._waking = False

    def note_connected(self) -> None:
        """A worker's connection stands."""
        self._connected += 1
        if self._connected == 1:
            _log.info("store_connected", store=self._params.shown)

    def note_disconnected(self) -> None:
        """A worker's connection is gone; with the last one, whoever waits is told."""
        self._connected -= 1
        if self._connected:
            self._wake_one()
            return
        _log.warning("store_lost", store=self._params.shown)
        while (job := self._queue.take()) is not None:
            job.settle(outcome.Error(self.unavailable("the connection was lost")))

    @property
    def closing(self) -> bool:
        """Whether workers should end."""
        return self._closing

    @property
    def answer_seconds(self) -> float:
        """After how long a worker gives up a connection whose server hangs."""
        return self._timeouts.answer

    async def connect(
        self, name: str = "compass-forged", more: Mapping[str, str] | None = None
    ) -> "asyncpg.Connection[Any]":
        """A new connection (asyncio land). ``name`` is how the server lists it, ``more`` are settings beside ours.

        Raises:
            StoreUnavailable: it cannot be had now.
            ConfigError: the connection string asks for what the driver does not know.
        """
        milliseconds = {"statement_timeout": self._timeouts.statement, "lock_timeout": self._timeouts.lock}
        settings = {name: str(round(seconds * 1000)) for name, seconds in milliseconds.items()}
        # A transaction is open only between two awaits of a job; one that idles has lost its daemon.
        settings["idle_in_transaction_session_timeout"] = str(round(self._timeouts.answer * 2000))
        settings["application_name"] = name
        settings["TimeZone"] = "UTC"
        settings |= more or {}
        try:
            return await asyncpg.connect(
                self._params.uri,
                timeout=self._timeouts.connect,
                max_cached_statement_lifetime=0,
                server_settings=settings,
            )
        except ValueError:  # asyncpg.ClientConfigurationError among them; the texts may quote the string
            raise ConfigError(
                f"the DSN of the store at {self._params.shown} cannot be used: check its options"
            ) from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self.unavailable(_reason(error)) from None

    def translate(self, error: Exception) -> Exception:
        """What a caller may see of an error that a job ended with: never the driver's."""
        if isinstance(error, asyncpg.IntegrityConstraintViolationError):
            name = str(error.constraint_name or f"{error.table_name}.{error.column_name} is missing")
            maker = self._constraints.get(name)
            return maker() if maker else ValueRefused(f"the store refused a value: {name}")
        if isinstance(error, asyncpg.DataError):
            return ValueRefused("the store refused a value: a parameter is out of its column's range")
        if isinstance(error, asyncpg.SyntaxOrAccessError) and not isinstance(error, asyncpg.InsufficientPrivilegeError):
            return SchemaMismatch(
                f"the schema at {self._params.shown} is not what this version expects: {_reason(error)};"
                " run compass-forged db status"
            )
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError | OSError):
            return self.unavailable(_reason(error))
        return error

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Connect, serve until told to stop, close: the task behind the bridge (trio)."""
        async with trio_asyncio.open_loop():
            try:
                await trio_asyncio.aio_as_trio(self._start_workers)()
                task_status.started()
                await self._stop.wait()
            finally:
                self._closing = True
                with trio.move_on_after(3 * _CLOSE_SECONDS, shield=True):
                    await trio_asyncio.aio_as_trio(self._end_workers)()

    def stop(self) -> None:
        """Have the workers end; ``run`` returns once they have."""
        self._closing = True
        self._stop.set()

    async def _start_workers(self) -> None:
        self._land = (asyncio.get_running_loop(), contextvars.copy_context())
        for worker in self._workers:
            await worker.connect()
            self._tasks.append(asyncio.get_running_loop().create_task(worker.run()))

    async def _end_workers(self) -> None:
        for task, worker in zip(self._tasks, self._workers, strict=False):
            if not worker.busy:
                task.cancel()
        for listener in self._listeners:
            listener.stop()
        ending = [*self._tasks, *(listener.task for listener in self._listeners if listener.task is not None)]
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_SECONDS)
        await asyncio.gather(*(worker.close() for worker in self._workers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while (job := self._queue.take()) is not None:
            job.settle(outcome.Error(self.unavailable("it is being closed")))


class _Patience:
    """Gives a connection up on which one job takes too long. Asyncio land.

    One timer, which looks when it rings how long the job of that moment has had: a timer for each job would cost as
    much as a hop, and stay in the loop's heap until its time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._connection: asyncpg.Connection[Any] | None = None
        self._ends_at = 0.0
        self._armed = False

    def begin(self, connection: "asyncpg.Connection[Any]") -> None:
        """A job begins on the connection."""
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._ends_at = loop.time() + self._seconds
        if not self._armed:
            self._arm(self._seconds)

    def end(self) -> None:
        """It has ended, or is being seen to otherwise."""
        self._connection = None

    def _arm(self, seconds: float) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._armed = False
        if self._connection is None:
            return
        left = self._ends_at - asyncio.get_running_loop().time()
        if left > 0:
            self._arm(left)
        else:
            # Ends a pending statement at once; asyncpg's own timeout would open a second connection to cancel.
            self._connection.terminate()


class _Worker:
    """One connection and the coroutine that owns it. Everything here runs in asyncio land, but ``wake``."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._connection: asyncpg.Connection[Any] | None = None
        self._waker: asyncio.Future[None] | None = None
        self._patience = _Patience(bridge.answer_seconds)
        self.busy = False

    def wake(self) -> None:
        """End the worker's wait, from trio or asyncio; a worker that does not wait is left alone."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def connect(self) -> None:
        """Open the connection; raises what ``Bridge.connect`` raises."""
        self._connection = await self._bridge.connect()
        self._connection.add_termination_listener(lambda _connection: self.wake())
        self._bridge.note_connected()

    async def run(self) -> None:
        """Serve on the connection, and on its successors, until the bridge closes."""
        while not self._bridge.closing:
            try:
                await self._reconnect()
                if self._connection is not None:
                    await self._serve(self._connection)
            except Exception:  # noqa: BLE001 -- a fault in here must cost one connection, not the store
                _log.exception("store_worker_failed")
                self.busy = False
            self._drop()

    async def close(self) -> None:
        """Say goodbye to the server, or just hang up if it takes too long."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=_RESET_SECONDS)
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            connection.terminate()

    def _drop(self) -> None:
        if self._connection is not None and not self._bridge.closing:
            self._connection.terminate()
            self._connection = None
            self._bridge.note_disconnected()

    async def _reconnect(self) -> None:
        delay = _BACKOFF_FIRST_SECONDS
        while self._connection is None and not self._bridge.closing:
            try:
                await self.connect()
            except (StoreUnavailable, ConfigError):
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter is no secret
                delay = min(delay * 2, _BACKOFF_MAX_SECONDS)

    async def _serve(self, connection: "asyncpg.Connection[Any]") -> None:
        """Take jobs until the connection is lost or the bridge closes."""
        while not (connection.is_closed() or self._bridge.closing):
            job = self._bridge.take()
            if job is None:
                await self._wait_for_work()
                continue
            self.busy = True
            healthy = await self._do(connection, job)
            self.busy = False
            if not healthy:
                return

    async def _wait_for_work(self) -> None:
        self._waker = asyncio.get_running_loop().create_future()
        self._bridge.park(self)
        try:
            await self._waker
        finally:
            self._bridge.unpark(self)
            self._waker = None

    async def _do(self, connection: "asyncpg.Connection[Any]", job: Job[Any]) -> bool:
        """Run one job and settle it; says whether the connection may go on."""
        self._patience.begin(connection)
        try:
            result = await self._attempt(connection, job)
        except asyncio.CancelledError:
            job.settle(outcome.Error(self._bridge.unavailable("it is being closed")))
            raise
        except Exception as error:  # noqa: BLE001 -- whatever the job raised belongs to its caller
            self._patience.end()
            # What the server refuses it has undone; where the connection was lost, nobody knows.
            refused = isinstance(error, asyncpg.PostgresError) and not isinstance(
                error, asyncpg.PostgresConnectionError
            )
            parts = job.fall_apart() if refused else ()
            self._bridge.put_back(parts)
            if not parts:
                job.settle(outcome.Error(self._bridge.translate(error).with_traceback(None)))
            # The driver lost count of its own protocol, as it does when the server dies under it: not to be mended.
            return not isinstance(error, asyncpg.InternalClientError) and await self._mend(connection)
        finally:
            self._patience.end()
        job.settle(outcome.Value(result))
        return True

    async def _attempt(self, connection: "asyncpg.Connection[Any]", job: Job[Any]) -> object:
        """Run the job's work; again, where the server ended its transaction for a deadlock."""
        executor = Executor(connection)
        attempts_left = job.attempts
        while True:
            attempts_left -= 1
            try:
                if not job.in_transaction:
                    return await job.work(executor)
                async with connection.transaction():
                    return await job.work(executor)
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                if not attempts_left:
                    raise

    @staticmethod
    async def _mend(connection: "asyncpg.Connection[Any]") -> bool:
        """Put a connection that has shown an error into a known state; False if it has to be replaced."""
        if connection.is_closed():
            return False
        try:
            await connection.reset(timeout=_RESET_SECONDS)
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            return False
        return not connection.is_closed()


class _Listener:
    """The connection that listens, and the coroutine that owns it: asyncio land, but for ``stop`` and the events."""

    def __init__(self, bridge: Bridge, channel: str, ears: Ears) -> None:
        self._bridge = bridge
        self._channel = channel
        self._ears = ears
        self._connection: asyncpg.Connection[Any] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._proven = False
        self.task: asyncio.Task[None] | None = None
        self.failure: Exception | None = None
        self.begun = trio.Event()
        self.ended = trio.Event()

    def stop(self) -> None:
        """Have the coroutine hang up and end."""
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Listen on the connection, and on its successors, until stopped; only the first one's failure ends it."""
        delay = _BACKOFF_FIRST_SECONDS
        try:
            while True:
                try:
                    await self._connect()
                    await self._stay()
                except Exception as error:  # noqa: BLE001 -- whatever it was, the next connection mends it or fails too
                    if not self.begun.is_set():
                        self.failure = self._bridge.translate(error).with_traceback(None)
                        return
                if self._hang_up():
                    delay = _BACKOFF_FIRST_SECONDS
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter is no secret
                delay = min(delay * 2, _BACKOFF_MAX_SECONDS)
        finally:
            self._hang_up()
            self.begun.set()
            self.ended.set()

    async def _connect(self) -> None:
        connection = self._connection = await self._bridge.connect("compass-forged-listener", _KEEPALIVE)
        await self._tend(connection, fresh=True)
        await self._bounded(connection, connection.add_listener(self._channel, self._on_notification))
        _log.info("store_listening", channel=self._channel)
        self._ears.listening()
        self.begun.set()

    async def _stay(self) -> None:
        """Tend the connection until it is lost."""
        connection = self._connection
        assert connection is not None  # noqa: S101 -- it was opened right before
        self._lost = asyncio.get_running_loop().create_future()
        connection.add_termination_listener(self._on_lost)
        while not connection.is_closed():
            await asyncio.wait([self._lost], timeout=_HEARTBEAT_SECONDS)
            if not connection.is_closed():
                await self._tend(connection, fresh=False)
                self._proven = True

    def _on_lost(self, _connection: object) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    async def _tend(self, connection: "asyncpg.Connection[Any]", *, fresh: bool) -> None:
        await self._bounded(connection, self._ears.tend(Executor(connection), fresh=fresh))

    async def _bounded(self, connection: "asyncpg.Connection[Any]", work: Awaitable[object]) -> None:
        """Await ``work``, and give the connection up where its server hangs: that ends a pending statement at once."""
        hang = asyncio.get_running_loop().call_later(self._bridge.answer_seconds, connection.terminate)
        try:
            await work
        finally:
            hang.cancel()

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._ears.heard(str(payload))

    def _hang_up(self) -> bool:
        """Drop the connection; says whether it had stood for a while, so that the next may be opened soon."""
        connection, self._connection = self._connection, None
        proven, self._proven = self._proven, False
        if connection is not None:
            connection.terminate()
            if self.begun.is_set():
                _log.info("store_not_listening", channel=self._channel)
        return proven


_REASONS: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((asyncpg.QueryCanceledError,), "a statement took too long"),
    ((asyncpg.LockNotAvailableError,), "a lock was not free in time"),
    (
        (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError),
        "the connection was lost",
    ),
    ((TimeoutError,), "no connection within its time"),
)


def _reason(error: Exception) -> str:
    """One line from the server or the system; the driver's own texts, which may quote its arguments, are not used."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return reason
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        # asyncio puts its own words where the system's should stand.
        return os.strerror(error.errno) if error.errno and said.startswith("Connect call failed") else said[:200]
    told = " ".join(str(error).split())[:200]
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        told += "; grant the role what sql/grants.sql lists, or migrate as the schema's owner"
    return told


@asynccontextmanager
async def open_bridge(
    params: ConnectParams,
    *,
    connections: int = 4,
    timeouts: Timeouts | None = None,
    constraints: Mapping[str, ErrorMaker] | None = None,
    join_at_most: int = JOIN_AT_MOST,
) -> AsyncGenerator[Bridge, None]:
    """Connect to a Postgres for the length of the block; the block's end closes every connection within seconds.

    Args:
        params: where it is.
        connections: how many connections are held.
        timeouts: how long what may take.
        constraints: which error stands for which violated constraint, by the constraint's name.
        join_at_most: how many rows that wait together are sent as one statement; 1 sends each by itself.

    Raises:
        StoreUnavailable: the operator's: Postgres cannot be reached, or refuses the role; says which one and why.
        ConfigError: the operator's: the connection string cannot be used.
    """
    bridge = Bridge(
        params,
        connections=connections,
        timeouts=timeouts or Timeouts(),
        constraints=constraints or {},
        join_at_most=join_at_most,
    )
    with unwrapped():
        async with trio.open_nursery() as nursery:
            await nursery.start(bridge.run)
            try:
                yield bridge
            finally:
                bridge.stop()
