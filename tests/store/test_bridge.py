"""The bridge under what happens to connections: storms of cancellation, killed backends, a server that is away."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
import trio
import trio.testing

from compass_forged.errors import ConfigError, SchemaMismatch, StoreUnavailable, ValueRefused
from compass_forged.store import bridge as bridge_module
from compass_forged.store.bridge import Bridge, Timeouts, open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.embedded import embedded_postgres
from compass_forged.store.jobs import Executor
from compass_forged.store.migrate import migrate
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.store.statements import Statement
from tests.support.postgres import psql
from tests.support.stores import EMPTY, authored, bind, issue, shared_database

pytestmark = pytest.mark.postgres

ONE = Statement("one", "", "SELECT 1 AS one")
SLEEP = Statement("sleep", "", "SELECT pg_sleep($1)")
PID = Statement("pid", "", "SELECT pg_backend_pid() AS pid")


@pytest.fixture
def dsn() -> str:
    """A database without rows and without connections of ours."""
    dsn = shared_database()
    psql(dsn, EMPTY)
    while backends(dsn):
        time.sleep(0.01)
    return dsn


@pytest.fixture
async def bridge(dsn: str) -> AsyncGenerator[Bridge, None]:
    quick = Timeouts(statement=0.3, lock=0.1, answer=1.0)
    async with open_bridge(ConnectParams.parse(dsn), connections=2, timeouts=quick) as opened:
        yield opened


def backends(dsn: str) -> int:
    """How many connections of ours the server has."""
    return len(pids(dsn))


def pids(dsn: str) -> set[str]:
    """The server processes of our connections."""
    return set(ours(dsn, "pid").split())


def ours(dsn: str, what: str) -> str:
    """An expression over the connections that bridges have to this database."""
    return psql(
        dsn,
        f"SELECT {what} FROM pg_stat_activity"  # noqa: S608 -- a test's own words
        " WHERE application_name = 'compass-forged' AND datname = current_database()",
    )


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 -- another process's state
            await trio.sleep(0.01)


async def all_answer(bridge: Bridge, calls: int = 8) -> None:
    async def call() -> None:
        assert (await bridge.fetch(ONE))[0]["one"] == 1

    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(call)


async def test_calls_beyond_the_connections_wait_their_turn(bridge: Bridge, dsn: str) -> None:
    await all_answer(bridge, 100)
    assert backends(dsn) == 2


async def test_the_end_of_the_block_closes_every_connection(dsn: str) -> None:
    async with open_bridge(ConnectParams.parse(dsn), connections=3) as bridge:
        assert backends(dsn) == 3
    assert not bridge.available
    await until(lambda: backends(dsn) == 0)
    with pytest.raises(StoreUnavailable):
        await bridge.fetch(ONE)


async def test_the_end_of_the_block_does_not_wait_for_a_long_statement(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_CLOSE_SECONDS", 0.2)
    slow = Timeouts(statement=60.0, answer=60.0)
    failures: list[BaseException] = []
    bridges: list[Bridge] = []

    async def call() -> None:
        try:
            await bridges[0].fetch(SLEEP, 30.0)
        except StoreUnavailable as error:
            failures.append(error)

    async with (
        trio.open_nursery() as nursery,
        open_bridge(ConnectParams.parse(dsn), connections=1, timeouts=slow) as bridge,
    ):
        bridges.append(bridge)
        for _ in range(2):
            nursery.start_soon(call)
        await trio.sleep(0.05)
    assert len(failures) == 2


async def test_the_end_of_the_block_does_not_wait_for_work_that_waits_for_something_else(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_CLOSE_SECONDS", 0.1)
    bridges: list[Bridge] = []

    async def stuck(_executor: Executor) -> None:
        await asyncio.sleep(60)

    async def call() -> None:
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await bridges[0].transaction(stuck)

    async with trio.open_nursery() as nursery, open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
        bridges.append(bridge)
        nursery.start_soon(call)
        await trio.sleep(0.05)


async def test_a_worker_that_is_cancelled_tells_its_caller(bridge: Bridge) -> None:
    async def call() -> None:
        with pytest.raises(StoreUnavailable, match="it is being closed"):
            await bridge.fetch(SLEEP, 0.2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.sleep(0.05)
        for task in bridge._tasks:
            task.cancel()


async def test_a_goodbye_that_fails_is_a_hangup(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_connection: object, *, timeout: float) -> None:  # noqa: ASYNC109 -- asyncpg's own signature
        await asyncio.sleep(0)
        raise TimeoutError

    async with open_bridge(ConnectParams.parse(dsn), connections=2):
        monkeypatch.setattr(asyncpg.Connection, "close", failing)
    await until(lambda: backends(dsn) == 0)


async def test_what_the_block_raises_comes_out_as_itself(dsn: str) -> None:
    with pytest.raises(KeyError):
        async with open_bridge(ConnectParams.parse(dsn), connections=1):
            raise KeyError


async def test_a_block_that_is_cancelled_leaves_no_connection(dsn: str) -> None:
    with trio.move_on_after(0.1):
        async with open_bridge(ConnectParams.parse(dsn), connections=2) as bridge:
            await bridge.fetch(SLEEP, 0.3)
    await until(lambda: backends(dsn) == 0)


async def test_a_storm_of_cancellations_leaves_every_connection_whole(bridge: Bridge, dsn: str) -> None:
    chance = random.Random(20260817)  # noqa: S311 -- the moments of cancellation, the same each run

    async def insert(executor: Executor) -> None:
        await executor.fetch(Statement("insert", "", "INSERT INTO user_accounts (handle) VALUES ('storm')"))
        await executor.fetch(SLEEP, 0.002)
        raise LookupError  # rolls back

    async def call() -> None:
        with trio.move_on_after(chance.uniform(0, 0.02)):
            if chance.random() < 0.5:
                await bridge.fetch(SLEEP, chance.uniform(0, 0.01))
            else:
                with pytest.raises(LookupError):
                    await bridge.transaction(insert)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(call)
            await trio.sleep(chance.uniform(0, 0.002))

    await all_answer(bridge)
    assert bridge.available
    assert backends(dsn) == 2
    # A transaction whose caller left is still on its way to its end for a moment.
    await until(lambda: ours(dsn, "DISTINCT state") == "idle")
    assert psql(dsn, "SELECT count(*) FROM user_accounts") == "0"


async def test_a_cancelled_caller_leaves_at_once_and_its_write_stands(bridge: Bridge, dsn: str) -> None:
    write = Statement("write", "", "INSERT INTO user_accounts (handle) SELECT 'late' FROM pg_sleep(0.1)")
    with trio.move_on_after(0.02) as scope:
        await bridge.fetch(write)
    assert scope.cancelled_caught
    await until(lambda: psql(dsn, "SELECT handle FROM user_accounts") == "late")


async def test_a_call_that_was_cancelled_in_the_queue_never_runs(bridge: Bridge, dsn: str) -> None:
    write = Statement("write", "", "INSERT INTO user_accounts (handle) VALUES ('never')")
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(bridge.fetch, SLEEP, 0.1)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.02):
            await bridge.fetch(write)
    await all_answer(bridge)
    assert psql(dsn, "SELECT count(*) FROM user_accounts") == "0"


async def test_an_asker_of_much_delays_itself_alone(bridge: Bridge) -> None:
    done: list[str] = []

    async def ask(lane: str) -> None:
        await bridge.fetch(SLEEP, 0.02, lane=lane)
        done.append(lane)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, "quiet")
    assert done.index("quiet") <= 5  # behind what was running, and one of the greedy one's


# --- errors ---


async def test_a_slow_statement_is_given_up_by_the_server(bridge: Bridge) -> None:
    with pytest.raises(StoreUnavailable, match="a statement took too long"):
        await bridge.fetch(SLEEP, 5.0)
    await all_answer(bridge)


async def test_a_lock_that_is_held_is_not_waited_for_long(bridge: Bridge, dsn: str) -> None:
    lock = Statement("lock", "", "LOCK TABLE user_accounts IN ACCESS EXCLUSIVE MODE")

    async def hold(executor: Executor) -> None:
        await executor.fetch(lock)
        with pytest.raises(Exception, match="statement timeout"):  # the driver's own, inside a job
            await executor.fetch(SLEEP, 5.0)
        raise LookupError

    async def holder(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(LookupError):
            await bridge.transaction(hold)

    async with trio.open_nursery() as nursery:
        await nursery.start(holder)
        await trio.sleep(0.05)
        with pytest.raises(StoreUnavailable, match="a lock was not free in time"):
            await bridge.fetch(Statement("read", "", "SELECT handle FROM user_accounts"))
    await all_answer(bridge)


async def test_a_deadlock_is_tried_again(bridge: Bridge, dsn: str) -> None:
    psql(dsn, "INSERT INTO user_accounts (handle) VALUES ('a'), ('b')")
    update = Statement("update", "", "UPDATE user_accounts SET created_at = now() WHERE handle = $1")
    attempts: list[str] = []

    def crossing(first: str, second: str) -> Callable[[Executor], Awaitable[None]]:
        async def work(executor: Executor) -> None:
            attempts.append(first)
            await executor.fetch(update, first)
            await executor.fetch(SLEEP, 0.03)
            await executor.fetch(update, second)

        return work

    patient = Timeouts(statement=5.0, lock=5.0, answer=10.0)
    params = ConnectParams.parse(dsn + "&deadlock_timeout=50")  # the superuser's to shorten
    async with open_bridge(params, connections=2, timeouts=patient) as crossed, trio.open_nursery() as nursery:
        nursery.start_soon(crossed.transaction, crossing("a", "b"))
        nursery.start_soon(crossed.transaction, crossing("b", "a"))
        await trio.testing.wait_all_tasks_blocked()
        await until(lambda: len(attempts) >= 3)
    assert len(attempts) >= 3


async def test_a_deadlock_that_never_ends_is_given_up(bridge: Bridge) -> None:
    attempts: list[int] = []
    fail = Statement("fail", "", "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")

    async def work(executor: Executor) -> None:
        attempts.append(1)
        await executor.fetch(fail)

    with pytest.raises(StoreUnavailable, match="again"):
        await bridge.transaction(work)
    assert len(attempts) == 3


async def test_a_statement_that_does_not_fit_the_schema_says_so(bridge: Bridge) -> None:
    with pytest.raises(SchemaMismatch, match=r'relation "nowhere" does not exist; run compass-forged db status'):
        await bridge.fetch(Statement("nowhere", "", "SELECT * FROM nowhere"))


@pytest.mark.parametrize("value", [2**70, "\ud800", "a\0b"])
async def test_a_value_out_of_range_is_refused_without_being_shown(bridge: Bridge, value: object) -> None:
    kind = "bigint" if isinstance(value, int) else "text"
    with pytest.raises(ValueRefused) as raised:
        await bridge.fetch(Statement("value", "", f"SELECT $1::{kind}"), value)
    assert repr(value) not in str(raised.value)
    await all_answer(bridge)


async def test_an_error_of_the_work_itself_is_its_callers(bridge: Bridge) -> None:
    async def work(executor: Executor) -> None:
        await executor.fetch(ONE)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await bridge.transaction(work)
    await all_answer(bridge)


async def test_too_many_waiting_calls_are_refused_at_once(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "_QUEUE_LIMIT", 1)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(bridge.fetch, SLEEP, 0.1)
            await trio.sleep(0.02)  # taken by a worker
        nursery.start_soon(bridge.fetch, ONE)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(StoreUnavailable, match="too many calls are waiting already"):
            await bridge.fetch(ONE)


async def test_a_full_crew_is_waited_for_no_longer_than_the_deadline(dsn: str) -> None:
    impatient = Timeouts(statement=2.0, answer=0.2)
    with structlog.testing.capture_logs() as logs:
        async with open_bridge(ConnectParams.parse(dsn), connections=1, timeouts=impatient) as bridge:
            with pytest.raises(StoreUnavailable, match=r"no answer within 0\.2 s"):
                await bridge.fetch(SLEEP, 1.0)
            # The worker hangs up on the statement and connects anew.
            await until(lambda: [entry["event"] for entry in logs][1:] == ["store_lost", "store_connected"])
            await all_answer(bridge)


# --- connections that are lost ---


async def test_a_killed_backend_costs_its_caller_an_error_and_nobody_else(bridge: Bridge, dsn: str) -> None:
    async def kill(executor: Executor) -> None:
        pid = (await executor.fetch(PID))[0]["pid"]
        psql(dsn, f"SELECT pg_terminate_backend({pid})")
        await executor.fetch(ONE)

    with pytest.raises(StoreUnavailable):
        await bridge.transaction(kill)
    assert bridge.available
    await all_answer(bridge)
    await until(lambda: backends(dsn) == 2)


async def test_whoever_waits_is_told_when_the_last_connection_is_lost(dsn: str) -> None:
    failures: list[str] = []
    async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:

        async def call() -> None:
            with pytest.raises(StoreUnavailable) as raised:
                await bridge.fetch(SLEEP, 1.0)
            failures.append(str(raised.value))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
            await trio.sleep(0.05)
            ours(dsn, "pg_terminate_backend(pid)")
        assert len(failures) == 3
        await until(lambda: bridge.available)
        await all_answer(bridge)


async def test_backends_killed_while_idle_are_replaced_without_a_call(bridge: Bridge, dsn: str) -> None:
    before = pids(dsn)
    ours(dsn, "pg_terminate_backend(pid)")
    await until(lambda: backends(dsn) == 2)
    assert not before & pids(dsn)
    await until(lambda: bridge.available)
    await all_answer(bridge)


async def test_a_fault_inside_a_worker_costs_one_connection(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(connection: "asyncpg.Connection[Any]") -> bool:
        await connection.reset()
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(bridge_module._Worker, "_mend", staticmethod(broken))
        with pytest.raises(SchemaMismatch):
            await bridge.fetch(Statement("nowhere", "", "SELECT * FROM nowhere"))
        await until(lambda: any(entry["event"] == "store_worker_failed" for entry in logs))
    await until(lambda: bridge._connected == 2)
    await all_answer(bridge)


async def test_a_connection_that_cannot_be_reset_is_replaced(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_connection: object, *, timeout: float) -> None:  # noqa: ASYNC109 -- asyncpg's own signature
        await asyncio.sleep(0)
        raise TimeoutError

    before = {(await bridge.fetch(PID))[0]["pid"]}
    monkeypatch.setattr(asyncpg.Connection, "reset", failing)
    for _ in range(2):
        with pytest.raises(SchemaMismatch):
            await bridge.fetch(Statement("nowhere", "", "SELECT * FROM nowhere"))
    await until(lambda: bridge._connected == 2)
    assert (await bridge.fetch(PID))[0]["pid"] not in before


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_driver_that_lost_count_of_its_protocol_costs_one_connection(
    dsn: str, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    resets: list[object] = []

    async def lost(_executor: Executor, _statement: Statement, *_arguments: object) -> list[object]:
        await asyncio.sleep(0)
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    async def noted(connection: object, *, timeout: float) -> None:  # noqa: ASYNC109 -- asyncpg's own signature
        await asyncio.sleep(0)
        resets.append((connection, timeout))

    async def work(executor: Executor) -> None:
        await executor.fetch(ONE)

    with structlog.testing.capture_logs() as logs:
        async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
            before = (await bridge.fetch(PID))[0]["pid"]
            with monkeypatch.context() as patch:
                patch.setattr(Executor, "fetch", lost)
                patch.setattr(asyncpg.Connection, "reset", noted)
                with pytest.raises(StoreUnavailable, match=r"the connection was lost$") as raised:
                    await (bridge.transaction(work) if in_transaction else bridge.fetch(ONE))
            assert "protocol state" not in str(raised.value)
            await until(lambda: bridge.available)
            assert (await bridge.fetch(PID))[0]["pid"] != before
            await until(lambda: backends(dsn) == 1)
    assert resets == []  # it is not mended
    assert [entry["event"] for entry in logs] == ["store_connected", "store_lost", "store_connected"]


async def test_a_server_that_goes_away_is_ridden_out(tmp_path: Path) -> None:
    places: list[ConnectParams] = []
    stores: list[PostgresStore] = []
    end = trio.Event()

    async def ask() -> str:
        try:
            await stores[0].load_host("host-1")
        except StoreUnavailable as error:
            return str(error)
        return "answered"

    async def use(task_status: trio.TaskStatus[None]) -> None:
        async with open_postgres_store(places[0], connections=2) as store:
            stores.append(store)
            task_status.started()
            await end.wait()

    settings = {"fsync": "off"}
    async with trio.open_nursery() as nursery:
        async with embedded_postgres(tmp_path, settings=settings) as params:
            places.append(params)
            await nursery.start(use)
            account = (await bind(stores[0])).account
        await until(lambda: not stores[0].available)
        with trio.fail_after(0.5):  # at once, not after a deadline
            assert "unavailable" in await ask()
        async with embedded_postgres(tmp_path, settings=settings):
            await until_answer(ask, "answered")
            assert stores[0].available
            await stores[0].record_authored_artifact(authored(issue(1), account))
            end.set()


async def until_answer(ask: Callable[[], Awaitable[str]], wanted: str) -> None:
    with trio.fail_after(15):
        while await ask() != wanted:  # noqa: ASYNC110 -- another process's state
            await trio.sleep(0.02)


# --- starting ---


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("host=", "host=/nowhere"), "No such file or directory"),
        (("postgresql:///", "postgresql:///missing_"), 'database "missing_.*" does not exist'),
        (("password=", "password=wrong"), 'password authentication failed for user "forged"'),
        (("user=", "user=no"), 'password authentication failed for user "noforged"'),
    ],
)
async def test_a_store_that_cannot_be_reached_says_where_and_why(dsn: str, change: tuple[str, str], why: str) -> None:
    params = ConnectParams.parse(dsn.replace(*change))
    with pytest.raises(StoreUnavailable, match=why) as raised:
        async with open_postgres_store(params):
            pytest.fail("must not open")
    assert params.shown in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_port_where_nobody_listens_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"forged@127\.0\.0\.1:1/db is unavailable: .*refused"):
        await migrate("postgresql://forged:hunter2-hunter2@127.0.0.1:1/db")


async def test_options_that_the_driver_does_not_know_are_the_operators() -> None:
    with pytest.raises(ConfigError, match="check its options"):
        await migrate("postgresql://forged@127.0.0.1:1/db?sslmode=maybe")


async def test_a_host_that_does_not_resolve_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"nowhere\.invalid/db is unavailable: \w"):
        await migrate("postgresql://nowhere.invalid/db?user=forged")


async def test_no_password_is_in_any_error_or_repr(dsn: str) -> None:
    password = dsn.partition("password=")[2]
    seen: list[str] = [repr(ConnectParams.parse(dsn)), repr(ConnectParams.parse(dsn).shown)]
    with structlog.testing.capture_logs() as logs:
        async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
            seen.append(repr(bridge))
            with pytest.raises(SchemaMismatch) as raised:
                await bridge.fetch(Statement("nowhere", "", "SELECT * FROM nowhere"))
            seen.append(repr(raised.value))
            assert raised.value.__cause__ is None
            assert raised.value.__context__ is None
    assert logs
    assert not [text for text in [*seen, *map(repr, logs)] if password in text]
