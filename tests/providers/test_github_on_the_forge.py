"""Each arm against the bundled forge, which refuses what GitHub refuses."""

from collections.abc import Awaitable
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.testing

from compass_forged import owner
from compass_forged.emulator.app import Forge
from compass_forged.emulator.pull_changes import (
    NewComment,
    add_check_run,
    add_review,
    facts,
    merge,
    push,
    reply,
    set_status,
)
from compass_forged.emulator.records import ChangedFile, Issue
from compass_forged.emulator.script import Rule
from compass_forged.errors import (
    BadReview,
    ForgePrecondition,
    ForgeStatus,
    ForgeUnavailable,
    IsPullRequest,
    PullRequestExists,
    RateLimited,
)
from compass_forged.folding import HEADING
from compass_forged.providers.github import GitHubProvider
from compass_forged.wire.schema import (
    GHOST,
    Checks,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeAccount,
    GetIssue,
    GetPullRequest,
    InlineComment,
    ListIssues,
    SubmitReview,
)
from tests.emulator.inprocess import TOKENS
from tests.support.bundled import REPO, SCOUT, github_as, new_forge
from tests.support.forge_http import new_context

CREATE = CreatePullRequest(repo=REPO, title="Faster", head_ref="front-page", body=f"{SCOUT}\n\nIt waits no more.")
GET = GetPullRequest(repo=REPO, pull_number=3)
REVIEW = SubmitReview(repo=REPO, pull_number=3, verdict="comment", body=f"{SCOUT}\n\nA few words.")
IMAGES = "src/images.js"
# The branch ``topic`` changes line 5 of thirty, and puts a line behind line 25.
ON_THE_DIFF = InlineComment(path=IMAGES, line=5, body="why lazily?")
OFF_THE_DIFF = InlineComment(path=IMAGES, line=15, body="not shown")


@pytest.fixture
def forge() -> Forge:
    return new_forge()


@pytest.fixture
def author(forge: Forge) -> GitHubProvider:
    return github_as(forge)


@pytest.fixture
def reviewer(forge: Forge) -> GitHubProvider:
    return github_as(forge, "forge-reviewer")


def pull(forge: Forge, number: int = 3) -> Issue:
    return forge.state.issue(REPO, number)


# --- open a pull request --------------------------------------------------------------------------------------------


async def test_a_pull_request_goes_into_the_default_branch(forge: Forge, author: GitHubProvider) -> None:
    context, guard = new_context()
    made = await author.create_pull_request(CREATE, context)
    assert (made.repo, made.number, made.state, made.draft, made.merged) == (REPO, 4, "open", False, False)
    assert (made.head_ref, made.base_ref, made.title) == ("front-page", "main", "Faster")
    assert made.url.endswith("/acme/site/pull/4")
    assert made.body == CREATE.body
    assert made.head_sha == facts(pull(forge, 4)).head_sha
    assert made.author == ForgeAccount("forge-author")
    assert guard.sendings == 1
    assert context.forge_requests == 2


async def test_the_default_branch_is_asked_for_once_in_five_minutes(
    forge: Forge, author: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    forge.state.repo(REPO).default_branch = "stable"
    push(forge.state, forge.state.repo(REPO), "stable", [])
    made = await author.create_pull_request(CREATE, new_context()[0])
    assert made.base_ref == "stable"
    await trio.sleep(200)
    arm = msgspec.structs.replace(CREATE, head_ref="how-to-test", repo="ACME/Site")
    assert (await author.create_pull_request(arm, new_context()[0])).base_ref == "stable"
    assert forge.log.count("GET", "/repos/*/*") == 1
    await trio.sleep(101)
    with pytest.raises(PullRequestExists):
        await author.create_pull_request(CREATE, new_context()[0])
    assert forge.log.count("GET", "/repos/acme/site") == 2


async def test_a_base_that_is_named_is_asked_for_by_nobody(forge: Forge, author: GitHubProvider) -> None:
    arm = msgspec.structs.replace(CREATE, base_ref="topic", draft=True)
    made = await author.create_pull_request(arm, new_context()[0])
    assert (made.base_ref, made.draft, made.warnings) == ("topic", True, [])
    assert forge.log.count() == 1


async def test_one_that_stands_already_is_told_with_what_shows_whose_it_is(
    forge: Forge, author: GitHubProvider
) -> None:
    await author.create_pull_request(CREATE, new_context()[0])
    with pytest.raises(PullRequestExists) as told:
        await author.create_pull_request(CREATE, new_context()[0])
    error = told.value
    assert (error.number, error.first_line, error.author) == (4, SCOUT, "forge-author")
    assert error.url.endswith("/pull/4")
    assert error.outcome == "rejected"
    assert forge.state.commits["pull_request"] == 1


async def test_one_that_is_closed_or_of_another_base_does_not_stand_for_it(
    forge: Forge, author: GitHubProvider
) -> None:
    await author.create_pull_request(CREATE, new_context()[0])
    other = msgspec.structs.replace(CREATE, base_ref="topic")
    assert (await author.create_pull_request(other, new_context()[0])).number == 5
    forge.state.set_issue_state(pull(forge, 4), "closed", forge.state.account("mona"))
    assert (await author.create_pull_request(CREATE, new_context()[0])).number == 6


async def test_one_that_the_forge_does_not_show_leaves_the_outcome_unknown(
    forge: Forge, author: GitHubProvider
) -> None:
    await author.create_pull_request(CREATE, new_context()[0])
    forge.script.add(Rule(method="GET", path="*/pulls", status=200, body=[]))
    with pytest.raises(PullRequestExists) as told:
        await author.create_pull_request(CREATE, new_context()[0])
    assert (told.value.found, told.value.number, told.value.url, told.value.first_line) == (None, 0, "", "")
    assert (told.value.author, told.value.outcome) == ("", "unknown")


@pytest.mark.parametrize("status", [503, 404])
async def test_a_look_up_that_fails_leaves_the_outcome_unknown(
    forge: Forge, author: GitHubProvider, status: int, autojump_clock: trio.testing.MockClock
) -> None:
    await author.create_pull_request(CREATE, new_context()[0])
    forge.script.add(Rule(method="GET", path="*/pulls", status=status, body={"message": "no"}, times=3))
    with pytest.raises((ForgeUnavailable, ForgeStatus)) as told:
        await author.create_pull_request(CREATE, new_context()[0])
    assert told.value.outcome == "unknown"


async def test_a_fork_s_branch_is_looked_up_under_its_owner(forge: Forge) -> None:
    state = forge.state
    fork = state.add_repo("outsider", "site", fork_of=REPO)
    push(state, fork, "front-page", [ChangedFile("a.txt", "@@ -0,0 +1 @@\n+x", "added")])
    outsider = github_as(forge, "outsider")
    arm = msgspec.structs.replace(CREATE, head_ref="Outsider:front-page")
    made = await outsider.create_pull_request(arm, new_context()[0])
    await github_as(forge).create_pull_request(CREATE, new_context()[0])  # the same branch of the repository itself
    with pytest.raises(PullRequestExists) as told:
        await outsider.create_pull_request(arm, new_context()[0])
    assert told.value.number == made.number == 4


async def test_a_branch_pushed_a_moment_ago_is_waited_for_once(
    forge: Forge, author: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    repo = forge.state.repo(REPO)
    arm = msgspec.structs.replace(CREATE, head_ref="late", base_ref="main")
    async with trio.open_nursery() as nursery:

        async def arrive() -> None:
            await trio.sleep(0.5)
            push(forge.state, repo, "late", [ChangedFile("a.txt", "@@ -0,0 +1 @@\n+x", "added")])

        nursery.start_soon(arrive)
        assert (await author.create_pull_request(arm, new_context()[0])).number == 4
    assert forge.state.commits["pull_request"] == 1
    never = msgspec.structs.replace(arm, head_ref="never")
    with pytest.raises(ForgeStatus) as refused:
        await author.create_pull_request(never, new_context()[0])
    assert "PullRequest.head: invalid" in refused.value.detail
    assert forge.log.count("POST", "*/pulls") == 4


async def test_a_short_deadline_waits_for_no_branch(
    forge: Forge, author: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    arm = msgspec.structs.replace(CREATE, head_ref="late", base_ref="main")
    with trio.fail_after(0.5), pytest.raises(ForgeStatus):
        await author.create_pull_request(arm, new_context()[0])
    assert forge.log.count("POST", "*/pulls") == 1


@pytest.mark.parametrize(("status", "outcome"), [(503, "not_sent"), (404, "rejected")])
async def test_a_default_branch_that_cannot_be_learned_sends_nothing(
    forge: Forge, author: GitHubProvider, status: int, outcome: str, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(Rule(method="GET", path="/repos/acme/site", status=status, body={"message": "no"}, times=3))
    context, guard = new_context()
    with pytest.raises((ForgeUnavailable, ForgeStatus)) as told:
        await author.create_pull_request(CREATE, context)
    assert told.value.outcome == outcome
    assert guard.sendings == 0


async def test_a_pull_request_in_a_renamed_repository_stands_under_its_new_name(
    forge: Forge, author: GitHubProvider
) -> None:
    forge.state.rename_repo(REPO, "place")
    context, guard = new_context()
    context.may_touch = lambda repo: repo == "acme/place"
    made = await author.create_pull_request(CREATE, context)
    assert (made.repo, made.number) == ("acme/place", 4)
    assert guard.sendings == 1
    context.may_touch = lambda _repo: False
    with pytest.raises(ForgeStatus) as hidden:
        await github_as(forge).create_pull_request(CREATE, context)
    assert (hidden.value.status, hidden.value.moved_to) == (404, "")


# --- comment --------------------------------------------------------------------------------------------------------


async def test_a_comment_on_a_pull_request(forge: Forge, author: GitHubProvider) -> None:
    arm = CommentOnPullRequest(repo=REPO, pull_number=3, body="line one\\nliteral\r\n\ttwo  ")
    ref = await author.comment_on_pull_request(arm, new_context()[0])
    comment = forge.state.comments[int(ref.comment_id)]
    assert comment.body == arm.body
    assert ref.url.endswith(f"/acme/site/pull/3#issuecomment-{comment.id}")


# --- review ---------------------------------------------------------------------------------------------------------


async def test_comments_stand_at_their_lines_or_in_the_summary(forge: Forge, reviewer: GitHubProvider) -> None:
    comments = [
        ON_THE_DIFF,
        InlineComment(path=IMAGES, line=6, start_line=4, body="a range"),
        InlineComment(path=IMAGES, line=5, side="LEFT", body="before"),
        InlineComment(path=IMAGES, line=5, start_line=5, start_side="LEFT", body="from before to after"),
        InlineComment(path=IMAGES, line=8, start_line=8, body="a range of one"),
        OFF_THE_DIFF,
        InlineComment(path=IMAGES, line=25, start_line=6, body="over two hunks"),
        InlineComment(path=f"b/{IMAGES}", line=5, body="no such file"),
    ]
    arm = msgspec.structs.replace(REVIEW, comments=comments, verdict="request_changes")
    context, guard = new_context()
    ref = await reviewer.submit_review(arm, context)
    (review,) = facts(pull(forge)).reviews
    assert (ref.inline_count, ref.folded_count, ref.verdict) == (5, 3, "request_changes")
    assert ref.warnings == ["3 of 8 comments are on lines outside the diff; they stand in the review's summary"]
    assert (ref.review_id, review.state) == (str(review.id), "CHANGES_REQUESTED")
    placed = [(each.side, each.line, each.start_side, each.start_line) for each in facts(pull(forge)).review_comments]
    assert placed == [
        ("RIGHT", 5, None, None),
        ("RIGHT", 6, "RIGHT", 4),
        ("LEFT", 5, None, None),
        ("RIGHT", 5, "LEFT", 5),
        ("RIGHT", 8, None, None),
    ]
    assert review.body.startswith(f"{SCOUT}\n\nA few words.\n\n{HEADING}\n\n`src/images.js`, line 15:\n\n> not shown\n")
    assert "`src/images.js`, lines 6 to 25:\n\n> over two hunks" in review.body
    assert "`b/src/images.js`, line 5:\n\n> no such file" in review.body
    assert guard.sendings == 1
    assert context.forge_requests == 3


async def test_a_review_without_comments_is_one_request_without_their_key(
    forge: Forge, reviewer: GitHubProvider
) -> None:
    context, _ = new_context()
    ref = await reviewer.submit_review(REVIEW, context)
    assert (ref.inline_count, ref.folded_count, ref.warnings) == (0, 0, [])
    (sent,) = forge.log.find("POST", "*/reviews")
    assert set(sent.body) == {"event", "body"}
    assert context.forge_requests == 1


async def test_a_review_all_of_whose_comments_are_folded_has_no_key_for_them(
    forge: Forge, reviewer: GitHubProvider
) -> None:
    ref = await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=[OFF_THE_DIFF]), new_context()[0])
    assert (ref.inline_count, ref.folded_count) == (0, 1)
    (sent,) = forge.log.find("POST", "*/reviews")
    assert set(sent.body) == {"event", "body"}


async def test_sixty_comments_are_one_review(forge: Forge, reviewer: GitHubProvider) -> None:
    arm = msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF] * 60)
    assert (await reviewer.submit_review(arm, new_context()[0])).inline_count == 60
    assert forge.log.count("POST", "*/reviews") == 1


async def test_the_reviewer_approves_what_the_author_opened(forge: Forge, author: GitHubProvider) -> None:
    made = await author.create_pull_request(CREATE, new_context()[0])
    arm = SubmitReview(repo=REPO, pull_number=made.number, verdict="approve", body=SCOUT)
    ref = await github_as(forge, "forge-reviewer").submit_review(arm, new_context()[0])
    assert ref.verdict == "approve"
    assert [each.state for each in facts(pull(forge, made.number)).reviews] == ["APPROVED"]


@pytest.mark.parametrize("verdict", ["approve", "request_changes"])
async def test_nobody_gives_a_verdict_on_his_own_pull_request(
    forge: Forge, author: GitHubProvider, verdict: str
) -> None:
    made = await author.create_pull_request(CREATE, new_context()[0])
    inline = InlineComment(path="src/page.js", line=1, body="fine")
    arm = SubmitReview(repo=REPO, pull_number=made.number, verdict=verdict, body=SCOUT, comments=[inline])
    context, guard = new_context()
    with pytest.raises(BadReview, match="only comment is possible"):
        await author.submit_review(arm, context)
    assert guard.sendings == 0
    assert forge.log.count("POST", "*/reviews") == 0
    with pytest.raises(ForgeStatus) as refused:
        await github_as(forge, known=False).submit_review(arm, context)  # the forge refuses where nobody knew
    assert "your own pull request" in refused.value.detail
    assert refused.value.outcome == "rejected"
    ref = await author.submit_review(msgspec.structs.replace(arm, verdict="comment"), new_context()[0])
    assert ref.inline_count == 1


async def test_lines_are_those_of_the_commit_that_was_looked_at(
    forge: Forge, reviewer: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(Rule(method="GET", path="*/files", delay_after=1))
    before = facts(pull(forge)).head_sha
    arm = msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF])

    async def go_on() -> None:
        await trio.sleep(0.5)
        push(forge.state, forge.state.repo(REPO), "topic", [ChangedFile("x", "@@ -0,0 +1 @@\n+x")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        ref = await reviewer.submit_review(arm, new_context()[0])
    assert ref.inline_count == 1
    assert facts(pull(forge)).reviews[0].commit == before != facts(pull(forge)).head_sha


async def test_a_head_that_is_gone_is_refused_in_the_forge_s_words(
    forge: Forge, reviewer: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(Rule(method="GET", path="*/files", delay_after=1))
    arm = msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF])

    async def rewrite() -> None:
        await trio.sleep(0.5)
        push(forge.state, forge.state.repo(REPO), "topic", [ChangedFile("x", "@@ -0,0 +1 @@\n+x")], force=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rewrite)
        with pytest.raises(ForgeStatus) as refused:
            await reviewer.submit_review(arm, new_context()[0])
    assert "commit_id is not part of the pull request" in refused.value.detail


async def test_a_leftover_of_ours_is_removed(forge: Forge, reviewer: GitHubProvider) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, f"{SCOUT}\n\nbegun")
    ref = await reviewer.submit_review(REVIEW, new_context()[0])
    assert ref.warnings == ["a review of the reviewer account that was begun and never submitted was removed"]
    assert [each.state for each in facts(pull(forge)).reviews] == ["COMMENTED"]
    assert reviewer._access.counters.total("pending_reviews_removed") == 1


async def test_a_leftover_of_somebody_else_s_stays(forge: Forge, reviewer: GitHubProvider) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, f"Mine.\n\n{SCOUT}")
    with pytest.raises(ForgePrecondition, match="did not write") as refused:
        await reviewer.submit_review(REVIEW, new_context()[0])
    assert refused.value.outcome == "rejected"
    assert [each.state for each in facts(pull(forge)).reviews] == ["PENDING"]


async def test_a_leftover_that_is_submitted_meanwhile_is_in_nobody_s_way(
    forge: Forge, reviewer: GitHubProvider
) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, SCOUT)
    body = {"message": "Unprocessable Entity", "errors": ["Can not delete a non-pending pull request review"]}
    forge.script.add(Rule(method="DELETE", status=422, body=body, commit=True))
    assert (await reviewer.submit_review(REVIEW, new_context()[0])).review_id


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule(method="DELETE", status=403, body={"message": "no"}), "refuses to delete"),
        (Rule(method="GET", path="*/reviews", status=200, body=[]), "does not show"),
        (Rule(method="DELETE", status=200, body={}), "a person must"),  # it says yes and deletes nothing
    ],
)
async def test_a_leftover_that_stays_is_told(forge: Forge, reviewer: GitHubProvider, rule: Rule, why: str) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, SCOUT)
    forge.script.add(replace(rule))
    with pytest.raises(ForgePrecondition, match=why) as refused:
        await reviewer.submit_review(REVIEW, new_context()[0])
    assert refused.value.outcome == "rejected"
    assert forge.state.commits["review"] == 0


async def test_a_second_try_that_fails_tells_its_own_outcome(
    forge: Forge, reviewer: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, SCOUT)
    forge.script.add(Rule(method="POST", path="*/reviews", skip=1, status=502, body="", commit=True))
    with pytest.raises(ForgeUnavailable) as told:
        await reviewer.submit_review(REVIEW, new_context()[0])
    assert told.value.outcome == "unknown"
    assert [each.state for each in facts(pull(forge)).reviews] == ["COMMENTED"]


async def test_a_second_try_that_is_refused_for_another_reason_is_told_so(
    forge: Forge, reviewer: GitHubProvider
) -> None:
    state = forge.state
    add_review(state, pull(forge), state.account("forge-reviewer"), None, SCOUT)
    forge.script.add(Rule(method="POST", path="*/reviews", skip=1, status=422, body={"message": "spam"}))
    with pytest.raises(ForgeStatus, match="spam") as told:
        await reviewer.submit_review(REVIEW, new_context()[0])
    assert told.value.outcome == "rejected"


async def test_files_that_may_not_be_read_are_no_empty_diff(forge: Forge, reviewer: GitHubProvider) -> None:
    forge.script.add(Rule(method="GET", path="*/files", status=404, body={"message": "Not Found"}))
    with pytest.raises(ForgeStatus) as told:
        await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF]), new_context()[0])
    assert (told.value.status, told.value.outcome) == (404, "rejected")
    assert forge.log.count("POST", "*/reviews") == 0


async def test_a_second_review_is_a_review_of_its_own(forge: Forge, reviewer: GitHubProvider) -> None:
    await reviewer.submit_review(REVIEW, new_context()[0])
    again = await reviewer.submit_review(msgspec.structs.replace(REVIEW, verdict="request_changes"), new_context()[0])
    assert again.verdict == "request_changes"
    assert [each.state for each in facts(pull(forge)).reviews] == ["COMMENTED", "CHANGES_REQUESTED"]


async def test_a_diff_of_many_files_is_read_to_the_file_in_question_and_no_further(
    forge: Forge, reviewer: GitHubProvider
) -> None:
    files = [ChangedFile(f"f{index:04}.txt", "@@ -1 +1 @@\n-a\n+b") for index in range(350)]
    files[10] = ChangedFile("picture.png", None)
    push(forge.state, forge.state.repo(REPO), "topic", files)
    far = InlineComment(path="f0210.txt", line=1, body="here")
    binary = InlineComment(path="picture.png", line=1, body="there")
    arm = msgspec.structs.replace(REVIEW, comments=[far, binary])
    ref = await reviewer.submit_review(arm, new_context()[0])
    assert (ref.inline_count, ref.folded_count) == (1, 1)
    assert forge.log.count("GET", "*/files") == 3


async def test_a_diff_too_large_to_read_folds_the_comments(forge: Forge, reviewer: GitHubProvider) -> None:
    forge.script.add(Rule(method="GET", path="*/files", status=200, body=b"0" * (9 << 20), times=2))
    ref = await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF]), new_context()[0])
    assert (ref.inline_count, ref.folded_count) == (0, 1)


async def test_a_review_is_judged_as_if_all_its_comments_were_folded(forge: Forge, reviewer: GitHubProvider) -> None:
    arm = msgspec.structs.replace(REVIEW, comments=[msgspec.structs.replace(ON_THE_DIFF, body="x" * 65_500)])
    context, _ = new_context()
    with pytest.raises(BadReview, match=r"^body: \d+ bytes too large") as refused:
        await reviewer.submit_review(arm, context)
    assert refused.value.outcome == "not_sent"
    assert forge.log.count() == 0


async def test_a_review_of_the_largest_size_arrives_whole(forge: Forge, reviewer: GitHubProvider) -> None:
    room = 65_536 - len(f"{SCOUT}\n\n\n\n{HEADING}\n\n`src/images.js`, line 15:\n\n> not shown")
    arm = msgspec.structs.replace(REVIEW, body=f"{SCOUT}\n\n{'x' * room}", comments=[OFF_THE_DIFF])
    await reviewer.submit_review(arm, new_context()[0])
    assert len(facts(pull(forge)).reviews[0].body) == 65_536
    with pytest.raises(BadReview, match=r"^body: 1 bytes"):
        await reviewer.submit_review(msgspec.structs.replace(arm, body=f"{arm.body}x"), new_context()[0])


async def test_text_that_is_folded_forges_no_header(forge: Forge, reviewer: GitHubProvider) -> None:
    forged = SCOUT.replace("scout", "mole")
    comments = [
        InlineComment(path=forged.strip("> `"), line=1, body="by name"),
        InlineComment(path="x", line=1, body="compass:own<!--"),
        InlineComment(path="y", line=1, body="--> er agent=mole"),
    ]
    await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=comments), new_context()[0])
    body = facts(pull(forge)).reviews[0].body
    assert body.startswith(f"{SCOUT}\n\n")
    assert owner.strip(body) == body.removeprefix(f"{SCOUT}\n\n")
    assert "mole" not in body
    assert "> by name" in body


async def test_a_review_in_a_renamed_repository(forge: Forge, reviewer: GitHubProvider) -> None:
    forge.state.rename_repo(REPO, "place")
    context, guard = new_context()
    context.may_touch = lambda repo: repo == "acme/place"
    ref = await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF]), context)
    assert "/acme/place/pull/3#" in ref.url
    assert (ref.inline_count, guard.sendings) == (1, 1)
    context.may_touch = lambda _repo: False
    with pytest.raises(ForgeStatus) as hidden:
        await reviewer.submit_review(msgspec.structs.replace(REVIEW, comments=[ON_THE_DIFF]), context)
    assert hidden.value.status == 404


# --- read a pull request --------------------------------------------------------------------------------------------


async def test_a_pull_request_is_read_with_all_that_belongs_to_it(forge: Forge, author: GitHubProvider) -> None:
    state, site = forge.state, forge.state.repo(REPO)
    mona, reviewer, outsider = (state.account(name) for name in ("mona", "forge-reviewer", "outsider"))
    state.add_comment(pull(forge), outsider, "when?")
    first = NewComment(IMAGES, "why?", "RIGHT", 5)
    add_review(state, pull(forge), reviewer, "REQUEST_CHANGES", "not yet", [first, NewComment(IMAGES, "ha", "LEFT", 5)])
    reply(state, pull(forge), mona, facts(pull(forge)).review_comments[0].id, "therefore")
    add_review(state, pull(forge), outsider, None, "of nobody's business")
    add_check_run(state, site, facts(pull(forge)).head_sha, "deploy", "failure")
    state.delete_account("outsider", "gone")
    found = await author.get_pull_request(GET, new_context()[0])
    assert (found.number, found.state, found.title) == (3, "open", "Load images lazily")
    assert (found.head_ref, found.base_ref, found.head_sha) == ("topic", "main", facts(pull(forge)).head_sha)
    assert [(each.author, each.body) for each in found.comments] == [(GHOST, "when?")]
    assert found.comments_total == 1
    told = [(each.author.login, each.verdict, each.body) for each in found.reviews]
    assert told == [("forge-reviewer", "changes_requested", "not yet"), ("mona", "commented", "")]
    lines = [(thread.path, thread.line, [each.body for each in thread.comments]) for thread in found.threads]
    assert lines == [(IMAGES, 5, ["why?", "therefore"]), (IMAGES, 5, ["ha"])]
    assert all(thread.resolved is None for thread in found.threads)
    assert found.checks == Checks(state="failure", total=4, failed=["deploy"])
    assert found.warnings == []


async def test_a_plain_pull_request_costs_five_reads(forge: Forge, author: GitHubProvider) -> None:
    context, guard = new_context()
    found = await author.get_pull_request(GET, context)
    assert found.checks == Checks(state="success", total=3)
    assert (found.comments, found.reviews, found.threads) == ([], [], [])
    assert context.forge_requests == 5
    assert guard.sendings == 0


async def test_the_parts_of_a_pull_request_are_read_side_by_side(
    forge: Forge, author: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(Rule(method="GET", path="*", delay=1, times=20))
    began = trio.current_time()
    await author.get_pull_request(GET, new_context()[0])
    assert trio.current_time() - began == pytest.approx(2)


async def test_comments_on_lines_that_are_gone_are_listed_without_one(forge: Forge, author: GitHubProvider) -> None:
    add_review(
        forge.state,
        pull(forge),
        forge.state.account("forge-reviewer"),
        "COMMENT",
        "",
        [NewComment(IMAGES, "why?", "RIGHT", 5)],
    )
    push(forge.state, forge.state.repo(REPO), "topic", [ChangedFile("x", "@@ -0,0 +1 @@\n+x")])
    found = await author.get_pull_request(GET, new_context()[0])
    assert [(thread.path, thread.line) for thread in found.threads] == [(IMAGES, None)]
    assert found.checks == Checks(state="none")


@pytest.mark.parametrize(("state", "known"), [("success", None), ("failure", "failure"), ("pending", None)])
async def test_checks_that_may_not_be_read_are_not_known(
    forge: Forge, author: GitHubProvider, state: str, known: str | None
) -> None:
    fine_grained = {"metadata": "read", "issues": "read", "pull_requests": "read", "statuses": "read"}
    forge.state.grant_token(TOKENS["forge-author"], "forge-author", permissions=fine_grained)
    set_status(forge.state, forge.state.repo(REPO), facts(pull(forge)).head_sha, "ci/size", state)
    found = await author.get_pull_request(GET, new_context()[0])
    assert (found.checks.state if found.checks else None) == known
    (warning,) = found.warnings
    assert "check runs" in warning


async def test_a_merged_pull_request(forge: Forge, author: GitHubProvider) -> None:
    merge(forge.state, pull(forge), forge.state.account("mona"))
    found = await author.get_pull_request(GET, new_context()[0])
    assert (found.state, found.merged) == ("closed", True)


async def test_a_number_that_is_an_issue_s_is_no_pull_request(author: GitHubProvider) -> None:
    with pytest.raises(ForgeStatus) as refused:
        await author.get_pull_request(GetPullRequest(repo=REPO, pull_number=1), new_context()[0])
    assert refused.value.status == 404


async def test_a_pull_request_of_a_renamed_repository(forge: Forge, author: GitHubProvider) -> None:
    forge.state.rename_repo(REPO, "place")
    assert (await author.get_pull_request(GET, new_context()[0])).repo == "acme/place"
    context, _ = new_context()
    context.may_touch = lambda _repo: False
    with pytest.raises(ForgeStatus) as hidden:
        await author.get_pull_request(GET, context)
    assert hidden.value.status == 404
    assert context.forge_requests == 2


async def test_what_fails_beside_others_is_told_as_itself(forge: Forge, author: GitHubProvider) -> None:
    limited = {"message": "You have exceeded a secondary rate limit"}
    forge.script.add(Rule(path="*/reviews", status=403, body=limited))
    forge.script.add(Rule(path="*/pulls/3/comments", status=404, body={"message": "Not Found"}))
    with pytest.raises((RateLimited, ForgeStatus)):
        await author.get_pull_request(GET, new_context()[0])


async def test_a_read_that_is_given_up_ends_all_its_parts(
    forge: Forge, author: GitHubProvider, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(Rule(method="GET", path="*", skip=1, delay=60, times=20))
    with trio.move_on_after(5) as scope:
        await author.get_pull_request(GET, new_context()[0])
    assert scope.cancelled_caught
    assert trio.current_time() < 10


# --- issues that are not where, or as, they were ----------------------------------------------------------------------

ISSUE = GetIssue(repo=REPO, issue_number=1)
COMMENT = CommentOnIssue(repo=REPO, issue_number=1, body="b")


async def status_of(call: Awaitable[object]) -> ForgeStatus:
    with pytest.raises(ForgeStatus) as refused:
        await call
    return refused.value


async def test_a_renamed_repository_s_issues(forge: Forge, author: GitHubProvider) -> None:
    forge.state.rename_repo(REPO, "place")
    issue = await author.get_issue(ISSUE, new_context()[0])
    assert (issue.repo, issue.number, len(issue.comments)) == ("acme/place", 1, 1)
    page = await author.list_issues(ListIssues(repo=REPO), new_context()[0])
    assert [each.repo for each in page.items] == ["acme/place"] * 2
    refused = await status_of(author.comment_on_issue(COMMENT, new_context()[0]))
    assert (refused.status, refused.moved_to) == (307, "acme/place")
    context, _ = new_context()
    context.may_touch = lambda repo: repo == "acme/place"
    assert "/acme/place/" in (await author.comment_on_issue(COMMENT, context)).url


async def test_a_transferred_issue_is_read_where_it_is_and_not_commented(forge: Forge, author: GitHubProvider) -> None:
    forge.state.transfer_issue(REPO, 1, "acme/vault")
    issue = await author.get_issue(ISSUE, new_context()[0])
    assert (issue.repo, issue.number, len(issue.comments)) == ("acme/vault", 1, 1)
    assert (await status_of(author.comment_on_issue(COMMENT, new_context()[0]))).status == 404
    context, _ = new_context()
    context.may_touch = lambda repo: repo == REPO
    assert (await status_of(author.get_issue(ISSUE, context))).status == 404


async def test_a_deleted_issue(forge: Forge, author: GitHubProvider) -> None:
    forge.state.issue(REPO, 1).deleted = True
    for call in (author.get_issue(ISSUE, new_context()[0]), author.comment_on_issue(COMMENT, new_context()[0])):
        refused = await status_of(call)
        assert (refused.status, refused.detail) == (410, "This issue was deleted")


async def test_issues_switched_off_leave_pull_requests(forge: Forge, author: GitHubProvider) -> None:
    forge.state.repo(REPO).has_issues = False
    for call in (
        author.create_issue(CreateIssue(repo=REPO, title="t"), new_context()[0]),
        author.get_issue(ISSUE, new_context()[0]),
        author.list_issues(ListIssues(repo=REPO), new_context()[0]),
    ):
        refused = await status_of(call)
        assert (refused.status, refused.detail) == (410, "Issues are disabled for this repo")
    assert (await author.get_pull_request(GET, new_context()[0])).number == 3
    arm = CommentOnPullRequest(repo=REPO, pull_number=3, body="b")
    assert (await author.comment_on_pull_request(arm, new_context()[0])).comment_id


async def test_an_archived_repository_is_read_and_not_written(
    forge: Forge, author: GitHubProvider, reviewer: GitHubProvider
) -> None:
    forge.state.repo(REPO).archived = True
    for call in (
        author.create_issue(CreateIssue(repo=REPO, title="t"), new_context()[0]),
        author.comment_on_issue(COMMENT, new_context()[0]),
        author.create_pull_request(CREATE, new_context()[0]),
        reviewer.submit_review(REVIEW, new_context()[0]),
    ):
        refused = await status_of(call)
        assert (refused.status, refused.outcome) == (403, "rejected")
    assert (await author.get_issue(ISSUE, new_context()[0])).number == 1


async def test_a_locked_conversation(forge: Forge, author: GitHubProvider) -> None:
    forge.state.issue(REPO, 1).locked = True
    assert (await status_of(author.comment_on_issue(COMMENT, new_context()[0]))).status == 403


async def test_labels_of_one_who_may_not_set_them_are_told(forge: Forge) -> None:
    arm = CreateIssue(repo=REPO, title="t", labels=["bug"])
    issue = await github_as(forge, "outsider").create_issue(arm, new_context()[0])
    assert issue.labels == []
    assert issue.warnings == ["labels not applied (the forge account may not set them): bug"]


async def test_a_pull_request_s_number_is_none_of_an_issue(author: GitHubProvider) -> None:
    with pytest.raises(IsPullRequest):
        await author.get_issue(GetIssue(repo=REPO, issue_number=3), new_context()[0])
