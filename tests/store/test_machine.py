"""Memory and Postgres are given the same operations in any order and must answer the same, errors included."""

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from compass_forged.errors import StoreError, StoreUnavailable
from compass_forged.ports import Account, ContainerSpec, Coordinate, Session, SessionBinding, Store, Subscription
from compass_forged.store.jobs import Executor, Row
from compass_forged.store.memory import MemoryStore
from compass_forged.store.postgres import PostgresStore
from compass_forged.store.statements import Statement
from tests.support.stores import authored, bind, empty, issue, open_store

HOSTS = st.sampled_from(["host-1", "host-2"])
CONTAINERS = st.sampled_from(["c1", "c2"])
SESSIONS = st.sampled_from(["s-1", "s-2", "s-3"])
AGENTS = st.sampled_from(["scout", "scribe"])
OWNERS = st.sampled_from(["ada", "ada", "bob"])
SCOPES = st.sampled_from([None, (), ("github/acme/*", "linear/SEA")])
KEYS = st.sampled_from([None, "key-1", "key-2"])
PLACES = st.sampled_from([issue(1), issue(2), issue(1, kind="pull_request"), issue(1, repo="SEA", provider="linear")])
RECORDS = st.tuples(AGENTS, PLACES, KEYS, SESSIONS)
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
        # Accounts to record under, bound where the rules below do not reach.
        for agent, owner in (("scout", "ada"), ("scribe", "bob")):
            self.open_container("elsewhere", agent, (), None)
            self.bind("elsewhere", agent, f"s-{agent}", agent, owner, None)

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

    @rule(records=st.lists(RECORDS, min_size=2, max_size=4))
    def record_at_once(self, records: list[tuple[str, Any, str | None, str]]) -> None:
        """What Postgres answers is what memory would have answered to the same records in some order."""
        known = [record for record in records if record[0] in self.accounts]
        memory, postgres = self.stores
        assert isinstance(memory, MemoryStore)

        async def ask(store: Store, which: int, record: tuple[str, Any, str | None, str]) -> object:
            agent, place, key, session = record
            artifact = authored(place, self.accounts[agent][which], key, session_id=session)
            try:
                await store.record_authored_artifact(artifact)
            except StoreError as error:
                return (type(error), str(error))
            return None

        async def at_once() -> list[object]:
            answers: list[object] = [None] * len(known)

            async def one(position: int) -> None:
                answers[position] = await ask(postgres, 1, known[position])

            async with trio.open_nursery() as nursery:
                for position in range(len(known)):
                    nursery.start_soon(one, position)
            return [*answers, _without_ids(await postgres.list_authored_artifacts())]

        async def in_order(order: tuple[int, ...]) -> tuple[MemoryStore, list[object]]:
            store = copy.deepcopy(memory)
            answers: list[object] = [None] * len(known)
            for position in order:
                answers[position] = await ask(store, 0, known[position])
            return store, [*answers, _without_ids(await store.list_authored_artifacts())]

        async def the_order() -> MemoryStore:
            came = await at_once()
            for order in itertools.permutations(range(len(known))):
                store, answers = await in_order(order)
                if answers == came:
                    return store
            raise AssertionError(f"no order of {known} gives {came}")

        self.stores = (self.portal.run(the_order), postgres)

    @rule(agent=AGENTS, key=KEYS)
    def memo(self, agent: str, key: str | None) -> None:
        if agent in self.accounts and key is not None:
            accounts = self.accounts[agent]
            self.both(lambda store, which: store.authored_artifact_by_request_id(accounts[which].agent_id, key))

    @rule(agent=AGENTS, place=PLACES, key=KEYS.filter(bool))
    def fill_memo(self, agent: str, place: Any, key: str) -> None:
        if agent in self.accounts:
            accounts = self.accounts[agent]
            self.both(lambda store, which: store.fill_memo(place, accounts[which].agent_id, key, bytes(32)))

    @rule(agent=AGENTS, place=st.none() | PLACES, limit=st.integers(0, 3))
    def by_agent(self, agent: str, place: Any, limit: int) -> None:
        repo = None if place is None else place.repo
        self.both(lambda store, _which: store.list_authored_artifacts(repo=repo, limit=limit))
        self.both(lambda store, _which: store.agent_account(agent))
        if agent in self.accounts:
            ids = [account.agent_id for account in self.accounts[agent]]
            self.both(lambda store, which: store.list_authored_artifacts_by_agent(ids[which], repo=repo, limit=limit))

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


@pytest.fixture(scope="module")
def portal() -> Generator[_Portal, None, None]:
    """One Postgres store for all of this file."""
    portal = _Portal()
    with portal.opened():
        yield portal


@pytest.mark.postgres
def test_both_stores_answer_alike_whatever_is_asked(portal: _Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    StoresAlike.portal = portal
    sent: Counter[str] = Counter()
    fetch = Executor.fetch

    async def counted(self: Executor, statement: Statement, *arguments: object) -> list[Row]:
        sent[statement.name] += 1
        return await fetch(self, statement, *arguments)

    monkeypatch.setattr(Executor, "fetch", counted)
    run_state_machine_as_test(StoresAlike, settings=settings(deadline=None, stateful_step_count=20))
    assert sent["record_authored_artifact"]
    assert sent["record_authored_artifacts"]


# --- poison -----------------------------------------------------------------------------------------------------------

ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.sampled_from(["", "\0", "\ud800", "'; DROP TABLE user_accounts; --", "$1", "{a,b}", "NULL", "\\x00", "é" * 300]),
)
ANY_NUMBER = st.one_of(st.integers(), st.sampled_from([0, -1, 2**31, 2**63 - 1, 2**63, 10**30]))
ANY_PLACE = st.builds(
    Coordinate,
    st.one_of(st.sampled_from(["github", "linear"]), ANY_TEXT),
    st.one_of(st.just("github.com"), ANY_TEXT),
    st.one_of(st.just("acme/app"), ANY_TEXT),
    st.one_of(st.sampled_from(["issue", "pull_request"]), ANY_TEXT),
    ANY_NUMBER,
)


@pytest.mark.postgres
@given(
    place=ANY_PLACE,
    repo=ANY_TEXT,
    url=ANY_TEXT,
    session=st.one_of(st.just("s-1"), ANY_TEXT),
    key=st.one_of(st.none(), st.just("key-1"), ANY_TEXT),
    fingerprint=st.one_of(st.none(), st.just(bytes(32)), st.binary(max_size=40)),
    created=st.one_of(TIMES, ANY_TEXT),
    number=ANY_NUMBER,
)
@settings(deadline=None)
def test_any_value_is_taken_by_both_or_refused_by_both(
    portal: _Portal,
    place: Coordinate,
    repo: str,
    url: str,
    session: str,
    key: str | None,
    fingerprint: bytes | None,
    created: str,
    number: int,
) -> None:
    assert portal.store is not None
    stores: tuple[Store, Store] = (MemoryStore(), portal.store)

    async def answers(store: Store) -> list[object]:
        account = (await bind(store)).account
        artifact = authored(
            place, account, key, repo=repo, url=url, session_id=session, fingerprint=fingerprint, created_at=created
        )
        questions: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.record_authored_artifact(artifact),
            lambda: store.record_authored_artifact(replace(artifact, account=replace(account, agent_id=number))),
            lambda: store.authored_artifact_by_request_id(account.agent_id, url),
            lambda: store.authored_artifact_by_request_id(number, url),
            lambda: store.agent_account(url),
            lambda: store.fill_memo(place, account.agent_id, url, fingerprint or b""),
            lambda: store.fill_memo(place, number, url, bytes(32)),
            lambda: store.list_authored_artifacts_by_agent(account.agent_id, repo=repo, limit=number),
            lambda: store.list_authored_artifacts_by_agent(number, repo=url, limit=number),
            lambda: store.list_authored_artifacts(repo=repo, limit=number),
            lambda: store.attribution_of([place, place]),
            lambda: store.subscribe(account, place, session),
            lambda: store.subscription(number, url),
            lambda: store.unsubscribe(account.agent_id, url),
            lambda: store.load_host(url),
            lambda: store.open_container(url, ContainerSpec(repo, (number,), number)),
            lambda: store.close_container(repo, url),
            lambda: store.end_session(repo, url),
            lambda: store.bind_session("host-1", SessionBinding("c1", session, url, repo, (session,))),
            store.list_authored_artifacts,
        ]
        found: list[object] = []
        for question in questions:
            try:
                found.append(_without_ids(await question()))
            except StoreError as error:
                found.append(type(error))
        return found

    async def both() -> tuple[list[object], list[object]]:
        await empty(portal.store)  # type: ignore[arg-type] # checked above
        return await answers(stores[0]), await answers(stores[1])

    memory, postgres = portal.run(both)
    assert memory == postgres
    assert StoreUnavailable not in postgres
