"""Records for store tests, and the contract's two stores by name."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from compass_forged.ports import (
    Account,
    ArtifactKind,
    AuthoredArtifact,
    ContainerSpec,
    Coordinate,
    Session,
    SessionBinding,
    Store,
)
from compass_forged.store.bridge import Timeouts
from compass_forged.store.memory import MemoryStore
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from tests.support.postgres import fresh_database

HOST = "host-1"
FINGERPRINT = bytes(range(32))
CREATED = "2026-08-17T10:00:00Z"
PATIENT = Timeouts(statement=20.0, lock=20.0, answer=30.0, connect=30.0)
"""For tests that are not about time: what takes a moment may take seconds on a busy machine."""
EMPTY = """
  DELETE FROM agent_forge_subscriptions; DELETE FROM forge_repo_subscriptions;
  DELETE FROM forge_authored_artifacts; DELETE FROM agent_sessions; DELETE FROM host_containers;
  DELETE FROM agent_accounts; DELETE FROM user_accounts
"""


@asynccontextmanager
async def open_store(kind: str) -> AsyncGenerator[Store, None]:
    """An empty store: ``memory`` or ``postgres``."""
    if kind == "memory":
        yield MemoryStore()
    else:
        opening = open_postgres_store(shared_database(), connections=2, timeouts=PATIENT, apply_migrations=False)
        async with opening as store:
            await empty(store)
            yield store


@cache
def shared_database() -> str:
    """The DSN of a migrated database that tests of this run use one after the other."""
    return fresh_database()


async def empty(store: PostgresStore) -> None:
    """Delete every row that a store method can write."""
    await store._bridge.transaction(lambda executor: executor.run_script(EMPTY))


def issue(number: int, *, repo: str = "acme/app", kind: ArtifactKind = "issue", provider: str = "github") -> Coordinate:
    """A coordinate."""
    host = "linear.app" if provider == "linear" else "github.com"
    return Coordinate(provider, host, repo, kind, number)


def authored(at: Coordinate, account: Account, key: str | None = None, **changes: Any) -> AuthoredArtifact:
    """An artifact that ``account`` wrote; keyless unless ``key``."""
    fields: dict[str, Any] = {
        "coordinate": at,
        "repo": at.repo.replace("acme", "Acme"),
        "account": account,
        "session_id": "s-1",
        "client_request_id": key,
        "fingerprint": FINGERPRINT if key is not None else None,
        "url": f"https://{at.host}/{at.repo}/{at.number}",
        "created_at": CREATED,
    }
    return AuthoredArtifact(**(fields | changes))


async def bind(
    store: Store,
    agent: str = "scout",
    owner: str = "ada",
    *,
    host: str = HOST,
    container: str = "c1",
    session: str = "s-1",
    scope: tuple[str, ...] | None = None,
) -> Session:
    """Open the container and bind a session to it."""
    await store.open_container(host, ContainerSpec(container))
    return await store.bind_session(host, SessionBinding(container, session, agent, owner, scope))
