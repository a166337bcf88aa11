"""Answers about pull requests and reviews that prove nothing, are about something else, are broken or are too many."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.errors import (
    BadAnswer,
    ForeignAnswer,
    ForgeStatus,
    ForgeUnavailable,
    PullRequestExists,
    RateLimited,
)
from compass_forged.ports import CallContext
from compass_forged.providers import github_pull_flow as flow
from compass_forged.providers import github_pulls as pulls
from compass_forged.providers import github_reviews as reviews
from compass_forged.providers import github_threads as threads
from compass_forged.providers.answers import ITEMS_MAX, Items, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_access import PAGES_MAX, read_list
from compass_forged.providers.http import BODY_MAX_BYTES, HttpRequest
from compass_forged.wire.schema import (
    GHOST,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeRef,
    GetIssue,
    GetPullRequest,
    InlineComment,
    ListIssues,
    SubmitReview,
)
from tests.support.forge_http import ScriptedForge as Script
from tests.support.forge_http import (
    answer,
    comment_json,
    handler,
    issue_json,
    new_context,
    new_github,
    new_http,
    pull_json,
    review_comment_json,
    review_json,
)

REPO = "acme/site"
FORGE = ForgeRef(provider="github", host="github.com")
CREATE = CreatePullRequest(repo=REPO, title="t", body="b", head_ref="topic", base_ref="main")
REVIEW = SubmitReview(repo=REPO, pull_number=7, verdict="comment", body="b")
GET = GetPullRequest(repo=REPO, pull_number=7)


def known_as(login: str, *script: httpx.Response) -> GitHubProvider:
    return GitHubProvider(new_http(Script(list(script))), own_login=lambda: login)


def page_of(forge: Script, index: int = -1) -> str:
    return str(forge.requests[index].url.params["page"])


# --- a yes that proves nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        [pull_json()],
        pull_json(repo="acme/other"),
        pull_json(html_url="https://github.com/acme/site/issues/7"),
        pull_json(html_url="https://github.com/acme/site/pull/8"),
        pull_json(id=0),
        pull_json(2**63),
        {**pull_json(), "head": None},
        {**pull_json(), "base": {}},
        b"<html>",
        b"",
    ],
)
async def test_a_pull_request_that_is_not_proven_leaves_the_outcome_unknown(body: object) -> None:
    provider, forge = new_github(answer(201, body))
    with pytest.raises(BadAnswer) as bad:
        await provider.create_pull_request(CREATE, new_context()[0])
    assert (bad.value.outcome, bad.value.status) == ("unknown", 201)
    assert len(forge.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        review_json(state="PENDING"),
        review_json(state="APPROVED"),
        review_json(state="DISMISSED"),
        review_json(repo="acme/other"),
        review_json(pull=8),
        review_json(0),
        review_json(html_url=""),
        {**review_json(), "html_url": "https://github.com/acme/site/issues/7"},
        b"null",
    ],
)
async def test_a_review_that_is_not_proven_leaves_the_outcome_unknown(body: object) -> None:
    provider, _ = new_github(answer(200, body))
    with pytest.raises(BadAnswer) as bad:
        await provider.submit_review(REVIEW, new_context()[0])
    assert bad.value.outcome == "unknown"


OF_ANOTHER: list[tuple[int, object, Callable[[GitHubProvider, CallContext], Awaitable[object]]]] = [
    (201, issue_json(), lambda made, context: made.create_issue(CreateIssue(repo=REPO, title="t"), context)),
    (201, pull_json(), lambda made, context: made.create_pull_request(CREATE, context)),
    (200, review_json(), lambda made, context: made.submit_review(REVIEW, context)),
    (
        201,
        comment_json(1),
        lambda made, context: made.comment_on_issue(CommentOnIssue(repo=REPO, issue_number=7, body="b"), context),
    ),
    (
        201,
        comment_json(1),
        lambda made, context: made.comment_on_pull_request(
            CommentOnPullRequest(repo=REPO, pull_number=7, body="b"), context
        ),
    ),
]


@pytest.mark.parametrize(("status", "body", "call"), OF_ANOTHER)
async def test_what_another_account_wrote_is_not_what_we_wrote(
    status: int, body: object, call: Callable[[GitHubProvider, CallContext], Awaitable[object]]
) -> None:
    with pytest.raises(ForeignAnswer, match="another author") as foreign:
        await call(known_as("mallory", answer(status, body)), new_context()[0])
    assert foreign.value.outcome == "unknown"


@pytest.mark.parametrize("user", [{"login": "Compass[bot]"}, None, {}])
@pytest.mark.parametrize("login", ["compass[BOT]", ""])
async def test_an_author_is_compared_where_both_are_known(user: object, login: str) -> None:
    made = await known_as(login, answer(201, pull_json(user=user))).create_pull_request(CREATE, new_context()[0])
    assert made.number == 7


async def test_a_draft_that_is_none_is_told() -> None:
    provider, forge = new_github(answer(201, pull_json(draft=False)))
    made = await provider.create_pull_request(msgspec.structs.replace(CREATE, draft=True), new_context()[0])
    assert made.warnings == ["not opened as a draft: the forge has none in this repository"]
    assert forge.bodies()[0]["draft"] is True


@pytest.mark.parametrize(
    "body", [{}, {"full_name": REPO}, {"full_name": "a/b", "default_branch": "main"}]
    + [{"full_name": REPO, "default_branch": branch} for branch in ("", "a b", "x" * 1001, "a\n", "a:b", None)]
)  # fmt: skip
async def test_a_repository_without_a_usable_default_branch_sends_nothing(body: object) -> None:
    provider, forge = new_github(answer(200, body))
    context, guard = new_context()
    with pytest.raises(BadAnswer) as bad:
        await provider.create_pull_request(msgspec.structs.replace(CREATE, base_ref=""), context)
    assert bad.value.outcome == "not_sent"
    assert guard.sendings == 0
    assert len(forge.requests) == 1


async def test_the_default_branches_of_many_repositories_are_not_kept_for_ever() -> None:
    branches = flow.DefaultBranches(most=2)
    repos = ["a/a", "a/b", "a/c", "a/c", "a/b", "a/a"]
    provider, forge = new_github(
        *[answer(200, {"full_name": repo, "default_branch": "main"}) for repo in ("a/a", "a/b", "a/c", "a/a")]
    )
    for repo in repos:
        assert await branches.of(provider._access, repo, new_context()[0]) == "main"
    assert len(forge.requests) == 4
    assert len(branches._known) == 2


EXISTS = {"message": "Validation Failed", "errors": [{"message": "A pull request already exists for acme:topic."}]}


@pytest.mark.parametrize(
    "other",
    [
        {"head": {"ref": "other", "sha": "a", "repo": {"full_name": REPO}}},
        {"head": {"ref": "topic", "sha": "a", "repo": {"full_name": "mallory/site"}}},
        {"head": {"ref": "topic", "sha": "a", "repo": None, "user": {"login": "mallory"}}},
        {"head": {"ref": "topic", "sha": "a", "repo": None, "user": None}},
        {"base": {"ref": "other", "sha": "a", "repo": None}},
        {"state": "closed"},
    ],
)
async def test_a_forge_that_ignores_a_filter_does_not_lead_astray(other: dict[str, object]) -> None:
    wrong = {**pull_json(6), **other}
    right = {**pull_json(7), "head": {"ref": "topic", "sha": "a", "repo": None, "user": {"login": "ACME"}}}
    provider, forge = new_github(answer(422, EXISTS), answer(200, [wrong, right]))
    with pytest.raises(PullRequestExists) as told:
        await provider.create_pull_request(CREATE, new_context()[0])
    assert told.value.number == 7
    assert dict(forge.requests[1].url.params) == {
        "state": "open", "head": "acme:topic", "base": "main", "per_page": "100"
    }  # fmt: skip


async def test_one_that_stands_in_a_renamed_repository_is_found_there() -> None:
    moved = {"location": "https://api.github.com/repositories/9/pulls"}
    provider, _ = new_github(answer(422, EXISTS), answer(301, {}, moved), answer(200, [pull_json(7, "acme/New")]))
    with pytest.raises(PullRequestExists) as told:
        await provider.create_pull_request(CREATE, new_context()[0])
    assert (told.value.number, told.value.found and told.value.found.repo) == (7, "acme/New")


async def test_a_user_is_known_by_the_id_whatever_name_it_has_been_given_since() -> None:
    script = Script([answer(201, pull_json(user={"login": login, "id": 5})) for login in ("lovelace", "Ada")])
    script.script.append(answer(201, pull_json(user={"login": "eve", "id": 6})))
    provider = GitHubProvider(new_http(script), own_login=lambda: "ada", own_user_id=lambda: 5)
    for _ in range(2):
        assert (await provider.create_pull_request(CREATE, new_context()[0])).number == 7
    with pytest.raises(ForeignAnswer, match="another author"):
        await provider.create_pull_request(CREATE, new_context()[0])


async def test_an_account_with_another_name_is_still_the_one_that_it_was(
    autojump_clock: trio.testing.MockClock,
) -> None:
    logins = ["ada", "ada", "ada", "bob", "bob"]
    users = [{"login": "ADA", "id": 5}, {"login": "lovelace", "id": 5}, {"login": "eve", "id": 6}]
    users += [{"login": "ada", "id": 5}, {"login": "bob", "id": 5}]
    script = Script([answer(201, pull_json(user=user)) for user in users])
    provider = GitHubProvider(new_http(script), own_login=lambda: logins[len(script.requests) - 1])
    written: list[bool] = []
    for _ in users:
        try:
            await provider.create_pull_request(CREATE, new_context()[0])
        except ForeignAnswer:
            written.append(False)
        else:
            written.append(True)
    assert written == [True, True, False, False, True]


# --- broken items ---------------------------------------------------------------------------------------------------


def by_path(**parts: Any) -> GitHubProvider:
    """GitHub, whose pull request 7 has each part as told: ``pull``, ``comments``, ``reviews`` and so on."""
    told = {"pull": pull_json(), "comments": [], "reviews": [], "threads": [], "runs": [], "statuses": [], **parts}
    bodies = {
        f"/repos/{REPO}/pulls/7": told["pull"],
        f"/repos/{REPO}/issues/7/comments": told["comments"],
        f"/repos/{REPO}/pulls/7/reviews": told["reviews"],
        f"/repos/{REPO}/pulls/7/comments": told["threads"],
        f"/repos/{REPO}/commits/{'a' * 40}/check-runs": {"check_runs": told["runs"]},
        f"/repos/{REPO}/commits/{'a' * 40}/status": {"statuses": told["statuses"]},
    }

    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        return answer(200, bodies[request.url.path])

    return new_github(*[reply] * 6)[0]


async def test_one_broken_item_spoils_no_part_of_a_pull_request() -> None:
    provider = by_path(
        pull=pull_json(comments=2),
        comments=[comment_json(1, user=None), comment_json(2, id="x"), 7],
        reviews=[
            review_json(1, body=None, user=None),
            review_json(2, pull=8),
            review_json(3, state="NEW", html_url=""),
        ],
        threads=[review_comment_json(1, line=None, user=None, html_url=""), {"id": 2}],
        runs=[{"name": "a", "status": "completed", "conclusion": "success"}, {}],
    )
    found = await provider.get_pull_request(GET, new_context()[0])
    assert [each.author for each in found.comments] == [GHOST]
    assert [(each.verdict, each.body, each.author.login) for each in found.reviews] == [
        ("commented", "", "ghost"),
        ("commented", "text", "compass[bot]"),
    ]
    assert [(thread.line, thread.comments[0].author) for thread in found.threads] == [(None, GHOST)]
    assert found.checks is None
    assert sorted(found.warnings) == [
        "1 of the forge's review comments could not be read and is left out",
        "1 of the forge's reviews could not be read and is left out",
        "2 of the forge's comments could not be read and are left out",
        "checks are not known: some could not be read",
    ]


async def test_one_broken_item_spoils_no_listing_and_moves_no_cursor() -> None:
    page = [issue_json(9), {"id": 1}, issue_json(7), issue_json(6, repo="acme/other"), issue_json(5)]
    provider, _ = new_github(answer(200, page), answer(200, page))
    arm = ListIssues(repo=REPO, limit=2)
    found = await provider.list_issues(arm, new_context()[0])
    assert [issue.number for issue in found.items] == [9, 7]
    assert found.warnings == ["2 of the forge's items could not be read and are left out"]
    rest = await provider.list_issues(msgspec.structs.replace(arm, cursor=found.next_cursor), new_context()[0])
    assert ([issue.number for issue in rest.items], rest.next_cursor, rest.warnings) == ([5], "", [])


async def test_one_broken_comment_spoils_no_issue() -> None:
    provider, _ = new_github(answer(200, issue_json(comments=2)), answer(200, [comment_json(1), {}]))
    issue = await provider.get_issue(GetIssue(repo=REPO, issue_number=7), new_context()[0])
    assert [comment.id for comment in issue.comments] == ["1"]
    assert issue.warnings == ["1 of the forge's comments could not be read and is left out"]


@pytest.mark.parametrize("part", ["comments", "reviews", "threads", "runs", "statuses"])
@pytest.mark.parametrize("body", [{}, "x", [{}], [7, "x"]])
async def test_a_part_that_is_none_is_never_an_empty_one(part: str, body: object) -> None:
    provider = by_path(pull=pull_json(comments=1), **{part: body})
    with pytest.raises(BadAnswer):
        await provider.get_pull_request(GET, new_context()[0])


async def test_an_answer_that_is_none_yet_is_not_an_empty_one() -> None:
    provider, _ = new_github(*[answer(202, {})] * 3)
    with pytest.raises(ForgeUnavailable) as later:
        await provider.list_issues(ListIssues(repo=REPO), new_context()[0])
    assert later.value.retry_after_seconds > 0


async def test_half_a_character_is_shown_as_a_replacement() -> None:
    body = json.dumps([comment_json(1, body="X tail"), comment_json(2, body="\\ud83d \\\\udc00 ok")])
    raw = body.replace("X", "\\udcef\\ud83d\\ude00\\udcbf\\ud83d").encode()
    provider, _ = new_github(answer(200, issue_json(comments=2)), answer(200, raw))
    issue = await provider.get_issue(GetIssue(repo=REPO, issue_number=7), new_context()[0])
    assert [comment.body for comment in issue.comments] == [
        "\ufffd\U0001f600\ufffd\ufffd tail",
        "\\ud83d \\\\udc00 ok",
    ]
    assert msgspec.msgpack.encode(issue)


@given(st.lists(st.text(st.characters(), max_size=6), max_size=4))
def test_any_text_in_json_is_read_with_nothing_else_changed(texts: list[str]) -> None:
    told = ForgeAnswer(200, {}, json.dumps(texts).encode())
    found = decode_items(msgspec.json.Decoder(str), str, told)
    assert found.broken == ()
    assert found.good == [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]


def test_a_list_of_more_than_any_page_holds_is_none() -> None:
    """Under the cap of an answer there is room for millions of items that cannot be read."""
    with pytest.raises(BadAnswer, match="more than 1000 items"):
        numbered(ForgeAnswer(200, {}, json.dumps([*range(ITEMS_MAX), "x"]).encode()))
    assert len(numbered(ForgeAnswer(200, {}, json.dumps([*range(ITEMS_MAX)]).encode())).good) == ITEMS_MAX


# --- lists of many pages ----------------------------------------------------------------------------------------------


def numbered(answer_: ForgeAnswer) -> Items[int]:
    return decode_items(msgspec.json.Decoder(int), int, answer_)


def ask(size: int, page: int) -> HttpRequest:
    return HttpRequest("GET", ("x",), (("per_page", str(size)), ("page", str(page))))


def paged(total: int, *, links: bool = True, last: bool = True) -> Any:
    """A list of the numbers below ``total``."""

    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        size, page = (int(request.url.params[name]) for name in ("per_page", "page"))
        count = -(-total // size)
        relations = {"next": page + 1} if page < count else {"first": 1}
        if last:
            relations["last"] = count
        link = ", ".join(f'<https://api.github.com/x?page={each}>; rel="{name}"' for name, each in relations.items())
        rows = list(range(total))[(page - 1) * size : page * size]
        return answer(200, rows, {"link": link} if links else {})

    return reply


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(("total", "asked"), [(0, 1), (99, 1), (250, 3)])
async def test_a_list_is_read_to_its_end(total: int, asked: int, links: bool) -> None:
    provider, forge = new_github(*[paged(total, links=links)] * 9)
    found = await read_list(provider.http, new_context()[0], ask, numbered)
    assert (found.items, found.complete, len(forge.requests)) == (list(range(total)), True, asked)


async def test_a_full_last_page_without_links_is_asked_beyond() -> None:
    provider, forge = new_github(*[paged(200, links=False)] * 9)
    assert (await read_list(provider.http, new_context()[0], ask, numbered)).complete
    assert len(forge.requests) == 3


async def test_of_a_long_list_the_first_pages_are_read_or_the_last() -> None:
    provider, forge = new_github(*[paged(10_000)] * 99)
    found = await read_list(provider.http, new_context()[0], ask, numbered)
    assert (found.items, found.complete) == (list(range(PAGES_MAX * 100)), False)
    assert len(forge.requests) == PAGES_MAX
    found = await read_list(provider.http, new_context()[0], ask, numbered, pages_max=3, newest=True)
    assert (found.items, found.complete) == (list(range(9700, 10_000)), False)
    assert [page_of(forge, index) for index in (-4, -3, -2, -1)] == ["1", "98", "99", "100"]


async def test_a_forge_that_tells_no_last_page_is_read_from_the_first() -> None:
    provider, _ = new_github(*[paged(10_000, last=False)] * 99)
    found = await read_list(provider.http, new_context()[0], ask, numbered, pages_max=2, newest=True)
    assert (found.items, found.complete) == (list(range(200)), False)


async def test_a_list_that_keeps_growing_is_bounded() -> None:
    @handler
    def endless(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["page"])
        link = f'<https://api.github.com/x?page={page + 1}>; rel="next", <https://api.github.com/x?page=50>; rel="last"'
        return answer(200, [page], {"link": link})

    provider, forge = new_github(*[endless] * 99)
    found = await read_list(provider.http, new_context()[0], ask, numbered, newest=True)
    assert not found.complete
    assert len(forge.requests) == PAGES_MAX + 1


async def test_enough_is_enough() -> None:
    provider, forge = new_github(*[paged(1000)] * 9)
    found = await read_list(provider.http, new_context()[0], ask, numbered, enough=lambda items: len(items) >= 150)
    assert (len(found.items), found.complete, len(forge.requests)) == (200, False, 2)


async def test_a_page_too_large_is_read_in_small_ones() -> None:
    provider, forge = new_github(answer(200, b"0" * (BODY_MAX_BYTES + 1)), *[paged(50)] * 9)
    found = await read_list(provider.http, new_context()[0], ask, numbered)
    assert (found.items, found.complete) == (list(range(50)), True)
    assert [request.url.params["per_page"] for request in forge.requests] == ["100", "20", "20", "20"]


async def test_of_many_long_review_comments_the_newest_are_shown() -> None:
    body = "x" * (1 << 20)
    newest_first = [review_comment_json(number, body=body) for number in range(7, 0, -1)]
    found = await by_path(threads=newest_first).get_pull_request(GET, new_context()[0])
    assert [thread.comments[0].id for thread in found.threads] == ["4", "5", "6", "7"]
    assert found.warnings == ["only the newest 4 review comments are shown"]


async def test_one_review_comment_beyond_all_measure_is_shown() -> None:
    found = await by_path(threads=[review_comment_json(1, body="x" * (5 << 20))]).get_pull_request(
        GET, new_context()[0]
    )
    assert len(found.threads) == 1


async def test_of_more_reviews_than_are_read_the_last_are_shown() -> None:
    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/reviews"):
            return answer(200, {"check_runs": [], "statuses": []} if "/commits/" in request.url.path else [])
        page = int(request.url.params["page"])
        link = f'<https://api.github.com/x?page={page + 1}>; rel="next", <https://api.github.com/x?page=9>; rel="last"'
        return answer(200, [review_json(page)], {"link": link} if page < 9 else {})

    provider, _ = new_github(answer(200, pull_json()), *[reply] * 20)
    found = await provider.get_pull_request(GET, new_context()[0])
    assert len(found.reviews) == flow.REVIEW_PAGES_MAX
    assert found.warnings == ["only 5 of the reviews are shown"]


@pytest.mark.parametrize("part", ["reviews", "comments", "check-runs", "status"])
async def test_no_part_of_a_pull_request_is_read_where_the_call_may_not_go(part: str) -> None:
    async def serve(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        path = request.url.path
        if path.endswith("/pulls/7"):
            return answer(200, pull_json(7))
        if path.startswith("/repositories/9/") or not path.endswith(part):
            return answer(200, {"check_runs": [], "statuses": []} if "commits" in path else [])
        return answer(301, {}, {"location": f"https://api.github.com/repositories/9/{part}"})

    provider, _ = new_github(*[serve] * 20)
    context, _ = new_context()
    context.may_touch = lambda repo: repo == "acme/site"
    with pytest.raises(ForgeUnavailable, match="ask again"):
        await provider.get_pull_request(GetPullRequest(repo="acme/site", pull_number=7), context)


async def test_a_head_that_is_no_commit_has_no_checks() -> None:
    pull = {**pull_json(), "head": {"ref": "t", "sha": ".."}}
    found = await by_path(pull=pull).get_pull_request(GET, new_context()[0])
    assert found.checks is None
    assert found.warnings == ["checks are not known: the forge names no head commit"]


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_a_source_of_checks_that_the_forge_has_not_leaves_them_unknown(status: int) -> None:
    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/status"):
            return answer(status, {"message": "no"})
        return answer(200, {"check_runs": []} if "check-runs" in request.url.path else [])

    provider, _ = new_github(answer(200, pull_json()), *[reply] * 4)
    found = await provider.get_pull_request(GET, new_context()[0])
    assert found.checks is None
    assert found.warnings == ["checks are not known: the forge shows no statuses"]


async def test_checks_behind_a_limit_are_no_unknown_ones() -> None:
    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        if "check-runs" in request.url.path:
            return answer(403, {"message": "API rate limit exceeded"}, {"x-ratelimit-remaining": "0"})
        return answer(200, {"statuses": []} if request.url.path.endswith("/status") else [])

    provider, _ = new_github(answer(200, pull_json()), *[reply] * 4)
    with pytest.raises(RateLimited):
        await provider.get_pull_request(GET, new_context()[0])


async def test_a_source_of_checks_that_fails_fails_the_read() -> None:
    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        if "check-runs" in request.url.path:
            return answer(451, {"message": "legal"})
        return answer(200, {"statuses": []} if request.url.path.endswith("/status") else [])

    provider, _ = new_github(answer(200, pull_json()), *[reply] * 4)
    with pytest.raises(ForgeStatus):
        await provider.get_pull_request(GET, new_context()[0])


async def test_more_checks_than_are_read_are_not_known() -> None:
    @handler
    def reply(request: httpx.Request) -> httpx.Response:
        if "check-runs" in request.url.path:
            page = int(request.url.params["page"])
            link = {"link": f'<https://api.github.com/x?page={page + 1}>; rel="next"'}
            return answer(200, {"check_runs": [{"name": f"{page}", "status": "queued"}]}, link)
        return answer(200, {"statuses": []} if request.url.path.endswith("/status") else [])

    provider, _ = new_github(answer(200, pull_json()), *[reply] * 14)
    found = await provider.get_pull_request(GET, new_context()[0])
    assert found.checks is None
    assert found.warnings == ["checks are not known: there are too many to read"]


# --- threads ----------------------------------------------------------------------------------------------------------


def threads_from(*rows: dict[str, object]) -> list[list[str]]:
    told = ForgeAnswer(200, {}, json.dumps(rows).encode())
    found = threads.threads_of(threads.read_review_comments(told, REPO, 7).good)
    return [[comment.id for comment in thread.comments] for thread in found]


def test_replies_stand_in_the_thread_that_they_answer() -> None:
    def reply(number: int, to: int) -> dict[str, object]:
        return review_comment_json(number, in_reply_to_id=to)

    root = review_comment_json
    assert threads_from(reply(3, 1), root(2), root(1), reply(4, 2)) == [["1", "3"], ["2", "4"]]
    assert threads_from(reply(3, 2), reply(2, 1), root(1)) == [["1", "2", "3"]]  # a reply to a reply
    assert threads_from(reply(5, 1), reply(6, 1), reply(7, 2)) == [["5", "6"], ["7"]]  # begun before what was read
    assert threads_from(reply(5, 5), reply(6, 7), reply(7, 6)) == [["5"], ["6", "7"]]  # around in a circle


def test_a_listing_of_reviews_in_a_renamed_repository_is_read() -> None:
    told = ForgeAnswer(200, {}, json.dumps([review_json(repo="acme/New")]).encode(), moved=True)
    assert reviews.read_reviews(told, REPO, 7).broken == ()
    here = ForgeAnswer(200, {}, told.body)
    with pytest.raises(BadAnswer):
        reviews.read_reviews(here, REPO, 7)


def test_a_review_s_comments_are_told_by_lines() -> None:
    arm = msgspec.structs.replace(REVIEW, verdict="request_changes")
    one = InlineComment(path="a", line=3, body="x", side="LEFT", start_line=3)
    span = InlineComment(path="a", line=3, body="x", start_line=1, start_side="LEFT")
    told = reviews.review_request(arm, "b", [one, span], "c" * 40)
    assert told.json == {
        "event": "REQUEST_CHANGES",
        "body": "b",
        "commit_id": "c" * 40,
        "comments": [
            {"path": "a", "body": "x", "line": 3, "side": "LEFT"},
            {"path": "a", "body": "x", "line": 3, "side": "RIGHT", "start_line": 1, "start_side": "LEFT"},
        ],
    }
    assert "commit_id" not in (reviews.review_request(arm, "b", [one], "").json or {})


def test_any_bytes_are_read_or_bad() -> None:
    @given(st.binary(max_size=60))
    def whatever(body: bytes) -> None:
        told = ForgeAnswer(200, {}, body)
        for translate in (
            lambda: pulls.created_pull(told, CREATE, FORGE),
            lambda: pulls.looked_up(told, CREATE, "main", FORGE),
            lambda: pulls.read_pull(told, REPO, 7, FORGE),
            lambda: reviews.submitted_review(told, REVIEW),
            lambda: reviews.read_reviews(told, REPO, 7),
            lambda: threads.read_review_comments(told, REPO, 7),
        ):
            try:
                translate()
            except BadAnswer:
                continue
            assert body.strip() == b"[]"

    whatever()
