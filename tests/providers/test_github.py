import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.errors import BadAnswer, BadCursor, BadRepo, ForgeStatus, ForgeUnavailable, IsPullRequest
from compass_forged.providers import github, github_issues, github_pull_flow
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_issues import ListPosition
from compass_forged.providers.http import BODY_MAX_BYTES
from compass_forged.wire.schema import (
    GHOST,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeAccount,
    ForgeRef,
    GetIssue,
    GetPullRequest,
    ListIssues,
    SubmitReview,
)
from tests.support.forge_http import answer, comment_json, issue_json, new_context, new_github, sample

REPO = "acme/site"
FORGE = ForgeRef(provider="github", host="github.com")
CREATE = CreateIssue(repo=REPO, title="t", body="b")
GET = GetIssue(repo=REPO, issue_number=7)
LIST = ListIssues(repo=REPO)
HELLO = "octocat/Hello-World"


def link(page: int, per_page: int = 100) -> dict[str, str]:
    there = f"https://api.github.com/repositories/9/issues?per_page={per_page}&page={page}"
    return {"link": f'<{there}>; rel="next", <https://api.github.com/x?page=9>; rel="last"'}


def pull_json(number: int) -> dict[str, object]:
    return issue_json(number, html_url=f"https://github.com/{REPO}/pull/{number}", pull_request={"url": "x"})


# --- repositories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "repo",
    ["acme/site", "A/b", "a-1/._-", "a/...", "a/.github", "a/b.git.io", "a/git", "a/" + "x" * 100, "a" * 39 + "/x"],
)
def test_repositories_of_github_s_grammar(repo: str) -> None:
    provider, _ = new_github()
    assert provider.canonical_repo(repo) == repo.casefold()


BAD_REPOS = [
    "", "/", "acme", "acme/", "/site", "acme/.", "acme/..", "../x", "a/b/c", "a//b", "a/b\n", "a/b ", "a/b%2f", "a/b?x",
    "a/b#x", "-a/b", "a_b/c", "a/\u00e9", "a\u2215b", "\uff41/b", "a" * 40 + "/x", "a/" + "x" * 101, "a/b\0",
    "a/b.git", "a/b.GIT", "a/.git", "a/b.git.git",
]  # fmt: skip


@pytest.mark.parametrize("repo", BAD_REPOS)
async def test_other_repositories_touch_nothing(repo: str) -> None:
    provider, forge = new_github()
    context, guard = new_context()
    with pytest.raises(BadRepo):
        provider.canonical_repo(repo)
    for call in (
        provider.create_issue(CreateIssue(repo=repo, title="t"), context),
        provider.comment_on_issue(CommentOnIssue(repo=repo, issue_number=1, body="b"), context),
        provider.get_issue(GetIssue(repo=repo, issue_number=1), context),
        provider.list_issues(ListIssues(repo=repo), context),
        provider.create_pull_request(CreatePullRequest(repo=repo, title="t", head_ref="h"), context),
        provider.comment_on_pull_request(CommentOnPullRequest(repo=repo, pull_number=1, body="b"), context),
        provider.submit_review(SubmitReview(repo=repo, pull_number=1, verdict="approve"), context),
        provider.get_pull_request(GetPullRequest(repo=repo, pull_number=1), context),
    ):
        with pytest.raises(BadRepo):
            await call
    assert forge.requests == []
    assert guard.sendings == 0


def test_what_a_provider_says_of_itself() -> None:
    provider, _ = new_github()
    assert (provider.name, provider.host, provider.body_limit) == ("github", "github.com", 65_536)
    assert not provider.http.credential.broken


# --- create ---------------------------------------------------------------------------------------------------------


async def test_a_recorded_create() -> None:
    provider, forge = new_github(sample("issue-create-201"))
    repo = "octokit-fixture-org/add-labels-to-issue"
    context, guard = new_context()
    issue = await provider.create_issue(
        CreateIssue(repo=repo, title="Issue without a label", body="text", labels=["bug", "Bug "]), context
    )
    assert forge.requests[0].method == "POST"
    assert forge.requests[0].url.path == f"/repos/{repo}/issues"
    assert forge.bodies() == [{"title": "Issue without a label", "body": "text", "labels": ["bug", "Bug "]}]
    assert (issue.repo, issue.number, issue.state) == (repo, 1, "open")
    assert issue.url == f"https://github.com/{repo}/issues/1"
    assert issue.created_at == "2017-10-10T16:00:00Z"
    assert issue.author == ForgeAccount(login="octokit-fixture-user-a")
    assert (issue.body, issue.id, issue.labels) == ("", "", [])
    assert issue.warnings == ["labels not applied (the forge account may not set them): bug, Bug "]
    assert guard.sendings == 1
    assert context.forge_requests == 1


async def test_labels_that_came_back_warn_of_nothing() -> None:
    provider, forge = new_github(answer(201, issue_json(labels=[{"name": "Bug"}, "docs", {"name": None}])))
    issue = await provider.create_issue(CreateIssue(repo=REPO, title="t", labels=["bug", "docs"]), new_context()[0])
    assert issue.warnings == []
    assert issue.labels == ["Bug", "docs"]
    assert "labels" in forge.bodies()[0]


async def test_many_missing_labels_are_cut_short() -> None:
    provider, _ = new_github(answer(201, issue_json()))
    labels = [f"l{index}" for index in range(12)]
    issue = await provider.create_issue(CreateIssue(repo=REPO, title="t", labels=labels), new_context()[0])
    assert issue.warnings[0].endswith("l9 and others")


async def test_a_create_without_labels_sends_none() -> None:
    provider, forge = new_github(answer(201, issue_json()))
    await provider.create_issue(CREATE, new_context()[0])
    assert forge.bodies() == [{"title": "t", "body": "b"}]


@pytest.mark.parametrize(
    "body",
    [
        [issue_json()],
        {},
        issue_json(repo="acme/other"),
        issue_json(html_url="https://github.com/acme/site/issues/8"),
        issue_json(html_url="https://github.com/acme/site/pull/7"),
        issue_json(html_url="https://github.com/acme/site/issues/7/x"),
        issue_json(html_url="https://github.com/acme/site/issues/07"),
        issue_json(html_url="https://github.com/acme/../issues/7"),
        issue_json(html_url="javascript:alert(1)"),
        issue_json(html_url="https://x@github.com/acme/site/issues/7"),
        issue_json(html_url="https://github.com/acme/site/issues/7\n"),
        issue_json(html_url="https://[::1/acme/site/issues/7"),
        issue_json(html_url="https://git]hub.com/acme/site/issues/7"),
        issue_json(html_url="https://github\u2100.com/acme/site/issues/7"),
        issue_json(2**63),
        issue_json(10**18 * 99),
        issue_json(html_url=None),
        issue_json(id=0),
        {**issue_json(), "number": "7"},
        issue_json(state=None),
        b"<html>",
        b"",
        b'{"id": "\xff"}',
    ],
)
async def test_a_yes_that_proves_nothing_leaves_the_outcome_unknown(body: object) -> None:
    provider, forge = new_github(answer(201, body))
    with pytest.raises(BadAnswer) as bad:
        await provider.create_issue(CREATE, new_context()[0])
    assert bad.value.outcome == "unknown"
    assert bad.value.status == 201
    assert "html" not in str(bad.value)
    assert len(forge.requests) == 1


async def test_a_create_in_a_renamed_repository_is_recorded_under_its_new_name() -> None:
    moved = sample("repo-patch-307-renamed")  # of the repository itself; of what is below it, below the new place
    moved.headers["location"] += "/issues"
    provider, forge = new_github(
        moved,
        answer(200, {"full_name": "acme/New"}),
        answer(201, issue_json(repo="acme/New")),
    )
    context, guard = new_context()
    context.may_touch = lambda repo: repo == "acme/New"
    issue = await provider.create_issue(CREATE, context)
    assert issue.repo == "acme/New"
    assert forge.requests[2].url.path == "/repos/acme/New/issues"
    assert guard.sendings == 1


# --- comment --------------------------------------------------------------------------------------------------------


async def test_a_recorded_comment() -> None:
    provider, forge = new_github(sample("issue-comment-create-201"))
    arm = CommentOnIssue(repo="Octocat/hello-world", issue_number=1347, body="Me too")
    ref = await provider.comment_on_issue(arm, new_context()[0])
    assert ref.url == "https://github.com/octocat/Hello-World/issues/1347#issuecomment-1"
    assert ref.comment_id == "1"
    assert forge.requests[0].url.path == "/repos/Octocat/hello-world/issues/1347/comments"
    assert forge.bodies() == [{"body": "Me too"}]


async def test_a_comment_may_stand_on_a_pull_request() -> None:
    url = f"https://github.com/{REPO}/pull/7#issuecomment-1"
    provider, _ = new_github(answer(201, comment_json(1, html_url=url)))
    ref = await provider.comment_on_issue(CommentOnIssue(repo=REPO, issue_number=7, body="b"), new_context()[0])
    assert ref.url == url


@pytest.mark.parametrize(
    "body",
    [comment_json(1, issue=8), comment_json(1, repo="acme/other"), comment_json(0), comment_json(1, html_url=""), {}],
)
async def test_a_comment_elsewhere_leaves_the_outcome_unknown(body: object) -> None:
    provider, _ = new_github(answer(201, body))
    with pytest.raises(BadAnswer):
        await provider.comment_on_issue(CommentOnIssue(repo=REPO, issue_number=7, body="b"), new_context()[0])


# --- get ------------------------------------------------------------------------------------------------------------


async def test_a_recorded_issue() -> None:
    provider, forge = new_github(sample("issue-get-200"))
    issue = await provider.get_issue(GetIssue(repo=HELLO.lower(), issue_number=1347), new_context()[0])
    assert (issue.repo, issue.number, issue.title) == (HELLO, 1347, "Found a bug")
    assert issue.forge == FORGE
    assert issue.author == ForgeAccount(login="octocat")
    assert (issue.comments, issue.comments_total) == ([], 0)
    assert len(forge.requests) == 1


async def test_a_pull_request_s_number_is_told_as_such() -> None:
    provider, _ = new_github(sample("issue-get-200-is-a-pull-request"))
    with pytest.raises(IsPullRequest) as told:
        await provider.get_issue(GetIssue(repo=HELLO, issue_number=1347), new_context()[0])
    assert told.value.number == 1347


async def test_recorded_comments_by_an_app_and_by_a_deleted_account() -> None:
    body = issue_json(1347, HELLO, comments=2)
    provider, forge = new_github(answer(200, body), sample("issue-comment-list-200-bot-and-deleted-user"))
    found = await provider.get_issue(GetIssue(repo=HELLO, issue_number=1347), new_context()[0])
    assert [comment.author for comment in found.comments] == [ForgeAccount("forge-reviewer[bot]", is_bot=True), GHOST]
    assert [comment.id for comment in found.comments] == ["1", "2"]
    assert found.comments_total == 2
    assert forge.requests[1].url.query == b"per_page=30&page=1"


def comments_page(first: int, last: int) -> httpx.Response:
    return answer(200, [comment_json(number) for number in range(first, last + 1)])


@pytest.mark.parametrize(
    ("total", "pages", "asked"),
    [
        (5, [(1, 5)], [1]),
        (30, [(1, 30), (31, 30)], [1, 2]),
        (31, [(1, 30), (31, 31)], [1, 2]),
        (95, [(61, 90), (91, 95)], [3, 4]),
        (60, [(1, 30), (31, 60), (61, 90), (91, 95)], [1, 2, 3, 4]),  # more came after they were counted
    ],
)
async def test_the_newest_comments_are_read(total: int, pages: list[tuple[int, int]], asked: list[int]) -> None:
    provider, forge = new_github(answer(200, issue_json(comments=total)), *[comments_page(*page) for page in pages])
    issue = await provider.get_issue(GET, new_context()[0])
    newest = pages[-1][1]
    assert [int(comment.id) for comment in issue.comments] == list(range(max(1, newest - 29), newest + 1))
    assert issue.comments_total == total
    assert [int(request.url.params["page"]) for request in forge.requests[1:]] == asked


async def test_an_issue_of_a_renamed_repository_stands_under_its_new_name() -> None:
    provider, forge = new_github(
        sample("issue-get-301-transferred"),
        answer(200, issue_json(12, "acme/New", comments=1)),
        answer(200, [comment_json(1, 12, "acme/New")]),
    )
    issue = await provider.get_issue(GET, new_context()[0])
    assert (issue.repo, issue.number) == ("acme/New", 12)
    assert len(issue.comments) == 1
    assert forge.requests[2].url.path == "/repos/acme/New/issues/12/comments"


@pytest.mark.parametrize("body", [issue_json(8), issue_json(7, "acme/other"), [], {"message": "x"}])
async def test_an_answer_about_another_issue_is_bad(body: object) -> None:
    provider, _ = new_github(answer(200, body))
    with pytest.raises(BadAnswer):
        await provider.get_issue(GET, new_context()[0])


@pytest.mark.parametrize("page", [[comment_json(1, 8)], [comment_json(1, repo="a/b")], {}])
async def test_comments_of_another_issue_are_bad(page: object) -> None:
    provider, _ = new_github(answer(200, issue_json(comments=1)), answer(200, page))
    with pytest.raises(BadAnswer):
        await provider.get_issue(GET, new_context()[0])


@pytest.mark.parametrize(
    ("user", "account"),
    [
        (None, GHOST),
        ({}, GHOST),
        ({"login": "ada", "type": "User"}, ForgeAccount("ada")),
        ({"login": "x[bot]", "type": "User"}, ForgeAccount("x[bot]", is_bot=True)),
        ({"login": "x", "type": "Bot"}, ForgeAccount("x", is_bot=True)),
        ({"login": "m", "type": "Mannequin"}, ForgeAccount("m")),
    ],
)
async def test_accounts(user: object, account: ForgeAccount) -> None:
    provider, _ = new_github(answer(200, issue_json(user=user)))
    assert (await provider.get_issue(GET, new_context()[0])).author == account


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678000Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z"),
        ("yesterday", ""),
        ("", ""),
        ("2026-13-02T03:04:05Z", ""),
        ("0001-01-01T00:00:00+23:59", ""),  # before any time that can be written
        ("9999-12-31T23:59:59-01:00", ""),
        ("\ud7ff\u0661", ""),
        (None, ""),
    ],
)
async def test_times_are_in_utc_or_none(told: str | None, time: str) -> None:
    provider, _ = new_github(answer(200, issue_json(created_at=told, updated_at="", body=None, state="closed")))
    issue = await provider.get_issue(GET, new_context()[0])
    assert (issue.created_at, issue.updated_at, issue.body, issue.state) == (time, "", "", "closed")


async def test_a_create_without_times_is_still_a_create() -> None:
    told = {key: value for key, value in issue_json().items() if not key.endswith("_at")}
    provider, _ = new_github(answer(201, told))
    issue = await provider.create_issue(CREATE, new_context()[0])
    assert (issue.number, issue.created_at, issue.updated_at) == (7, "", "")


@pytest.mark.parametrize("created_at", [None, "yesterday"])
async def test_a_comment_without_a_time_is_shown_without_one(created_at: object) -> None:
    provider, _ = new_github(answer(200, issue_json(comments=1)), answer(200, [comment_json(1, created_at=created_at)]))
    issue = await provider.get_issue(GET, new_context()[0])
    assert [(comment.id, comment.created_at) for comment in issue.comments] == [("1", "")]


async def test_the_last_number_that_the_wire_holds_is_one() -> None:
    provider, _ = new_github(answer(201, issue_json(2**63 - 1)))
    assert (await provider.create_issue(CREATE, new_context()[0])).number == 2**63 - 1


@pytest.mark.parametrize(
    ("told", "total"), [(-1, 0), (0, 0), (2**31 - 1, 2**31 - 1), (2**31 + 1, 2**31), (2**64, 2**31), (10**30, 2**31)]
)
async def test_a_count_of_comments_is_one_that_can_be_written(told: int, total: int) -> None:
    provider, _ = new_github(answer(200, [issue_json(comments=told)]))
    page = await provider.list_issues(LIST, new_context()[0])
    assert page.items[0].comments_total == total
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(page))["items"][0]["comments_total"] == total


async def test_an_issue_of_too_many_comments_is_read_within_bounds() -> None:
    provider, forge = new_github(answer(200, issue_json(comments=10**30)), answer(200, []))
    issue = await provider.get_issue(GET, new_context()[0])
    assert issue.comments == []
    assert int(forge.requests[1].url.params["page"]) < 2**31


# --- list -----------------------------------------------------------------------------------------------------------


async def test_a_recorded_listing_holds_no_pull_request() -> None:
    provider, forge = new_github(sample("issue-list-200-mixed"), answer(200, []))
    page = await provider.list_issues(ListIssues(repo=HELLO, state="all", labels=["a b", "c"]), new_context()[0])
    assert [issue.number for issue in page.items] == [1347]
    assert page.items[0].labels == ["bug"]
    assert page.next_cursor == ""
    query = dict(forge.requests[0].url.params)
    assert query == {"state": "all", "sort": "created", "direction": "desc", "labels": "a b,c", "per_page": "100"}


async def test_listing_goes_on_until_there_are_enough_and_resumes_where_it_stopped() -> None:
    first = [pull_json(number) for number in range(200, 100, -1)]
    second = [issue_json(100), pull_json(99), issue_json(98), issue_json(97), pull_json(96)]
    arm = ListIssues(repo=REPO, limit=2)
    provider, forge = new_github(
        answer(200, first, link(2)), answer(200, second, link(3)), answer(200, second, link(3)), answer(200, [])
    )
    page = await provider.list_issues(arm, new_context()[0])
    assert [issue.number for issue in page.items] == [100, 98]
    rest = await provider.list_issues(msgspec.structs.replace(arm, cursor=page.next_cursor), new_context()[0])
    assert [issue.number for issue in rest.items] == [97]
    assert rest.next_cursor == ""
    assert [request.url.params.get("page") for request in forge.requests] == [None, "2", "2", "3"]


async def test_a_listing_of_nothing_but_pull_requests_is_bounded() -> None:
    pages = [answer(200, [pull_json(index)], link(index + 2)) for index in range(github.LIST_PAGES_MAX)]
    provider, forge = new_github(*pages)
    page = await provider.list_issues(LIST, new_context()[0])
    assert page.items == []
    assert page.next_cursor != ""
    assert len(forge.requests) == github.LIST_PAGES_MAX


async def test_limits() -> None:
    page = [issue_json(number) for number in range(150, 0, -1)]
    for limit, expected in ((0, 30), (1, 1), (100, 100), (500, 100)):
        provider, _ = new_github(answer(200, page))
        found = await provider.list_issues(ListIssues(repo=REPO, limit=limit), new_context()[0])
        assert len(found.items) == expected
        assert found.next_cursor


async def test_large_bodies_end_a_page_early() -> None:
    body = "x" * 3_000_000
    provider, _ = new_github(answer(200, [issue_json(9, body=body), issue_json(8, body=body)], link(2)),
                             answer(200, [issue_json(7, body=body), issue_json(6)]))  # fmt: skip
    found = await provider.list_issues(LIST, new_context()[0])
    assert [issue.number for issue in found.items] == [9, 8]
    assert found.next_cursor


async def test_a_page_that_is_too_large_is_read_in_small_ones() -> None:
    whole = answer(200, b"0" * (BODY_MAX_BYTES + 1))
    provider, forge = new_github(
        answer(200, [issue_json(9)], link(3)), whole, answer(200, [issue_json(8)], link(12, 20)), answer(200, [])
    )
    found = await provider.list_issues(LIST, new_context()[0])
    assert [issue.number for issue in found.items] == [9, 8]
    asked = [(request.url.params["per_page"], request.url.params.get("page")) for request in forge.requests]
    assert asked == [("100", None), ("100", "3"), ("20", "11"), ("20", "12")]
    provider, _ = new_github(whole, whole)
    with pytest.raises(BadAnswer):
        await provider.list_issues(LIST, new_context()[0])
    by_place = github_issues.write_cursor(LIST, ListPosition((("per_page", "100"), ("after", "x"))))
    provider, forge = new_github(whole)
    with pytest.raises(BadAnswer):
        await provider.list_issues(ListIssues(repo=REPO, cursor=by_place), new_context()[0])
    assert len(forge.requests) == 1


async def test_pages_that_are_named_by_a_place_are_followed_by_their_words_alone() -> None:
    there = 'https://evil.example/steal?after=Y3Vy%2Bc29y%3D%3D&per_page=100&token=x>; rel="next"'
    provider, forge = new_github(answer(200, [issue_json(9)], {"link": f"<{there}"}), answer(200, [issue_json(8)]))
    found = await provider.list_issues(ListIssues(repo=REPO, limit=1), new_context()[0])
    found = await provider.list_issues(ListIssues(repo=REPO, limit=1, cursor=found.next_cursor), new_context()[0])
    assert [issue.number for issue in found.items] == [8]
    assert forge.requests[1].url.host == "api.github.com"
    assert forge.requests[1].url.params["after"] == "Y3Vy+c29y=="
    assert "token" not in forge.requests[1].url.params
    assert ListPosition((("after", "x"), ("per_page", "100"))).smaller() is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "garbage",
        '<https://api.github.com/x?page=2>; rel="last"',
        '<https://api.github.com/x>; rel="next"',
        '<https://api.github.com/x?page=0&per_page=100>; rel="next"',
        '<https://api.github.com/x?page=two>; rel="next"',
        '<https://api.github.com/x?page=2&page=3>; rel="next"',
        '<https://api.github.com/x?after=%00>; rel="next"',
        '<https://api.github.com/x?per_page=100>; rel="next"',
        '<https://[::1/x?page=2>; rel="next"',
        '<https://git]hub.com/x?page=2>; rel="next"',
        '<https://api.github.com/\t?page=2>; rel="next"',
    ],
)
async def test_a_link_that_leads_nowhere_ends_the_listing(header: str) -> None:
    provider, forge = new_github(answer(200, [issue_json(9)], {"link": header}))
    assert (await provider.list_issues(LIST, new_context()[0])).next_cursor == ""
    assert len(forge.requests) == 1


async def test_a_link_without_a_page_size_keeps_ours() -> None:
    header = {"link": '<https://api.github.com/x?page=2>; rel="next"'}
    provider, forge = new_github(answer(200, [issue_json(9)], header), answer(204))
    assert len((await provider.list_issues(LIST, new_context()[0])).items) == 1
    assert dict(forge.requests[1].url.params)["per_page"] == "100"


@pytest.mark.parametrize("body", [{}, {"message": "Moved"}, [issue_json(7, "acme/other")], [{"id": 1}], b""])
async def test_a_page_that_is_none_is_never_an_empty_list(body: object) -> None:
    provider, _ = new_github(answer(200, body))
    with pytest.raises(BadAnswer):
        await provider.list_issues(LIST, new_context()[0])


async def test_one_empty_body_spoils_no_list() -> None:
    provider, _ = new_github(answer(200, [issue_json(9, body=None), issue_json(8)]))
    assert [issue.body for issue in (await provider.list_issues(LIST, new_context()[0])).items] == ["", "text"]


async def test_a_label_with_a_comma_is_refused_before_it_becomes_two() -> None:
    provider, forge = new_github()
    with pytest.raises(ForgeStatus, match="comma"):
        await provider.list_issues(ListIssues(repo=REPO, labels=["a,b"]), new_context()[0])
    assert forge.requests == []


GOOD = github_issues.write_cursor(LIST, ListPosition((("per_page", "100"), ("page", "2")), 5))


def test_a_cursor_comes_back_as_the_place_it_was() -> None:
    arm = msgspec.structs.replace(LIST, cursor=GOOD, repo="ACME/site", state="open")
    assert github_issues.read_cursor(arm) == ListPosition((("per_page", "100"), ("page", "2")), 5)


@pytest.mark.parametrize(
    "arm",
    [
        ListIssues(repo="acme/other", cursor=GOOD),
        ListIssues(repo=REPO, state="closed", cursor=GOOD),
        ListIssues(repo=REPO, labels=["x"], cursor=GOOD),
        *[
            ListIssues(repo=REPO, cursor=cursor)
            for cursor in (
                "2", "x" * 2048, GOOD + "\n", GOOD + "&page=3",
                GOOD.replace("~5~", "~101~"), GOOD.replace("~5~", "~-1~"),
                GOOD.replace("page=2", "page=0"), GOOD.replace("page=2", "page=\u0662"), GOOD.partition("per_page")[0],
                GOOD.replace("page=2", "after=%0a"),
            )
        ],
    ],
)  # fmt: skip
async def test_a_cursor_of_another_listing_or_by_hand_is_refused(arm: ListIssues) -> None:
    provider, forge = new_github()
    with pytest.raises(BadCursor):
        await provider.list_issues(arm, new_context()[0])
    assert forge.requests == []


@given(st.text(max_size=80))
def test_no_cursor_does_more_than_be_refused(cursor: str) -> None:
    arm = ListIssues(repo=REPO, cursor=cursor)
    try:
        position = github_issues.read_cursor(arm)
    except BadCursor:
        return
    assert cursor == "" or position.words


@given(st.integers(1, 10**6), st.integers(0, 99))
def test_a_smaller_page_begins_at_the_same_item(page: int, skip: int) -> None:
    small = ListPosition((("per_page", "100"), ("page", str(page))), skip).smaller()
    assert small is not None
    words = dict(small.words)
    assert (int(words["page"]) - 1) * int(words["per_page"]) + small.skip == (page - 1) * 100 + skip
    assert small.skip < 20
    assert small.smaller() is None


@given(st.integers(0, 10_000))
def test_the_newest_comments_lie_behind_the_first_page_read(total: int) -> None:
    page = github_issues.first_comments_page(total)
    before = (page - 1) * github_issues.COMMENTS_SHOWN
    assert before >= 0
    assert total - before >= min(total, github_issues.COMMENTS_SHOWN)
    assert total - before <= 2 * github_issues.COMMENTS_SHOWN


@given(st.binary(max_size=200))
def test_any_bytes_translate_or_are_a_bad_answer(body: bytes) -> None:
    told = ForgeAnswer(200, {}, body)
    for translate in (
        lambda: github_issues.created_issue(told, CREATE, FORGE),
        lambda: github_issues.written_comment(told, REPO, 7),
        lambda: github_issues.read_issue(told, GET, FORGE),
        lambda: github_issues.read_comments(told, REPO, 7),
        lambda: github_issues.read_issue_page(told, LIST, FORGE, ListPosition()),
    ):
        try:
            translate()
        except BadAnswer:
            continue
        assert body.strip() == b"[]"


MOVED = answer(301, {"message": "Moved Permanently"}, {"location": "https://api.github.com/repositories/9/issues"})


async def test_a_listing_of_a_renamed_repository_stands_under_its_new_name() -> None:
    provider, _ = new_github(MOVED, answer(200, [issue_json(3, "acme/New")]))
    page = await provider.list_issues(LIST, new_context()[0])
    assert [(issue.repo, issue.number) for issue in page.items] == [("acme/New", 3)]


async def test_a_read_follows_into_no_repository_that_the_call_may_not_touch() -> None:
    private = issue_json(3, "other/private", comments=1)
    context, _ = new_context()
    context.may_touch = lambda repo: repo == "acme/New"
    provider, forge = new_github(MOVED, answer(200, [private]), MOVED, answer(200, private))
    with pytest.raises(ForgeStatus) as listed:
        await provider.list_issues(LIST, context)
    with pytest.raises(ForgeStatus) as got:
        await provider.get_issue(GET, context)
    assert (listed.value.status, got.value.status) == (404, 404)
    assert len(forge.requests) == 4
    provider, _ = new_github(MOVED, answer(200, [issue_json(3, "acme/New"), pull_json(2)]))
    assert len((await provider.list_issues(LIST, context)).items) == 1


async def test_comments_behind_a_redirect_are_read_where_they_are() -> None:
    provider, _ = new_github(
        answer(200, issue_json(comments=1)), MOVED, answer(200, [comment_json(1, repo="acme/New")])
    )
    assert len((await provider.get_issue(GET, new_context()[0])).comments) == 1


async def test_comments_behind_a_redirect_are_not_shown_where_the_call_may_not_go_everywhere() -> None:
    provider, _ = new_github(
        answer(200, issue_json(comments=1)), MOVED, answer(200, [comment_json(1, repo="other/private")])
    )
    context, _ = new_context()
    context.may_touch = lambda repo: repo == "acme/site"
    with pytest.raises(ForgeUnavailable, match="ask again"):
        await provider.get_issue(GET, context)


async def test_comments_that_keep_coming_are_read_within_bounds() -> None:
    pages = [comments_page(30 * page + 1, 30 * page + 30) for page in range(github_pull_flow.COMMENT_PAGES_MAX)]
    provider, forge = new_github(answer(200, issue_json(comments=1)), *pages)
    issue = await provider.get_issue(GET, new_context()[0])
    assert [int(comment.id) for comment in issue.comments] == list(range(91, 121))
    assert issue.comments_total == 30
    assert len(forge.requests) == 1 + github_pull_flow.COMMENT_PAGES_MAX
