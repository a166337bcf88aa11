"""What the port promises, shown of both adapters alike."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from uuid import UUID

import pytest
import trio

from compass_forged.errors import (
    AgentOwnedByAnother,
    ArtifactOwnedByAnother,
    ContainerUnknown,
    ForgedError,
    HostTaken,
    RequestKeyTaken,
    SessionTaken,
    SubscriptionsExhausted,
    ValueRefused,
)
from compass_forged.ports import (
    Account,
    ArtifactKind,
    ContainerSpec,
    Coordinate,
    IndexedAuthor,
    SessionBinding,
    SessionNews,
    SessionWatch,
    Store,
)
from compass_forged.store import postgres, rules
from tests.support.stores import FINGERPRINT, HOST, authored, bind, issue, open_store


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[Store, None]:
    async with open_store(str(request.param)) as opened:
        yield opened


async def test_an_open_store_is_available(store: Store) -> None:
    assert await store.load_host(HOST) == ([], [])
    assert store.available


async def test_the_ref_secret_stays_the_same(store: Store) -> None:
    secret = await store.ref_secret()
    assert len(secret) == 32
    assert await store.ref_secret() == secret


# --- containers and sessions ---


async def test_a_restart_finds_what_is_open_and_bound_on_its_own_host(store: Store) -> None:
    await store.open_container(HOST, ContainerSpec("b", (0, 1000, 2**32 - 2), 4242))
    await store.open_container(HOST, ContainerSpec("a"))
    await store.open_container("host-2", ContainerSpec("a"))
    bound = await store.bind_session(HOST, SessionBinding("b", "s-1", "scout", "ada", ("github/acme/*",)))
    await store.bind_session("host-2", SessionBinding("a", "s-2", "scout", "ada"))

    containers, sessions = await store.load_host(HOST)

    assert containers == [ContainerSpec("a"), ContainerSpec("b", (0, 1000, 2**32 - 2), 4242)]
    assert sessions == [bound]
    assert await store.load_host("nowhere") == ([], [])


async def test_opening_again_takes_over_the_settings_and_keeps_the_session(store: Store) -> None:
    bound = await bind(store)
    await store.open_container(HOST, ContainerSpec("c1", (7,), 8))
    assert await store.load_host(HOST) == ([ContainerSpec("c1", (7,), 8)], [bound])


async def test_closing_ends_the_session_and_can_be_repeated(store: Store) -> None:
    await bind(store)
    await store.close_container(HOST, "c1")
    await store.close_container(HOST, "c1")
    assert await store.load_host(HOST) == ([], [])
    assert await store.end_session(HOST, "c1") is None


async def test_binding_needs_an_open_container(store: Store) -> None:
    await bind(store)
    await store.close_container(HOST, "c1")
    with pytest.raises(ContainerUnknown, match="c1"):
        await store.bind_session(HOST, SessionBinding("c1", "s-2", "scout", "ada"))
    with pytest.raises(ContainerUnknown):
        await store.bind_session("host-2", SessionBinding("c1", "s-2", "scout", "ada"))


async def test_binding_creates_accounts_once(store: Store) -> None:
    first = await bind(store, "scout", "ada", container="c1", session="s-1")
    second = await bind(store, "scribe", "ada", container="c2", session="s-2")
    again = await bind(store, "scout", "ada", container="c3", session="s-3")
    assert again.account == first.account
    assert second.account.owner_id == first.account.owner_id
    assert second.account.agent_id != first.account.agent_id


async def test_the_same_binding_again_answers_the_same_with_the_new_scope(store: Store) -> None:
    first = await bind(store, scope=("github/acme/*",))
    assert await bind(store, scope=("github/acme/*",)) == first
    narrowed = await bind(store, scope=())
    assert narrowed == replace(first, scope=())
    assert (await store.load_host(HOST))[1] == [narrowed]
    assert (await bind(store, scope=None)).scope is None


async def test_an_agent_is_never_re_owned(store: Store) -> None:
    await bind(store, "scout", "ada")
    with pytest.raises(AgentOwnedByAnother):
        await bind(store, "scout", "bob", container="c2", session="s-2")
    assert (await bind(store, "scout", "ada")).account.owner == "ada"


async def test_a_session_id_of_another_agent_is_refused_even_when_it_has_ended(store: Store) -> None:
    await bind(store, "scout", session="s-1")
    with pytest.raises(SessionTaken):
        await bind(store, "scribe", container="c2", session="s-1")
    await store.end_session(HOST, "c1")
    with pytest.raises(SessionTaken):
        await bind(store, "scribe", container="c2", session="s-1")


@pytest.mark.parametrize(("host", "container"), [(HOST, "c2"), ("host-2", "c1")])
async def test_a_session_that_is_live_elsewhere_is_refused_until_it_ends(
    store: Store, host: str, container: str
) -> None:
    first = await bind(store)
    with pytest.raises(SessionTaken):
        await bind(store, host=host, container=container)
    assert (await store.load_host(HOST))[1] == [first]
    await store.end_session(HOST, "c1")
    moved = await bind(store, host=host, container=container)
    assert (moved.session_id, moved.container, moved.account) == ("s-1", container, first.account)


async def test_a_refused_bind_leaves_the_containers_session_alone(store: Store) -> None:
    await bind(store, container="c1", session="s-1")
    second = await bind(store, container="c2", session="s-2")
    with pytest.raises(SessionTaken):
        await bind(store, container="c2", session="s-1")
    assert second in (await store.load_host(HOST))[1]


async def test_another_session_of_the_container_ends_the_one_before(store: Store) -> None:
    await bind(store, session="s-1")
    second = await bind(store, "scribe", session="s-2")
    assert (await store.load_host(HOST))[1] == [second]
    assert await store.end_session(HOST, "c1") == second
    assert await store.end_session(HOST, "c1") is None


async def test_an_ended_session_of_the_same_agent_may_be_bound_again(store: Store) -> None:
    first = await bind(store, session="s-1")
    await bind(store, session="s-2")
    assert await bind(store, session="s-1") == first
    assert (await store.load_host(HOST))[1] == [first]


# --- being told of sessions ---


async def nothing_but(watch: SessionWatch, *sessions: str) -> None:
    """The next news names these sessions and no other; they may be told one by one."""
    told: frozenset[str] = frozenset()
    with trio.fail_after(5):
        while told < frozenset(sessions):
            news = await watch.news()
            assert news.sessions is not None
            told |= news.sessions
    assert told == frozenset(sessions)


async def test_a_watch_begins_with_the_news_that_all_may_have_changed(store: Store) -> None:
    async with store.watch_sessions(HOST) as watch:
        assert await watch.news() == SessionNews(None)
        await bind(store)
        await store.end_session(HOST, "c1")
        await nothing_but(watch, "s-1")


async def test_a_watch_is_told_of_every_way_a_session_ends(store: Store) -> None:
    await bind(store, session="s-1")
    async with store.watch_sessions(HOST) as watch:
        await watch.news()
        await store.end_session(HOST, "c1")
        await nothing_but(watch, "s-1")
        await bind(store, session="s-2")
        await bind(store, session="s-3")
        await nothing_but(watch, "s-2")
        await store.close_container(HOST, "c1")
        await nothing_but(watch, "s-3")


async def test_a_watch_is_told_of_a_changed_scope(store: Store) -> None:
    await bind(store)
    async with store.watch_sessions(HOST) as watch:
        await watch.news()
        await bind(store, scope=("github/acme/*",))
        await nothing_but(watch, "s-1")


async def test_a_watch_hears_nothing_of_what_changes_no_live_session_of_its_host(store: Store) -> None:
    await bind(store, session="s-1")
    await bind(store, "scribe", host="host-2", session="s-2")
    async with store.watch_sessions(HOST) as watch:
        await watch.news()
        await bind(store, session="s-1")  # again
        await bind(store, container="c2", session="s-3")  # begins
        await store.end_session("host-2", "c1")
        await store.close_container("host-2", "c1")
        await store.close_container(HOST, "c9")
        with pytest.raises(SessionTaken):
            await bind(store, "scribe", container="c1", session="s-3")
        await store.end_session(HOST, "c1")
        await nothing_but(watch, "s-1")


async def test_each_host_is_told_of_its_own(store: Store) -> None:
    await bind(store, session="s-1")
    await bind(store, "scribe", host="host-2", session="s-2")
    async with store.watch_sessions(HOST) as here, store.watch_sessions("host-2") as there:
        await here.news()
        await there.news()
        await store.end_session("host-2", "c1")
        await nothing_but(there, "s-2")
        await store.end_session(HOST, "c1")
        await nothing_but(here, "s-1")


async def test_a_host_is_one_daemons_alone_until_it_lets_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_TAKEOVER_SECONDS", 0.2)
    async with store.watch_sessions(HOST):
        with pytest.raises(HostTaken, match=r"^host_id host-1: another daemon"):
            async with store.watch_sessions(HOST):
                pytest.fail("must not be held twice")
    async with store.watch_sessions(HOST) as watch:
        assert await watch.news() == SessionNews(None)


# --- the ownership index ---


async def test_a_recorded_artifact_is_found_by_its_key_and_by_its_agent(store: Store) -> None:
    account = (await bind(store)).account
    artifact = authored(issue(7), account, "key-1", created_at="2026-08-17T10:00:00.250Z")
    await store.record_authored_artifact(artifact)

    assert await store.authored_artifact_by_request_id(account.agent_id, "key-1") == artifact
    assert await store.list_authored_artifacts_by_agent(account.agent_id) == [artifact]
    assert await store.list_authored_artifacts() == [artifact]
    assert await store.authored_artifact_by_request_id(account.agent_id, "key-2") is None
    assert await store.authored_artifact_by_request_id(account.agent_id + 1, "key-1") is None


async def test_recording_again_changes_nothing(store: Store) -> None:
    account = (await bind(store)).account
    first = authored(issue(7), account, "key-1")
    await store.record_authored_artifact(first)
    await store.record_authored_artifact(first)
    await store.record_authored_artifact(
        authored(issue(7), account, "key-2", url="https://elsewhere", session_id="s-9", fingerprint=bytes(32))
    )
    assert await store.list_authored_artifacts() == [first]
    assert await store.authored_artifact_by_request_id(account.agent_id, "key-2") is None


async def test_recording_again_fills_an_absent_memo_and_changes_nothing_else(store: Store) -> None:
    account = (await bind(store)).account
    keyless = authored(issue(7), account)
    await store.record_authored_artifact(keyless)
    await store.record_authored_artifact(authored(issue(7), account, "key-1", url="https://elsewhere"))
    filled = replace(keyless, client_request_id="key-1", fingerprint=FINGERPRINT)
    assert await store.authored_artifact_by_request_id(account.agent_id, "key-1") == filled
    await store.record_authored_artifact(keyless)
    assert await store.list_authored_artifacts() == [filled]


async def test_a_memo_is_filled_where_the_agents_row_stands_and_has_none(store: Store) -> None:
    account = (await bind(store)).account
    keyless = authored(issue(7), account)
    await store.record_authored_artifact(keyless)
    assert await store.fill_memo(issue(7), account.agent_id, "key-1", FINGERPRINT)
    filled = replace(keyless, client_request_id="key-1", fingerprint=FINGERPRINT)
    assert await store.authored_artifact_by_request_id(account.agent_id, "key-1") == filled
    assert await store.list_authored_artifacts() == [filled]
    # One memo for each artifact: a second key is told that the row stands, and is not kept.
    assert await store.fill_memo(issue(7), account.agent_id, "key-2", bytes(32))
    assert await store.fill_memo(issue(7), account.agent_id, "key-1", bytes(32))
    assert await store.authored_artifact_by_request_id(account.agent_id, "key-2") is None
    assert await store.list_authored_artifacts() == [filled]


async def test_no_memo_is_filled_where_the_agent_has_no_row(store: Store) -> None:
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    theirs = authored(issue(7), scribe)
    await store.record_authored_artifact(theirs)
    nowhere = [
        issue(8),
        issue(7, kind="pull_request"),
        issue(7, repo="acme/other"),
        issue(7, repo="acme/app\0"),
        issue(0),
        issue(2**63),
        issue(7, provider="nonsense"),
    ]
    for place in (issue(7), *nowhere):
        assert not await store.fill_memo(place, scout.agent_id, "key-1", FINGERPRINT)
    for agent_id in (0, -1, 2**63, scribe.agent_id + 1):
        assert not await store.fill_memo(issue(7), agent_id, "key-1", FINGERPRINT)
    assert await store.list_authored_artifacts() == [theirs]


async def test_a_memo_of_another_artifact_is_not_filled_in_a_second_one(store: Store) -> None:
    account = (await bind(store)).account
    rows = [authored(issue(number), account, key) for number, key in ((1, "key-1"), (2, None), (3, "key-3"))]
    for row in rows:
        await store.record_authored_artifact(row)
    for number in (2, 3):
        with pytest.raises(RequestKeyTaken):
            await store.fill_memo(issue(number), account.agent_id, "key-1", FINGERPRINT)
    assert await store.list_authored_artifacts() == rows


@pytest.mark.parametrize(
    ("key", "fingerprint", "rule"),
    [
        ("", FINGERPRINT, "request_printable"),
        ("k" * 257, FINGERPRINT, "request_printable"),
        ("a\nb", FINGERPRINT, "request_printable"),
        ("key-1", bytes(31), "fingerprint_size"),
    ],
)
@pytest.mark.parametrize("standing", [True, False])
async def test_a_memo_that_no_row_may_hold_is_refused_whether_the_row_stands_or_not(
    store: Store, key: str, fingerprint: bytes, rule: str, *, standing: bool
) -> None:
    account = (await bind(store)).account
    if standing:
        await store.record_authored_artifact(authored(issue(7), account, "key-9"))
    with pytest.raises(ValueRefused, match=f"forge_authored_artifacts_{rule}"):
        await store.fill_memo(issue(7), account.agent_id, key, fingerprint)


async def test_an_artifact_of_another_agent_is_refused_and_its_row_untouched(store: Store) -> None:
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    first = authored(issue(7), scout)
    await store.record_authored_artifact(first)
    with pytest.raises(ArtifactOwnedByAnother, match="7"):
        await store.record_authored_artifact(authored(issue(7), scribe, "key-1"))
    assert await store.list_authored_artifacts() == [first]
    assert await store.list_authored_artifacts_by_agent(scribe.agent_id) == []


async def test_a_second_artifact_under_one_key_is_refused(store: Store) -> None:
    account = (await bind(store)).account
    await store.record_authored_artifact(authored(issue(1), account, "key-1"))
    with pytest.raises(RequestKeyTaken):
        await store.record_authored_artifact(authored(issue(2), account, "key-1"))
    keyless = authored(issue(3), account)
    await store.record_authored_artifact(keyless)
    with pytest.raises(RequestKeyTaken):
        await store.record_authored_artifact(authored(issue(3), account, "key-1"))
    assert await store.list_authored_artifacts_by_agent(account.agent_id) == [
        authored(issue(1), account, "key-1"),
        keyless,
    ]


async def test_two_agents_may_use_one_key(store: Store) -> None:
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    for number, account in enumerate((scout, scribe), start=1):
        await store.record_authored_artifact(authored(issue(number), account, "key-1"))
    found = await store.authored_artifact_by_request_id(scribe.agent_id, "key-1")
    assert found is not None
    assert found.coordinate == issue(2)


async def test_one_number_may_be_an_issue_here_and_a_pull_request_there(store: Store) -> None:
    account = (await bind(store)).account
    places = [
        issue(7),
        issue(7, kind="pull_request"),
        issue(7, repo="acme/other"),
        issue(7, provider="linear", repo="SEA"),
    ]
    for place in places:
        await store.record_authored_artifact(authored(place, account))
    assert {row.coordinate for row in await store.list_authored_artifacts()} == set(places)


async def test_lists_are_newest_first_and_bounded(store: Store) -> None:
    account = (await bind(store)).account
    times = {
        1: "2026-08-17T10:00:00Z",
        2: "2026-08-17T10:00:00.5Z",
        3: "2025-01-01T00:00:00+00:00",
        4: "2026-08-17T10:00:01.000Z",
    }
    for number, time in times.items():
        await store.record_authored_artifact(authored(issue(number), account, created_at=time))

    by_agent = await store.list_authored_artifacts_by_agent(account.agent_id)
    assert [row.coordinate.number for row in by_agent] == [4, 2, 1, 3]
    assert [row.coordinate.number for row in await store.list_authored_artifacts(limit=2)] == [4, 2]
    assert await store.list_authored_artifacts(limit=0) == []
    assert await store.list_authored_artifacts_by_agent(account.agent_id, limit=-1) == []
    assert len(await store.list_authored_artifacts(limit=2**40)) == 4


async def test_artifacts_of_one_moment_have_a_fixed_order(store: Store) -> None:
    account = (await bind(store)).account
    kinds: tuple[ArtifactKind, ArtifactKind] = ("pull_request", "issue")
    places = [issue(n, repo=repo, kind=kind) for repo in ("b/b", "B/b", "a/é") for kind in kinds for n in (10, 9)]
    for place in places:
        await store.record_authored_artifact(authored(place, account))
    listed = [row.coordinate for row in await store.list_authored_artifacts()]
    assert listed == sorted(places)


async def test_an_operator_narrows_the_index(store: Store) -> None:
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    await store.record_authored_artifact(authored(issue(1), scout))
    await store.record_authored_artifact(authored(issue(2), scribe))
    await store.record_authored_artifact(authored(issue(3, repo="SEA", provider="linear"), scribe))

    async def found(account: Account | None = None, repo: str | None = None) -> set[int]:
        if account is None:
            return {row.coordinate.number for row in await store.list_authored_artifacts(repo=repo)}
        listed = await store.list_authored_artifacts_by_agent(account.agent_id, repo=repo)
        assert {row.account for row in listed} <= {account}
        return {row.coordinate.number for row in listed}

    assert await found() == {1, 2, 3}
    assert await found(scribe) == {2, 3}
    assert await found(repo="ACME/App") == {1, 2}
    assert await found(scribe, "ACME/App") == {2}
    assert await found(scribe, "sea") == {3}
    assert await found(scout, "sea") == set()
    assert await found(replace(scribe, agent_id=scribe.agent_id + 1)) == set()
    assert await found(replace(scribe, agent_id=0)) == set()
    assert await found(repo="\ud800") == set()
    assert await found(scout, "\ud800") == set()


async def test_an_agents_list_is_bounded_after_it_is_narrowed(store: Store) -> None:
    account = (await bind(store)).account
    for number, repo in enumerate(("acme/app", "acme/other", "acme/app", "acme/other"), start=1):
        created = f"2026-08-17T10:00:0{number}Z"
        await store.record_authored_artifact(authored(issue(number, repo=repo), account, created_at=created))
    listed = await store.list_authored_artifacts_by_agent(account.agent_id, repo="acme/app", limit=2)
    assert [row.coordinate.number for row in listed] == [3, 1]


async def test_an_agent_is_found_by_its_handle(store: Store) -> None:
    scout = (await bind(store, "scout", "ada")).account
    scribe = (await bind(store, "scribe", "bob", container="c2", session="s-2")).account
    assert await store.agent_account("scout") == scout
    assert await store.agent_account("scribe") == scribe
    for handle in ("ada", "nobody", "SCOUT", "", "scout\0", "\ud800"):
        assert await store.agent_account(handle) is None


async def test_attribution_names_who_the_index_knows_and_nobody_else(store: Store) -> None:
    scout = (await bind(store, "scout", "ada")).account
    scribe = (await bind(store, "scribe", "bob", container="c2", session="s-2")).account
    await store.record_authored_artifact(authored(issue(1), scout, session_id="s-1"))
    await store.record_authored_artifact(authored(issue(2, kind="pull_request"), scribe, session_id="s-2"))

    wanted = [issue(2, kind="pull_request"), issue(2), issue(1), issue(1), issue(3)]
    odd = [issue(1, provider="gitea"), issue(0), issue(2**70), issue(1, repo="a\0b"), issue(1, repo="\ud800")]

    assert await store.attribution_of(wanted + odd) == {
        issue(1): IndexedAuthor("scout", "ada", "s-1"),
        issue(2, kind="pull_request"): IndexedAuthor("scribe", "bob", "s-2"),
    }
    assert await store.attribution_of([]) == {}


# --- subscriptions ---


async def test_a_subscription_is_kept_under_an_id_that_tells_nothing(store: Store) -> None:
    account = (await bind(store)).account
    made = await store.subscribe(account, issue(7), "s-1")
    assert (made.coordinate, made.session_id, made.live) == (issue(7), "s-1", True)
    assert UUID(made.subscription_id).version == 4
    assert str(UUID(made.subscription_id)) == made.subscription_id
    assert await store.subscription(account.agent_id, made.subscription_id) == made


async def test_subscribing_again_is_the_same_subscription_and_another_artifact_another(store: Store) -> None:
    account = (await bind(store)).account
    made = await store.subscribe(account, issue(7), "s-1")
    assert await store.subscribe(account, issue(7), "s-2") == made
    places = [
        issue(8),
        issue(7, kind="pull_request"),
        issue(7, repo="acme/other"),
        issue(7)._replace(host="ghe.example"),
    ]
    others = [await store.subscribe(account, place, "s-1") for place in places]
    assert len({made.subscription_id, *(other.subscription_id for other in others)}) == 5
    assert [other.coordinate for other in others] == places


async def test_unsubscribing_ends_it_and_may_be_repeated(store: Store) -> None:
    account = (await bind(store)).account
    made = await store.subscribe(account, issue(7), "s-1")
    kept = await store.subscribe(account, issue(8), "s-1")
    assert await store.unsubscribe(account.agent_id, made.subscription_id)
    assert await store.subscription(account.agent_id, made.subscription_id) == replace(made, live=False)
    assert await store.unsubscribe(account.agent_id, made.subscription_id)
    assert await store.subscription(account.agent_id, kept.subscription_id) == kept


async def test_a_subscription_that_has_ended_may_be_begun_again_under_its_id(store: Store) -> None:
    account = (await bind(store)).account
    made = await store.subscribe(account, issue(7), "s-1")
    await store.unsubscribe(account.agent_id, made.subscription_id)
    again = await store.subscribe(account, issue(7), "s-2")
    assert again == replace(made, session_id="s-2")
    assert await store.subscription(account.agent_id, made.subscription_id) == again


async def test_anothers_subscription_is_as_unknown_as_one_that_never_was(store: Store) -> None:
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    made = await store.subscribe(scout, issue(7), "s-1")
    theirs = await store.subscribe(scribe, issue(7), "s-2")
    assert theirs.subscription_id != made.subscription_id
    assert await store.subscription(scribe.agent_id, made.subscription_id) is None
    assert await store.unsubscribe(scribe.agent_id, made.subscription_id) is False
    assert await store.subscription(scout.agent_id, made.subscription_id) == made


@pytest.mark.parametrize(
    "spell",
    [
        lambda _own: "",
        lambda _own: "1",
        lambda _own: "\0",
        lambda _own: "\ud800",
        lambda _own: "00000000-0000-4000-8000-000000000000",
        str.upper,
        lambda own: own.replace("-", ""),
        lambda own: f"{{{own}}}",
        lambda own: f"urn:uuid:{own}",
        lambda own: f" {own}",
    ],
)
async def test_only_the_id_as_it_was_told_is_an_id(store: Store, spell: Callable[[str], str]) -> None:
    account = (await bind(store)).account
    own = ""
    while own == own.upper():  # an id of digits alone has no other case
        own = (await store.subscribe(account, issue(len(own) + 7), "s-1")).subscription_id
    assert await store.subscription(account.agent_id, spell(own)) is None
    assert await store.unsubscribe(account.agent_id, spell(own)) is False
    assert await store.subscription(2**70, own) is None


async def test_an_agent_has_a_bounded_number_of_subscriptions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SUBSCRIPTIONS_LIMIT", 2)
    scout = (await bind(store, "scout")).account
    scribe = (await bind(store, "scribe", container="c2", session="s-2")).account
    first = await store.subscribe(scout, issue(1), "s-1")
    await store.subscribe(scout, issue(2), "s-1")
    with pytest.raises(SubscriptionsExhausted):
        await store.subscribe(scout, issue(3), "s-1")
    assert await store.subscribe(scout, issue(1), "s-1") == first
    await store.unsubscribe(scout.agent_id, first.subscription_id)
    with pytest.raises(SubscriptionsExhausted):
        await store.subscribe(scout, issue(3), "s-1")
    assert (await store.subscribe(scout, issue(1), "s-1")).live
    assert (await store.subscribe(scribe, issue(3), "s-2")).live


@pytest.mark.parametrize(
    ("at", "session"),
    [
        (issue(0), "s-1"),
        (issue(2**63), "s-1"),
        (issue(1, provider="gitea"), "s-1"),
        (issue(1, repo=""), "s-1"),
        (issue(1, repo="a\0b"), "s-1"),
        (issue(1, repo="\ud800"), "s-1"),
        (issue(1)._replace(host=""), "s-1"),
        (issue(1)._replace(kind="review"), "s-1"),  # type: ignore[arg-type] # wrong on purpose
        (issue(1), ""),
        (issue(1), "S 1"),
    ],
    ids=repr,
)
async def test_a_subscription_that_cannot_be_is_refused(store: Store, at: Coordinate, session: str) -> None:
    account = (await bind(store)).account
    with pytest.raises(ValueRefused):
        await store.subscribe(account, at, session)


@pytest.mark.parametrize("agent_id", [10**9, 2**70, 0, -1])
async def test_nobody_subscribes_who_is_not_known(store: Store, agent_id: int) -> None:
    account = (await bind(store)).account
    with pytest.raises(ValueRefused, match="agent_forge_subscriptions_agent_fkey"):
        await store.subscribe(replace(account, agent_id=agent_id), issue(1), "s-1")


# --- values that no store takes ---


@pytest.mark.parametrize(
    "spec",
    [
        ContainerSpec(""),
        ContainerSpec("-a"),
        ContainerSpec("a/b"),
        ContainerSpec("a\n"),
        ContainerSpec("a" * 129),
        ContainerSpec("a", (-1,)),
        ContainerSpec("a", (2**32 - 1,)),
        ContainerSpec("a", (), -1),
        ContainerSpec("a", (), 2**64),
    ],
)
async def test_a_container_that_cannot_be_is_refused(store: Store, spec: ContainerSpec) -> None:
    with pytest.raises(ValueRefused):
        await store.open_container(HOST, spec)
    assert await store.load_host(HOST) == ([], [])


@pytest.mark.parametrize("host", ["", "a b", "é", "\0", "h" * 256])
async def test_a_host_that_cannot_be_is_refused_and_has_nothing(store: Store, host: str) -> None:
    with pytest.raises(ValueRefused):
        await store.open_container(host, ContainerSpec("a"))
    assert await store.load_host(host) == ([], [])
    assert await store.end_session(host, "a\0") is None
    await store.close_container(host, "\ud800")


@pytest.mark.parametrize(
    "binding",
    [
        SessionBinding("c1", "S-1", "scout", "ada"),
        SessionBinding("c1", "s-1\n", "scout", "ada"),
        SessionBinding("c1", "s-1", "", "ada"),
        SessionBinding("c1", "s-1", "scout", "a" * 40),
        SessionBinding("c1", "s-1", "scout", "ad\0a"),
        SessionBinding("c\0", "s-1", "scout", "ada"),
        SessionBinding("c1", "s-1", "scout", "ada", ("github/\ud800",)),
    ],
)
async def test_a_binding_that_cannot_be_is_refused(store: Store, binding: SessionBinding) -> None:
    await store.open_container(HOST, ContainerSpec("c1"))
    with pytest.raises(ValueRefused):
        await store.bind_session(HOST, binding)
    assert (await store.load_host(HOST))[1] == []


@pytest.mark.parametrize(
    "change",
    [
        {"coordinate": issue(0)},
        {"coordinate": issue(-1)},
        {"coordinate": issue(2**63)},
        {"coordinate": issue(1, provider="gitea")},
        {"coordinate": issue(1, repo="")},
        {"coordinate": issue(1, repo="a\0b")},
        {"coordinate": issue(1)._replace(host="")},
        {"coordinate": issue(1)._replace(kind="review")},  # type: ignore[arg-type] # wrong on purpose
        {"repo": ""},
        {"url": "https://x/\0"},
        {"url": "\udfff"},
        {"session_id": "no session"},
        {"client_request_id": ""},
        {"client_request_id": "tab\t"},
        {"client_request_id": "é"},
        {"client_request_id": "k" * 257},
        {"client_request_id": None},
        {"fingerprint": None},
        {"fingerprint": b"short"},
        {"created_at": "yesterday"},
        {"created_at": "2026-08-17T10:00:00"},
        {"created_at": "2026-08-17T10:00:00+02:00"},
        {"account": Account(10**9, "scout", 1, "ada")},
        {"account": Account(2**70, "scout", 1, "ada")},
        {"account": Account(0, "scout", 1, "ada")},
    ],
    ids=repr,
)
async def test_an_artifact_that_cannot_be_is_refused(store: Store, change: dict[str, object]) -> None:
    account = (await bind(store)).account
    artifact = authored(issue(1), account, "key-1")
    with pytest.raises(ValueRefused):
        await store.record_authored_artifact(replace(artifact, **change))  # type: ignore[arg-type] # wrong on purpose
    assert await store.list_authored_artifacts() == []


async def test_an_owner_that_nobody_knows_is_refused(store: Store) -> None:
    account = (await bind(store)).account
    with pytest.raises(ValueRefused, match="owner"):
        await store.record_authored_artifact(authored(issue(1), replace(account, owner_id=10**9)))


async def test_the_longest_values_fit(store: Store) -> None:
    session = await bind(store, "a" * 39, "b" * 39, container="c" * 128, session="s" * 39)
    artifact = authored(issue(2**63 - 1), session.account, "k" * 256, session_id="s" * 39)
    await store.record_authored_artifact(artifact)
    assert await store.authored_artifact_by_request_id(session.account.agent_id, "k" * 256) == artifact


@pytest.mark.parametrize(("agent_id", "key"), [(1, "\0"), (1, "\ud800"), (2**70, "key"), (-1, "key")])
async def test_a_question_that_no_row_answers_is_no_error(store: Store, agent_id: int, key: str) -> None:
    assert await store.authored_artifact_by_request_id(agent_id, key) is None
    assert await store.list_authored_artifacts_by_agent(agent_id) == []


async def test_no_error_shows_a_value(store: Store) -> None:
    account = (await bind(store)).account
    with pytest.raises(ForgedError) as raised:
        await store.record_authored_artifact(authored(issue(1), account, "sesame\t"))
    assert "sesame" not in repr(raised.value)
