"""The service over Linear: keys, headers, attribution, and what Linear has not."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from compass_forged import owner
from compass_forged.emulator.script import Rule
from compass_forged.errors import StoreUnavailable
from compass_forged.ports import ContainerSpec, SessionBinding
from compass_forged.wire.schema import (
    Arm,
    Attribution,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    GetIssue,
    GetPullRequest,
    IssueCommentResult,
    ListIssues,
)
from tests.support.linear import LinearDesk, new_forge, on_forge
from tests.support.service import HOST, error_of, issue_of, page_of, raising, refusal_of

CREATE = CreateIssue(repo="eng", title="A title", body="The words.", labels=["bug"])


@pytest.fixture
async def desk() -> AsyncIterator[LinearDesk]:
    forge = new_forge()
    made = LinearDesk(on_forge(forge), forge)
    await made.bind()
    yield made
    assert made.github.count() == 0


async def test_what_is_written_begins_with_the_callers_header_and_is_read_without(desk: LinearDesk) -> None:
    made = issue_of(await desk.ask(CREATE))
    comment = await desk.ask(CommentOnIssue(repo="ENG", issue_number=made.number, body="A remark."))
    assert isinstance(comment, IssueCommentResult)

    held = desk.forge.state.issue("ENG-2")
    claim = owner.parse(held.description or "")
    assert claim is not None
    assert (claim.agent, claim.owner, claim.session) == ("scout", "ada", "s-1")
    assert (made.body, made.labels, made.repo) == ("The words.", ["Bug"], "ENG")
    read = issue_of(await desk.ask(GetIssue(repo="eng", issue_number=2)))
    assert read.body == "The words."
    assert read.attribution == Attribution("scout", "ada", "s-1", verified=True)
    assert [one.body for one in read.comments] == ["A remark."]
    assert read.comments[0].attribution == Attribution("scout", "ada", "s-1", verified=False)
    listed = page_of(await desk.ask(ListIssues(repo="ENG")))
    assert [(one.number, one.body, one.attribution) for one in listed.items] == [
        (2, "The words.", Attribution("scout", "ada", "s-1", verified=True)),
        (1, "It takes nine hours.", None),
    ]


async def test_a_key_is_answered_from_the_memo_whatever_the_case_of_the_teams_key(desk: LinearDesk) -> None:
    first = issue_of(await desk.ask(CREATE, "k-1"))
    again = issue_of(await desk.ask(CreateIssue(repo="ENG", title="A title", body="The words.", labels=["bug"]), "k-1"))
    assert (again.number, again.replayed, again.replay_mismatch) == (first.number, True, False)
    assert desk.asked("IssueCreate") == 1


async def test_a_create_whose_record_was_lost_is_found_at_the_forge(
    desk: LinearDesk, autojump_clock: MockClock
) -> None:
    desk.store.hooks["record"].extend(raising(StoreUnavailable("away")) for _ in range(50))
    first = issue_of(await desk.ask(CREATE, "k-1"))
    assert first.attribution is not None
    assert not first.attribution.verified
    desk.store.hooks.clear()
    desk.restart()

    again = issue_of(await desk.ask(CREATE, "k-1"))

    assert (again.number, again.replayed) == (first.number, True)
    assert len(desk.forge.state.titled("A title")) == 1
    assert issue_of(await desk.ask(CREATE, "k-1")).replayed
    assert desk.asked("IssueCreate") == 2


async def test_a_create_cut_off_after_it_was_sent_is_found_under_its_key(
    desk: LinearDesk, autojump_clock: MockClock
) -> None:
    desk.forge.script.add(Rule(path="/graphql/IssueCreate", delay_after=60))
    with trio.move_on_after(5):
        await desk.ask(CREATE, "k-1")
    again = issue_of(await desk.ask(CREATE, "k-1"))
    assert again.replayed
    assert len(desk.forge.state.titled("A title")) == 1


async def test_agents_and_stores_do_not_share_ids(desk: LinearDesk) -> None:
    first = issue_of(await desk.ask(CREATE, "k-1"))
    await desk.store.open_container(HOST, ContainerSpec("c2"))
    desk.caller = (await desk.store.bind_session(HOST, SessionBinding("c2", "s-2", "mole", "bob"))).caller
    second = issue_of(await desk.ask(CREATE, "k-1"))
    assert first.number != second.number
    assert not second.replayed
    ids = [issue.id for issue in desk.forge.state.titled("A title")]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    "arm",
    [
        CreatePullRequest(repo="ENG", title="t", head_ref="topic", body="b"),
        CommentOnPullRequest(repo="ENG", pull_number=1, body="b"),
        GetPullRequest(repo="ENG", pull_number=1),
    ],
)
async def test_pull_requests_are_unimplemented_naming_both_and_cost_no_request(desk: LinearDesk, arm: Arm) -> None:
    error = error_of(await desk.ask(arm, "k-1"))
    assert error.code == "unimplemented"
    assert error.message.startswith("linear does not implement ")
    assert desk.forge.log.count() == 0


async def test_a_missing_team_issue_and_a_private_one_answer_the_same_bytes(desk: LinearDesk) -> None:
    answers = [
        error_of(await desk.ask(GetIssue(repo=repo, issue_number=number)))
        for repo, number in (("NONE", 1), ("SEC", 1), ("ENG", 99))
    ]
    assert len({(error.code, error.message) for error in answers}) == 1
    assert answers[0].code == "not_found"


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (CreateIssue(repo="ENG", title="x" * 251), "title: 1 characters too long; linear takes 250"),
        (CreateIssue(repo="ENG", title="t", labels=["nonesuch"]), "'nonesuch'"),
        (CreateIssue(repo="ENG", title="t", labels=["area"]), "is a group"),
        (CreateIssue(repo="acme/site", title="t"), "repo: must be a Linear team's key"),
        (CreateIssue(repo="ENG", title="t", body="x" * 60_000), "linear takes 60000 bytes"),
    ],
)
async def test_what_linear_would_not_take_is_the_agents_to_mend(desk: LinearDesk, arm: Arm, words: str) -> None:
    error = error_of(await desk.ask(arm))
    assert (error.code, error.outcome) == ("invalid_argument", "not_sent")
    assert words in error.message
    assert desk.asked("IssueCreate") == 0


async def test_a_scope_is_of_teams(desk: LinearDesk) -> None:
    await desk.bind(("linear/eng",))
    assert issue_of(await desk.ask(CREATE)).repo == "ENG"
    assert refusal_of(await desk.ask(CreateIssue(repo="OPS", title="t"))) == ("permission_denied", "not_sent")
    desk.forge.state.move_issue("ENG-1", "OPS")
    assert error_of(await desk.ask(GetIssue(repo="ENG", issue_number=1))).code == "not_found"


async def test_a_query_that_the_forge_does_not_take_is_internal_and_names_the_field(desk: LinearDesk) -> None:
    body = {"errors": [{"message": 'Cannot query field "x"', "extensions": {"code": "GRAPHQL_VALIDATION_FAILED"}}]}
    desk.forge.script.add(Rule(path="/graphql/IssueCreate", status=400, body=body))
    error = error_of(await desk.ask(CREATE))
    assert (error.code, error.outcome) == ("internal", "rejected")
    assert 'Cannot query field "x"' in error.message
    assert desk.asked("IssueCreate") == 1
