"""The durable adapter of the ``Store`` port: Postgres, through the bridge. Its statements stand in ``sql/queries.sql``.

Every method is one statement or one short transaction, and can be asked again: after a cancelled or broken write,
asking again is how to find out what stands.
"""

from collections.abc import AsyncGenerator, Collection, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

from compass_forged.errors import HostTaken, RequestKeyTaken, SchemaMismatch
from compass_forged.ports import (
    PROVIDER_NUMBERS,
    Account,
    AuthoredArtifact,
    ContainerSpec,
    Coordinate,
    IndexedAuthor,
    Session,
    SessionBinding,
    SessionWatch,
    Subscription,
)
from compass_forged.store import rules
from compass_forged.store.bridge import JOIN_AT_MOST, Bridge, ErrorMaker, Timeouts, open_bridge
from compass_forged.store.connect import DsnOrParams, as_params
from compass_forged.store.ears import CHANNEL, HostEars
from compass_forged.store.jobs import Executor, Joint, Pair, Row
from compass_forged.store.migrate import check_schema, migrate
from compass_forged.store.news import SessionMailbox
from compass_forged.store.statements import Statement, statements

_TAKEOVER_SECONDS: Final = 3.0
"""How long a start waits for a host that is held: the server takes a moment to notice that a killed daemon is gone."""
_TAKEOVER_PAUSE_SECONDS: Final = 0.1
_PROVIDER_WORDS: Final = {number: word for word, number in PROVIDER_NUMBERS.items()}

CONSTRAINT_ERRORS: Final[Mapping[str, ErrorMaker]] = {
    "forge_authored_artifacts_request_key": rules.request_key_taken,
    "agent_sessions_pkey": rules.session_taken,
}
"""The constraints whose violation is a domain conflict; all others are ``ValueRefused``."""


class PostgresStore:
    """The ``Store`` port on Postgres. Made by ``open_postgres_store``; see the port for what each method promises."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._sql = statements()
        self._record = Pair(self._sql["record_authored_artifact"], self._sql["record_authored_artifacts"])

    @property
    def available(self) -> bool:
        """Whether a connection stands, as far as is known without asking."""
        return self._bridge.available

    async def open_container(self, host: str, spec: ContainerSpec) -> None:
        """Keep that the container is open on this host."""
        rules.check_container(host, spec)
        await self._bridge.fetch(
            self._sql["open_container"], host, spec.name, list(spec.allowed_uids), spec.socket_group
        )

    async def close_container(self, host: str, name: str) -> None:
        """Forget the container and end its session."""
        place = (rules.as_question(host), rules.as_question(name))

        async def work(executor: Executor) -> None:
            # Two statements: the second must see a session that a bind wrote while the first waited for its lock.
            await executor.fetch(self._sql["close_container"], *place)
            await executor.fetch(self._sql["end_session"], *place)

        await self._bridge.transaction(work)

    async def bind_session(self, host: str, binding: SessionBinding) -> Session:
        """Bind a session to an open container, creating accounts; one transaction."""
        rules.check_binding(host, binding)

        async def work(executor: Executor) -> Session:
            return await self._bind(executor, host, binding)

        return await self._bridge.transaction(work)

    async def _bind(self, executor: Executor, host: str, binding: SessionBinding) -> Session:
        place = (host, binding.container)
        if not await executor.fetch(self._sql["lock_container"], *place):
            raise rules.container_unknown(binding.container)
        await executor.fetch(self._sql["add_user"], binding.owner)
        await executor.fetch(self._sql["add_agent"], binding.agent, binding.owner)
        account = _account((await executor.fetch(self._sql["find_agent"], binding.agent))[0])
        if account.owner != binding.owner:
            raise rules.agent_owned_by_another()
        await executor.fetch(self._sql["lock_sessions"], *place, binding.session_id)
        await executor.fetch(self._sql["end_other_sessions"], *place, binding.session_id)
        scope = None if binding.scope is None else list(binding.scope)
        bound = await executor.fetch(self._sql["bind_session"], *place, binding.session_id, account.agent_id, scope)
        if not bound:
            raise rules.session_taken()
        return Session(binding.session_id, binding.container, account, binding.scope)

    async def end_session(self, host: str, container: str) -> Session | None:
        """End the container's live session and return it; None if there was none."""
        place = (rules.as_question(host), rules.as_question(container))
        rows = await self._bridge.fetch(self._sql["end_session"], *place)
        return _session(rows[0]) if rows else None

    async def load_host(self, host: str) -> tuple[list[ContainerSpec], list[Session]]:
        """What is open and bound on this host, by container."""
        rows = await self._bridge.fetch(self._sql["load_host"], rules.as_question(host))
        containers = [ContainerSpec(row["name"], tuple(row["allowed_uids"]), row["socket_group"]) for row in rows]
        return containers, [_session(row) for row in rows if row["session_id"] is not None]

    @asynccontextmanager
    async def watch_sessions(self, host: str) -> AsyncGenerator[SessionWatch, None]:
        """Hold the host, and be told of its sessions' ends by whomever."""
        mailbox = SessionMailbox()
        give_up = trio.current_time() + _TAKEOVER_SECONDS
        async with AsyncExitStack() as stack:
            while True:
                ears = HostEars(rules.as_question(host), self._sql, mailbox)
                try:
                    await stack.enter_async_context(self._bridge.listen(CHANNEL, ears))
                    break
                except HostTaken:
                    if trio.current_time() >= give_up:
                        raise
                await trio.sleep(_TAKEOVER_PAUSE_SECONDS)
            yield mailbox

    async def record_authored_artifact(self, artifact: AuthoredArtifact) -> None:
        """Write the ownership row and the memo in one statement, which those that wait at the same time share."""
        created_ms = rules.check_artifact(artifact)
        agent_id, key = artifact.account.agent_id, artifact.client_request_id
        marks: set[Hashable] = {artifact.coordinate}
        if key is not None:
            marks.add((agent_id, key))
        row = Joint(self._record, _values(artifact, created_ms), frozenset(marks))
        try:
            recorded = await self._bridge.write(row, lane=agent_id)
        except RequestKeyTaken:
            # Where another connection records the very same at this moment, the server may stumble over the key before
            # it finds the coordinate. It has waited for the other's end before it said so: now it can tell.
            recorded = await self._bridge.write(row, lane=agent_id)
        if not recorded:
            raise rules.artifact_owned_by_another(artifact.coordinate)

    async def fill_memo(
        self, coordinate: Coordinate, agent_id: int, client_request_id: str, fingerprint: bytes
    ) -> bool:
        """Give the agent's row at the coordinate this memo, where it has none; whether the agent has a row there."""
        rules.check_memo(client_request_id, fingerprint)
        if not rules.can_stand(coordinate):
            return False
        rows = await self._bridge.fetch(
            self._sql["fill_memo"],
            *(PROVIDER_NUMBERS[coordinate.provider], *coordinate[1:]),
            *(rules.as_id(agent_id), client_request_id, fingerprint),
            lane=agent_id,
        )
        if rows and rows[0]["taken"]:
            raise rules.request_key_taken()
        return bool(rows)

    async def authored_artifact_by_request_id(self, agent_id: int, client_request_id: str) -> AuthoredArtifact | None:
        """The memo: what the agent created under this key, or None."""
        key = (rules.as_id(agent_id), rules.as_question(client_request_id))
        found = await self._artifacts(self._sql["artifact_by_request_id"], *key, lane=agent_id)
        return found[0] if found else None

    async def agent_account(self, handle: str) -> Account | None:
        """The account of the agent of that handle."""
        rows = await self._bridge.fetch(self._sql["find_agent"], rules.as_question(handle))
        return _account(rows[0]) if rows else None

    async def list_authored_artifacts_by_agent(
        self, agent_id: int, *, repo: str | None = None, limit: int = 100
    ) -> list[AuthoredArtifact]:
        """The agent's artifacts, newest first, at most ``limit``."""
        return await self._newest(rules.as_id(agent_id), repo, limit)

    async def list_authored_artifacts(self, *, repo: str | None = None, limit: int = 100) -> list[AuthoredArtifact]:
        """All agents' artifacts, newest first, at most ``limit``."""
        return await self._newest(None, repo, limit)

    async def _newest(self, agent_id: int | None, repo: str | None, limit: int) -> list[AuthoredArtifact]:
        wanted = None if repo is None else rules.as_question(repo)
        return await self._artifacts(self._sql["artifacts"], agent_id, wanted, rules.clamp_limit(limit))

    async def _artifacts(self, statement: Statement, *arguments: object, lane: object = None) -> list[AuthoredArtifact]:
        return [_artifact(row) for row in await self._bridge.fetch(statement, *arguments, lane=lane)]

    async def ref_secret(self) -> bytes:
        """The key of the ``ref`` in stamped creates, as the migration made it.

        Raises:
            SchemaMismatch: somebody deleted it.
        """
        rows = await self._bridge.fetch(self._sql["store_secret"], "ref")
        if not rows:
            raise SchemaMismatch("the store's ref secret is gone: restore the row of store_secrets from a backup")
        return bytes(rows[0]["value"])

    async def attribution_of(
        self, coordinates: Collection[Coordinate], *, asker: int | None = None
    ) -> dict[Coordinate, IndexedAuthor]:
        """Who wrote these artifacts, for those that the index holds, in one query."""
        wanted = [at for at in dict.fromkeys(coordinates) if rules.can_stand(at)]
        rows = await self._bridge.fetch(
            self._sql["attribution"],
            [PROVIDER_NUMBERS[at.provider] for at in wanted],
            [at.host for at in wanted],
            [at.repo for at in wanted],
            [at.kind for at in wanted],
            [at.number for at in wanted],
            lane=asker,
        )
        return {
            wanted[row["position"] - 1]: IndexedAuthor(row["agent"], row["owner"], row["session_id"]) for row in rows
        }

    async def subscribe(self, account: Account, coordinate: Coordinate, session_id: str) -> Subscription:
        """Keep that the agent wants to hear of an artifact; one statement."""
        rules.check_subscription(coordinate, session_id)
        rows = await self._bridge.fetch(
            self._sql["subscribe"],
            *(rules.as_id(account.agent_id), PROVIDER_NUMBERS[coordinate.provider], *coordinate[1:]),
            *(session_id, rules.SUBSCRIPTIONS_LIMIT),
            lane=account.agent_id,
        )
        if not rows:
            raise rules.subscriptions_exhausted()
        return _subscription(rows[0])

    async def subscription(self, agent_id: int, subscription_id: str) -> Subscription | None:
        """One of the agent's own subscriptions, live or ended."""
        key = (rules.as_id(agent_id), rules.as_subscription(subscription_id))
        rows = await self._bridge.fetch(self._sql["subscription"], *key, lane=agent_id)
        return _subscription(rows[0]) if rows else None

    async def unsubscribe(self, agent_id: int, subscription_id: str) -> bool:
        """End one of the agent's own subscriptions."""
        key = (rules.as_id(agent_id), rules.as_subscription(subscription_id))
        return bool(await self._bridge.fetch(self._sql["unsubscribe"], *key, lane=agent_id))


@asynccontextmanager
async def open_postgres_store(
    place: DsnOrParams,
    *,
    connections: int = 4,
    timeouts: Timeouts | None = None,
    apply_migrations: bool = True,
    join_at_most: int = JOIN_AT_MOST,
) -> AsyncGenerator[PostgresStore, None]:
    """Open the store for the length of the block, its schema brought up to date first.

    Args:
        place: the database: an operator's libpq connection string (URI or keywords), or parameters.
        connections: how many connections are held; the calls beyond wait in a bounded queue.
        timeouts: how long what may take.
        apply_migrations: False only checks that the schema is this version's.
        join_at_most: how many records that wait together are sent as one statement; 1 sends each by itself.

    Raises:
        StoreUnavailable: the operator's: the database cannot be reached; names it without its password.
        SchemaMismatch: the operator's: the database's schema is changed, newer, or (only checked) not up to date.
        ConfigError: the operator's: the connection string cannot be read.
    """
    params = as_params(place)
    if apply_migrations:
        await migrate(params)
    async with open_bridge(
        params,
        connections=connections,
        timeouts=timeouts,
        constraints=CONSTRAINT_ERRORS,
        join_at_most=join_at_most,
    ) as bridge:
        if not apply_migrations:
            await check_schema(bridge, params)
        yield PostgresStore(bridge)


def _account(row: Row) -> Account:
    return Account(row["agent_id"], row["agent"], row["owner_id"], row["owner"])


def _session(row: Row) -> Session:
    scope = None if row["scope"] is None else tuple(row["scope"])
    return Session(row["session_id"], row["container"], _account(row), scope)


def _subscription(row: Row) -> Subscription:
    return Subscription(str(row["subscription_id"]), _coordinate(row), row["session_id"], row["live"])


def _coordinate(row: Row) -> Coordinate:
    provider = _PROVIDER_WORDS[row["forge_provider"]]
    return Coordinate(provider, row["forge_host"], row["repo"], row["kind"], row["number"])


def _values(artifact: AuthoredArtifact, created_ms: int) -> tuple[object, ...]:
    at = artifact.coordinate
    return (
        *(PROVIDER_NUMBERS[at.provider], at.host, at.repo, at.kind, at.number, artifact.repo),
        *(rules.as_id(artifact.account.agent_id), rules.as_id(artifact.account.owner_id), artifact.session_id),
        *(artifact.client_request_id, artifact.fingerprint, artifact.url),
        *(artifact.created_at, created_ms),
    )


def _artifact(row: Row) -> AuthoredArtifact:
    return AuthoredArtifact(
        coordinate=_coordinate(row),
        repo=row["repo_display"],
        account=_account(row),
        session_id=row["session_id"],
        client_request_id=row["client_request_id"],
        fingerprint=row["request_fingerprint"],
        url=row["url"],
        created_at=row["forge_created_at"],
    )
