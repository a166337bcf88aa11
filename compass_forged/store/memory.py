"""The reference adapter of the ``Store`` port: plain Python, deterministic but for its secret, gone with the process.

It is what tests run against, and what a throw-away daemon may use. The contract suite shows it and Postgres alike.
"""

import secrets
import string
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import trio

from compass_forged.errors import StoreUnavailable
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
from compass_forged.store.news import SessionMailbox

# Postgres folds ASCII alone under COLLATE "C".
_ASCII_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(slots=True)
class _SessionRow:
    host: str
    session: Session
    live: bool


class MemoryStore:
    """The ``Store`` port in memory; see the port for what each method promises."""

    def __init__(self) -> None:
        self._available = True
        self._containers: dict[tuple[str, str], ContainerSpec] = {}
        self._users: dict[str, int] = {}
        self._agents: dict[str, Account] = {}
        self._sessions: dict[str, _SessionRow] = {}
        self._artifacts: dict[Coordinate, AuthoredArtifact] = {}
        self._memos: dict[tuple[int, str], Coordinate] = {}
        self._subscriptions: dict[tuple[int, Coordinate], Subscription] = {}
        self._ref_secret = secrets.token_bytes(32)
        self._watches: dict[str, SessionMailbox] = {}

    @property
    def available(self) -> bool:
        """A test sets it to False to have every method raise ``StoreUnavailable``, and no watch hear anything."""
        return self._available

    @available.setter
    def available(self, value: bool) -> None:
        if value and not self._available:
            for watch in self._watches.values():
                watch.put_all()
        self._available = value

    async def _enter(self) -> None:
        """What every method begins with: a checkpoint, and nothing after it, so that each is one atomic step."""
        await trio.lowlevel.checkpoint()
        if not self.available:
            raise StoreUnavailable("the store in memory is unavailable: switched off")

    async def open_container(self, host: str, spec: ContainerSpec) -> None:
        """Keep that the container is open on this host."""
        await self._enter()
        rules.check_container(host, spec)
        self._containers[host, spec.name] = spec

    async def close_container(self, host: str, name: str) -> None:
        """Forget the container and end its session."""
        await self._enter()
        self._containers.pop((host, name), None)
        self._end(host, name)

    async def bind_session(self, host: str, binding: SessionBinding) -> Session:
        """Bind a session to an open container, creating accounts."""
        await self._enter()
        rules.check_binding(host, binding)
        if (host, binding.container) not in self._containers:
            raise rules.container_unknown(binding.container)
        known = self._agents.get(binding.agent)
        if known is not None and known.owner != binding.owner:
            raise rules.agent_owned_by_another()
        standing = self._sessions.get(binding.session_id)
        if standing is not None and not self._may_rebind(standing, host, binding):
            raise rules.session_taken()
        account = self._account_of(binding)
        if standing is None or not standing.live:
            self._end(host, binding.container)
        elif standing.session.scope != binding.scope:
            self._tell(host, binding.session_id)
        session = Session(binding.session_id, binding.container, account, binding.scope)
        self._sessions[binding.session_id] = _SessionRow(host, session, live=True)
        return session

    @staticmethod
    def _may_rebind(row: _SessionRow, host: str, binding: SessionBinding) -> bool:
        here = (row.host, row.session.container) == (host, binding.container)
        return row.session.account.agent == binding.agent and (here or not row.live)

    def _account_of(self, binding: SessionBinding) -> Account:
        owner_id = self._users.setdefault(binding.owner, len(self._users) + 1)
        fresh = Account(len(self._agents) + 1, binding.agent, owner_id, binding.owner)
        return self._agents.setdefault(binding.agent, fresh)

    async def end_session(self, host: str, container: str) -> Session | None:
        """End the container's live session and return it; None if there was none."""
        await self._enter()
        return self._end(host, container)

    def _end(self, host: str, container: str) -> Session | None:
        for row in self._sessions.values():
            if row.live and (row.host, row.session.container) == (host, container):
                row.live = False
                self._tell(host, row.session.session_id)
                return row.session
        return None

    def _tell(self, host: str, session_id: str) -> None:
        if self._available and host in self._watches:
            self._watches[host].put(session_id)

    @asynccontextmanager
    async def watch_sessions(self, host: str) -> AsyncGenerator[SessionWatch, None]:
        """Hold the host, and be told of its sessions' ends."""
        await self._enter()
        if host in self._watches:
            raise rules.host_taken(host)
        watch = self._watches[host] = SessionMailbox()
        try:
            yield watch
        finally:
            del self._watches[host]

    async def load_host(self, host: str) -> tuple[list[ContainerSpec], list[Session]]:
        """What is open and bound on this host, by container."""
        await self._enter()
        containers = [spec for (at, _name), spec in sorted(self._containers.items()) if at == host]
        live = [row.session for row in self._sessions.values() if row.live and row.host == host]
        return containers, sorted(live, key=lambda session: session.container)

    async def record_authored_artifact(self, artifact: AuthoredArtifact) -> None:
        """Write the ownership row and the memo."""
        await self._enter()
        rules.check_artifact(artifact)
        agent_id, key = artifact.account.agent_id, artifact.client_request_id
        standing = self._artifacts.get(artifact.coordinate)
        if standing is None:
            self._keep(replace(artifact, account=self._known(artifact.account)))
        elif standing.account.agent_id != agent_id:
            raise rules.artifact_owned_by_another(artifact.coordinate)
        elif standing.client_request_id is None and key is not None:
            self._keep(replace(standing, client_request_id=key, fingerprint=artifact.fingerprint))

    def _keep(self, artifact: AuthoredArtifact) -> None:
        """Write a row and its memo; a row of that coordinate is the agent's own, and has no memo."""
        agent_id, key = artifact.account.agent_id, artifact.client_request_id
        if key is not None:
            if (agent_id, key) in self._memos:
                raise rules.request_key_taken()
            self._memos[agent_id, key] = artifact.coordinate
        self._artifacts[artifact.coordinate] = artifact

    def _known(self, claimed: Account) -> Account:
        """The account with the handles that stand under its ids, as a join would give it."""
        agents = {account.agent_id: account.agent for account in self._agents.values()}
        owners = {user_id: handle for handle, user_id in self._users.items()}
        if claimed.agent_id not in agents:
            raise rules.refuse("forge_authored_artifacts_agent_fkey")
        if claimed.owner_id not in owners:
            raise rules.refuse("forge_authored_artifacts_owner_fkey")
        return Account(claimed.agent_id, agents[claimed.agent_id], claimed.owner_id, owners[claimed.owner_id])

    async def fill_memo(
        self, coordinate: Coordinate, agent_id: int, client_request_id: str, fingerprint: bytes
    ) -> bool:
        """Give the agent's row at the coordinate this memo, where it has none; whether the agent has a row there."""
        await self._enter()
        rules.check_memo(client_request_id, fingerprint)
        standing = self._artifacts.get(coordinate)
        if standing is None or standing.account.agent_id != agent_id:
            return False
        if self._memos.get((agent_id, client_request_id), coordinate) != coordinate:
            raise rules.request_key_taken()
        if standing.client_request_id is None:
            self._keep(replace(standing, client_request_id=client_request_id, fingerprint=fingerprint))
        return True

    async def authored_artifact_by_request_id(self, agent_id: int, client_request_id: str) -> AuthoredArtifact | None:
        """The memo: what the agent created under this key, or None."""
        await self._enter()
        at = self._memos.get((agent_id, client_request_id))
        return None if at is None else self._artifacts[at]

    async def agent_account(self, handle: str) -> Account | None:
        """The account of the agent of that handle."""
        await self._enter()
        return self._agents.get(handle)

    async def list_authored_artifacts_by_agent(
        self, agent_id: int, *, repo: str | None = None, limit: int = 100
    ) -> list[AuthoredArtifact]:
        """The agent's artifacts, newest first, at most ``limit``."""
        await self._enter()
        return self._newest((row for row in self._artifacts.values() if row.account.agent_id == agent_id), repo, limit)

    async def list_authored_artifacts(self, *, repo: str | None = None, limit: int = 100) -> list[AuthoredArtifact]:
        """All agents' artifacts, newest first, at most ``limit``."""
        await self._enter()
        return self._newest(self._artifacts.values(), repo, limit)

    @staticmethod
    def _newest(rows: Iterable[AuthoredArtifact], repo: str | None, limit: int) -> list[AuthoredArtifact]:
        wanted = None if repo is None else repo.translate(_ASCII_LOWER)
        narrowed = (row for row in rows if wanted is None or row.coordinate.repo.translate(_ASCII_LOWER) == wanted)
        return sorted(narrowed, key=_newest_first)[: rules.clamp_limit(limit)]

    async def ref_secret(self) -> bytes:
        """The key of the ``ref`` in stamped creates; it lives as long as this store."""
        await self._enter()
        return self._ref_secret

    async def attribution_of(
        self,
        coordinates: Collection[Coordinate],
        *,
        asker: int | None = None,  # noqa: ARG002 -- no queue here
    ) -> dict[Coordinate, IndexedAuthor]:
        """Who wrote these artifacts, for those that the index holds."""
        await self._enter()
        found = {at: self._artifacts[at] for at in coordinates if at in self._artifacts}
        return {at: IndexedAuthor(row.account.agent, row.account.owner, row.session_id) for at, row in found.items()}

    async def subscribe(self, account: Account, coordinate: Coordinate, session_id: str) -> Subscription:
        """Keep that the agent wants to hear of an artifact."""
        await self._enter()
        rules.check_subscription(coordinate, session_id)
        standing = self._subscriptions.get((account.agent_id, coordinate))
        if standing is not None and standing.live:
            return standing
        if standing is not None:
            fresh = replace(standing, session_id=session_id, live=True)
        else:
            if sum(agent_id == account.agent_id for agent_id, _at in self._subscriptions) >= rules.SUBSCRIPTIONS_LIMIT:
                raise rules.subscriptions_exhausted()
            if account.agent_id not in {known.agent_id for known in self._agents.values()}:
                raise rules.refuse("agent_forge_subscriptions_agent_fkey")
            fresh = Subscription(str(uuid.uuid4()), coordinate, session_id, live=True)
        self._subscriptions[account.agent_id, coordinate] = fresh
        return fresh

    async def subscription(self, agent_id: int, subscription_id: str) -> Subscription | None:
        """One of the agent's own subscriptions, live or ended."""
        await self._enter()
        return self._subscription(agent_id, subscription_id)

    def _subscription(self, agent_id: int, subscription_id: str) -> Subscription | None:
        own = (row for (owner_id, _at), row in self._subscriptions.items() if owner_id == agent_id)
        return next((row for row in own if row.subscription_id == subscription_id), None)

    async def unsubscribe(self, agent_id: int, subscription_id: str) -> bool:
        """End one of the agent's own subscriptions."""
        await self._enter()
        found = self._subscription(agent_id, subscription_id)
        if found is not None:
            self._subscriptions[agent_id, found.coordinate] = replace(found, live=False)
        return found is not None


def _newest_first(row: AuthoredArtifact) -> tuple[int, int, str, str, str, int]:
    at = row.coordinate
    return (-rules.unix_ms(row.created_at), PROVIDER_NUMBERS[at.provider], at.host, at.repo, at.kind, at.number)
