"""Records that wait together are sent together, and nobody can tell but by the clock."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import trio
import trio.testing

from compass_forged.errors import ArtifactOwnedByAnother, RequestKeyTaken, StoreError, StoreUnavailable, ValueRefused
from compass_forged.ports import Account, AuthoredArtifact
from compass_forged.store.bridge import JOIN_AT_MOST, open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.jobs import Executor, Row
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.store.statements import Statement
from tests.support.postgres import psql
from tests.support.relay import relayed
from tests.support.stores import PATIENT, authored, bind, empty, issue, shared_database

pytestmark = pytest.mark.postgres

SLEEP = Statement("sleep", "", "SELECT pg_sleep($1)")
ALONE, TOGETHER = "record_authored_artifact", "record_authored_artifacts"
EVERY_COLUMN = """
  SELECT forge_provider, forge_host, repo, kind, number, repo_display, agent_account_id, owner_user_id, session_id,
    client_request_id, client_request_id IS NULL, request_fingerprint, url, forge_created_at, created_at_unix_ms
  FROM forge_authored_artifacts ORDER BY number
"""
BRIEF_LOCK = replace(PATIENT, lock=0.1)


@pytest.fixture
async def store() -> AsyncGenerator[PostgresStore, None]:
    """A store with one connection, which therefore does one thing after the other."""
    async with open_postgres_store(
        shared_database(), connections=1, timeouts=BRIEF_LOCK, apply_migrations=False
    ) as opened:
        await empty(opened)
        yield opened


@pytest.fixture
async def scout(store: PostgresStore) -> Account:
    return (await bind(store, "scout")).account


@pytest.fixture
async def scribe(store: PostgresStore) -> Account:
    return (await bind(store, "scribe", container="c2", session="s-2")).account


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Each statement that records: its name, and how many rows went with it."""
    statements: list[tuple[str, int]] = []
    fetch = Executor.fetch

    async def noted(self: Executor, statement: Statement, *arguments: object) -> list[Row]:
        if statement.name in (ALONE, TOGETHER):
            first = arguments[0]
            statements.append((statement.name, len(first) if isinstance(first, list) else 1))
        return await fetch(self, statement, *arguments)

    monkeypatch.setattr(Executor, "fetch", noted)
    return statements


async def record_all(
    store: PostgresStore, artifacts: Sequence[AuthoredArtifact], *, busy_seconds: float = 0.05
) -> list[type[StoreError] | None]:
    """Record them, in this order, while the store's one connection is busy; what each raised."""
    raised: list[type[StoreError] | None] = [None] * len(artifacts)

    async def record(position: int) -> None:
        try:
            await store.record_authored_artifact(artifacts[position])
        except StoreError as error:
            raised[position] = type(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._bridge.fetch, SLEEP, busy_seconds)
        await trio.testing.wait_all_tasks_blocked()
        for position in range(len(artifacts)):
            nursery.start_soon(record, position)
            await trio.testing.wait_all_tasks_blocked()
    return raised


async def test_what_waits_goes_in_one_statement_and_stands_as_if_sent_alone(
    store: PostgresStore, scout: Account, scribe: Account, sent: list[tuple[str, int]]
) -> None:
    artifacts = [
        authored(issue(1), scout, "key-1", created_at="2026-08-17T10:00:00.250Z", url="https://x/é?a=1&b={,}\"\\'"),
        authored(issue(2), scribe, "key-1", session_id="s-2"),
        authored(issue(3, kind="pull_request", repo="acme/ünï"), scout),
        authored(issue(2**63 - 1, repo="SEA", provider="linear"), scribe, "NULL"),
        authored(issue(5), scout, " ", fingerprint=bytes([255]) * 32),
    ]
    assert await record_all(store, artifacts) == [None] * 5
    assert sent == [(TOGETHER, 5)]
    together = psql(shared_database(), EVERY_COLUMN)
    psql(shared_database(), "DELETE FROM forge_authored_artifacts")
    for artifact in artifacts:
        await store.record_authored_artifact(artifact)
    assert sent[1:] == [(ALONE, 1)] * 5
    assert psql(shared_database(), EVERY_COLUMN) == together
    assert together.count("\n") == 4


async def test_one_that_waits_alone_is_sent_alone(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]]
) -> None:
    assert await record_all(store, [authored(issue(1), scout)]) == [None]
    assert sent == [(ALONE, 1)]


async def test_no_statement_grows_without_bound(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._bridge, "_join_at_most", 4)
    assert await record_all(store, [authored(issue(n), scout) for n in range(1, 11)]) == [None] * 10
    assert sent == [(TOGETHER, 4), (TOGETHER, 4), (TOGETHER, 2)]
    assert len(await store.list_authored_artifacts()) == 10


async def test_a_store_that_joins_nothing_sends_each_by_itself(scout_dsn: str, sent: list[tuple[str, int]]) -> None:
    async with open_postgres_store(
        scout_dsn, connections=1, timeouts=PATIENT, join_at_most=1, apply_migrations=False
    ) as store:
        scout = (await bind(store)).account
        assert await record_all(store, [authored(issue(n), scout) for n in (1, 2, 3)]) == [None] * 3
    assert sent == [(ALONE, 1)] * 3


async def test_recording_again_beside_others_changes_nothing_and_fills_an_absent_memo(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]]
) -> None:
    await store.record_authored_artifact(authored(issue(1), scout, "key-1"))
    await store.record_authored_artifact(authored(issue(2), scout))
    sent.clear()
    again = [
        authored(issue(1), scout, "key-9", url="https://elsewhere"),
        authored(issue(2), scout, "key-2", url="https://elsewhere"),
        authored(issue(3), scout, "key-3"),
    ]
    assert await record_all(store, again) == [None] * 3
    assert sent == [(TOGETHER, 3)]
    assert await store.list_authored_artifacts() == [
        authored(issue(1), scout, "key-1"),
        replace(authored(issue(2), scout), client_request_id="key-2", fingerprint=again[1].fingerprint),
        again[2],
    ]


async def test_anothers_artifact_is_its_own_conflict_and_costs_the_others_nothing(
    store: PostgresStore, scout: Account, scribe: Account, sent: list[tuple[str, int]]
) -> None:
    await store.record_authored_artifact(authored(issue(1), scout))
    sent.clear()
    raised = await record_all(store, [authored(issue(n), scribe, f"key-{n}", session_id="s-2") for n in (1, 2, 3)])
    assert raised == [ArtifactOwnedByAnother, None, None]
    assert sent == [(TOGETHER, 3)]
    assert [row.account.agent for row in await store.list_authored_artifacts()] == ["scout", "scribe", "scribe"]


async def test_a_key_that_is_taken_is_its_own_conflict_and_costs_the_others_a_statement_each(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]]
) -> None:
    await store.record_authored_artifact(authored(issue(1), scout, "key-1"))
    sent.clear()
    raised = await record_all(
        store,
        [authored(issue(2), scout), authored(issue(3), scout, "key-1"), authored(issue(4), scout, "key-4")],
    )
    assert raised == [None, RequestKeyTaken, None]
    assert sent == [(TOGETHER, 3), *[(ALONE, 1)] * 4]  # the one that was refused was asked twice
    assert [row.coordinate.number for row in await store.list_authored_artifacts()] == [1, 2, 4]


async def test_a_value_that_the_schema_refuses_is_its_own_error(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]]
) -> None:
    unknown = replace(scout, agent_id=10**9)
    raised = await record_all(store, [authored(issue(n), unknown if n == 2 else scout) for n in (1, 2, 3)])
    assert raised == [None, ValueRefused, None]
    assert sent[0] == (TOGETHER, 3)
    assert len(sent) == 4


@pytest.mark.parametrize("first_wins", [True, False])
async def test_one_artifact_twice_is_never_in_one_statement(
    store: PostgresStore, scout: Account, scribe: Account, sent: list[tuple[str, int]], first_wins: bool
) -> None:
    pair = [authored(issue(1), scout), authored(issue(1), scribe, session_id="s-2")]
    if not first_wins:
        pair.reverse()
    raised = await record_all(store, [pair[0], authored(issue(2), scout), pair[1], authored(issue(3), scout)])
    assert raised == [None, None, ArtifactOwnedByAnother, None]
    # Where the scout's second row cannot go along, its third waits behind it.
    assert sent == ([(TOGETHER, 3), (ALONE, 1)] if first_wins else [(TOGETHER, 2), (TOGETHER, 2)])
    assert (await store.list_authored_artifacts())[0].account == pair[0].account


async def test_one_key_twice_is_never_in_one_statement(
    store: PostgresStore, scout: Account, scribe: Account, sent: list[tuple[str, int]]
) -> None:
    raised = await record_all(
        store,
        [
            authored(issue(1), scout, "key-1"),
            authored(issue(2), scout, "key-1"),
            authored(issue(3), scribe, "key-1", session_id="s-2"),
        ],
    )
    assert raised == [None, RequestKeyTaken, None]
    assert sent == [(TOGETHER, 2), (ALONE, 1), (ALONE, 1)]


async def test_a_row_that_is_locked_elsewhere_delays_its_neighbours_and_fails_itself_alone(
    store: PostgresStore, scout: Account, sent: list[tuple[str, int]]
) -> None:
    held = Statement("held", "", "SELECT FROM forge_authored_artifacts WHERE number = 1 FOR UPDATE")

    async def hold(executor: Executor) -> None:
        await executor.fetch(held)
        await executor.fetch(SLEEP, 1.5)

    await store.record_authored_artifact(authored(issue(1), scout))
    sent.clear()
    async with (
        open_bridge(ConnectParams.parse(shared_database()), connections=1) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(other.transaction, hold)
        await trio.sleep(0.05)
        raised = await record_all(store, [authored(issue(n), scout, f"key-{n}") for n in (1, 2, 3)])
        assert raised == [StoreUnavailable, None, None]
        assert sent == [(TOGETHER, 3), (ALONE, 1), (ALONE, 1), (ALONE, 1)]
        nursery.cancel_scope.cancel()
    assert [row.client_request_id for row in await store.list_authored_artifacts()] == [None, "key-2", "key-3"]


async def test_a_caller_that_leaves_costs_the_others_nothing(store: PostgresStore, scout: Account) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._bridge.fetch, SLEEP, 0.05)
        await trio.testing.wait_all_tasks_blocked()
        scopes = [trio.CancelScope() for _ in range(3)]

        async def record(number: int) -> None:
            with scopes[number - 1]:
                await store.record_authored_artifact(authored(issue(number), scout))

        for number in (1, 2, 3):
            nursery.start_soon(record, number)
        await trio.testing.wait_all_tasks_blocked()
        scopes[1].cancel()
    assert [row.coordinate.number for row in await store.list_authored_artifacts()] == [1, 3]


async def test_whoever_left_while_all_failed_is_not_sent_again(store: PostgresStore, scout: Account) -> None:
    await store.record_authored_artifact(authored(issue(9), scout, "key-1"))
    failing = [authored(issue(1), scout, "key-1"), authored(issue(2), scout), authored(issue(3), scout)]
    fetch = Executor.fetch
    left = trio.CancelScope()

    async def leave_meanwhile(self: Executor, statement: Statement, *arguments: object) -> list[Row]:
        if statement.name == TOGETHER:
            left.cancel()
        return await fetch(self, statement, *arguments)

    async def record(artifact: AuthoredArtifact) -> None:
        with left if artifact is failing[1] else trio.CancelScope():
            try:
                await store.record_authored_artifact(artifact)
            except RequestKeyTaken:
                assert artifact is failing[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "fetch", leave_meanwhile)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._bridge.fetch, SLEEP, 0.05)
            await trio.testing.wait_all_tasks_blocked()
            for artifact in failing:
                nursery.start_soon(record, artifact)
    assert left.cancelled_caught
    assert [row.coordinate.number for row in await store.list_authored_artifacts()] == [3, 9]


async def test_what_waits_behind_an_agents_flood_goes_with_the_first_of_it(
    store: PostgresStore, scout: Account, scribe: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._bridge, "_join_at_most", 4)
    order: list[str] = []

    async def record(artifact: AuthoredArtifact) -> None:
        await store.record_authored_artifact(artifact)
        order.append(artifact.account.agent)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._bridge.fetch, SLEEP, 0.05)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 41):
            nursery.start_soon(record, authored(issue(number), scout))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(record, authored(issue(99), scribe, session_id="s-2"))
    assert order.index("scribe") < 4


async def test_what_cannot_go_along_keeps_its_turn(store: PostgresStore, scout: Account, scribe: Account) -> None:
    done: list[str] = []

    async def record(number: int) -> None:
        await store.record_authored_artifact(authored(issue(number), scout))
        done.append("record")

    async def ask() -> None:
        await store.authored_artifact_by_request_id(scribe.agent_id, "key-1")
        done.append("ask")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._bridge.fetch, SLEEP, 0.05)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(record, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(2, 41):
            nursery.start_soon(record, number)
    assert done.index("ask") == JOIN_AT_MOST


async def test_an_answer_that_was_lost_is_told_to_all_and_recording_again_changes_nothing(scout_dsn: str) -> None:
    async with (
        relayed(scout_dsn) as relay,
        open_postgres_store(relay.dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store,
    ):
        scout = (await bind(store, "scout")).account
        artifacts = [authored(issue(n), scout, f"key-{n}") for n in (1, 2, 3)]
        relay.lose = lambda text: b"key-1" in text  # where it has its parameters, and not where it is prepared
        assert await record_all(store, artifacts) == [StoreUnavailable] * 3
        relay.lose = lambda _text: False
        with trio.fail_after(30):
            while not store.available:  # noqa: ASYNC110 -- another task's state
                await trio.sleep(0.01)
        for artifact in artifacts:  # it was done, and nobody heard of it
            assert (
                await store.authored_artifact_by_request_id(scout.agent_id, str(artifact.client_request_id)) == artifact
            )
        assert await record_all(store, artifacts) == [None] * 3
    assert psql(scout_dsn, "SELECT count(*) FROM forge_authored_artifacts") == "3"


@pytest.fixture
async def scout_dsn() -> str:
    dsn = shared_database()
    async with open_postgres_store(dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store:
        await empty(store)
    return dsn


async def test_the_very_same_record_from_many_sides_at_once_is_one_row_and_no_conflict(scout_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                open_postgres_store(scout_dsn, connections=2, timeouts=PATIENT, apply_migrations=False)
            )
            for _ in range(3)
        ]
        scout = (await bind(stores[0], "scout")).account
        for number in range(1, 51):
            async with trio.open_nursery() as nursery:
                for store in stores * 2:
                    nursery.start_soon(store.record_authored_artifact, authored(issue(number), scout, f"key-{number}"))
    assert psql(scout_dsn, "SELECT count(*) FROM forge_authored_artifacts") == "50"


async def test_a_storm_of_cancellations_leaves_connections_and_index_whole(scout_dsn: str) -> None:
    """Every record that was answered stands; every one that stands is whole; the store goes on."""
    answered: set[int] = set()
    async with open_postgres_store(scout_dsn, connections=2, timeouts=PATIENT, apply_migrations=False) as store:
        scout = (await bind(store, "scout")).account

        async def record(number: int) -> None:
            with trio.move_on_after((number * 7919 % 100) / 4_000):  # up to 25 ms, not in the order of starting
                await store.record_authored_artifact(authored(issue(number), scout, f"key-{number}"))
                answered.add(number)

        async with trio.open_nursery() as nursery:
            for number in range(1, 301):
                nursery.start_soon(record, number)
                if number % 16 == 0:
                    await trio.sleep(0.001)
        assert 0 < len(answered) < 300
        kept = {row.coordinate.number: row for row in await store.list_authored_artifacts(limit=1000)}
        assert answered <= kept.keys()
        assert all(row == authored(issue(number), scout, f"key-{number}") for number, row in kept.items())
        assert await record_all(store, [authored(issue(n), scout, f"key-{n}") for n in range(1, 301)]) == [None] * 300
        assert store.available
    assert psql(scout_dsn, "SELECT count(*) FROM forge_authored_artifacts") == "300"
