"""Every route's answers have the shape that GitHub's OpenAPI document and its recorded answers give them."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.pull_changes import (
    NewComment,
    add_check_run,
    add_review,
    facts,
    merge,
    open_pull,
    push,
    reply,
)
from compass_forged.emulator.records import ChangedFile
from tests.emulator.make_openapi_responses import OPERATIONS, render
from tests.emulator.openapi import EXAMPLES, FULL, REDUCED, document, documents, to_json_schema

needs_full = pytest.mark.skipif(not FULL.exists(), reason="GitHub's OpenAPI subset is not beside the checkout")

_REPO = "/repos/{owner}/{repo}"
_ISSUE = f"{_REPO}/issues/{{issue_number}}"
_PULLS = f"{_REPO}/pulls"
_PULL = f"{_PULLS}/{{pull_number}}"
_REVIEW = f"{_PULL}/reviews/{{review_id}}"
_RUNS = f"{_REPO}/commits/{{ref}}/check-runs"
_STATUS = f"{_REPO}/commits/{{ref}}/status"
NEW_PULL = {"title": "t", "head": "front-page", "base": "main"}

# (operation, path asked for, body, status expected)
ANSWERS: list[tuple[str, str, str, Any, int]] = [
    ("GET", "/user", "/user", None, 200),
    ("GET", "/app", "/app", None, 401),  # asked for with a claim: see the tests of Apps
    ("POST", "/app/installations/{installation_id}/access_tokens", "/app/installations/9/access_tokens", None, 401),
    ("GET", "/rate_limit", "/rate_limit", None, 200),
    ("GET", "/meta", "/meta", None, 200),
    ("GET", "/versions", "/versions", None, 200),
    ("GET", _REPO, "/repos/acme/site", None, 200),
    ("GET", _REPO, "/repos/acme/vault", None, 200),
    ("GET", _REPO, "/repos/acme/none", None, 404),
    ("GET", _REPO, "/repos/acme/old", None, 301),
    ("GET", f"{_REPO}/issues", "/repos/acme/site/issues?state=all", None, 200),
    ("GET", f"{_REPO}/issues", "/repos/acme/site/issues?state=odd", None, 422),
    ("POST", f"{_REPO}/issues", "/repos/acme/site/issues", {"title": "t"}, 201),
    ("POST", f"{_REPO}/issues", "/repos/acme/site/issues", {"title": "t", "body": "b", "labels": ["bug", "n"]}, 201),
    ("POST", f"{_REPO}/issues", "/repos/acme/site/issues", {"title": "t", "assignees": ["forge-reviewer"]}, 201),
    ("POST", f"{_REPO}/issues", "/repos/acme/site/issues", {"title": ""}, 422),
    ("POST", f"{_REPO}/issues", "/repos/acme/site/issues", [], 400),
    ("POST", f"{_REPO}/issues", "/repos/acme/none/issues", {"title": "t"}, 404),
    ("GET", _ISSUE, "/repos/acme/site/issues/1", None, 200),
    ("GET", _ISSUE, "/repos/acme/site/issues/3", None, 200),
    ("GET", _ISSUE, "/repos/acme/site/issues/99", None, 404),
    ("GET", _ISSUE, "/repos/acme/site/issues/4", None, 410),
    ("GET", _ISSUE, "/repos/acme/site/issues/5", None, 301),
    ("PATCH", _ISSUE, "/repos/acme/site/issues/1", {"state": "closed"}, 200),
    ("PATCH", _ISSUE, "/repos/acme/site/issues/1", {"state": "odd"}, 422),
    ("GET", f"{_ISSUE}/comments", "/repos/acme/site/issues/1/comments", None, 200),
    ("GET", f"{_ISSUE}/comments", "/repos/acme/site/issues/5/comments", None, 404),
    ("POST", f"{_ISSUE}/comments", "/repos/acme/site/issues/3/comments", {"body": "b"}, 201),
    ("POST", f"{_ISSUE}/comments", "/repos/acme/site/issues/2/comments", {"body": "b"}, 403),
    ("POST", f"{_ISSUE}/comments", "/repos/acme/site/issues/3/comments", {"body": " "}, 422),
    ("GET", f"{_REPO}/issues/comments/{{comment_id}}", "/repos/acme/site/issues/comments/9000001", None, 200),
    ("GET", f"{_REPO}/issues/comments/{{comment_id}}", "/repos/acme/site/issues/comments/1", None, 404),
    ("GET", f"{_REPO}/labels", "/repos/acme/site/labels", None, 200),
    ("GET", f"{_REPO}/labels/{{name}}", "/repos/acme/site/labels/BUG", None, 200),
    ("GET", f"{_REPO}/labels/{{name}}", "/repos/acme/site/labels/none", None, 404),
    ("POST", f"{_REPO}/labels", "/repos/acme/site/labels", {"name": "new", "color": "F29513"}, 201),
    ("POST", f"{_REPO}/labels", "/repos/acme/site/labels", {"name": "bug"}, 422),
    ("POST", f"{_ISSUE}/labels", "/repos/acme/site/issues/1/labels", {"labels": ["docs"]}, 200),
    ("GET", _PULLS, "/repos/acme/site/pulls?state=all", None, 200),
    ("GET", _PULLS, "/repos/acme/site/pulls?state=odd", None, 422),
    ("POST", _PULLS, "/repos/acme/site/pulls", NEW_PULL, 201),
    ("POST", _PULLS, "/repos/acme/site/pulls", {**NEW_PULL, "body": "b", "draft": True}, 201),
    ("POST", _PULLS, "/repos/acme/site/pulls", {**NEW_PULL, "head": "topic"}, 422),
    ("POST", _PULLS, "/repos/acme/site/pulls", {**NEW_PULL, "head": "none"}, 422),
    ("POST", _PULLS, "/repos/acme/site/pulls", {"title": "t", "base": "main"}, 422),
    ("GET", _PULL, "/repos/acme/site/pulls/3", None, 200),
    ("GET", _PULL, "/repos/acme/site/pulls/6", None, 200),
    ("GET", _PULL, "/repos/acme/site/pulls/1", None, 404),
    ("GET", f"{_PULL}/files", "/repos/acme/site/pulls/3/files", None, 200),
    ("GET", f"{_PULL}/comments", "/repos/acme/site/pulls/3/comments", None, 200),
    ("GET", f"{_PULL}/reviews", "/repos/acme/site/pulls/3/reviews", None, 200),
    ("POST", f"{_PULL}/reviews", "/repos/acme/site/pulls/6/reviews", {"event": "APPROVE"}, 200),
    ("POST", f"{_PULL}/reviews", "/repos/acme/site/pulls/6/reviews", {"event": "COMMENT", "body": "b"}, 200),
    ("POST", f"{_PULL}/reviews", "/repos/acme/site/pulls/6/reviews", {"body": "begun"}, 200),
    ("POST", f"{_PULL}/reviews", "/repos/acme/site/pulls/6/reviews", {"event": "COMMENT"}, 422),
    ("POST", f"{_PULL}/reviews", "/repos/acme/site/pulls/6/reviews", {"event": "odd"}, 422),
    ("GET", _REVIEW, "/repos/acme/site/pulls/3/reviews/4000001", None, 200),
    ("GET", _REVIEW, "/repos/acme/site/pulls/3/reviews/1", None, 404),
    ("DELETE", _REVIEW, "/repos/acme/site/pulls/3/reviews/4000003", None, 200),
    ("DELETE", _REVIEW, "/repos/acme/site/pulls/3/reviews/4000001", None, 422),
    ("POST", f"{_REVIEW}/events", "/repos/acme/site/pulls/3/reviews/4000003/events", {"event": "APPROVE"}, 200),
    ("POST", f"{_REVIEW}/events", "/repos/acme/site/pulls/3/reviews/4000001/events", {"event": "APPROVE"}, 422),
    ("GET", _RUNS, "/repos/acme/site/commits/topic/check-runs", None, 200),
    ("GET", _RUNS, "/repos/acme/site/commits/none/check-runs", None, 422),
    ("GET", _STATUS, "/repos/acme/site/commits/topic/status", None, 200),
    ("GET", _STATUS, "/repos/acme/site/commits/main/status", None, 200),
    ("GET", _STATUS, "/repos/acme/site/commits/none/status", None, 404),
]


@pytest.fixture
def lived_in(forge: Forge) -> Forge:
    """The seed, and what happens to repositories and issues: deleted, transferred, locked, renamed; bots, ghosts.

    Number 3 is reviewed, with a thread and a pending review of the author's; number 6 is merged, by a fork's branch.
    """
    state = forge.state
    site = state.repo("acme/site")
    state.add_repo("acme", "old")
    state.rename_repo("acme/old", "new")
    bot = state.add_account("helper[bot]", "Bot")
    state.add_issue(site, bot, "deleted").deleted = True
    state.add_issue(site, bot, "moved on")
    state.transfer_issue("acme/site", 5, "acme/new")
    state.add_comment(state.issue("acme/site", 1), bot, "from an app")
    state.add_comment(state.issue("acme/site", 1), state.add_account("quitter"), "from nobody")
    state.delete_account("quitter", "gone")
    state.delete_account("mona", "ghost")
    state.issue("acme/site", 2).locked = True
    reviewed = state.issue("acme/site", 3)
    reviewer, author = state.account("forge-reviewer"), state.account("forge-author")
    place = NewComment("src/images.js", "why?", "RIGHT", 6, ("RIGHT", 4))
    add_review(state, reviewed, reviewer, "REQUEST_CHANGES", "not yet", [place])
    reply(state, reviewed, author, facts(reviewed).review_comments[0].id, "therefore")
    add_review(state, reviewed, author, None, "begun")
    fork = state.add_repo("outsider", "site", fork_of="acme/site")
    branch = push(state, fork, "mine", [ChangedFile("picture.png", None, "renamed", "old.png")])
    opened = open_pull(state, site, state.account("outsider"), "by a fork", None, branch, "main", head_repo=fork)
    merge(state, opened, reviewer)
    for name, conclusion in (("build", None), ("deploy", "action_required")):
        add_check_run(state, site, site.branches["topic"].sha, name, conclusion)
    return forge


@pytest.mark.parametrize(("method", "operation", "path", "body", "status"), ANSWERS)
async def test_answer_is_valid(
    lived_in: Forge, author: httpx.AsyncClient, method: str, operation: str, path: str, body: Any, status: int
) -> None:
    answer = await author.request(method, path, json=body)
    assert answer.status_code == status
    for each in documents():
        assert each.errors(method, operation, status, answer.json()) == []


def test_every_operation_is_covered() -> None:
    assert {(method, operation) for method, operation, *_ in ANSWERS} == {
        (method.upper(), path) for method, path in OPERATIONS
    }


@needs_full
def test_reduced_document_is_up_to_date() -> None:
    assert REDUCED.read_text(encoding="utf-8") == render(json.loads(FULL.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("/repos/acme/site", "full-repository"),
        ("/repos/acme/site/issues/3", "issue"),
        ("/repos/acme/site/issues/comments/9000001", "issue-comment"),
        ("/repos/acme/site/labels/bug", "label"),
        ("/user", "private-user"),
        ("/repos/acme/site/pulls/3", "pull-request"),
        ("/repos/acme/site/pulls", "pull-request-simple"),
        ("/repos/acme/site/pulls/6/files", "diff-entry"),
        ("/repos/acme/site/pulls/3/reviews", "pull-request-review"),
        ("/repos/acme/site/pulls/3/comments", "pull-request-review-comment"),
        ("/repos/acme/site/commits/topic/status", "combined-commit-status"),
    ],
)
async def test_answers_have_no_field_that_github_has_not(
    lived_in: Forge, author: httpx.AsyncClient, path: str, component: str
) -> None:
    known = document(REDUCED).raw_schemas[component]["properties"]
    answer = (await author.get(path)).json()
    assert set(answer[0] if isinstance(answer, list) else answer) <= set(known)


@needs_full
@pytest.mark.parametrize(
    ("method", "path", "body", "recording"),
    [
        ("POST", "/repos/acme/site/issues", {"title": "t"}, "issue-create-201.json"),
        ("POST", "/repos/acme/site/issues/1/labels", {"labels": ["x"]}, "issue-labels-add-200.json"),
        ("GET", "/repos/acme/site/issues?per_page=1", None, "issues-page-first-200.json"),
        ("GET", "/repos/acme/site/commits/topic/status", None, "combined-status-200.json"),
    ],
)
async def test_answers_have_every_field_that_was_recorded(
    author: httpx.AsyncClient, method: str, path: str, body: Any, recording: str
) -> None:
    recorded = json.loads((EXAMPLES / recording).read_text(encoding="utf-8"))
    answer = await author.request(method, path, json=body)
    ours, theirs = answer.json(), recorded["body"]
    if isinstance(theirs, list):
        ours, theirs = ours[0], theirs[0]
    assert set(theirs) <= set(ours)
    assert answer.status_code == recorded["status"]
    # Scopes are those of classic tokens only.
    assert {name for name in recorded["headers"] if "oauth" not in name} - {"etag", "cache-control"} <= set(
        answer.headers
    )


@needs_full
@pytest.mark.parametrize(
    "recording",
    [
        "error-401-bad-credentials.json",
        "error-404-not-found.json",
        "error-400-api-version.json",
        "error-410-issues-disabled.json",
        "error-422-body-too-long.json",
        "repo-get-301-renamed.json",
    ],
)
async def test_errors_have_the_recorded_fields(
    forge: Forge, author: httpx.AsyncClient, nobody: httpx.AsyncClient, recording: str
) -> None:
    requests: dict[str, Callable[[], Any]] = {
        "error-401-bad-credentials.json": lambda: nobody.get("/user", headers={"authorization": "Bearer x"}),
        "error-404-not-found.json": lambda: author.get("/repos/acme/site/issues/999999"),
        "error-400-api-version.json": lambda: author.get("/user", headers={"x-github-api-version": "bad"}),
        "error-410-issues-disabled.json": lambda: author.post("/repos/acme/vault/issues", json={"title": "t"}),
        "error-422-body-too-long.json": lambda: author.post(
            "/repos/acme/site/issues/1/comments", json={"body": "x" * 65_537}
        ),
        "repo-get-301-renamed.json": lambda: author.get("/repos/acme/former"),
    }
    forge.state.repo("acme/vault").has_issues = False
    forge.state.repo("acme/site").former_names.add("acme/former")
    recorded = json.loads((EXAMPLES / recording).read_text(encoding="utf-8"))
    answer = await requests[recording]()
    assert answer.status_code == recorded["status"]
    same = {"message", "errors", "documentation_url"} - ({"documentation_url"} if "301" in recording else set())
    ours = {name: value for name, value in answer.json().items() if name in same}
    assert ours == {name: value for name, value in recorded["body"].items() if name in same}
    assert set(answer.json()) == set(recorded["body"])


async def test_later_version_lacks_what_it_removed(author: httpx.AsyncClient) -> None:
    later = {"x-github-api-version": "2026-03-10"}
    issue = (await author.get("/repos/acme/site/issues/1", headers=later)).json()
    limits = (await author.get("/rate_limit", headers=later)).json()
    assert "assignee" not in issue
    assert "assignees" in issue
    assert "rate" not in limits
    assert "assignee" in (await author.get("/repos/acme/site/issues/1")).json()


def test_nullable_is_translated() -> None:
    assert to_json_schema({"type": "string", "nullable": True, "enum": ["a"]}) == {
        "type": ["string", "null"],
        "enum": ["a", None],
    }
    assert to_json_schema({"nullable": True, "oneOf": [{"type": "string"}]}) == {
        "anyOf": [{"oneOf": [{"type": "string"}]}, {"type": "null"}]
    }
    assert to_json_schema({"type": "integer", "nullable": False, "example": 1}) == {"type": "integer"}


@pytest.mark.parametrize(
    ("field", "value"), [("number", "1"), ("url", "no address"), ("created_at", "yesterday"), ("state", None)]
)
async def test_the_check_itself_can_fail(author: httpx.AsyncClient, field: str, value: Any) -> None:
    issue = (await author.get("/repos/acme/site/issues/1")).json()
    for each in documents():
        assert each.errors("GET", _ISSUE, 200, issue | {field: value})
        without = {name: kept for name, kept in issue.items() if name != field}
        assert each.errors("GET", _ISSUE, 200, without)
