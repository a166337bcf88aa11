"""How often each operation asks the database: round trips, counted on the wire."""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import msgspec
import pytest

from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Caller, ContainerSpec, Session
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService
from compass_forged.store.postgres import PostgresStore, open_postgres_store
from compass_forged.store.statements import statements
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ErrorResult,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    IssuesResult,
    ListIssues,
    ResultArm,
    SubmitReview,
    Subscribe,
    Unsubscribe,
)
from tests.support.postgres import fresh_database, psql
from tests.support.relay import Relay, relayed
from tests.support.service import Guard
from tests.support.stores import EMPTY, FINGERPRINT, HOST, PATIENT, authored, bind, issue, shared_database

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
    "fill_memo": (1, lambda at: at.store.fill_memo(issue(1), at.session.account.agent_id, "key-2", FINGERPRINT)),
    "agent_account": (1, lambda at: at.store.agent_account("scout")),
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
PULL = CreatePullRequest(repo="acme/app", title="A title", head_ref="a-branch")
CALLS: dict[str, tuple[int, Callable[[Counted, int], Arm], bool]] = {
    "keyed issue": (2, lambda _at, _turn: CREATE, True),
    "keyless issue": (1, lambda _at, _turn: CREATE, False),
    "keyed pull request": (2, lambda _at, turn: msgspec.structs.replace(PULL, head_ref=f"branch-{turn}"), True),
    "keyed pull request that stands already": (2, lambda _at, _turn: PULL, True),
    "keyless pull request that stands already": (1, lambda _at, _turn: PULL, False),
    "comment on an issue": (0, lambda _at, _turn: CommentOnIssue(repo="acme/app", issue_number=1, body="So."), False),
    "comment on a pull request": (
        0,
        lambda _at, _turn: CommentOnPullRequest(repo="acme/app", pull_number=31, body="So."),
        False,
    ),
    "review": (
        0,
        lambda _at, _turn: SubmitReview(repo="acme/app", pull_number=31, verdict="comment", body="So."),
        False,
    ),
    "issue read": (1, lambda _at, _turn: GetIssue(repo="acme/app", issue_number=1), False),
    "pull request read": (1, lambda _at, _turn: GetPullRequest(repo="acme/app", pull_number=31), False),
    "page of 30": (1, lambda _at, _turn: ListIssues(repo="acme/app", limit=30), False),
    "subscribe": (1, lambda _at, _turn: Subscribe(repo="acme/app", kind="issue", number=1), False),
    "unsubscribe": (1, lambda at, _turn: Unsubscribe(subscription_id=at.subscription_id), False),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_call_asks_no_more_than_its_budget(counted: Counted, kind: str) -> None:
    budget, arm, keyed = CALLS[kind]
    author, reviewer = FakeProvider(host="github.com"), FakeProvider(host="github.com")
    reviewer.pull_requests = author.pull_requests
    registry = Registry([Entry("github", "github.com", author, reviewer)])
    service = ForgeService(counted.store, registry, ref_secret=bytes(32), counters=Counters())
    caller = Caller(counted.session.account, "s-1", "c1")
    turns = itertools.count(100)
    result: list[ResultArm] = []

    async def run(asked: Arm, key: str = "") -> None:
        call = ForgeCall(call_id="1", arm=asked, client_request_id=key)
        result.append(await service.execute(caller, call, CallContext("c1", Guard())))
        assert not isinstance(result[-1], ErrorResult), result[-1]

    async def ask(at: Counted) -> None:
        turn = next(turns)
        await run(arm(at, turn), f"key-{turn}" if keyed else "")

    for _ in range(30):
        await run(CREATE)
    await run(PULL)
    assert await counted.cost(ask) == budget
    if isinstance(result[-1], IssuesResult):
        items = result[-1].items
        assert len(items) == 30
        assert all(item.attribution is not None and item.attribution.verified for item in items)


def test_a_list_of_artifacts_is_read_in_its_order_from_an_index() -> None:
    """Of an agent, and of all: nothing is sorted but what is of one moment, however long the index has grown."""
    dsn = fresh_database()
    list_newest = statements()["artifacts"].sql.replace("$3", "50").replace("$2", "NULL")
    for agent, index in (("7::bigint", "agent_idx"), ("NULL", "newest_idx")):
        wanted = list_newest.replace("$1", agent)
        plan = psql(dsn, f"SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN {wanted}")
        assert f"using forge_authored_artifacts_{index}" in plan, plan
        assert "Presorted Key: artifact.created_at_unix_ms" in plan, plan
