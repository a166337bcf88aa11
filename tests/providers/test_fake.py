import pytest
import trio
import trio.testing

from compass_forged.errors import BadRepo, ForgeStatus, ForgeUnavailable, IsPullRequest
from compass_forged.ports import Provider
from compass_forged.providers.fake import FakeProvider, Step
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

REPO = "Acme/site"
CREATE = CreateIssue(repo=REPO, title="t", body="b", labels=["x"])


async def test_it_remembers_issues_and_their_comments() -> None:
    provider: Provider = FakeProvider()
    context, guard = new_context()
    made = await provider.create_issue(CREATE, context)
    ref = await provider.comment_on_issue(CommentOnIssue(repo="acme/SITE", issue_number=1, body="c"), context)
    found = await provider.get_issue(GetIssue(repo="acme/site", issue_number=1), context)
    assert (made.number, made.url, made.created_at) == (
        1,
        "https://github.com/Acme/site/issues/1",
        "2026-01-01T00:00:01Z",
    )
    assert ref.url == f"{made.url}#issuecomment-1"
    assert [comment.body for comment in found.comments] == ["c"]
    assert found.comments_total == 1
    assert made.comments == []
    assert guard.sendings == 2
    assert context.forge_requests == 3


async def test_it_lists_by_state_and_label_and_goes_on_at_a_cursor() -> None:
    provider = FakeProvider()
    context, _ = new_context()
    for labels in (["x"], [], ["x", "y"], ["x"]):
        await provider.create_issue(CreateIssue(repo=REPO, title="t", labels=labels), context)
    await provider.create_issue(CreateIssue(repo="other/repo", title="t"), context)
    provider.issues["acme/site", 1].state = "closed"
    first = await provider.list_issues(ListIssues(repo=REPO, limit=1, labels=["x"], state="all"), context)
    rest = await provider.list_issues(
        ListIssues(repo=REPO, labels=["x"], state="all", cursor=first.next_cursor), context
    )
    assert [issue.number for issue in first.items + rest.items] == [4, 3, 1]
    assert rest.next_cursor == ""
    assert [issue.number for issue in (await provider.list_issues(ListIssues(repo=REPO), context)).items] == [4, 3, 2]


async def test_it_remembers_pull_requests_and_reviews() -> None:
    provider = FakeProvider(name="github", host="ghe.example", body_limit=0)
    context, _ = new_context()
    made = await provider.create_pull_request(CreatePullRequest(repo=REPO, title="t", head_ref="h"), context)
    await provider.comment_on_pull_request(CommentOnPullRequest(repo=REPO, pull_number=1, body="c"), context)
    ref = await provider.submit_review(SubmitReview(repo=REPO, pull_number=1, verdict="approve"), context)
    found = await provider.get_pull_request(GetPullRequest(repo=REPO, pull_number=1), context)
    assert (made.base_ref, made.head_ref) == ("main", "h")
    assert (found.reviews[0].verdict, ref.verdict) == ("approved", "approve")
    assert found.comments_total == 1
    with pytest.raises(IsPullRequest):
        await provider.get_issue(GetIssue(repo=REPO, issue_number=1), context)
    assert (provider.name, provider.host, provider.body_limit) == ("github", "ghe.example", 0)


async def test_what_is_not_there_is_not_found() -> None:
    provider = FakeProvider()
    with pytest.raises(ForgeStatus) as refused:
        await provider.get_issue(GetIssue(repo=REPO, issue_number=9), new_context()[0])
    assert refused.value.status == 404


@pytest.mark.parametrize("repo", ["", "acme", "/x", "a/", "a/b/c", "a/\u00e9", "a/b\n"])
def test_repositories_have_two_words(repo: str) -> None:
    with pytest.raises(BadRepo):
        FakeProvider().canonical_repo(repo)


async def test_a_script_fails_waits_and_loses_answers(autojump_clock: trio.testing.MockClock) -> None:
    provider = FakeProvider(delay=1.0)
    failure = ForgeUnavailable("the forge answered 502", outcome="unknown")
    provider.script("create_issue", Step(before=2.0, error=failure), Step(after=3.0, lost=failure), Step(after=1.0))
    context, guard = new_context()
    with pytest.raises(ForgeUnavailable):
        await provider.create_issue(CREATE, context)
    assert (trio.current_time(), guard.sendings, len(provider.issues)) == (3.0, 0, 0)
    with pytest.raises(ForgeUnavailable):
        await provider.create_issue(CREATE, context)
    assert (trio.current_time(), guard.sendings, len(provider.issues)) == (7.0, 1, 1)
    assert (await provider.create_issue(CREATE, context)).number == 2
    assert (await provider.create_issue(CREATE, context)).number == 3
    assert trio.current_time() == 10.0
    assert provider.count("create_issue") == provider.count() == 4
    assert provider.count("get_issue") == 0


async def test_a_write_that_is_given_up_before_it_goes_out_leaves_nothing() -> None:
    provider = FakeProvider()
    context, guard = new_context()
    with trio.CancelScope() as scope:
        scope.cancel()
        await provider.create_issue(CREATE, context)
    assert scope.cancelled_caught
    assert guard.sendings == 0
    assert provider.issues == {}
