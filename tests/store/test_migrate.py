"""Migrations: each once, whole or not at all, by one daemon at a time; and what they give is what is written down."""

import hashlib
import re

import pytest
import trio

from compass_forged.errors import SchemaMismatch, StoreUnavailable, ValueRefused
from compass_forged.store.bridge import open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.migrate import MigrationStatus, migrate, migration_status
from compass_forged.store.postgres import open_postgres_store
from compass_forged.store.statements import Migration, Statement, migrations, sql_folder, statements
from tests.support.postgres import empty_database, fresh_database, psql, run_tool
from tests.support.stores import FINGERPRINT, PATIENT, authored, bind, issue

pytestmark = pytest.mark.postgres


def step(version: int, sql: str, name: str = "step") -> Migration:
    return Migration(version, name, hashlib.sha256(sql.encode()).digest(), sql)


FIRST = step(1, "CREATE TABLE one (id int)")
SECOND = step(2, "CREATE TABLE two (id int)")


def tables(dsn: str) -> set[str]:
    return set(psql(dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split())


def dump(dsn: str) -> str:
    text = run_tool("pg_dump", "--schema-only", "--no-owner", "-d", dsn)
    return re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)  # a random word, each time another


async def test_the_schema_file_is_what_all_migrations_give() -> None:
    migrated, written = empty_database(), empty_database()
    await migrate(migrated)
    psql(written, (sql_folder() / "schema.sql").read_text(encoding="utf-8"))
    assert "forge_authored_artifacts" in dump(migrated)
    assert dump(migrated) == dump(written)


async def test_each_migration_is_applied_once_and_noted() -> None:
    dsn = empty_database()
    assert await migrate(dsn, [FIRST]) == [FIRST]
    assert await migrate(dsn, [FIRST, SECOND]) == [SECOND]
    assert await migrate(dsn, [FIRST, SECOND]) == []
    assert tables(dsn) == {"forged_migrations", "one", "two"}


async def test_the_status_tells_each_migrations_state() -> None:
    dsn = empty_database()
    assert await migration_status(dsn, [FIRST]) == [MigrationStatus(1, "step", None, "pending")]
    await migrate(dsn, [FIRST, SECOND])
    changed, third = step(1, "CREATE TABLE uno (id int)"), step(3, "")
    states = [(row.version, row.state, row.applied_at is None) for row in await migration_status(dsn, [changed, third])]
    assert states == [(1, "changed", False), (2, "unknown", False), (3, "pending", True)]
    assert {row.state for row in await migration_status(dsn, [FIRST, SECOND])} == {"applied"}


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused() -> None:
    dsn = empty_database()
    await migrate(dsn, [FIRST])
    with pytest.raises(SchemaMismatch, match=r"0001_step was applied .* from another text"):
        await migrate(dsn, [step(1, "CREATE TABLE uno (id int)"), SECOND])
    with pytest.raises(SchemaMismatch, match="another text"):
        await migrate(dsn, [step(1, FIRST.sql, name="renamed")])
    assert tables(dsn) == {"forged_migrations", "one"}


async def test_a_database_newer_than_this_version_is_refused() -> None:
    dsn = fresh_database()
    psql(dsn, "INSERT INTO forged_migrations (version, name, checksum) VALUES (9999, 'future', '')")
    with pytest.raises(SchemaMismatch, match="9999_future, which this version does not know"):
        async with open_postgres_store(dsn):
            pytest.fail("must not open")
    with pytest.raises(SchemaMismatch, match="9999_future"):
        async with open_postgres_store(dsn, apply_migrations=False):
            pytest.fail("must not open")


async def test_a_gap_is_refused() -> None:
    dsn = empty_database()
    await migrate(dsn, [SECOND])
    with pytest.raises(SchemaMismatch, match="lacks migration 0001_step though later ones are applied"):
        await migrate(dsn, [FIRST, SECOND])


async def test_a_store_that_only_checks_says_how_to_migrate() -> None:
    dsn = empty_database()
    with pytest.raises(SchemaMismatch, match=r"lacks migration 0001_init: run compass-forged db migrate"):
        async with open_postgres_store(dsn, apply_migrations=False):
            pytest.fail("must not open")
    assert tables(dsn) == set()


async def test_a_migration_that_fails_leaves_nothing_and_the_ones_before_stay() -> None:
    dsn = empty_database()
    broken = step(2, "CREATE TABLE two (id int); CREATE TABLE one (id int)")
    with pytest.raises(SchemaMismatch, match="already exists"):
        await migrate(dsn, [FIRST, broken])
    assert tables(dsn) == {"forged_migrations", "one"}
    assert [row.state for row in await migration_status(dsn, [FIRST, broken])] == ["applied", "pending"]


async def test_daemons_that_start_at_once_apply_each_migration_once() -> None:
    dsn = empty_database()
    slow = [step(1, "SELECT pg_sleep(0.03); CREATE TABLE one (id int)"), SECOND]
    applied: list[Migration] = []

    async def daemon() -> None:
        applied.extend(await migrate(dsn, slow))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(daemon)
    assert sorted(migration.version for migration in applied) == [1, 2]


# --- the schema's own rules, without the store's checks before them ---

_ARTIFACT = {
    "forge_provider": "1",
    "forge_host": "'github.com'",
    "repo": "'acme/app'",
    "kind": "'issue'",
    "number": "1",
    "repo_display": "'Acme/app'",
    "agent_account_id": "(SELECT id FROM agent_accounts)",
    "owner_user_id": "(SELECT id FROM user_accounts)",
    "session_id": "'s-1'",
    "client_request_id": "'key-1'",
    "request_fingerprint": "decode(repeat('00', 32), 'hex')",
    "url": "''",
    "forge_created_at": "''",
    "created_at_unix_ms": "0",
}


def insert(table: str, columns: dict[str, str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"  # noqa: S608 -- a test's own words


def broken(**changes: str) -> str:
    return insert("forge_authored_artifacts", _ARTIFACT | changes)


def session(**changes: str) -> str:
    columns = {"session_id": "'s-2'", "agent_account_id": "(SELECT id FROM agent_accounts)", "host_id": "'h'"}
    return insert("agent_sessions", columns | {"container": "'c'"} | changes)


def container(**changes: str) -> str:
    return insert("host_containers", {"host_id": "'h'", "name": "'c'"} | changes)


def poller(table: str, **changes: str) -> str:
    columns = {"forge_provider": "1", "forge_host": "''", "repo": "''", "kind": "'issue'", "number": "1"}
    if table == "forge_list_cursors":
        del columns["number"]
    if table == "forge_repo_subscriptions":
        del columns["number"], columns["kind"]
    if table == "agent_forge_subscriptions":
        columns |= {"agent_account_id": "1", "session_id": "'s-1'", "forge_host": "'h'", "repo": "'r'"}
    columns |= {"cursor": "''"} if table.endswith("cursors") else {}
    return insert(table, columns | changes)


VIOLATIONS = {
    "user_accounts_handle_key": "INSERT INTO user_accounts (handle) VALUES ('ada')",
    "user_accounts_handle_grammar": "INSERT INTO user_accounts (handle) VALUES (E'ada\\n')",
    "agent_accounts_handle_key": insert(
        "agent_accounts", {"handle": "'scout'", "owner_user_id": "(SELECT id FROM user_accounts)"}
    ),
    "agent_accounts_handle_grammar": "INSERT INTO agent_accounts (handle, owner_user_id) VALUES ('Scout', 1)",
    "agent_accounts_owner_fkey": "DELETE FROM user_accounts",
    "agent_sessions_agent_fkey": session(session_id="'s-9'", container="'d'", agent_account_id="0"),
    "agent_sessions_id_grammar": session(session_id="'S'"),
    "agent_sessions_scope_whole": session(scope="ARRAY[NULL]::text[]"),
    "agent_sessions_ended_after_bound": session(ended_at="'-infinity'"),
    "agent_sessions_one_live_key": session(session_id="'s-8'", host_id="'host-1'", container="'c1'"),
    "host_containers_pkey": container(host_id="'host-1'", name="'c1'"),
    "host_containers_host_grammar": container(host_id="' '"),
    "host_containers_name_grammar": container(name="'../c'"),
    "host_containers_uids_range": container(allowed_uids="'{1,-1}'"),
    "host_containers_group_range": container(socket_group="-1"),
    "forge_authored_artifacts_pkey": broken(number="7", client_request_id="NULL", request_fingerprint="NULL"),
    "forge_authored_artifacts_agent_fkey": broken(agent_account_id="0"),
    "forge_authored_artifacts_owner_fkey": broken(owner_user_id="0"),
    "forge_authored_artifacts_provider_known": broken(forge_provider="5"),
    "forge_authored_artifacts_host_filled": broken(forge_host="''"),
    "forge_authored_artifacts_repo_filled": broken(repo_display="''"),
    "forge_authored_artifacts_kind_known": broken(kind="'review'"),
    "forge_authored_artifacts_number_positive": broken(number="0"),
    "forge_authored_artifacts_session_grammar": broken(session_id="''"),
    "forge_authored_artifacts_request_printable": broken(client_request_id="repeat('k', 257)"),
    "forge_authored_artifacts_fingerprint_size": broken(request_fingerprint="decode('00', 'hex')"),
    "forge_authored_artifacts_memo_whole": broken(request_fingerprint="NULL"),
    "forge_authored_artifacts_request_key": broken(client_request_id="'key-7'"),
    "forge_repo_subscriptions_provider_known": poller("forge_repo_subscriptions", forge_provider="0"),
    "forge_artifact_cursors_provider_known": poller("forge_artifact_cursors", forge_provider="0"),
    "forge_artifact_cursors_kind_known": poller("forge_artifact_cursors", kind="''"),
    "forge_artifact_cursors_number_positive": poller("forge_artifact_cursors", number="0"),
    "forge_list_cursors_provider_known": poller("forge_list_cursors", forge_provider="0"),
    "forge_list_cursors_kind_known": poller("forge_list_cursors", kind="''"),
    "agent_forge_subscriptions_agent_fkey": poller("agent_forge_subscriptions", agent_account_id="0"),
    "agent_forge_subscriptions_provider_known": poller("agent_forge_subscriptions", forge_provider="0"),
    "agent_forge_subscriptions_kind_known": poller("agent_forge_subscriptions", kind="''"),
    "agent_forge_subscriptions_session_grammar": poller("agent_forge_subscriptions", session_id="'S 1'"),
    "agent_forge_subscriptions_host_filled": poller("agent_forge_subscriptions", forge_host="''"),
    "agent_forge_subscriptions_repo_filled": poller("agent_forge_subscriptions", repo="''"),
    "agent_forge_subscriptions_ended_after_created": poller("agent_forge_subscriptions", ended_at="'-infinity'"),
    "store_secrets_pkey": "INSERT INTO store_secrets (name, value) SELECT name, value FROM store_secrets",
    "store_secrets_value_size": "UPDATE store_secrets SET value = ''",
    "agent_forge_subscriptions_number_positive": poller("agent_forge_subscriptions", number="0"),
}
# Keys whose violation takes two of the same row.
TWICE = {
    "forge_repo_subscriptions_repo_key": poller("forge_repo_subscriptions"),
    "forge_artifact_cursors_pkey": poller("forge_artifact_cursors"),
    "forge_list_cursors_pkey": poller("forge_list_cursors"),
    "agent_forge_subscriptions_artifact_key": poller(
        "agent_forge_subscriptions", agent_account_id="(SELECT id FROM agent_accounts)"
    ),
    "agent_forge_subscriptions_id_key": poller(
        "agent_forge_subscriptions",
        agent_account_id="(SELECT id FROM agent_accounts)",
        number="coalesce((SELECT max(number) + 1 FROM agent_forge_subscriptions), 1)",
        subscription_id="'00000000-0000-4000-8000-000000000000'",
    ),
    "agent_sessions_pkey": session(),
}


async def test_every_rule_of_the_schema_is_a_typed_error_that_names_it() -> None:
    dsn = fresh_database()
    async with open_postgres_store(dsn, apply_migrations=False) as store:
        account = (await bind(store)).account
        await store.record_authored_artifact(authored(issue(7), account, "key-7"))
    async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
        for name, sql in TWICE.items():
            await bridge.fetch(Statement(name, "", sql))
        for name, sql in (VIOLATIONS | TWICE).items():
            with pytest.raises(ValueRefused, match=rf"refused a value: {name}$"):
                await bridge.fetch(Statement(name, "", sql))
        with pytest.raises(ValueRefused, match=r"user_accounts\.handle is missing$"):
            await bridge.fetch(Statement("null", "", "INSERT INTO user_accounts DEFAULT VALUES"))


def test_no_rule_of_the_schema_is_left_out() -> None:
    names = psql(
        fresh_database(),
        "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'"
        " UNION SELECT relname FROM pg_index JOIN pg_class ON oid = indexrelid"
        " WHERE indisunique AND relnamespace = 'public'::regnamespace",
    ).split()
    # The keys of generated ids cannot be violated, and the bookkeeping is under the lock.
    generated = {name for name in names if name in GENERATED}
    assert set(names) - generated == set(VIOLATIONS) | set(TWICE)


GENERATED = {
    "user_accounts_pkey",
    "agent_accounts_pkey",
    "forge_repo_subscriptions_pkey",
    "agent_forge_subscriptions_pkey",
    "forged_migrations_pkey",
}


async def test_accounts_with_artifacts_cannot_be_deleted() -> None:
    dsn = fresh_database()
    async with open_postgres_store(dsn, apply_migrations=False) as store:
        account = (await bind(store)).account
        await store.record_authored_artifact(authored(issue(7), account))
    async with open_bridge(ConnectParams.parse(dsn), connections=1) as bridge:
        for table in ("agent_accounts", "user_accounts"):
            with pytest.raises(ValueRefused, match="fkey"):
                await bridge.fetch(Statement("delete", "", f"DELETE FROM {table}"))  # noqa: S608 -- a test's own words


async def test_subscribing_follows_the_repository_once_and_sets_no_cursor() -> None:
    dsn = fresh_database()
    async with open_postgres_store(dsn, apply_migrations=False) as store:
        account = (await bind(store)).account
        for number in (1, 2):
            made = await store.subscribe(account, issue(number), "s-1")
        await store.unsubscribe(account.agent_id, made.subscription_id)
    assert psql(dsn, "SELECT forge_provider, forge_host, repo FROM forge_repo_subscriptions") == "1|github.com|acme/app"
    assert psql(dsn, "SELECT count(*) FROM agent_forge_subscriptions") == "2"
    assert psql(dsn, "SELECT (SELECT count(*) FROM forge_artifact_cursors) + count(*) FROM forge_list_cursors") == "0"


async def test_agents_that_subscribe_at_once_have_one_subscription_each() -> None:
    dsn = fresh_database()
    async with open_postgres_store(dsn, timeouts=PATIENT, apply_migrations=False) as store:
        account = (await bind(store)).account
        ids: set[str] = set()

        async def subscribe() -> None:
            ids.add((await store.subscribe(account, issue(1), "s-1")).subscription_id)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(subscribe)
    assert len(ids) == 1


async def test_the_ref_secret_is_made_once_for_each_database() -> None:
    first, second = empty_database(), empty_database()
    secrets: list[bytes] = []
    for dsn in (first, first, second):
        async with open_postgres_store(dsn, connections=1) as store:
            secrets.append(await store.ref_secret())
    assert [len(secret) for secret in secrets] == [32, 32, 32]
    assert secrets[0] == secrets[1] != secrets[2]
    psql(first, "DELETE FROM store_secrets")
    async with open_postgres_store(first, connections=1) as store:
        with pytest.raises(SchemaMismatch, match="restore"):
            await store.ref_secret()


# --- a role that cannot alter ---


async def test_a_role_with_the_documented_grants_runs_the_store_and_no_more() -> None:
    dsn = fresh_database()
    role, password = "compass_forged_daemon", "of-the-test"
    psql(dsn, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    try:
        for statement in re.split(r";\s*\n", (sql_folder() / "grants.sql").read_text(encoding="utf-8")):
            if statement.strip():
                psql(dsn, statement)
        limited = re.sub(r"user=\w+&password=[^&]+", f"user={role}&password={password}", dsn)
        async with open_postgres_store(limited) as store:
            first = await bind(store)
            assert await bind(store, scope=()) is not None
            await store.record_authored_artifact(authored(issue(1), first.account))
            await store.record_authored_artifact(authored(issue(1), first.account, "key-1"))
            assert await store.fill_memo(issue(1), first.account.agent_id, "key-2", FINGERPRINT)
            assert len(await store.attribution_of([issue(1)])) == 1
            assert await store.list_authored_artifacts() != []
            assert await store.agent_account("scout") == first.account
            assert len(await store.list_authored_artifacts_by_agent(first.account.agent_id)) == 1
            assert await store.authored_artifact_by_request_id(first.account.agent_id, "key-1")
            assert await store.load_host("host-1")
            assert await store.ref_secret()
            kept = await store.subscribe(first.account, issue(1), "s-1")
            assert await store.unsubscribe(first.account.agent_id, kept.subscription_id)
            assert await store.subscribe(first.account, issue(1), "s-1") == kept
            assert await store.subscription(first.account.agent_id, kept.subscription_id) == kept
            async with store.watch_sessions("host-1") as watch:
                assert (await watch.news()).sessions is None
                assert await store.end_session("host-1", "c1")
                assert (await watch.news()).sessions == frozenset({"s-1"})
                await store.close_container("host-1", "c1")
        async with open_bridge(ConnectParams.parse(limited), connections=1) as bridge:
            for forbidden in (
                "DELETE FROM forge_authored_artifacts",
                "UPDATE forge_authored_artifacts SET agent_account_id = 1",
                "DELETE FROM agent_sessions",
                "DELETE FROM agent_forge_subscriptions",
                "UPDATE agent_forge_subscriptions SET agent_account_id = 1",
                "INSERT INTO forge_artifact_cursors DEFAULT VALUES",
                "UPDATE agent_accounts SET owner_user_id = 1",
                "UPDATE forged_migrations SET checksum = ''",
                "ALTER TABLE user_accounts ADD COLUMN more int",
            ):
                with pytest.raises(StoreUnavailable, match=r"(permission denied|must be owner).*sql/grants\.sql"):
                    await bridge.fetch(Statement("forbidden", "", forbidden))
        with pytest.raises(StoreUnavailable, match="or migrate as the schema's owner"):
            await migrate(limited, [*migrations(), step(9000, "CREATE TABLE more (id int)")])
    finally:
        psql(dsn, f"DROP OWNED BY {role}")
        psql(dsn, f"DROP ROLE {role}")


def test_every_statement_fits_the_schema() -> None:
    dsn = fresh_database()
    names = [name for name in statements() if name != "create_migrations"]
    prepared = ";\n".join(f"PREPARE {name} AS {statements()[name].sql}" for name in names)
    psql(dsn, prepared)
