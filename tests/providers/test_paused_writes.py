"""A forge that answers a write with something else: what is then held back, for how long, and what ends it."""

from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import pytest
import structlog.testing
import trio
import trio.testing

from compass_forged.budget import Kind
from compass_forged.daemon import _credential_states
from compass_forged.errors import BadAnswer, ForeignAnswer, ForgeStatus, WritesPaused
from compass_forged.ports import CallContext, Provider
from compass_forged.providers.gate import Admission, GateStatistics
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.identity import Identities, Identity, RoleIdentity
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    GetIssue,
    SubmitReview,
)
from tests.support import linear
from tests.support.forge_http import (
    Handler,
    ScriptedForge,
    answer,
    comment_json,
    handler,
    issue_json,
    new_context,
    new_github,
    new_http,
    pull_json,
    review_json,
)

REPO = "acme/site"
ELSEWHERE = "acme/other"
CREATE = CreateIssue(repo=REPO, title="t")
GET = GetIssue(repo=REPO, issue_number=7)

Call = Callable[[Provider, CallContext], Awaitable[object]]


def wrong() -> httpx.Response:
    return answer(201, issue_json(repo=ELSEWHERE))


def right() -> httpx.Response:
    return answer(201, issue_json())


def fresh() -> CallContext:
    return new_context()[0]


def state(provider: GitHubProvider | LinearProvider) -> GateStatistics:
    return provider.http.gate.statistics()


async def mistaken(provider: GitHubProvider) -> None:
    with pytest.raises(ForeignAnswer):
        await provider.create_issue(CREATE, fresh())


WRITES: list[tuple[httpx.Response, Call]] = [
    (wrong(), lambda forge, context: forge.create_issue(CREATE, context)),
    (
        answer(201, pull_json(repo=ELSEWHERE)),
        lambda forge, context: forge.create_pull_request(
            CreatePullRequest(repo=REPO, title="t", head_ref="topic", base_ref="main"), context
        ),
    ),
    (
        answer(201, comment_json(1, issue=8)),
        lambda forge, context: forge.comment_on_issue(CommentOnIssue(repo=REPO, issue_number=7, body="b"), context),
    ),
    (
        answer(201, comment_json(1, repo=ELSEWHERE)),
        lambda forge, context: forge.comment_on_pull_request(
            CommentOnPullRequest(repo=REPO, pull_number=7, body="b"), context
        ),
    ),
    (
        answer(200, review_json(pull=8)),
        lambda forge, context: forge.submit_review(
            SubmitReview(repo=REPO, pull_number=7, verdict="comment", body="b"), context
        ),
    ),
]


@pytest.mark.parametrize(("response", "write"), WRITES)
async def test_any_write_that_is_answered_with_something_else_pauses_them_all(
    response: httpx.Response, write: Call, autojump_clock: trio.testing.MockClock
) -> None:
    provider, forge = new_github(response)
    with structlog.testing.capture_logs() as logs, pytest.raises(ForeignAnswer):
        await write(provider, fresh())
    assert [(log["log_level"], log["gate"], log["seconds"]) for log in logs if "gate" in log] == [("error", "test", 60)]
    for _, each in WRITES:
        with trio.fail_after(30), pytest.raises(WritesPaused, match="another repository, number or author") as refused:
            await each(provider, fresh())
        assert (refused.value.outcome, refused.value.retry_after_seconds) == ("not_sent", 60)
    assert len(forge.requests) == 1
    assert (state(provider).paused_for, state(provider).on_trial) == (60, True)


async def test_status_shows_the_pause_and_the_trial_behind_it(autojump_clock: trio.testing.MockClock) -> None:
    provider, _ = new_github(wrong(), right())
    registry = Registry([Entry("github", "github.com", provider)])

    def shown() -> tuple[float, bool]:
        (credential,) = _credential_states(registry)
        return credential.paused_for, credential.on_trial

    assert shown() == (0, False)
    await mistaken(provider)
    await trio.sleep(20)
    assert shown() == (40, True)
    await trio.sleep(40)
    assert shown() == (0, True)
    await provider.create_issue(CREATE, fresh())
    assert shown() == (0, False)


async def test_reads_go_on_while_writes_are_paused(autojump_clock: trio.testing.MockClock) -> None:
    provider, _ = new_github(wrong(), answer(200, issue_json()))
    await mistaken(provider)
    assert (await provider.get_issue(GET, fresh())).number == 7


async def test_a_read_that_is_answered_with_something_else_pauses_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider, _ = new_github(answer(200, issue_json(8)), right())
    with pytest.raises(ForeignAnswer):
        await provider.get_issue(GET, fresh())
    with trio.fail_after(30):
        await provider.create_issue(CREATE, fresh())


async def test_an_answer_that_cannot_be_read_pauses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    provider, _ = new_github(answer(201, b"{}"), right())
    with pytest.raises(BadAnswer):
        await provider.create_issue(CREATE, fresh())
    with trio.fail_after(30):
        await provider.create_issue(CREATE, fresh())


async def test_a_call_with_time_waits_the_pause_out_and_the_first_right_answer_ends_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    together: list[int] = []
    under_way = 0

    async def slow(_request: httpx.Request) -> httpx.Response:
        nonlocal under_way
        under_way += 1
        together.append(under_way)
        await trio.sleep(2)
        under_way -= 1
        return right()

    provider, forge = new_github(wrong(), slow, slow, slow, slow)
    await mistaken(provider)

    async def write() -> None:
        with trio.fail_after(100):
            await provider.create_issue(CREATE, fresh())

    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(write)
            await trio.sleep(59)
            assert len(forge.requests) == 1
            await trio.sleep(2)
            assert len(forge.requests) == 2  # one alone finds out
            assert (state(provider).paused_for, state(provider).on_trial) == (0, True)
    assert together[0] == 1
    assert len(together) == 4
    assert trio.current_time() == 64  # 60, then one, then the others side by side
    assert not state(provider).on_trial
    assert [log["event"] for log in logs] == ["writes under a credential are answered rightly again"]


async def test_a_trial_that_is_answered_with_something_else_pauses_for_twice_as_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider, forge = new_github(wrong(), wrong(), right(), right())
    await mistaken(provider)
    await trio.sleep(60)

    async def behind() -> None:
        with trio.fail_after(30), pytest.raises(WritesPaused):
            await provider.create_issue(CREATE, fresh())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mistaken, provider)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(behind)
    assert len(forge.requests) == 2
    assert state(provider).paused_for == 120
    await trio.sleep(120)
    await provider.create_issue(CREATE, fresh())
    await provider.create_issue(CREATE, fresh())


async def test_a_trial_that_is_refused_proves_nothing_and_the_next_one_finds_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider, _ = new_github(wrong(), answer(422, {"message": "no"}), right())
    await mistaken(provider)
    await trio.sleep(60)
    with pytest.raises(ForgeStatus):
        await provider.create_issue(CREATE, fresh())
    assert state(provider).on_trial
    await provider.create_issue(CREATE, fresh())
    assert not state(provider).on_trial


async def test_writes_that_went_out_before_the_pause_neither_lengthen_nor_end_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def after(seconds: float, response: Callable[[], httpx.Response]) -> Handler:
        async def reply(_request: httpx.Request) -> httpx.Response:
            await trio.sleep(seconds)
            return response()

        return reply

    provider, _ = new_github(after(1, wrong), after(2, right), after(3, wrong))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mistaken, provider)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(provider.create_issue, CREATE, fresh())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(mistaken, provider)
    assert trio.current_time() == 3
    assert (state(provider).paused_for, state(provider).on_trial) == (58, True)


async def test_a_write_that_was_let_go_when_the_pause_began_is_not_sent(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, forge = new_github(handler(lambda _request: right()))
    context, guard = new_context()
    gate = provider.http.gate
    admit = gate.admit

    async def admitted_before(container: str, kind: Kind, *, deadline: float) -> Admission:
        admission = await admit(container, kind, deadline=deadline)
        gate.mistaken("another write's answer")
        return admission

    monkeypatch.setattr(gate, "admit", admitted_before)
    with pytest.raises(WritesPaused):
        await provider.create_issue(CREATE, context)
    assert (guard.sendings, forge.requests, state(provider).in_flight) == (0, [], 0)


async def test_an_issue_of_linears_is_still_found_by_its_id(autojump_clock: trio.testing.MockClock) -> None:
    """The answer is another issue's, and the create was carried out: reading by its id goes on and shows that."""
    made: dict[str, str] = {}

    async def create(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        made["id"] = linear.sent(request)["input"]["id"]
        return linear.graphql({"issueCreate": {"success": True, "issue": linear.issue_json("ENG-8")}})

    async def by_id(_request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return linear.issues_answer(linear.issue_json(issue_id=made["id"]))

    provider, forge = linear.scripted(linear.team_answer(), create, by_id)
    issue = await provider.create_issue(CreateIssue(repo="ENG", title="A title", body=linear.STAMPED), fresh())
    assert issue.number == 7
    assert len(forge.requests) == 3
    assert state(provider).paused_for == 60


async def test_a_comment_of_linears_elsewhere_pauses_writes(autojump_clock: trio.testing.MockClock) -> None:
    async def comment(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        found = {
            "id": linear.sent(request)["input"]["id"],
            "url": "https://linear.app/acme/issue/ENG-8/a-title#comment-1",
            "issue": {"id": "33333333-3333-4333-8333-333333333333"},
        }
        return linear.graphql({"commentCreate": {"success": True, "comment": found}})

    def nothing(_request: httpx.Request) -> httpx.Response:
        return linear.graphql({"comments": {"nodes": []}})

    place = {"id": linear.ISSUE_ID, "identifier": "ENG-7", "trashed": None}
    found = linear.issues_answer({**place, "team": {"id": linear.TEAM_ID, "key": "ENG"}})
    provider, _ = linear.scripted(linear.team_answer(), found, comment, handler(nothing), handler(nothing))
    with pytest.raises(ForeignAnswer):
        await provider.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=7, body="b"), fresh())
    assert state(provider).on_trial


@pytest.mark.parametrize("team", [{"id": "99999999-1111-4111-8111-111111111111", "key": "OPS"}, None])
async def test_an_issue_of_linears_that_the_team_s_rules_move_on_at_once_pauses_nothing(
    team: dict[str, str] | None, autojump_clock: trio.testing.MockClock
) -> None:
    """Its id, which nobody else can have sent, says that the answer is about it. An agent's words may cause a move."""
    made: list[dict[str, object]] = []

    async def create(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        place = "https://linear.app/acme/issue/OPS-8/a-title"
        issue_id = linear.sent(request)["input"]["id"]
        made.append({**linear.issue_json("OPS-8", issue_id=issue_id), "team": team, "url": place})
        return linear.graphql({"issueCreate": {"success": True, "issue": made[0]}})

    async def by_id(_request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return linear.issues_answer(made[0])

    provider, _ = linear.scripted(linear.team_answer(), create, by_id)
    issue = await provider.create_issue(CreateIssue(repo="ENG", title="A title", body=linear.STAMPED), fresh())
    assert (issue.repo, issue.number) == ("OPS", 8)
    assert (state(provider).paused_for, state(provider).on_trial) == (0, False)


async def test_an_app_that_was_given_another_name_is_asked_for_it_and_writes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    name = "compass[bot]"

    async def learn() -> Identity:
        await trio.lowlevel.checkpoint()
        return Identity("app", 7, name)

    def written(_request: httpx.Request) -> httpx.Response:
        return answer(201, issue_json(user={"login": name, "type": "Bot", "id": 9}))

    http = new_http(ScriptedForge([handler(written)] * 3))
    identities = Identities("github.com", RoleIdentity(http.credential, learn, lasting=True))

    def login() -> str:
        known = identities.known("author")
        return known.login if known else ""

    provider = GitHubProvider(http, own_login=login, not_own=partial(identities.ask_again, "author"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(identities.keep)
        await trio.sleep(100)
        name = "compass-forged[bot]"
        await mistaken(provider)
        assert (login(), identities.all_known) == ("compass[bot]", False)  # holds while it is being asked again
        await trio.sleep(60)
        assert (login(), identities.all_known) == (name, True)
        await provider.create_issue(CREATE, fresh())
        await provider.create_issue(CREATE, fresh())
        nursery.cancel_scope.cancel()
    assert (state(provider).paused_for, state(provider).on_trial) == (0, False)
