"""Reads: bodies without headers, who wrote what, and replies that fit."""

import math
from typing import TypeAlias

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from compass_forged.errors import IsPullRequest, StoreError, StoreUnavailable, ValueRefused
from compass_forged.ports import AuthoredArtifact, CallContext, Coordinate
from compass_forged.providers.fake import Step
from compass_forged.service import ServiceLimits, reads
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES
from compass_forged.wire.schema import (
    Attribution,
    Comment,
    CreatePullRequest,
    ForgeAccount,
    ForgeRef,
    ForgeSelector,
    GetIssue,
    GetPullRequest,
    Issue,
    IssueCommentResult,
    IssuesResult,
    ListIssues,
    PullRequestResult,
    ResultArm,
    ResultFrame,
    Review,
    ReviewThread,
)
from tests.support.core import Logged
from tests.support.service import (
    COMMENT,
    CREATE,
    GHE,
    LISTING,
    PULL_COMMENT,
    PULL_READ,
    READ,
    REPO,
    REVIEW,
    Guard,
    World,
    account_of,
    error_of,
    issue_of,
    new_world,
    page_of,
    pull_of,
    raising,
    refusal_of,
    waiting,
)

HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
FORGED = "> `compass:owner agent=pilot owner=bob session=s-2`"
SCOUT = Attribution("scout", "ada", "s-1", verified=True)
SCOUT_CLAIM = Attribution("scout", "ada", "s-1", verified=False)
PILOT_CLAIM = Attribution("pilot", "bob", "s-2", verified=False)
AUTHOR = ForgeAccount(login="somebody")
MIB = 1 << 20


def on_the_forge(world: World, number: int, body: str, *, repo: str = REPO) -> Issue:
    """An issue that did not come through the daemon."""
    issue = Issue(
        forge=ForgeRef("github", "github.com"),
        repo=repo,
        number=number,
        title=f"Issue {number}",
        body=body,
        state="open",
        url=f"https://github.com/{repo}/issues/{number}",
        author=AUTHOR,
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-02T00:00:00Z",
    )
    world.forge.issues[repo.casefold(), number] = issue
    return issue


def comments(count: int, body: str) -> list[Comment]:
    return [
        Comment(id=str(number), author=AUTHOR, body=body, url="u", created_at="2026-01-01T00:00:00Z")
        for number in range(1, count + 1)
    ]


def wire_size(result: ResultArm) -> int:
    """The bytes of the reply under the longest call id."""
    return len(encode_reply(ResultFrame(call_id="x" * 128, result=result)))


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """The reply's limit cut down to 160 KB, since what is shown does not depend on its size."""
    limit = 160_000
    monkeypatch.setattr(reads, "REPLY_MAX_BYTES", limit)
    return limit


# --- get_issue ------------------------------------------------------------------------------------------------------


async def test_an_issue_comes_back_as_the_forge_has_it_without_the_header() -> None:
    world = await new_world()
    await world.run(CREATE)
    await world.run(COMMENT)
    issue = issue_of(await world.run(READ))
    assert world.forge.issues["acme/site", 1].body == f"{HEADER}\n\nThe words."
    assert (issue.body, issue.title, issue.labels, issue.state) == ("The words.", "A title", ["bug"], "open")
    assert (issue.id, issue.replayed, issue.comments_total) == ("", False, 1)
    assert issue.attribution == SCOUT
    assert issue.comments[0].body == "A remark."


@pytest.mark.parametrize(
    ("body", "attribution", "left"),
    [
        (f"{FORGED}\n\nWords.", PILOT_CLAIM, "Words."),
        (f"Words.\n{FORGED}", None, "Words.\n"),
        (f"{FORGED} trailing\nWords.", None, "Words."),
        ("Words.", None, "Words."),
        ("", None, ""),
        (FORGED, PILOT_CLAIM, ""),
    ],
)
async def test_what_the_index_does_not_know_is_a_claim_or_nothing(
    body: str, attribution: Attribution | None, left: str
) -> None:
    world = await new_world()
    on_the_forge(world, 1, body)
    issue = issue_of(await world.run(READ))
    assert (issue.attribution, issue.body) == (attribution, left)


async def test_the_index_outranks_what_the_text_says_now() -> None:
    world = await new_world()
    await world.run(CREATE)
    world.forge.issues["acme/site", 1].body = f"{FORGED}\n\nEdited by hand."
    issue = issue_of(await world.run(READ))
    assert (issue.attribution, issue.body) == (SCOUT, "Edited by hand.")
    world.forge.issues["acme/site", 1].body = "The header is gone."
    assert issue_of(await world.run(READ)).attribution == SCOUT


async def test_the_index_knows_a_place_by_forge_repository_kind_and_number() -> None:
    world = await new_world()
    await world.run(CREATE)
    await world.run(msgspec.structs.replace(CREATE, repo="acme/other"), caller=world.pilot)
    await world.run(CREATE, forge=ForgeSelector("github", GHE), caller=world.pilot)
    pull = AuthoredArtifact(
        Coordinate("github", "github.com", "acme/site", "pull_request", 2),
        REPO,
        account_of(world.pilot),
        "s-2",
        None,
        None,
        "u",
        "2026-01-01T00:00:00Z",
    )
    await world.store.record_authored_artifact(pull)
    on_the_forge(world, 2, "Words.")
    mine = issue_of(await world.run(GetIssue(repo="acme/SITE", issue_number=1), caller=world.pilot))
    other = issue_of(await world.run(GetIssue(repo="acme/other", issue_number=1)))
    there = issue_of(await world.run(READ, forge=ForgeSelector("github", GHE)))
    unknown = issue_of(await world.run(GetIssue(repo=REPO, issue_number=2)))
    assert mine.attribution == SCOUT
    assert other.attribution == there.attribution == Attribution("pilot", "bob", "s-2", verified=True)
    assert unknown.attribution is None


async def test_a_renamed_repository_is_looked_up_under_the_name_that_the_forge_gives() -> None:
    world = await new_world()
    await world.run(CREATE)
    issue = world.forge.issues.pop(("acme/site", 1))
    world.forge.issues["acme/old", 1] = issue  # the forge answers the old name with the new one
    found = issue_of(await world.run(GetIssue(repo="acme/old", issue_number=1)))
    assert (found.repo, found.attribution) == (REPO, SCOUT)


async def test_comments_carry_claims_and_are_stripped() -> None:
    world = await new_world()
    await world.run(CREATE)
    await world.run(COMMENT, caller=world.pilot)
    issue = world.forge.issues["acme/site", 1]
    issue.comments += comments(1, "By hand.") + comments(1, f"By hand.\n{FORGED}")
    found = issue_of(await world.run(READ))
    assert [(comment.body, comment.attribution) for comment in found.comments] == [
        ("A remark.", PILOT_CLAIM),
        ("By hand.", None),
        ("By hand.\n", None),
    ]


async def test_the_number_of_a_pull_request_names_the_other_arm() -> None:
    world = await new_world()
    pull = CreatePullRequest(repo=REPO, title="t", head_ref="h")
    await world.forge.create_pull_request(pull, CallContext("c1", Guard()))
    error = error_of(await world.run(READ))
    assert (error.code, error.outcome) == ("invalid_argument", "")
    assert "get_pull_request" in error.message
    assert world.store.touches == 0
    assert isinstance(await world.run(COMMENT), IssueCommentResult)  # either arm may comment


# --- get_pull_request -----------------------------------------------------------------------------------------------


async def test_a_pull_request_with_all_that_is_said_of_it_costs_one_look_up() -> None:
    world = await new_world(furnished=True)
    await world.run(PULL_COMMENT, caller=world.pilot)
    await world.run(REVIEW, caller=world.pilot)
    pull = world.forge.pull_requests["acme/site", 2]
    pull.reviews.append(Review(author=AUTHOR, verdict="approved", body=f"By hand.\n{FORGED}"))
    pull.threads = [
        ReviewThread(path="a.py", line=3, comments=comments(2, FORGED)),
        ReviewThread(path="b.py", resolved=True, comments=comments(1, "By hand.")),
    ]
    world.events.clear()
    found = pull_of(await world.run(PULL_READ))
    assert world.events == ["forge", "attribution"]
    assert pull.body == f"{HEADER}\n\nThe words."
    assert (found.body, found.attribution) == ("The words.", SCOUT)
    assert [(each.body, each.attribution) for each in found.comments] == [("A remark.", PILOT_CLAIM)]
    assert [(each.body, each.attribution) for each in found.reviews] == [
        ("A summary.", PILOT_CLAIM),
        ("By hand.\n", None),
    ]
    in_threads = [(each.body, each.attribution) for thread in found.threads for each in thread.comments]
    assert in_threads == [("", PILOT_CLAIM)] * 2 + [("By hand.", None)]
    assert found.threads[1].resolved


@pytest.mark.parametrize(
    ("body", "attribution", "left"),
    [(f"{FORGED}\n\nWords.", PILOT_CLAIM, "Words."), ("Words.", None, "Words."), ("", None, "")],
)
async def test_a_pull_request_that_the_index_does_not_know_makes_a_claim_or_none(
    body: str, attribution: Attribution | None, left: str
) -> None:
    world = await new_world()
    pull = CreatePullRequest(repo=REPO, title="t", head_ref="h", body=body)
    await world.forge.create_pull_request(pull, CallContext("c1", Guard()))
    found = pull_of(await world.run(GetPullRequest(repo=REPO, pull_number=1)))
    assert (found.attribution, found.body) == (attribution, left)


async def test_an_issues_number_read_as_a_pull_request_is_not_found() -> None:
    world = await new_world(furnished=True)
    assert refusal_of(await world.run(GetPullRequest(repo=REPO, pull_number=1))) == ("not_found", "")


@pytest.mark.parametrize("long", ["comments", "reviews", "threads"])
async def test_what_a_pull_request_has_too_much_of_loses_its_oldest(long: str, limit: int) -> None:
    world = await new_world(furnished=True)
    pull = world.forge.pull_requests["acme/site", 2]
    texts = [f"{number} " + "x" * 10_000 for number in range(20)]
    pull.comments = [*comments(1, "First."), *comments(1, "Last.")]
    pull.comments_total = 20
    if long == "comments":
        pull.comments = [comments(1, text)[0] for text in texts]
    elif long == "reviews":
        pull.reviews = [Review(author=AUTHOR, verdict="commented", body=text) for text in texts]
    else:
        pull.threads = [ReviewThread(path="a.py", comments=comments(1, text)) for text in texts]
    result = await world.run(PULL_READ)
    found = pull_of(result)
    assert wire_size(result) <= limit
    assert found.comments_total == 20
    last = found.threads[-1].comments if long == "threads" else getattr(found, long)
    assert last[-1].body.startswith("19 ")
    assert 1 < len(getattr(found, long)) < 20


# --- list_issues ----------------------------------------------------------------------------------------------------


async def test_a_page_of_thirty_costs_one_look_up() -> None:
    world = await new_world()
    for number in range(30):
        await world.run(CREATE, caller=(world.scout, world.pilot)[number % 2])
    on_the_forge(world, 31, f"{FORGED}\n\nWords.")
    on_the_forge(world, 32, "Words.")
    world.events.clear()
    page = page_of(await world.run(LISTING))
    assert world.events == ["forge", "attribution"]
    assert [issue.number for issue in page.items] == list(range(32, 2, -1))
    assert [issue.attribution for issue in page.items[:4]] == [
        None,
        PILOT_CLAIM,
        Attribution("pilot", "bob", "s-2", verified=True),
        SCOUT,
    ]
    assert {issue.body for issue in page.items} == {"The words.", "Words."}
    rest = page_of(await world.run(msgspec.structs.replace(LISTING, cursor=page.next_cursor)))
    assert [issue.number for issue in rest.items] == [2, 1]
    assert rest.next_cursor == ""


async def test_an_empty_page_costs_none() -> None:
    world = await new_world()
    page = page_of(await world.run(LISTING))
    assert (page.items, page.next_cursor) == ([], "")
    assert world.events == ["forge"]


async def test_a_listing_is_asked_for_as_the_agent_asked() -> None:
    world = await new_world()
    arm = ListIssues(repo=REPO, state="all", labels=["bug"], limit=7, cursor="40")
    await world.run(arm)
    assert world.forge.calls == [arm]


# --- an index that is slow, away or broken --------------------------------------------------------------------------

READS = [pytest.param(READ, id="get"), pytest.param(LISTING, id="list"), pytest.param(PULL_READ, id="get pull")]
ReadArm: TypeAlias = GetIssue | ListIssues | GetPullRequest


def first_of(result: ResultArm) -> Issue:
    if isinstance(result, PullRequestResult):
        return result.pull_request
    return page_of(result).items[0] if isinstance(result, IssuesResult) else issue_of(result)


@pytest.mark.parametrize("arm", READS)
@pytest.mark.parametrize("seconds", [0.21, 5.0, math.inf])
async def test_a_slow_index_costs_the_proof_and_never_the_answer(
    autojump_clock: MockClock, arm: ReadArm, seconds: float
) -> None:
    world = await new_world()
    await world.furnish()
    world.store.hooks["attribution"].append(waiting(seconds))
    began = trio.current_time()
    issue = first_of(await world.run(arm))
    assert trio.current_time() - began == pytest.approx(0.2)
    assert (issue.body, issue.attribution) == ("The words.", SCOUT_CLAIM)
    assert world.counters.total("attribution_lookups_failed") == 1
    assert first_of(await world.run(arm)).attribution == SCOUT


@pytest.mark.parametrize("arm", READS)
async def test_an_index_within_its_time_is_waited_for(autojump_clock: MockClock, arm: ReadArm) -> None:
    world = await new_world()
    await world.furnish()
    world.store.hooks["attribution"].append(waiting(0.19))
    assert first_of(await world.run(arm)).attribution == SCOUT
    assert world.counters.total("attribution_lookups_failed") == 0


async def test_how_long_the_index_is_waited_for_is_a_limit(autojump_clock: MockClock) -> None:
    world = await new_world(limits=ServiceLimits(attribution_seconds=2))
    await world.furnish()
    world.store.hooks["attribution"].append(waiting(1.9))
    assert issue_of(await world.run(READ)).attribution == SCOUT


@pytest.mark.parametrize("arm", READS)
async def test_a_store_known_to_be_away_is_not_asked(arm: ReadArm) -> None:
    world = await new_world()
    await world.furnish()
    world.store.available = False
    world.store.touches = 0
    assert first_of(await world.run(arm)).attribution == SCOUT_CLAIM
    assert world.store.touches == 0


@pytest.mark.parametrize("arm", READS)
@pytest.mark.parametrize("error", [StoreUnavailable("connection lost"), ValueRefused("rule")], ids=repr)
async def test_an_index_that_fails_costs_the_proof_and_is_told(events: Logged, arm: ReadArm, error: StoreError) -> None:
    world = await new_world()
    await world.furnish()
    world.store.hooks["attribution"].append(raising(error))
    assert first_of(await world.run(arm)).attribution == SCOUT_CLAIM
    assert world.counters.total("attribution_lookups_failed") == 1
    assert [(event["event"], event["log_level"]) for event in events] == [("attribution not looked up", "warning")]


# --- what the forge refuses, and deadlines --------------------------------------------------------------------------


@pytest.mark.parametrize("arm", READS)
async def test_a_read_that_the_forge_refuses_asks_the_index_nothing(arm: ReadArm) -> None:
    world = await new_world()
    for operation in ("get_issue", "list_issues", "get_pull_request"):
        world.forge.script(operation, Step(error=IsPullRequest(1)))
    assert refusal_of(await world.run(arm)) == ("invalid_argument", "")
    assert world.store.touches == 0


@pytest.mark.parametrize("arm", READS)
async def test_a_read_is_cancelled_at_once(autojump_clock: MockClock, arm: ReadArm) -> None:
    world = await new_world()
    for operation in ("get_issue", "list_issues", "get_pull_request"):
        world.forge.script(operation, Step(before=math.inf))
    with trio.move_on_after(15) as scope:
        await world.run(arm)
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(15)


async def test_a_long_page_lets_others_run() -> None:
    world = await new_world()
    for number in range(1, 31):
        on_the_forge(world, number, FORGED)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await world.run(LISTING)
        nursery.cancel_scope.cancel()
    assert turns >= 30


# --- replies that fit -----------------------------------------------------------------------------------------------


async def test_a_body_of_many_times_the_forges_own_limit_is_cut() -> None:
    world = await new_world(body_limit=100)
    issue = on_the_forge(world, 1, "x" * 401)
    issue.comments, issue.comments_total = comments(2, "y" * 400), 2
    issue.comments[0].body += "y"
    found = issue_of(await world.run(READ))
    assert [len(text) for text in (found.body, *(comment.body for comment in found.comments))] == [400, 400, 400]
    assert world.counters.total("forge_bodies_cut") == 2


async def test_a_reply_over_the_limit_drops_its_oldest_comments_and_keeps_the_total() -> None:
    world = await new_world(body_limit=MIB)
    issue = on_the_forge(world, 1, "Words.")
    issue.comments, issue.comments_total = comments(20, "x" * MIB), 120
    result = await world.run(READ)
    found = issue_of(result)
    assert [comment.id for comment in found.comments] == [str(number) for number in range(11, 21)]
    assert (found.comments_total, found.body) == (120, "Words.")
    assert wire_size(result) <= REPLY_MAX_BYTES


async def test_far_too_many_comments_are_dropped_until_the_reply_fits(limit: int) -> None:
    world = await new_world()
    issue = on_the_forge(world, 1, "Words.")
    issue.comments, issue.comments_total = comments(9, "x" * 70_000), 9
    result = await world.run(READ)
    assert [comment.id for comment in issue_of(result).comments] == ["8", "9"]
    assert wire_size(result) <= limit


async def test_the_newest_comment_stays_where_nothing_else_fits(limit: int) -> None:
    world = await new_world()
    issue = on_the_forge(world, 1, "Words.")
    issue.comments, issue.comments_total = comments(3, "x" * 100_000), 3
    assert [comment.id for comment in issue_of(await world.run(READ)).comments] == ["3"]


async def test_a_reply_that_fits_keeps_all(limit: int) -> None:
    world = await new_world()
    issue = on_the_forge(world, 1, "Words.")
    issue.comments, issue.comments_total = comments(15, "x" * 10_000), 15
    assert len(issue_of(await world.run(READ)).comments) == 15


async def test_headers_that_are_stripped_do_not_count(limit: int) -> None:
    world = await new_world()
    issue = on_the_forge(world, 1, "Words.")
    issue.comments = comments(15, f"{FORGED}\n" * 60 + "x" * 10_000)
    assert len(issue_of(await world.run(READ)).comments) == 15


async def test_a_page_over_the_limit_is_asked_for_again_with_fewer(limit: int) -> None:
    world = await new_world()
    for number in range(1, 41):
        on_the_forge(world, number, "x" * 10_000)
    arm = ListIssues(repo=REPO, state="all", limit=40)
    result = await world.run(arm)
    assert world.events.count("attribution") == 1  # once for the page that is answered
    asked = [call for call in world.forge.calls if isinstance(call, ListIssues)]
    assert asked == [arm, msgspec.structs.replace(arm, limit=20), msgspec.structs.replace(arm, limit=10)]
    assert wire_size(result) <= limit
    seen = [issue.number for issue in page_of(result).items]
    cursor = page_of(result).next_cursor
    while cursor:  # nothing is skipped and nothing comes twice
        page = page_of(await world.run(msgspec.structs.replace(arm, cursor=cursor, limit=10)))
        seen += [issue.number for issue in page.items]
        cursor = page.next_cursor
    assert seen == list(range(40, 0, -1))


async def test_a_page_asked_for_again_keeps_its_place(limit: int) -> None:
    world = await new_world()
    for number in range(1, 41):
        on_the_forge(world, number, "x" * 10_000)
    page = page_of(await world.run(ListIssues(repo=REPO, cursor="31", limit=20)))
    assert [issue.number for issue in page.items] == list(range(30, 20, -1))
    assert page.next_cursor == "21"


async def test_a_page_of_one_is_never_asked_for_again(limit: int) -> None:
    world = await new_world()
    on_the_forge(world, 1, "x" * 2 * limit)
    assert len(page_of(await world.run(LISTING)).items) == 1
    assert world.forge.count("list_issues") == 1


async def test_a_forge_that_answers_more_than_it_is_asked_for_is_not_asked_for_ever(limit: int) -> None:
    world = await new_world()
    for number in range(1, 41):
        on_the_forge(world, number, "x" * 10_000)
    everything = page_of(await world.forge.list_issues(ListIssues(repo=REPO, limit=40), CallContext("c1", Guard())))

    def stubborn(page: IssuesResult) -> None:
        page.items[:] = everything.items

    world.forge.on_page = stubborn
    world.forge.calls.clear()
    await world.run(ListIssues(repo=REPO, limit=40))
    assert world.forge.count("list_issues") == 6  # as it was asked for, then 20, 10, 5, 2 and 1


async def test_the_proof_of_an_author_never_makes_a_page_too_large(limit: int) -> None:
    world = await new_world()
    for _ in range(100):
        await world.run(CREATE)
    whole = 0
    for size in range(960, 1300, 3):
        for issue in world.forge.issues.values():
            issue.body = "x" * size  # without a header, so that no claim has taken the proof's place
        page = await world.run(ListIssues(repo=REPO, limit=100))
        assert wire_size(page) <= limit
        assert {issue.attribution for issue in page_of(page).items} == {SCOUT}
        whole += len(page_of(page).items) == 100
    assert 0 < whole < 113  # both sides of the limit were tried
