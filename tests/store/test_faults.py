"""What becomes of records when the database is slow, locked, killed, away, or forgets: nobody is told a wrong thing."""

import os
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from compass_forged.errors import RequestKeyTaken, StoreUnavailable
from compass_forged.ports import Account, ContainerSpec, SessionBinding
from compass_forged.store.bridge import Bridge, open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.embedded import embedded_postgres
from compass_forged.store.jobs import Executor
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.store.statements import Statement
from tests.support.postgres import psql
from tests.support.relay import relayed
from tests.support.stores import HOST, PATIENT, authored, bind, empty, issue, shared_database

pytestmark = pytest.mark.postgres

DEADLINES: Final = int(os.environ.get("FORGED_TEST_DEADLINES", "300"))
"""How many records are cut off at a random moment; more for a longer look."""
SLEEP = Statement("sleep", "", "SELECT pg_sleep($1)")
CONNECTIONS: Final = 2


@pytest.fixture
async def dsn() -> str:
    """The database of the run, without rows."""
    dsn = shared_database()
    async with open_postgres_store(dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store:
        await empty(store)
    return dsn


@pytest.fixture
async def store(dsn: str) -> AsyncGenerator[PostgresStore, None]:
    async with open_postgres_store(dsn, connections=CONNECTIONS, timeouts=PATIENT, apply_migrations=False) as opened:
        yield opened


@pytest.fixture
async def hasty(dsn: str) -> AsyncGenerator[PostgresStore, None]:
    """A store that hardly waits for a lock."""
    brief = replace(PATIENT, lock=0.1)
    async with open_postgres_store(dsn, connections=1, timeouts=brief, apply_migrations=False) as opened:
        yield opened


@pytest.fixture
async def scout(store: PostgresStore) -> Account:
    return (await bind(store)).account


@pytest.fixture
async def elsewhere(dsn: str) -> AsyncGenerator[Bridge, None]:
    """Another daemon's connection."""
    async with open_bridge(ConnectParams.parse(dsn), connections=1, timeouts=PATIENT) as opened:
        yield opened


class Held:
    """A transaction of another session that has done something and waits."""

    def __init__(self, bridge: Bridge, sql: str) -> None:
        self._bridge = bridge
        self._sql = sql
        self._done = trio.Event()
        self._end = ""

    async def run(self, task_status: trio.TaskStatus["Held"]) -> None:
        """Hold until told how to end."""

        async def work(executor: Executor) -> None:
            await executor.fetch(Statement("held", "", self._sql))
            task_status.started(self)
            while not self._end:
                await executor.fetch(SLEEP, 0.01)
            if self._end == "rollback":
                raise LookupError

        try:
            await self._bridge.transaction(work)
        except LookupError:
            assert self._end == "rollback"
        self._done.set()

    async def end(self, how: str) -> None:
        """``commit`` or ``rollback``."""
        self._end = how
        await self._done.wait()


def rows(dsn: str) -> str:
    return psql(dsn, "SELECT count(*) FROM forge_authored_artifacts")


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not holds():  # noqa: ASYNC110 -- another task's state
            await trio.sleep(0.01)


# --- locks and slowness -----------------------------------------------------------------------------------------------


def insert_as_another_daemon(account: Account, number: int, key: str) -> str:
    return f"""
      INSERT INTO forge_authored_artifacts (forge_provider, forge_host, repo, kind, number, repo_display,
        agent_account_id, owner_user_id, session_id, client_request_id, request_fingerprint, url, forge_created_at,
        created_at_unix_ms)
      VALUES (1, 'github.com', 'acme/app', 'issue', {number}, 'Acme/app', {account.agent_id}, {account.owner_id}, 's-1',
        '{key}', decode(repeat('00', 32), 'hex'), '', '2026-08-17T10:00:00Z', 0)
    """  # noqa: S608 -- a test's own words


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_a_key_that_another_daemon_is_just_recording_is_waited_for_briefly_and_then_decided(
    hasty: PostgresStore, elsewhere: Bridge, how: str
) -> None:
    scout = (await bind(hasty)).account
    record = authored(issue(2), scout, "key-1")
    async with trio.open_nursery() as nursery:
        held: Held = await nursery.start(Held(elsewhere, insert_as_another_daemon(scout, 1, "key-1")).run)
        with pytest.raises(StoreUnavailable, match="a lock was not free in time"):
            await hasty.record_authored_artifact(record)
        await held.end(how)
    if how == "commit":
        with pytest.raises(RequestKeyTaken):
            await hasty.record_authored_artifact(record)
    else:
        await hasty.record_authored_artifact(record)
    memo = await hasty.authored_artifact_by_request_id(scout.agent_id, "key-1")
    assert memo is not None
    assert memo.coordinate == issue(1 if how == "commit" else 2)


async def test_a_record_that_takes_too_long_is_given_up_by_the_server_and_leaves_nothing(
    dsn: str, elsewhere: Bridge
) -> None:
    slow = replace(PATIENT, statement=0.5)
    async with open_postgres_store(dsn, connections=1, timeouts=slow, apply_migrations=False) as store:
        scout = (await bind(store)).account
        async with trio.open_nursery() as nursery:
            held: Held = await nursery.start(Held(elsewhere, insert_as_another_daemon(scout, 1, "key-1")).run)
            with pytest.raises(StoreUnavailable, match="a statement took too long"):
                await store.record_authored_artifact(authored(issue(1), scout, "key-1"))
            await held.end("rollback")
        assert rows(dsn) == "0"
        await store.record_authored_artifact(authored(issue(1), scout, "key-1"))
    assert rows(dsn) == "1"


async def test_a_look_up_behind_a_locked_table_is_given_up_and_the_next_one_answered(
    hasty: PostgresStore, elsewhere: Bridge
) -> None:
    scout = (await bind(hasty)).account
    lock = "LOCK TABLE forge_authored_artifacts IN ACCESS EXCLUSIVE MODE"
    async with trio.open_nursery() as nursery:
        held: Held = await nursery.start(Held(elsewhere, lock).run)
        with pytest.raises(StoreUnavailable, match="a lock was not free in time"):
            await hasty.authored_artifact_by_request_id(scout.agent_id, "key-1")
        await held.end("commit")
    assert await hasty.authored_artifact_by_request_id(scout.agent_id, "key-1") is None


# --- connections that end ---------------------------------------------------------------------------------------------


async def test_records_whose_backend_is_killed_within_the_statement_are_told_and_can_be_repeated(
    dsn: str, elsewhere: Bridge
) -> None:
    async with open_postgres_store(dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store:
        scout = (await bind(store)).account
        artifacts = [authored(issue(number), scout, f"key-{number}") for number in range(1, 9)]
        told: list[StoreUnavailable] = []

        async def record(position: int) -> None:
            try:
                await store.record_authored_artifact(artifacts[position])
            except StoreUnavailable as error:
                told.append(error)

        async with trio.open_nursery() as nursery:
            held: Held = await nursery.start(Held(elsewhere, insert_as_another_daemon(scout, 1, "key-1")).run)
            for position in range(8):
                nursery.start_soon(record, position)
            blocked = "pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            await until(lambda: psql(dsn, f"SELECT count(*) FROM {blocked}") == "1")  # noqa: S608 -- a test's own
            psql(dsn, f"SELECT pg_terminate_backend(pid) FROM {blocked}")  # noqa: S608 -- a test's own words
            await held.end("rollback")
        await until(lambda: store.available)
        assert told
        for artifact in artifacts:
            await store.record_authored_artifact(artifact)
        listed = await store.list_authored_artifacts()
    assert [row.coordinate.number for row in listed] == list(range(1, 9))


async def test_a_commit_whose_answer_is_lost_is_an_error_and_stands(dsn: str) -> None:
    async with (
        relayed(dsn) as relay,
        open_postgres_store(relay.dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store,
    ):
        await store.open_container(HOST, ContainerSpec("c1"))
        relay.lose = lambda text: b"COMMIT" in text
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada"))
        relay.lose = lambda _text: False
        await until(lambda: store.available)
        (standing,) = (await store.load_host(HOST))[1]
        assert await store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada")) == standing


async def test_a_transaction_that_is_cut_off_before_its_commit_leaves_nothing(dsn: str) -> None:
    async with (
        relayed(dsn) as relay,
        open_postgres_store(relay.dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store,
    ):
        await store.open_container(HOST, ContainerSpec("c1"))
        relay.lose = lambda text: b"agent_sessions AS stored" in text  # the last statement before the commit
        with pytest.raises(StoreUnavailable):
            await store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada"))
        relay.lose = lambda _text: False
        await until(lambda: store.available)
        assert (await store.load_host(HOST))[1] == []
        assert psql(dsn, "SELECT count(*) FROM user_accounts") == "0"


async def test_a_record_whose_answer_is_lost_is_found_by_its_key(dsn: str) -> None:
    async with (
        relayed(dsn) as relay,
        open_postgres_store(relay.dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store,
    ):
        scout = (await bind(store)).account
        record = authored(issue(1), scout, "key-1")
        relay.lose = lambda text: b"key-1" in text
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await store.record_authored_artifact(record)
        relay.lose = lambda _text: False
        await until(lambda: store.available)
        assert await store.authored_artifact_by_request_id(scout.agent_id, "key-1") == record
        await store.record_authored_artifact(record)
    assert rows(dsn) == "1"


async def test_a_row_that_a_failover_lost_is_no_memo_and_can_be_recorded_again(
    dsn: str, store: PostgresStore, scout: Account
) -> None:
    record = authored(issue(1), scout, "key-1")
    await store.record_authored_artifact(record)
    psql(dsn, "DELETE FROM forge_authored_artifacts")  # the new primary never had it
    assert await store.authored_artifact_by_request_id(scout.agent_id, "key-1") is None
    assert await store.attribution_of([issue(1)]) == {}
    await store.record_authored_artifact(record)
    assert await store.authored_artifact_by_request_id(scout.agent_id, "key-1") == record


# --- deadlines --------------------------------------------------------------------------------------------------------


async def test_a_record_cut_off_at_any_moment_stands_whole_or_not_at_all_and_can_be_repeated(
    dsn: str, store: PostgresStore, scout: Account
) -> None:
    chance = random.Random(20260817)  # noqa: S311 -- the moments of the deadlines, the same each run
    await store.record_authored_artifact(authored(issue(10**6), scout))
    began = trio.current_time()
    for number in range(10**6 + 1, 10**6 + 21):
        await store.record_authored_artifact(authored(issue(number), scout))
    usual = (trio.current_time() - began) / 20
    cut_off = stood = 0
    for number in range(1, DEADLINES + 1):
        record = authored(issue(number), scout, f"key-{number}")
        with trio.move_on_after(chance.uniform(0, 1.5 * usual)) as deadline:
            await store.record_authored_artifact(record)
        found = await store.authored_artifact_by_request_id(scout.agent_id, f"key-{number}")
        assert found in ({record, None} if deadline.cancelled_caught else {record})
        cut_off += deadline.cancelled_caught
        stood += deadline.cancelled_caught and found is not None
        await store.record_authored_artifact(record)
        assert await store.authored_artifact_by_request_id(scout.agent_id, f"key-{number}") == record
    assert 0 < cut_off < DEADLINES
    assert stood  # a write that was cancelled has often been committed: so it is read back before anything is said
    assert rows(dsn) == str(DEADLINES + 21)
    own = "application_name = 'compass-forged' AND datname = current_database() AND state <> 'idle'"
    await until(lambda: psql(dsn, f"SELECT count(*) FROM pg_stat_activity WHERE {own}") == "0")  # noqa: S608 -- a test's own


# --- more than can be done --------------------------------------------------------------------------------------------


async def test_an_agents_flood_is_refused_beyond_its_share_and_another_agent_is_not(
    dsn: str, store: PostgresStore, scout: Account
) -> None:
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    refused: list[str] = []

    async def record(number: int) -> None:
        try:
            await store.record_authored_artifact(authored(issue(number), scout))
        except StoreUnavailable as error:
            refused.append(str(error))

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(store._bridge.fetch, SLEEP, 0.1)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 301):
            nursery.start_soon(record, number)
        await trio.testing.wait_all_tasks_blocked()
        await store.record_authored_artifact(authored(issue(999), scribe, session_id="s-2"))
    assert len(refused) == 300 - 256
    assert all(text.endswith("too many calls are waiting already") for text in refused)
    assert rows(dsn) == "257"
    assert store.available
    await store.record_authored_artifact(authored(issue(301), scout))


# --- a server that goes away ------------------------------------------------------------------------------------------


async def test_a_server_stopped_and_started_under_load_keeps_what_it_answered_and_all_the_rest_can_be_repeated(
    tmp_path: Path,
) -> None:
    settings = {"fsync": "off"}
    places: list[ConnectParams] = []
    answered: set[int] = set()
    failed: set[int] = set()
    accounts: list[Account] = []
    stores: list[PostgresStore] = []
    numbers = iter(range(1, 10**9))
    stop, used = trio.Event(), trio.Event()

    async def write() -> None:
        while not stop.is_set():
            number = next(numbers)
            try:
                await stores[0].record_authored_artifact(authored(issue(number), accounts[0], f"key-{number}"))
            except StoreUnavailable:
                failed.add(number)
                await trio.sleep(0.01)
            else:
                answered.add(number)

    async def read() -> None:
        while not stop.is_set():
            try:
                await stores[0].attribution_of([issue(number) for number in range(1, 31)])
            except StoreUnavailable:
                await trio.sleep(0.01)

    async def use(task_status: trio.TaskStatus[None]) -> None:
        async with open_postgres_store(places[0], connections=4, timeouts=PATIENT) as store:
            stores.append(store)
            accounts.append((await bind(store)).account)
            async with trio.open_nursery() as load:
                for _ in range(16):
                    load.start_soon(write)
                load.start_soon(read)
                task_status.started()
            standing = {row.coordinate.number for row in await store.list_authored_artifacts(limit=10**6)}
            assert answered <= standing
            missing = failed | (set(range(1, next(numbers))) - answered)
            for number in missing:
                await store.record_authored_artifact(authored(issue(number), accounts[0], f"key-{number}"))
            kept = await store.list_authored_artifacts(limit=10**6)
            assert sorted(row.coordinate.number for row in kept) == sorted(answered | missing)
            assert {row.client_request_id for row in kept} == {f"key-{n}" for n in answered | missing}
        used.set()

    async def grows(numbers: set[int]) -> None:
        before = len(numbers)
        await until(lambda: len(numbers) > before + 50)

    async with trio.open_nursery() as nursery:
        for first in (True, False, False):
            async with embedded_postgres(tmp_path, settings=settings) as params:
                if first:
                    places.append(params)
                    await nursery.start(use)
                await grows(answered)
            await grows(failed)
        async with embedded_postgres(tmp_path, settings=settings):
            await grows(answered)
            stop.set()
            await used.wait()
