"""Memory and Postgres are given the same operations in any order and must answer the same, errors included."""

import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from compass_forged.errors import StoreError
from compass_forged.ports import Account, ContainerSpec, Session, SessionBinding, Store, Subscription
from compass_forged.store.memory import MemoryStore
from compass_forged.store.postgres import PostgresStore
from tests.support.stores import authored, empty, issue, open_store

HOSTS = st.sampled_from(["host-1", "host-2"])
CONTAINERS = st.sampled_from(["c1", "c2"])
SESSIONS = st.sampled_from(["s-1", "s-2", "s-3"])
AGENTS = st.sampled_from(["scout", "scribe"])
OWNERS = st.sampled_from(["ada", "ada", "bob"])
SCOPES = st.sampled_from([None, (), ("github/acme/*", "linear/SEA")])
KEYS = st.sampled_from([None, "key-1", "key-2"])
PLACES = st.sampled_from([issue(1), issue(2), issue(1, kind="pull_request"), issue(1, repo="SEA", provider="linear")])
TIMES = st.sampled_from(["2026-08-17T10:00:00Z", "2026-08-17T10:00:00.001Z", "2025-01-01T00:00:00+00:00"])


class _Portal:
    """A trio run in a thread that keeps one Postgres store open for all examples."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.store: PostgresStore | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._done: trio.Event | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except Exception as error:  # noqa: BLE001 -- reported by the thread that asks
            self._failure = error
        finally:
            self.ready.set()

    async def _main(self) -> None:
        self._token, self._done = trio.lowlevel.current_trio_token(), trio.Event()
        async with open_store("postgres") as store:
            assert isinstance(store, PostgresStore)
            self.store = store
            self.ready.set()
            await self._done.wait()

    def run(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    @contextmanager
    def opened(self) -> Generator[None, None, None]:
        self._thread.start()
        assert self.ready.wait(30)
        try:
            assert self._failure is None, self._failure
            yield
        finally:
            if self._token is not None and self._done is not None and self._failure is None:
                self._token.run_sync_soon(self._done.set)
            self._thread.join(30)


def _without_ids(answer: Any) -> Any:
    """Account ids are each store's own; all else must be equal."""
    if isinstance(answer, Account):
        return (answer.agent, answer.owner)
    if isinstance(answer, Session):
        return (answer.session_id, answer.container, _without_ids(answer.account), answer.scope)
    if isinstance(answer, Subscription):
        return (answer.coordinate, answer.session_id, answer.live)
    if hasattr(answer, "coordinate"):
        fields = [getattr(answer, name) for name in answer.__dataclass_fields__]
        return tuple(_without_ids(value) for value in fields)
    if isinstance(answer, list | tuple):
        return [_without_ids(item) for item in answer]
    return answer


class StoresAlike(RuleBasedStateMachine):
    """Each rule is one method of the port."""

    portal: ClassVar[_Portal]

    @initialize()
    def start_empty(self) -> None:
        assert self.portal.store is not None
        self.stores: tuple[Store, Store] = (MemoryStore(), self.portal.store)
        self.accounts: dict[str, tuple[Account, Account]] = {}
        self.subscriptions: list[tuple[str, str]] = []
        self.portal.run(empty, self.portal.store)

    def both(self, call: Callable[[Store, int], Awaitable[Any]]) -> list[Any]:
        """Both stores' answers, after they were found alike; an error's answer is its type and text."""

        async def ask() -> list[Any]:
            answers: list[Any] = []
            for which, store in enumerate(self.stores):
                try:
                    answers.append(await call(store, which))
                except StoreError as error:
                    answers.append((type(error), str(error)))
            return answers

        memory, postgres = self.portal.run(ask)
        assert _without_ids(memory) == _without_ids(postgres)
        return [memory, postgres]

    @rule(host=HOSTS, name=CONTAINERS, uids=st.sampled_from([(), (0, 5)]), group=st.sampled_from([None, 3]))
    def open_container(self, host: str, name: str, uids: tuple[int, ...], group: int | None) -> None:
        self.both(lambda store, _which: store.open_container(host, ContainerSpec(name, uids, group)))

    @rule(host=HOSTS, name=CONTAINERS)
    def close_container(self, host: str, name: str) -> None:
        self.both(lambda store, _which: store.close_container(host, name))

    @rule(host=HOSTS, container=CONTAINERS, session=SESSIONS, agent=AGENTS, owner=OWNERS, scope=SCOPES)
    def bind(
        self, host: str, container: str, session: str, agent: str, owner: str, scope: tuple[str, ...] | None
    ) -> None:
        binding = SessionBinding(container, session, agent, owner, scope)
        memory, postgres = self.both(lambda store, _which: store.bind_session(host, binding))
        if isinstance(memory, Session):
            self.accounts[agent] = (memory.account, postgres.account)

    @rule(host=HOSTS, container=CONTAINERS)
    def end(self, host: str, container: str) -> None:
        self.both(lambda store, _which: store.end_session(host, container))

    @rule(agent=AGENTS, place=PLACES, key=KEYS, session=SESSIONS, created=TIMES)
    def record(self, agent: str, place: Any, key: str | None, session: str, created: str) -> None:
        if agent in self.accounts:
            accounts = self.accounts[agent]
            self.both(
                lambda store, which: store.record_authored_artifact(
                    authored(place, accounts[which], key, session_id=session, created_at=created)
                )
            )

    @rule(agent=AGENTS, key=KEYS)
    def memo(self, agent: str, key: str | None) -> None:
        if agent in self.accounts and key is not None:
            accounts = self.accounts[agent]
            self.both(lambda store, which: store.authored_artifact_by_request_id(accounts[which].agent_id, key))

    @rule(agent=AGENTS, limit=st.integers(0, 3))
    def by_agent(self, agent: str, limit: int) -> None:
        if agent in self.accounts:
            accounts = self.accounts[agent]
            self.both(
                lambda store, which: store.list_authored_artifacts_by_agent(accounts[which].agent_id, limit=limit)
            )

    @rule(places=st.lists(PLACES, max_size=4))
    def attribution(self, places: list[Any]) -> None:
        self.both(lambda store, _which: store.attribution_of(places))

    @rule(agent=AGENTS, place=PLACES, session=SESSIONS)
    def subscribe(self, agent: str, place: Any, session: str) -> None:
        if agent in self.accounts:
            accounts = self.accounts[agent]
            made = self.both(lambda store, which: store.subscribe(accounts[which], place, session))
            ids = (made[0].subscription_id, made[1].subscription_id)
            known = {which: {pair[which] for pair in self.subscriptions} for which in (0, 1)}
            assert (ids[0] in known[0]) == (ids[1] in known[1])  # the same id again in both, or a new one in both
            if ids not in self.subscriptions:
                self.subscriptions.append(ids)

    @rule(agent=AGENTS, which_one=st.integers(0, 5), end=st.booleans())
    def subscription(self, agent: str, which_one: int, end: bool) -> None:
        if agent in self.accounts and self.subscriptions:
            ids = self.subscriptions[which_one % len(self.subscriptions)]
            accounts = self.accounts[agent]
            if end:
                self.both(lambda store, which: store.unsubscribe(accounts[which].agent_id, ids[which]))
            self.both(lambda store, which: store.subscription(accounts[which].agent_id, ids[which]))

    @invariant()
    def all_that_is_kept_is_alike(self) -> None:
        async def everything(store: Store, _which: int) -> list[Any]:
            hosts = [await store.load_host(host) for host in ("host-1", "host-2")]
            return [*hosts, await store.list_authored_artifacts()]

        self.both(everything)


@pytest.mark.postgres
def test_both_stores_answer_alike_whatever_is_asked() -> None:
    portal = _Portal()
    StoresAlike.portal = portal
    with portal.opened():
        run_state_machine_as_test(StoresAlike, settings=settings(deadline=None, stateful_step_count=15))
