"""The Linear provider over the bundled forge, whose GraphQL is really validated and executed."""

import uuid
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from compass_forged import owner
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_limits import LinearLimitSettings
from compass_forged.emulator.linear_state import Authorship
from compass_forged.emulator.script import Rule
from compass_forged.errors import (
    BadArgument,
    BadCredentials,
    ForeignAnswer,
    ForgeError,
    ForgePrecondition,
    ForgeStatus,
    ForgeUnavailable,
    RateLimited,
    Unsupported,
)
from compass_forged.ports import CallContext
from compass_forged.providers.linear import BODY_LIMIT, LinearProvider
from compass_forged.providers.linear_actor import DEGRADED
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    GetIssue,
    GetPullRequest,
    ListIssues,
    SubmitReview,
)
from tests.support.forge_http import new_context
from tests.support.linear import API_KEY, HEADER, STAMPED, new_forge, on_forge

CREATE = CreateIssue(repo="ENG", title="A title", body=STAMPED)
SEED = bytes(range(16))


def keyed(seed: bytes = SEED, **more: Any) -> CallContext:
    context, _ = new_context()
    context.create_id = seed
    for name, value in more.items():
        setattr(context, name, value)
    return context


def fresh() -> CallContext:
    return new_context()[0]


def asked(forge: LinearForge, operation: str = "*") -> int:
    return forge.log.count("POST", f"/graphql/{operation}")


# --- the four operations --------------------------------------------------------------------------------------------


async def test_an_issue_is_opened_and_read_back(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    made = await linear.create_issue(CreateIssue(repo="eng", title="A title", body=STAMPED, labels=["r&d"]), fresh())

    assert (made.repo, made.number, made.title, made.state) == ("ENG", 2, "A title", "open")
    assert made.url == "https://linear.app/acme/issue/ENG-2/a-title"
    assert made.labels == ["R&D"]
    assert made.forge.host == "linear.app"
    assert not made.replayed
    read = await linear.get_issue(GetIssue(repo="ENG", issue_number=2), fresh())
    assert (read.title, owner.strip(read.body), read.url) == ("A title", "The words.", made.url)


async def test_a_comment_comes_with_its_issue_newest_last(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    ref = await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=1, body=STAMPED), fresh())

    issue = await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())

    assert [owner.strip(comment.body) for comment in issue.comments] == ["Ten by now.", "The words."]
    assert issue.comments[-1].id == ref.comment_id
    assert issue.comments[-1].url == ref.url
    assert issue.comments_total == 2
    assert issue.author is not None
    assert (issue.author.login, issue.author.is_bot) == ("Mona & Co", False)


async def test_more_comments_than_are_shown_are_counted(autojump_clock: MockClock) -> None:
    forge = new_forge()
    issue = forge.state.issue("ENG-1")
    for number in range(300):
        forge.state.add_comment(issue, Authorship(external="someone"), f"comment {number}")

    read = await on_forge(forge).get_issue(GetIssue(repo="ENG", issue_number=1), fresh())

    assert [comment.body for comment in read.comments] == [f"comment {number}" for number in range(270, 300)]
    assert read.comments[0].author.login == "someone"
    assert read.comments_total == 250
    assert read.warnings == ["more than 250 comments; comments_total is not exact"]


async def test_a_listing_is_walked_by_cursor(autojump_clock: MockClock) -> None:
    forge = new_forge()
    team, mona = forge.state.team("OPS"), forge.state.user("Mona & Co")
    for number in range(25):
        forge.state.add_issue(team, Authorship(user_id=mona.id), f"Issue {number}")
    forge.state.archive("OPS-3", trash=True)
    linear = on_forge(forge)

    numbers, cursor = [], ""
    while True:
        page = await linear.list_issues(ListIssues(repo="ops", limit=10, cursor=cursor), fresh())
        numbers += [issue.number for issue in page.items]
        if not (cursor := page.next_cursor):
            break

    assert numbers == [number for number in range(25, 0, -1) if number != 3]


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("triage", "open"),
        ("backlog", "open"),
        ("unstarted", "open"),
        ("started", "open"),
        ("completed", "closed"),
        ("canceled", "closed"),
        ("duplicate", "closed"),
    ],
)
async def test_states_are_told_by_their_type(kind: str, state: str, autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.state.set_state("ENG-1", kind)
    linear = on_forge(forge)

    read = await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    listed = {}
    for wanted in ("open", "closed", "all"):
        page = await linear.list_issues(ListIssues(repo="ENG", state=wanted), fresh())
        listed[wanted] = [issue.number for issue in page.items]

    assert read.state == state
    assert listed == {"all": [1], state: [1], ("closed" if state == "open" else "open"): []}


async def test_closed_issues_are_listed_when_they_are_archived_and_not_when_they_are_deleted(
    autojump_clock: MockClock,
) -> None:
    forge = new_forge()
    state = forge.state
    for title in ("one", "two"):
        state.add_issue(state.team("ENG"), Authorship(), title)
    for number in (1, 2, 3):
        state.set_state(f"ENG-{number}", "completed")
    state.archive("ENG-2")
    state.archive("ENG-3", trash=True)
    linear = on_forge(forge)

    page = await linear.list_issues(ListIssues(repo="ENG", state="closed"), fresh())
    archived = await linear.get_issue(GetIssue(repo="ENG", issue_number=2), fresh())

    assert [issue.number for issue in page.items] == [2, 1]
    assert archived.warnings == ["archived on the forge"]
    with pytest.raises(ForgeStatus, match="404"):
        await linear.get_issue(GetIssue(repo="ENG", issue_number=3), fresh())
    with pytest.raises(ForgeStatus, match="404"):
        await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=3, body=STAMPED), fresh())
    assert forge.state.commits == {}


async def test_a_listing_by_labels_holds_what_has_them_all(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    for labels in (["bug"], ["bug", "web"], ["web"]):
        await linear.create_issue(CreateIssue(repo="ENG", title=str(labels), body=STAMPED, labels=labels), fresh())

    async def titles(*labels: str) -> list[str]:
        page = await linear.list_issues(ListIssues(repo="ENG", labels=list(labels)), fresh())
        return [issue.title for issue in page.items]

    assert await titles("BUG") == ["['bug', 'web']", "['bug']"]
    assert await titles("bug", "web") == ["['bug', 'web']"]
    assert await titles("nonesuch") == []


PULL_REQUEST_FAMILY = {
    "create_pull_request": CreatePullRequest(repo="ENG", title="t", head_ref="topic"),
    "comment_on_pull_request": CommentOnPullRequest(repo="ENG", pull_number=1, body="b"),
    "submit_review": SubmitReview(repo="ENG", pull_number=1, verdict="comment", body="b"),
    "get_pull_request": GetPullRequest(repo="ENG", pull_number=1),
}


@pytest.mark.parametrize("operation", PULL_REQUEST_FAMILY)
async def test_what_linear_has_not_is_refused_without_a_request(operation: str, autojump_clock: MockClock) -> None:
    forge = new_forge()
    with pytest.raises(Unsupported, match=f"linear has no {operation}") as refused:
        await getattr(on_forge(forge), operation)(PULL_REQUEST_FAMILY[operation], fresh())
    assert (refused.value.provider, refused.value.operation) == ("linear", operation)
    assert forge.log.count() == 0


# --- exactly once ---------------------------------------------------------------------------------------------------


async def test_a_key_creates_once_and_is_answered_as_replayed(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    first = await linear.create_issue(CREATE, keyed())
    again = await linear.create_issue(CREATE, keyed())

    assert not first.replayed
    assert again.replayed
    assert not again.replay_mismatch
    assert (again.number, again.url, again.title) == (first.number, first.url, first.title)
    assert len(forge.state.titled("A title")) == 1
    held = forge.state.issue("ENG-2")
    assert uuid.UUID(held.id).version == 4
    assert held.id == str(uuid.UUID(bytes=SEED, version=4))


async def test_a_key_whose_issue_people_have_deleted_is_answered_with_it_and_says_so(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    first = await linear.create_issue(CREATE, keyed())
    forge.state.archive("ENG-2", trash=True)
    again = await linear.create_issue(CREATE, keyed())

    assert (again.replayed, again.url) == (True, first.url)
    assert again.warnings == ["deleted on the forge: it is in the trash"]
    forge.state.archive("ENG-2")
    assert (await linear.create_issue(CREATE, keyed())).warnings == ["archived on the forge"]


async def test_another_key_is_another_issue(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    numbers = {(await linear.create_issue(CREATE, keyed(bytes([byte] * 16)))).number for byte in range(3)}
    assert numbers == {2, 3, 4}


async def test_creates_without_a_key_are_each_their_own(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    made = [await linear.create_issue(CREATE, fresh()) for _ in range(2)]
    assert [issue.number for issue in made] == [2, 3]
    assert not any(issue.replayed for issue in made)


@pytest.mark.parametrize(
    "fault",
    [
        Rule(path="/graphql/IssueCreate", commit=True, status=504, body="<html>gateway timeout</html>"),
        Rule(path="/graphql/IssueCreate", commit=True, drop=True),
        Rule(path="/graphql/IssueCreate", truncate=20),
        Rule(path="/graphql/IssueCreate", commit=True, status=200, body={"data": {"issueCreate": None}}),
        Rule(path="/graphql/IssueCreate", commit=True, status=200, body={"data": {"issueCreate": {"success": False}}}),
        Rule(path="/graphql/IssueCreate", commit=True, status=200, body="<html>"),
        Rule(
            path="/graphql/IssueCreate",
            commit=True,
            status=200,
            body={"data": None, "errors": [{"message": "Internal", "extensions": {"type": "internal error"}}]},
        ),
    ],
)
@pytest.mark.parametrize("seed", [None, SEED])
async def test_a_create_whose_end_is_unknown_is_found_by_its_id(
    fault: Rule, seed: bytes | None, autojump_clock: MockClock
) -> None:
    forge = new_forge()
    forge.script.add(fault)
    context = fresh()
    context.create_id = seed

    made = await on_forge(forge).create_issue(CREATE, context)

    assert (made.number, made.title) == (2, "A title")
    assert asked(forge, "IssueCreate") == 1
    assert len(forge.state.titled("A title")) == 1


async def test_a_create_that_is_not_found_again_stays_unknown(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/graphql/IssueCreate", status=502, body=""))
    with pytest.raises(ForgeUnavailable) as failed:
        await on_forge(forge).create_issue(CREATE, fresh())
    assert failed.value.outcome == "unknown"
    assert asked(forge, "IssueById") == 2


async def test_a_create_that_shows_late_is_found_by_the_second_look(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.script.add(
        Rule(path="/graphql/IssueCreate", commit=True, status=502, body=""),
        Rule(path="/graphql/IssueById", status=200, body={"data": {"issues": {"nodes": []}}}),
    )
    assert (await on_forge(forge).create_issue(CREATE, fresh())).number == 2


async def test_a_comment_whose_end_is_unknown_is_found_by_its_id(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/graphql/CommentCreate", commit=True, status=504, body="<html>"))
    arm = CommentOnIssue(repo="ENG", issue_number=1, body=STAMPED)

    ref = await on_forge(forge).comment_on_issue(arm, fresh())

    assert asked(forge, "CommentCreate") == 1
    assert [comment.id for comment in forge.state.comments_of(forge.state.issue("ENG-1"))][-1] == ref.comment_id


async def test_what_stands_under_a_key_but_is_another_agents_is_no_answer(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CREATE, keyed())
    other = CreateIssue(repo="ENG", title="A title", body=STAMPED.replace("agent=scout", "agent=mole"))
    with pytest.raises(ForeignAnswer) as refused:
        await linear.create_issue(other, keyed())
    assert refused.value.outcome == "unknown"


async def test_an_issue_whose_header_people_removed_is_still_the_keys(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CREATE, keyed())
    forge.state.issue("ENG-2").description = "rewritten by hand"
    assert (await linear.create_issue(CREATE, keyed())).number == 2


async def test_an_issue_that_was_moved_is_replayed_where_it_is_now(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CREATE, keyed())
    forge.state.move_issue("ENG-2", "OPS")

    again = await linear.create_issue(CREATE, keyed())

    assert (again.repo, again.number, again.replayed, again.replay_mismatch) == ("OPS", 1, True, False)
    with pytest.raises(ForgeStatus, match="404"):
        await linear.create_issue(CREATE, keyed(may_touch=lambda repo: repo == "ENG"))


async def test_a_key_that_was_used_for_another_team_is_a_mismatch(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    first = await linear.create_issue(CREATE, keyed())
    again = await linear.create_issue(CreateIssue(repo="OPS", title="A title", body=STAMPED), keyed())
    assert (again.repo, again.number, again.replayed) == (first.repo, first.number, True)
    assert again.replay_mismatch


# --- teams ----------------------------------------------------------------------------------------------------------


async def test_a_team_is_looked_up_once(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(linear.get_issue, GetIssue(repo="ENG", issue_number=1), fresh())

    assert asked(forge, "TeamByKey") == 1
    await trio.sleep(301)
    await linear.get_issue(GetIssue(repo="eng", issue_number=1), fresh())
    assert asked(forge, "TeamByKey") == 2


async def test_reads_at_once_are_each_answered_with_their_own_and_the_same_ones_by_one_request(
    autojump_clock: MockClock,
) -> None:
    forge = new_forge()
    team = forge.state.team("ENG")
    for number in range(2, 9):
        forge.state.add_issue(team, Authorship(external="someone"), f"Issue {number}")
    linear = on_forge(forge)
    await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    forge.script.add(Rule(path="/graphql/IssueByNumber", times=8, delay=1))
    numbers = []

    async def read(number: int) -> None:
        numbers.append((number, (await linear.get_issue(GetIssue(repo="ENG", issue_number=number), fresh())).number))

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            for _ in range(3):
                nursery.start_soon(read, number)

    assert sorted(numbers) == [(number, number) for number in range(1, 9) for _ in range(3)]
    assert asked(forge, "IssueByNumber") == 9


async def test_those_who_wait_for_a_look_up_that_is_cancelled_are_answered(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/graphql/TeamByKey", delay=5))
    linear = on_forge(forge)
    found = []

    async def read() -> None:
        found.append((await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())).number)

    async with trio.open_nursery() as nursery:
        leader = trio.CancelScope()

        async def lead() -> None:
            with leader:
                await read()

        nursery.start_soon(lead)
        await trio.sleep(1)
        for _ in range(3):
            nursery.start_soon(read)
        await trio.sleep(1)
        leader.cancel()

    assert found == [1, 1, 1]
    assert asked(forge, "TeamByKey") == 2


@pytest.mark.parametrize("repo", ["NONE", "SEC"])
async def test_a_missing_team_and_a_private_one_cannot_be_told_apart(repo: str, autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    messages = set()
    for arm in (GetIssue(repo=repo, issue_number=1), GetIssue(repo="ENG", issue_number=99)):
        with pytest.raises(ForgeStatus) as refused:
            await linear.get_issue(arm, fresh())
        messages.add(refused.value.status)
    with pytest.raises(ForgeStatus) as refused:
        await linear.create_issue(CreateIssue(repo=repo, title="t", body=STAMPED), fresh())
    assert messages == {404}
    assert (refused.value.status, refused.value.outcome) == (404, "not_sent")


async def test_a_renamed_team_is_told_by_its_new_key(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    forge.state.rename_team("ENG", "CORE")

    before = await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())  # as long as the key is remembered
    made = await linear.create_issue(CREATE, fresh())  # and once it is not
    with pytest.raises(ForgeStatus, match="404"):
        await linear.get_issue(GetIssue(repo="ENG", issue_number=1), keyed(may_touch=lambda repo: repo == "ENG"))

    with pytest.raises(ForgeStatus, match="404") as refused:
        await linear.create_issue(CREATE, keyed(may_touch=lambda repo: repo == "ENG"))

    assert (before.repo, made.repo, made.number) == ("CORE", "CORE", 2)
    assert refused.value.outcome == "not_sent"
    assert forge.state.commits["issue"] == 1


async def test_a_create_that_shows_a_new_key_has_the_team_looked_up_again(autojump_clock: MockClock) -> None:
    """A scope that names the old key holds for one create at the most, and not for as long as a key is remembered."""
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CREATE, fresh())
    forge.state.rename_team("ENG", "CORE")
    made = await linear.create_issue(CREATE, fresh())
    assert made.repo == "CORE"
    with pytest.raises(ForgeStatus, match="404"):
        await linear.create_issue(CREATE, keyed(may_touch=lambda repo: repo == "ENG"))
    assert forge.state.commits["issue"] == 2


async def test_a_key_that_another_team_has_taken_means_that_team(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    forge.state.rename_team("ENG", "CORE")
    forge.state.add_team("ENG", "Energy")
    await trio.sleep(301)
    made = await linear.create_issue(CREATE, fresh())
    assert (made.repo, made.number) == ("ENG", 1)
    assert forge.state.team("ENG").name == "Energy"


async def test_a_team_that_is_gone_is_asked_for_anew(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CREATE, fresh())
    old = forge.state.team("ENG")
    del forge.state.teams[old.id]
    forge.state.issues.clear()
    with pytest.raises(ForgeStatus, match="404"):
        await linear.create_issue(CREATE, fresh())
    forge.state.add_team("ENG")
    assert (await linear.create_issue(CREATE, fresh())).number == 1


async def test_a_retired_team_takes_no_new_issues(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.state.team("OPS").retired_at = forge.state.now()
    with pytest.raises(ForgePrecondition, match="retired") as refused:
        await on_forge(forge).create_issue(CreateIssue(repo="OPS", title="t", body=STAMPED), fresh())
    assert refused.value.outcome == "not_sent"


async def test_an_issue_is_found_by_an_identifier_that_it_had(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    forge.state.move_issue("ENG-1", "OPS")

    read = await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=1, body=STAMPED), fresh())

    assert (read.repo, read.number) == ("OPS", 1)
    assert len(forge.state.comments_of(forge.state.issue("OPS-1"))) == 2
    only_eng = keyed(may_touch=lambda repo: repo == "ENG")
    with pytest.raises(ForgeStatus, match="404"):
        await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=1, body=STAMPED), only_eng)
    assert forge.state.commits["comment"] == 1


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1])
async def test_a_number_beyond_what_linear_can_tell_apart_is_none(number: int, autojump_clock: MockClock) -> None:
    forge = new_forge()
    with pytest.raises(ForgeStatus, match="404"):
        await on_forge(forge).get_issue(GetIssue(repo="ENG", issue_number=number), fresh())


# --- labels ---------------------------------------------------------------------------------------------------------


async def test_a_teams_label_comes_before_the_workspaces(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    in_eng = await linear.create_issue(CreateIssue(repo="ENG", title="t", body=STAMPED, labels=["bug"]), fresh())
    in_ops = await linear.create_issue(CreateIssue(repo="OPS", title="t", body=STAMPED, labels=["BUG", "bug"]), fresh())
    assert (in_eng.labels, in_ops.labels) == (["Bug"], ["bug"])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["bug", "nonesuch", "other"], "neither the team nor the workspace has 'nonesuch', 'other'"),
        (["area"], "'area' is a group, which cannot be set"),
    ],
)
async def test_a_label_that_cannot_be_set_is_named_before_anything_is_sent(
    labels: list[str], words: str, autojump_clock: MockClock
) -> None:
    forge = new_forge()
    with pytest.raises(BadArgument, match=words) as refused:
        await on_forge(forge).create_issue(CreateIssue(repo="ENG", title="t", body=STAMPED, labels=labels), fresh())
    assert refused.value.outcome == "not_sent"
    assert asked(forge, "IssueCreate") == 0


async def test_labels_that_exclude_each_other_are_explained(autojump_clock: MockClock) -> None:
    forge = new_forge()
    arm = CreateIssue(repo="ENG", title="t", body=STAMPED, labels=["web", "bug", "api"])
    with pytest.raises(ForgeStatus, match="one label only: web and api are of the group area") as refused:
        await on_forge(forge).create_issue(arm, fresh())
    assert refused.value.outcome == "rejected"


# --- who it is ------------------------------------------------------------------------------------------------------


async def test_an_app_writes_under_the_configured_name(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge, icon="https://icons.example/c.png")
    identity = await linear.learn_identity()
    made = await linear.create_issue(CREATE, fresh())
    await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=1, body=STAMPED), fresh())

    held = forge.state.issue("ENG-2")
    assert (identity.kind, identity.login) == ("app", "compass")
    assert (held.author.as_user, held.author.bot_name) == ("Compass", "compass")
    assert forge.state.comments_of(forge.state.issue("ENG-1"))[-1].author.as_user == "Compass"
    inputs = [entry.body["variables"]["input"] for entry in forge.log.find("POST", "/graphql/*Create")]
    assert {given["displayIconUrl"] for given in inputs} == {"https://icons.example/c.png"}
    assert made.author is not None
    assert (made.author.login, made.author.is_bot) == ("Compass", True)


async def test_a_persons_key_is_degraded_with_one_line(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge, token=API_KEY)
    with structlog.testing.capture_logs() as logs:
        await linear.learn_identity()
        await linear.learn_identity()
        made = await linear.create_issue(CREATE, fresh())
    assert [line["event"] for line in logs].count(DEGRADED) == 1
    assert forge.state.issue("ENG-2").author.as_user is None
    assert made.author is not None
    assert made.author.login == "Mona & Co"


async def test_a_replay_under_the_configured_name_is_one_and_no_refusal_of_the_name(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.learn_identity()
    with structlog.testing.capture_logs() as logs:
        made = [await linear.create_issue(CREATE, keyed()) for _ in range(2)]
        with pytest.raises(ForgeStatus, match="one label only"):
            await linear.create_issue(CreateIssue(repo="ENG", title="t", body=STAMPED, labels=["web", "api"]), fresh())
    assert [issue.replayed for issue in made] == [False, True]
    assert asked(forge, "IssueCreate") == 3
    assert DEGRADED not in [line["event"] for line in logs]
    assert linear.writes_as == "Compass"


async def test_nothing_is_said_of_the_author_before_it_is_known_who_that_is(autojump_clock: MockClock) -> None:
    forge = new_forge()
    await on_forge(forge).create_issue(CREATE, fresh())
    assert forge.state.issue("ENG-2").author.as_user is None


async def test_a_write_that_is_refused_for_its_name_goes_out_once_more_without(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.learn_identity()
    grant = forge.state.tokens.popitem()  # the person's, so that the app's is the only one left
    token, app = forge.state.tokens.popitem()
    forge.state.grant_token(token, "compass", oauth=True, app_actor=False)
    assert grant[1] != app
    with structlog.testing.capture_logs() as logs:
        made = [await linear.create_issue(CREATE, keyed(bytes([byte] * 16))) for byte in range(2)]
    assert [issue.number for issue in made] == [2, 3]
    assert asked(forge, "IssueCreate") == 3
    assert [line["event"] for line in logs].count(DEGRADED) == 1


@pytest.mark.parametrize(("token", "form"), [(API_KEY, API_KEY), ("lin_oauth_canary-token-of-the-app-0001", "Bearer ")])
async def test_each_kind_of_token_goes_in_its_own_form(token: str, form: str, autojump_clock: MockClock) -> None:
    for bearer in (False, True):
        linear = on_forge(new_forge(), token=token, bearer=bearer)
        assert (await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())).number == 1


async def test_an_unknown_token_is_the_operators_to_renew(autojump_clock: MockClock) -> None:
    linear = on_forge(new_forge(), token="lin_api_no-longer-known-0001")
    with pytest.raises(BadCredentials):
        await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())
    assert linear.http.credential.broken


async def test_a_token_that_may_only_read_is_told_as_such(autojump_clock: MockClock) -> None:
    forge = new_forge()
    forge.state.grant_token("lin_api_reads-and-nothing-else-01", "Mona & Co", writes=False)
    linear = on_forge(forge, token="lin_api_reads-and-nothing-else-01")
    with pytest.raises(ForgePrecondition, match="`write` required"):
        await linear.create_issue(CREATE, fresh())


# --- text -----------------------------------------------------------------------------------------------------------

REWRITTEN = """# Title #

- one
+ two

<!-- hidden -->
<details><summary>More</summary>

a ~ b | `c ~ d`


```sh
- kept
```
"""


async def test_markdown_that_comes_back_rewritten_still_has_its_header_in_front(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    made = await linear.create_issue(CreateIssue(repo="ENG", title="t", body=f"{HEADER}\n\n{REWRITTEN}"), keyed())
    again = await linear.create_issue(CreateIssue(repo="ENG", title="t", body=f"{HEADER}\n\n{REWRITTEN}"), keyed())
    read = await linear.get_issue(GetIssue(repo="ENG", issue_number=made.number), fresh())

    for issue in (made, again, read):
        claim = owner.parse(issue.body)
        assert claim is not None
        assert (claim.agent, claim.owner, claim.session) == ("scout", "ada", "s-1")
        text = owner.strip(issue.body)
        assert text.startswith("# Title\n\n* one\n* two")
        assert "compass:owner" not in text
        assert "hidden" not in text
        assert "`c ~ d`" in text
    assert again.replayed


async def test_a_title_that_is_too_long_is_refused_before_anything_is_sent(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    await linear.create_issue(CreateIssue(repo="ENG", title="x" * 250, body=STAMPED), fresh())
    requests = forge.log.count()
    with pytest.raises(BadArgument, match="title: 1 characters too long; linear takes 250"):
        await linear.create_issue(CreateIssue(repo="ENG", title="x" * 251, body=STAMPED), fresh())
    assert forge.log.count() == requests
    assert linear.body_limit == BODY_LIMIT == 60_000


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [LinearLimitSettings(requests=30), LinearLimitSettings(points=300_000)])
async def test_the_gate_shuts_before_either_limit_is_reached(
    limits: LinearLimitSettings, autojump_clock: MockClock
) -> None:
    forge = new_forge(settings=LinearSettings(limits=limits))
    linear = on_forge(forge)
    forge.limits.set_remaining(
        forge.state.user("compass").id, forge.state.now(), points=72_000 if limits.points < 10**6 else None
    )
    answered: list[int] = []

    async def read_on() -> None:
        while True:
            answered.append((await linear.get_issue(GetIssue(repo="ENG", issue_number=1), fresh())).number)

    with pytest.raises(RateLimited) as refused, trio.fail_after(60):
        await read_on()
    assert answered
    assert refused.value.outcome == "not_sent"
    assert 3500 < refused.value.retry_after_seconds <= 3601
    assert all(entry.status == 200 for entry in forge.log.find())


async def test_a_reached_limit_is_told_with_its_end_and_shuts_the_gate(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear = on_forge(forge)
    forge.limits.set_remaining(forge.state.user("compass").id, forge.state.now(), requests=0)
    for _ in range(2):
        with pytest.raises(RateLimited) as refused, trio.fail_after(60):
            await linear.create_issue(CREATE, fresh())
        assert 3500 < refused.value.retry_after_seconds <= 3601
        assert refused.value.outcome == "not_sent"
    assert forge.log.count() == 1


async def test_no_failure_of_a_look_up_before_a_create_leaves_it_unknown(autojump_clock: MockClock) -> None:
    forge = new_forge()
    linear: LinearProvider = on_forge(forge)
    forge.script.add(Rule(path="/graphql/TeamByKey", times=3, status=502, body=""))
    with pytest.raises(ForgeError) as failed:
        await linear.create_issue(CREATE, fresh())
    assert failed.value.outcome == "not_sent"
