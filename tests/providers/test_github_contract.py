"""What is sent is valid against GitHub's own OpenAPI document, and what GitHub is known to answer translates."""

import json
from collections import Counter
from typing import Any

import httpx
import jsonschema
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.pull_changes import add_review, push
from compass_forged.emulator.records import ChangedFile
from compass_forged.errors import BadCredentials, ForgeError, ForgeStatus, PullRequestExists, RateLimited
from compass_forged.providers import github_checks as checks
from compass_forged.providers import github_files as files
from compass_forged.providers import github_pulls as pulls
from compass_forged.providers import github_reviews as reviews
from compass_forged.providers import github_threads as threads
from compass_forged.providers.credentials import StaticToken
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_dialect import GitHubDialect, detail_of
from compass_forged.providers.github_issues import ListPosition, read_issue_page, write_cursor
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.wire.schema import (
    GHOST,
    Checks,
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
from tests.emulator.inprocess import TOKENS, ForgeTransport
from tests.support.bundled import new_forge
from tests.support.forge_http import (
    SAMPLES,
    SHARED,
    answer,
    comment_json,
    issue_json,
    new_context,
    new_github,
    new_http,
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the contract documents lie beside a full checkout only")
REPO = "acme/site"
HELLO = "octocat/Hello-World"
LIST = ListIssues(repo=REPO, state="closed", labels=["a b"], limit=1)


def openapi() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SHARED / "github-openapi-subset.json").read_text())
    return document


def nullable(schema: Any) -> Any:
    """OpenAPI 3.0's ``nullable`` as JSON Schema has it."""
    if isinstance(schema, list):
        return [nullable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: nullable(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def resolved(document: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in item:
        found: Any = document
        for key in item["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        item = found
    return item


def operation(document: dict[str, Any], request: httpx.Request) -> tuple[dict[str, Any], dict[str, str]]:
    """The operation that a request calls, and its path parameters."""
    have = request.url.path.strip("/").split("/")
    for template, methods in document["paths"].items():
        want = template.strip("/").split("/")
        pairs = list(zip(want, have, strict=False))
        if len(want) == len(have) and all(name.startswith("{") or name == value for name, value in pairs):
            values = {name.strip("{}"): value for name, value in pairs if name.startswith("{")}
            return methods[request.method.lower()], values
    raise AssertionError(f"no operation for {request.method} {request.url.path}")


def check(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    whole = {**nullable(schema), "components": nullable(document["components"])}
    jsonschema.Draft202012Validator(whole).validate(value)


def check_request(document: dict[str, Any], request: httpx.Request) -> None:
    called, path_values = operation(document, request)
    known = {(item["in"], item["name"]): item for item in (resolved(document, item) for item in called["parameters"])}
    given = [("path", *pair) for pair in path_values.items()] + [
        ("query", *pair) for pair in request.url.params.items()
    ]
    for place, name, value in given:
        schema = resolved(document, known[place, name]["schema"])
        check(document, schema, int(value) if schema.get("type") == "integer" else value)
    if request.method == "POST":
        content = called["requestBody"]["content"]["application/json"]["schema"]
        assert set(json.loads(request.content)) <= set(content["properties"])
        check(document, content, json.loads(request.content))


@needs_shared
async def test_every_request_is_one_that_github_describes() -> None:
    document = openapi()
    cursor = write_cursor(LIST, ListPosition((("per_page", "100"), ("page", "3"))))
    provider, forge = new_github(
        answer(201, issue_json()),
        answer(201, comment_json(1)),
        answer(200, issue_json(comments=40)),
        answer(200, [comment_json(1)]),
        answer(200, []),
        answer(200, []),
    )
    context, _ = new_context()
    await provider.create_issue(CreateIssue(repo=REPO, title="t", body="b", labels=["x"]), context)
    await provider.comment_on_issue(CommentOnIssue(repo=REPO, issue_number=7, body="b"), context)
    await provider.get_issue(GetIssue(repo=REPO, issue_number=7), context)
    await provider.list_issues(LIST, context)
    await provider.list_issues(ListIssues(repo=REPO, state="closed", labels=["a b"], limit=1, cursor=cursor), context)
    assert len(forge.requests) == 6
    for request in forge.requests:
        check_request(document, request)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps the requests that go through to the bundled forge."""

    def __init__(self, forge: Forge) -> None:
        self._forge = ForgeTransport(forge)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return await self._forge.handle_async_request(request)


@needs_shared
async def test_every_request_about_a_pull_request_is_one_that_github_describes() -> None:
    document, forge = openapi(), new_forge()
    state = forge.state
    pull = state.issue(REPO, 3)
    push(state, state.repo(REPO), "front-page", [ChangedFile("a.txt", "@@ -1,2 +1,2 @@\n-a\n+b\n c")])
    state.add_comment(pull, state.account("mona"), "when?")
    add_review(state, pull, state.account("forge-author"), None, "> `compass:owner agent=a owner=b session=c`")
    recorded = Recorded(forge)
    provider = GitHubProvider(new_http(recorded, source=StaticToken(TOKENS["forge-author"])))
    context, _ = new_context()
    create = CreatePullRequest(repo=REPO, title="t", body="b", head_ref="front-page", draft=True)
    await provider.create_pull_request(create, context)
    with pytest.raises(PullRequestExists):
        await provider.create_pull_request(create, context)
    await provider.comment_on_pull_request(CommentOnPullRequest(repo=REPO, pull_number=3, body="b"), context)
    inline = [
        InlineComment(path="src/images.js", line=5, body="x"),
        InlineComment(path="src/images.js", line=6, start_line=5, start_side="LEFT", body="x"),
    ]
    review = SubmitReview(repo=REPO, pull_number=3, verdict="request_changes", body="b", comments=inline)
    await provider.submit_review(review, context)  # once refused for the pending one, which is deleted
    await provider.submit_review(SubmitReview(repo=REPO, pull_number=3, verdict="approve"), context)
    await provider.get_pull_request(GetPullRequest(repo=REPO, pull_number=3), context)
    methods = Counter(request.method for request in recorded.requests)
    assert methods == {"GET": 11, "POST": 6, "DELETE": 1}
    for request in recorded.requests:
        check_request(document, request)


@needs_shared
def test_the_samples_are_cut_from_the_examples_and_add_nothing() -> None:
    def within(small: object, whole: object) -> bool:
        if isinstance(small, dict) and isinstance(whole, dict):
            return all(key in whole and within(value, whole[key]) for key, value in small.items())
        if isinstance(small, list) and isinstance(whole, list):
            return len(small) == len(whole) and all(map(within, small, whole))
        return small == whole

    for path in SAMPLES.glob("*.json"):
        whole = json.loads((SHARED / "github-examples" / path.name).read_text())
        assert within(json.loads(path.read_text()), whole), path.name


def examples() -> list[Any]:
    paths = sorted((SHARED / "github-examples").glob("*.json")) if SHARED.is_dir() else []
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in paths]


@needs_shared
@pytest.mark.parametrize("example", [item for item in examples() if item.values[0]["status"] >= 400])
async def test_every_known_refusal_is_told_by_its_kind(example: dict[str, Any]) -> None:
    status = example["status"]
    responses = [answer(status, example["body"], example["headers"]) for _ in range(2)]
    provider, _ = new_github(*responses)
    with pytest.raises(ForgeError) as refused:
        await provider.create_issue(CreateIssue(repo=REPO, title="t"), new_context()[0])
    limited = "rate limit" in example["body"]["message"]
    expected = RateLimited if limited else BadCredentials if status == 401 else ForgeStatus
    assert type(refused.value) is expected
    assert refused.value.outcome == "rejected"
    detail = detail_of(HttpAnswer(status, {}, json.dumps(example["body"]).encode()))
    assert detail.startswith(example["body"]["message"][:300])
    assert "\n" not in detail


def told(name: str) -> ForgeAnswer:
    example = json.loads((SHARED / "github-examples" / f"{name}.json").read_text())
    return ForgeAnswer(example["status"], example["headers"], json.dumps(example["body"]).encode())


@needs_shared
def test_every_known_answer_about_pull_requests_translates() -> None:
    forge = ForgeRef(provider="github", host="github.com")
    pull = pulls.read_pull(told("pull-get-200"), HELLO, 1347, forge)
    assert (pull.number, pull.head_ref, pull.base_ref, pull.title) == (
        1347,
        "new-topic",
        "master",
        "Amazing new feature",
    )
    assert (pull.labels, pull.merged, pull.draft, pull.comments_total) == (["bug"], False, False, 10)
    review = reviews.submitted_review(
        told("review-create-200"), SubmitReview(repo=HELLO, pull_number=12, verdict="request_changes")
    )
    assert (review.review_id, review.verdict) == ("80", "request_changes")
    listed = reviews.read_reviews(told("review-list-200-every-state"), HELLO, 12)
    verdicts = [each.review.verdict for each in listed.good]
    assert verdicts == ["approved", "changes_requested", "commented", "pending", "dismissed"]
    assert [each.review.author == GHOST for each in listed.good] == [False, False, True, False, False]
    comments = threads.read_review_comments(told("review-comment-list-200"), HELLO, 1)
    assert comments.broken == ()
    lines = [(thread.line, len(thread.comments)) for thread in threads.threads_of(comments.good)]
    assert lines == [(2, 2), (None, 1), (None, 1)]
    assert threads.read_review_comments(told("review-comments-of-review-200"), HELLO, 1).good
    assert [file.path for file in files.read_files(told("pull-files-200")).good] == ["file1.txt"]
    runs = checks.read_check_runs(told("check-runs-200")).good
    assert checks.roll_up(runs, complete=True) == Checks(state="neutral", total=1)
    statuses = checks.read_statuses(told("combined-status-200")).good
    assert checks.roll_up(statuses, complete=True) == Checks(state="failure", total=2, failed=["example/1"])
    none = checks.read_statuses(told("combined-status-200-none")).good
    assert checks.roll_up(none, complete=True) == Checks(state="none")


@needs_shared
def test_every_known_refusal_of_a_write_is_told_apart() -> None:
    def refusal(name: str) -> ForgeStatus:
        refused = told(name)
        return ForgeStatus(refused.status, detail_of(HttpAnswer(refused.status, {}, refused.body)))

    names = ["error-422-pull-exists", "error-422-pending-review", "error-422-self-approval", "error-422-label-invalid"]
    assert [pulls.says_it_exists(refusal(name)) for name in names] == [True, False, False, False]
    assert [reviews.says_leftover(refusal(name)) for name in names] == [False, True, False, False]
    assert not any(pulls.says_head_unknown(refusal(name)) for name in names)


@needs_shared
@pytest.mark.parametrize("example", [item for item in examples() if item.id.startswith("issues-page-")])
def test_every_known_page_translates(example: dict[str, Any]) -> None:
    repo = "octokit-fixture-org/paginate-issues"
    answer = ForgeAnswer(200, example["headers"], json.dumps(example["body"]).encode())
    page = read_issue_page(
        answer, ListIssues(repo=repo), ForgeRef(provider="github", host="github.com"), ListPosition()
    )
    assert len(page.items) == len(example["body"])
    assert (page.next is not None) == ('rel="next"' in example["headers"].get("link", ""))
    assert all(issue is not None and issue.repo == repo for issue in page.items)


@needs_shared
@pytest.mark.parametrize("example", examples())
def test_every_known_answer_tells_its_limit(example: dict[str, Any]) -> None:
    told = HttpAnswer(example["status"], example["headers"])
    reading = GitHubDialect(wall_clock=lambda: 1_759_999_000.0).reading(told)
    if "x-ratelimit-remaining" not in example["headers"]:
        assert reading is None
        return
    assert reading is not None
    assert reading.remaining == int(example["headers"]["x-ratelimit-remaining"])
    assert 1 <= reading.resets_in <= 3600


@needs_shared
def test_a_renamed_repository_is_read_by_the_place_that_github_names() -> None:
    example = json.loads((SHARED / "github-examples" / "repo-get-301-renamed.json").read_text())
    http = new_http(None)
    place = http._transport.base.locate(example["headers"]["location"])
    assert place == (("repositories", "1000"), ())
    assert GitHubDialect().place_request(place[0]) == HttpRequest("GET", ("repositories", "1000"))
