"""How often each operation asks the database: round trips, counted on the wire."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Caller, ContainerSpec, Session
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    ForgeCall,
    GetIssue,
    IssuesResult,
    ListIssues,
    ResultArm,
)
from tests.support.relay import Relay, relayed
from tests.support.service import Guard, issue_of
from tests.support.stores import EMPTY, HOST, PATIENT, authored, bind, issue, shared_database

pytestmark = pytest.mark.postgres


@dataclass
class Counted:
    """A store behind a relay, with a session bound and one artifact and one subscription kept."""

    store: PostgresStore
    relay: Relay
    session: Session
    subscription_id: str

    async def cost(self, ask: "Callable[[Counted], Awaitable[object]]") -> int:
        """The round trips of an operation whose statements the connection has prepared."""
        await ask(self)
        before = self.relay.round_trips
        await ask(self)
        return self.relay.round_trips - before


@pytest.fixture
async def counted() -> AsyncGenerator[Counted, None]:
    async with (
        relayed(shared_database()) as relay,
        open_postgres_store(relay.dsn, connections=1, timeouts=PATIENT, apply_migrations=False) as store,
    ):
        await store._bridge.transaction(lambda executor: executor.run_script(EMPTY))
        session = await bind(store)
        await store.record_authored_artifact(authored(issue(1), session.account, "key-1"))
        made = await store.subscribe(session.account, issue(1), "s-1")
        yield Counted(store, relay, session, made.subscription_id)


ASKED: dict[str, tuple[int, Callable[[Counted], Awaitable[object]]]] = {
    "open_container": (1, lambda at: at.store.open_container(HOST, ContainerSpec("c1"))),
    # A transaction's BEGIN and COMMIT are round trips as well.
    "close_container": (4, lambda at: at.store.close_container(HOST, "c1")),
    "bind_session": (9, lambda at: bind(at.store)),
    "end_session": (1, lambda at: at.store.end_session(HOST, "c1")),
    "load_host": (1, lambda at: at.store.load_host(HOST)),
    "record_authored_artifact": (
        1,
        lambda at: at.store.record_authored_artifact(authored(issue(2), at.session.account, "key-2")),
    ),
    "authored_artifact_by_request_id": (
        1,
        lambda at: at.store.authored_artifact_by_request_id(at.session.account.agent_id, "key-1"),
    ),
    "list_authored_artifacts_by_agent": (
        1,
        lambda at: at.store.list_authored_artifacts_by_agent(at.session.account.agent_id),
    ),
    "list_authored_artifacts": (1, lambda at: at.store.list_authored_artifacts()),
    "attribution_of": (1, lambda at: at.store.attribution_of([issue(number) for number in range(1, 31)])),
    "ref_secret": (1, lambda at: at.store.ref_secret()),
    "subscribe": (1, lambda at: at.store.subscribe(at.session.account, issue(2), "s-1")),
    "subscription": (1, lambda at: at.store.subscription(at.session.account.agent_id, at.subscription_id)),
    "unsubscribe": (1, lambda at: at.store.unsubscribe(at.session.account.agent_id, at.subscription_id)),
}


def test_every_method_of_the_store_has_its_budget() -> None:
    methods = {name for name in vars(PostgresStore) if not name.startswith("_")}
    # A watch lasts, and what it asks meanwhile is not on a call's way.
    assert methods - {"available", "watch_sessions"} == ASKED.keys()


@pytest.mark.parametrize("method", ASKED)
async def test_a_method_asks_no_more_than_its_budget(counted: Counted, method: str) -> None:
    budget, ask = ASKED[method]
    if method == "bind_session":
        budget += 1  # the helper opens the container first
    assert await counted.cost(ask) == budget


CREATE = CreateIssue(repo="acme/app", title="A title")
CALLS: dict[str, tuple[int, Arm, bool]] = {
    "keyed create": (2, CREATE, True),
    "keyless create": (1, CREATE, False),
    "comment": (0, CommentOnIssue(repo="acme/app", issue_number=1, body="A remark."), False),
    "read": (1, GetIssue(repo="acme/app", issue_number=1), False),
    "page of 30": (1, ListIssues(repo="acme/app", limit=30), False),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_call_asks_no_more_than_its_budget(counted: Counted, kind: str) -> None:
    budget, arm, keyed = CALLS[kind]
    forge = FakeProvider(host="github.com")
    registry = Registry([Entry("github", "github.com", forge)])
    service = ForgeService(counted.store, registry, ref_secret=bytes(32), counters=Counters())
    caller = Caller(counted.session.account, "s-1", "c1")
    keys = iter(f"key-{number}" for number in range(100, 200))

    async def run(asked: Arm, key: str = "") -> ResultArm:
        return await service.execute(
            caller, ForgeCall(call_id="1", arm=asked, client_request_id=key), CallContext("c1", Guard())
        )

    for _ in range(30):  # the artifacts of the fixture are of numbers that this forge gives again
        forge_number = issue_of(await run(CREATE, next(keys))).number
    assert forge_number >= 30
    result: list[ResultArm] = []

    async def ask(_counted: Counted) -> None:
        result.append(await run(arm, next(keys) if keyed else ""))

    assert await counted.cost(ask) == budget
    if isinstance(result[-1], IssuesResult):
        items = result[-1].items
        assert len(items) == 30
        assert all(item.attribution is not None and item.attribution.verified for item in items)
