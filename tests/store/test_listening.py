"""What a Postgres store hears on a connection of its own: SQL by any hand, a lost connection, a server that hangs."""

import os
import re
import signal
from collections.abc import AsyncGenerator

import pytest
import structlog
import trio

from compass_forged.errors import StoreUnavailable
from compass_forged.ports import SessionNews, SessionWatch
from compass_forged.store import bridge as bridge_module
from compass_forged.store.bridge import Bridge, Timeouts, open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.ears import HostEars
from compass_forged.store.jobs import Executor
from compass_forged.store.news import SessionMailbox
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.store.statements import Statement, statements
from tests.support.postgres import fresh_database, psql
from tests.support.stores import HOST, bind

pytestmark = pytest.mark.postgres


@pytest.fixture
def dsn() -> str:
    return fresh_database()


@pytest.fixture
async def store(dsn: str) -> AsyncGenerator[PostgresStore, None]:
    quick = Timeouts(statement=1.5, lock=0.5, answer=2.0)  # a busy machine takes its time
    async with open_postgres_store(dsn, connections=1, timeouts=quick, apply_migrations=False) as opened:
        yield opened


def listeners(dsn: str, what: str = "pid") -> list[str]:
    """An expression over the connections that listen on this database."""
    return psql(
        dsn,
        f"SELECT {what} FROM pg_stat_activity"  # noqa: S608 -- a test's own words
        " WHERE application_name = 'compass-forged-listener' AND datname = current_database()",
    ).split()


async def none_listens(dsn: str) -> None:
    with trio.fail_after(5):
        while listeners(dsn):  # noqa: ASYNC110 -- another process's state
            await trio.sleep(0.01)


async def news(watch: SessionWatch) -> SessionNews:
    with trio.fail_after(5):
        return await watch.news()


WAYS = {
    "ended": "UPDATE agent_sessions SET ended_at = now()",
    "deleted": "DELETE FROM agent_sessions",
    "its container closed": "DELETE FROM host_containers",
    "moved to another host": "UPDATE agent_sessions SET host_id = 'host-2'",
    "moved to another container": "UPDATE agent_sessions SET container = 'c2'",
    "narrowed": "UPDATE agent_sessions SET scope = '{}'",
}


@pytest.mark.parametrize("way", WAYS)
async def test_an_operators_sql_is_heard(store: PostgresStore, dsn: str, way: str) -> None:
    session = await bind(store)
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        psql(dsn, WAYS[way])
        assert await news(watch) == SessionNews(frozenset({"s-1"}))
        assert session not in (await store.load_host(HOST))[1]


async def test_a_transaction_that_is_rolled_back_is_not_heard(store: PostgresStore, dsn: str) -> None:
    await bind(store, session="s-1")
    await bind(store, container="c2", session="s-2")
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        psql(dsn, "BEGIN; UPDATE agent_sessions SET ended_at = now(); ROLLBACK")
        psql(dsn, "UPDATE agent_sessions SET ended_at = now() WHERE session_id = 's-2'")
        assert await news(watch) == SessionNews(frozenset({"s-2"}))


async def test_an_ended_session_is_not_told_again(store: PostgresStore, dsn: str) -> None:
    await bind(store, session="s-1")
    await bind(store, session="s-2")
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        psql(dsn, "UPDATE agent_sessions SET scope = '{}' WHERE session_id = 's-1'")
        psql(dsn, "DELETE FROM agent_sessions WHERE session_id = 's-1'")
        psql(dsn, "UPDATE agent_sessions SET ended_at = now() WHERE session_id = 's-2'")
        assert await news(watch) == SessionNews(frozenset({"s-2"}))


async def test_payloads_of_others_are_left_alone(store: PostgresStore, dsn: str) -> None:
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        for payload in (
            "",
            "host-1",
            "host-1 ",
            "host-1 S",
            "host-1 s s",
            " s-1",
            "host-2 s-1",
            "host-1 " + "s" * 7000,
        ):
            psql(dsn, f"SELECT pg_notify('compass_forged_sessions', '{payload}')")
        psql(dsn, "SELECT pg_notify('compass_forged_sessions', 'host-1 s-9')")
        assert await news(watch) == SessionNews(frozenset({"s-9"}))


async def test_no_connection_listens_before_or_after_a_watch(store: PostgresStore, dsn: str) -> None:
    assert listeners(dsn) == []
    async with store.watch_sessions(HOST):
        assert len(listeners(dsn)) == 1
    await none_listens(dsn)


async def test_a_killed_listener_is_replaced_and_all_may_have_changed(store: PostgresStore, dsn: str) -> None:
    await bind(store)
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        for _ in range(3):
            listeners(dsn, "pg_terminate_backend(pid)")
            assert await news(watch) == SessionNews(None)
        await store.end_session(HOST, "c1")
        assert await news(watch) == SessionNews(frozenset({"s-1"}))


async def test_an_idle_watch_keeps_its_connection(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_HEARTBEAT_SECONDS", 0.02)
    await bind(store)
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        before = listeners(dsn)
        await trio.sleep(0.3)
        assert listeners(dsn) == before
        listeners(dsn, "pg_terminate_backend(pid)")
        assert await news(watch) == SessionNews(None)
        await store.end_session(HOST, "c1")
        assert await news(watch) == SessionNews(frozenset({"s-1"}))


async def test_a_server_that_hangs_is_noticed_by_asking(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_HEARTBEAT_SECONDS", 0.05)
    async with store.watch_sessions(HOST) as watch:
        await news(watch)
        (before,) = listeners(dsn)
        os.kill(int(before), signal.SIGSTOP)
        try:
            assert await news(watch) == SessionNews(None)
            assert set(listeners(dsn)) > {before}
        finally:
            os.kill(int(before), signal.SIGCONT)


async def test_a_host_that_another_took_meanwhile_is_told_once_and_taken_back(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(bridge_module, "_BACKOFF_FIRST_SECONDS", 0.5)
    holders = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted"
    mine = f"{holders} AND application_name = 'compass-forged-listener' AND datname = current_database()"
    await bind(store)
    async with store.watch_sessions(HOST) as watch, open_bridge(ConnectParams.parse(dsn), connections=1) as other:
        await news(watch)
        assert psql(dsn, mine) == "1"
        with structlog.testing.capture_logs() as logs:
            assert listeners(dsn, "pg_terminate_backend(pid, 5000)") == ["t"]
            assert (await other.fetch(statements()["claim_host"], HOST))[0]["held"], "before it is back"
            assert await news(watch) == SessionNews(None)
            await trio.sleep(0.3)
            assert psql(dsn, mine) == "0"
        assert [entry["host"] for entry in logs if "second daemon" in entry["event"]] == [HOST]
        await store.end_session(HOST, "c1")
        assert await news(watch) == SessionNews(frozenset({"s-1"}))
        await other.fetch(Statement("let_go", "", "SELECT pg_advisory_unlock_all()"))
        with trio.fail_after(5):
            while psql(dsn, mine) == "0":  # noqa: ASYNC110 -- another process's state
                await trio.sleep(0.01)


async def test_a_connection_that_does_not_listen_any_more_is_given_up(dsn: str) -> None:
    ears = HostEars(HOST, statements(), SessionMailbox())

    async def tend(executor: Executor) -> None:
        await ears.tend(executor, fresh=False)

    async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
        with pytest.raises(StoreUnavailable, match="transaction pooler"):
            await bridge.transaction(tend)


async def test_a_watch_of_a_store_that_is_closed_is_refused(dsn: str) -> None:
    async with open_postgres_store(dsn, connections=1, apply_migrations=False) as store:
        pass
    with pytest.raises(StoreUnavailable, match="no connection"):
        async with store.watch_sessions(HOST):
            pytest.fail("must not open")


async def test_a_watch_that_cannot_connect_says_so(store: PostgresStore, dsn: str) -> None:
    name = re.sub(r".*/(\w+)\?.*", r"\1", dsn)
    elsewhere = dsn.replace(f"/{name}?", "/postgres?")
    psql(elsewhere, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        with pytest.raises(StoreUnavailable, match="not currently accepting connections"):
            async with store.watch_sessions(HOST):
                pytest.fail("must not open")
    finally:
        psql(elsewhere, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def test_the_end_of_the_store_ends_the_connection_of_an_open_watch(dsn: str) -> None:
    stores: list[PostgresStore] = []

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        async with stores[0].watch_sessions(HOST) as watched:
            await news(watched)
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        async with open_postgres_store(dsn, connections=1, apply_migrations=False) as store:
            stores.append(store)
            await nursery.start(watch)
        await none_listens(dsn)
        nursery.cancel_scope.cancel()


async def test_a_cancelled_daemon_leaves_no_listener(dsn: str) -> None:
    opened: list[Bridge] = []
    with trio.move_on_after(0.3):
        async with open_postgres_store(dsn, connections=1, apply_migrations=False) as store:
            opened.append(store._bridge)
            async with store.watch_sessions(HOST):
                await trio.sleep_forever()
    assert not opened[0].available
    await none_listens(dsn)
