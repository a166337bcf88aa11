"""What GitHub refuses, the bundled forge refuses with the same status and words, and without an effect."""

from typing import Any

import httpx
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.asgi import REQUEST_MAX_BYTES
from tests.emulator.inprocess import client

ISSUES = "/repos/acme/site/issues"
COMMENTS = f"{ISSUES}/1/comments"
LABELS = "/repos/acme/site/labels"


def _failed(resource: str, field: str, code: str, message: str | None = None, value: Any = None) -> dict[str, Any]:
    error = {"resource": resource, "field": field, "code": code, "message": message, "value": value}
    return {
        "message": "Validation Failed",
        "errors": [{name: each for name, each in error.items() if each is not None}],
    }


TOO_LONG_TITLE = _failed("Issue", "title", "custom", "title is too long (maximum is 256 characters)")
TOO_LONG_BODY = _failed("Issue", "body", "custom", "body is too long (maximum is 65536 characters)")
NO_TITLE = _failed("Issue", "title", "missing_field")
BREAK = _failed("Issue", "title", "custom", "title can't contain line breaks")

REFUSED: list[tuple[str, str, bytes | Any, int, dict[str, Any]]] = [
    ("POST", ISSUES, b"{", 400, {"message": "Problems parsing JSON"}),
    ("POST", ISSUES, b"\xff\xfe", 400, {"message": "Problems parsing JSON"}),
    ("POST", ISSUES, b"[" * 100_000, 400, {"message": "Problems parsing JSON"}),
    ("POST", ISSUES, b"[]", 400, {"message": "Body should be a JSON object"}),
    ("POST", ISSUES, b'"x"', 400, {"message": "Body should be a JSON object"}),
    ("POST", ISSUES, b"", 422, {"message": "Invalid request.\n\nFor 'links/0/schema', nil is not an object."}),
    ("POST", ISSUES, {}, 422, NO_TITLE),
    ("POST", ISSUES, {"title": None}, 422, NO_TITLE),
    ("POST", ISSUES, {"title": " \t"}, 422, NO_TITLE),
    ("POST", ISSUES, {"title": "a\nb"}, 422, BREAK),
    ("POST", ISSUES, {"title": "a\rb"}, 422, BREAK),
    ("POST", ISSUES, {"title": "x" * 257}, 422, TOO_LONG_TITLE),
    (
        "POST",
        ISSUES,
        {"title": True},
        422,
        {"message": "Invalid request.\n\nFor 'properties/title', true is not a string or integer."},
    ),
    ("POST", ISSUES, {"title": "t", "body": "x" * 65_537}, 422, TOO_LONG_BODY),
    (
        "POST",
        ISSUES,
        {"title": "t", "body": False},
        422,
        {"message": "Invalid request.\n\nFor 'properties/body', false is not a string or null."},
    ),
    (
        "POST",
        ISSUES,
        {"title": "t", "labels": None},
        422,
        {"message": "Invalid request.\n\nFor 'properties/labels', nil is not an array."},
    ),
    (
        "POST",
        ISSUES,
        {"title": "t", "labels": [1]},
        422,
        {"message": "Invalid request.\n\nFor 'properties/labels', 1 is not a string or object."},
    ),
    ("POST", ISSUES, {"title": "t", "labels": ["a,b"]}, 422, _failed("Label", "name", "invalid", value="a,b")),
    ("POST", ISSUES, {"title": "t", "labels": [" a"]}, 422, _failed("Label", "name", "invalid", value=" a")),
    ("POST", ISSUES, {"title": "t", "labels": [""]}, 422, _failed("Label", "name", "invalid", value="")),
    ("POST", ISSUES, {"title": "t", "labels": ["x" * 51]}, 422, _failed("Label", "name", "invalid", value="x" * 51)),
    (
        "POST",
        ISSUES,
        {"title": "t", "assignees": ["outsider"]},
        422,
        _failed("Issue", "assignees", "invalid", value="outsider"),
    ),
    (
        "POST",
        ISSUES,
        {"title": "t", "assignees": [1]},
        422,
        {"message": "Invalid request.\n\nFor 'properties/assignees', 1 is not a string."},
    ),
    ("POST", ISSUES, {"title": "t", "milestone": 9}, 422, _failed("Issue", "milestone", "invalid", value="9")),
    ("PATCH", f"{ISSUES}/1", {"state": "done"}, 422, _failed("Issue", "state", "invalid", value="done")),
    ("PATCH", f"{ISSUES}/1", {"title": "x" * 257, "state": "closed"}, 422, TOO_LONG_TITLE),
    ("PATCH", f"{ISSUES}/1", {"state_reason": "odd"}, 422, _failed("Issue", "state_reason", "invalid", value="odd")),
    ("POST", COMMENTS, {}, 422, {"message": "Invalid request.\n\n" + '"body"' + " wasn't supplied."}),
    (
        "POST",
        COMMENTS,
        {"body": None},
        422,
        {"message": "Invalid request.\n\nFor 'properties/body', nil is not a string."},
    ),
    ("POST", COMMENTS, {"body": " "}, 422, _failed("IssueComment", "data", "unprocessable", "Body cannot be blank")),
    (
        "POST",
        COMMENTS,
        {"body": "x" * 65_537},
        422,
        _failed("IssueComment", "data", "unprocessable", "Body is too long (maximum is 65536 characters)"),
    ),
    ("POST", LABELS, {}, 422, _failed("Label", "name", "missing_field")),
    ("POST", LABELS, {"name": "Bug"}, 422, _failed("Label", "name", "already_exists")),
    (
        "POST",
        LABELS,
        {"name": "x" * 51},
        422,
        _failed("Label", "name", "custom", "name is too long (maximum is 50 characters)"),
    ),
    ("POST", LABELS, {"name": "a,b"}, 422, _failed("Label", "name", "invalid", value="a,b")),
    ("POST", LABELS, {"name": "n", "color": "#fff"}, 422, _failed("Label", "color", "invalid")),
    (
        "POST",
        LABELS,
        {"name": "n", "description": "x" * 101},
        422,
        _failed("Label", "description", "custom", "description is too long (maximum is 100 characters)"),
    ),
    (
        "POST",
        LABELS,
        {"name": "n", "description": 1},
        422,
        {"message": "Invalid request.\n\nFor 'properties/description', 1 is not a string."},
    ),
    ("GET", f"{ISSUES}?since=soon", None, 422, _failed("Issue", "since", "invalid", value="soon")),
    ("GET", f"{ISSUES}?sort=size", None, 422, _failed("Issue", "sort", "invalid", value="size")),
    ("GET", f"{ISSUES}?direction=up", None, 422, _failed("Issue", "direction", "invalid", value="up")),
    ("GET", f"{ISSUES}/", None, 404, {"message": "Not Found"}),
    ("GET", "/user/", None, 404, {"message": "Not Found"}),
    ("GET", "/nothing", None, 404, {"message": "Not Found"}),
    ("DELETE", f"{ISSUES}/1", None, 404, {"message": "Not Found"}),
    ("GET", f"{ISSUES}/one", None, 404, {"message": "Not Found"}),
    ("GET", f"{ISSUES}/%C2%B2", None, 404, {"message": "Not Found"}),
    ("GET", f"{ISSUES}/99999999999999999999", None, 404, {"message": "Not Found"}),
    ("GET", "/repos/acme%2Fsite/issues/1", None, 404, {"message": "Not Found"}),
    ("GET", "/repositories/1", None, 404, {"message": "Not Found"}),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "expected"), REFUSED)
async def test_refusal(
    forge: Forge, author: httpx.AsyncClient, method: str, path: str, body: Any, status: int, expected: dict[str, Any]
) -> None:
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await author.request(method, path, **content)
    shown = answer.json()
    assert (answer.status_code, {name: shown[name] for name in expected}) == (status, expected)
    assert set(shown) == {*expected, "documentation_url", "status"}
    assert shown["documentation_url"].startswith("https://docs.github.com/rest")
    assert shown["status"] == str(status)
    assert not forge.state.commits
    assert forge.state.issue("acme/site", 1).state == "open"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"title": "x" * 256}, ("x" * 256, None)),
        ({"title": "é" * 256, "body": "é" * 65_536}, ("é" * 256, "é" * 65_536)),
        ({"title": 7}, ("7", None)),
        ({"title": "t", "body": ""}, ("t", None)),
        ({"title": "t", "body": None}, ("t", None)),
        ({"title": "t", "unknown": {"x": 1}}, ("t", None)),
    ],
)
async def test_what_just_fits_is_taken(author: httpx.AsyncClient, body: Any, kept: tuple[str, str | None]) -> None:
    answer = await author.post(ISSUES, json=body)
    assert answer.status_code == 201
    assert (answer.json()["title"], answer.json()["body"]) == kept


async def test_labels_are_created_with_push_access_and_dropped_without(
    forge: Forge, author: httpx.AsyncClient, outsider: httpx.AsyncClient
) -> None:
    wanted = {"title": "t", "labels": ["BUG", "x" * 50, {"name": "obj"}, "bug"], "assignees": ["forge-reviewer"]}
    ours = (await author.post(ISSUES, json=wanted)).json()
    theirs = (await outsider.post(ISSUES, json=wanted | {"labels": ["a,b", "fresh"], "milestone": 4})).json()
    assert [label["name"] for label in ours["labels"]] == ["bug", "x" * 50, "obj"]
    assert [person["login"] for person in ours["assignees"]] == ["forge-reviewer"]
    assert (theirs["labels"], theirs["assignees"]) == ([], [])
    assert forge.state.repo("acme/site").label_named("fresh") is None
    assert (ours["author_association"], theirs["author_association"]) == ("COLLABORATOR", "NONE")


async def test_user_agent_is_required_and_refused_outside_the_api(author: httpx.AsyncClient) -> None:
    answer = await author.get("/user", headers={"user-agent": ""})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "text/html"
    assert "User-Agent" in answer.text
    assert "x-ratelimit-limit" not in answer.headers


async def test_unknown_version_is_refused_with_a_bare_string(author: httpx.AsyncClient) -> None:
    answer = await author.get("/user", headers={"x-github-api-version": "1999-01-01"})
    assert answer.status_code == 400
    assert answer.json()["errors"] == "1999-01-01"
    assert "status" not in answer.json()


@pytest.mark.parametrize("header", ["Bearer nope", "token nope", "Basic bm9wZQ==", "Bearer ", "author-token"])
async def test_bad_credentials(nobody: httpx.AsyncClient, header: str) -> None:
    answer = await nobody.get("/repos/acme/site", headers={"authorization": header})
    assert answer.status_code == 401
    assert answer.json()["message"] == "Bad credentials"


@pytest.mark.parametrize("header", ["Bearer author-token", "token author-token", "bearer  author-token"])
async def test_good_credentials(nobody: httpx.AsyncClient, header: str) -> None:
    answer = await nobody.get("/user", headers={"authorization": header})
    assert answer.json()["login"] == "forge-author"


async def test_without_a_token_public_things_are_read_and_nothing_is_written(
    forge: Forge, nobody: httpx.AsyncClient
) -> None:
    assert (await nobody.get("/repos/acme/site")).status_code == 200
    assert "permissions" not in (await nobody.get("/repos/acme/site")).json()
    assert (await nobody.get("/repos/acme/vault")).status_code == 404
    for method, path in (("GET", "/user"), ("POST", ISSUES), ("PATCH", f"{ISSUES}/1"), ("POST", LABELS)):
        answer = await nobody.request(method, path, json={"title": "t"})
        assert (answer.status_code, answer.json()["message"]) == (401, "Requires authentication")
    assert not forge.state.commits


async def test_private_and_unknown_repositories_cannot_be_told_apart(outsider: httpx.AsyncClient) -> None:
    private = await outsider.get("/repos/acme/vault")
    unknown = await outsider.get("/repos/acme/no-such")
    assert private.status_code == unknown.status_code == 404
    assert private.content == unknown.content
    hidden = await outsider.post("/repos/acme/vault/issues", json={"title": "t"})
    missing = await outsider.post("/repos/acme/no-such/issues", json={"title": "t"})
    assert hidden.content == missing.content


async def test_installation_token_is_nobody(forge: Forge) -> None:
    forge.state.add_account("helper[bot]", "Bot")
    forge.state.grant_token("ghs_x", "helper[bot]")
    bot = client(forge, "ghs_x")
    answer = await bot.get("/user")
    assert (answer.status_code, answer.json()["message"]) == (403, "Resource not accessible by integration")
    made = (await bot.post(ISSUES, json={"title": "t"})).json()
    assert (made["user"]["login"], made["user"]["type"]) == ("helper[bot]", "Bot")
    assert made["performed_via_github_app"]["slug"] == "helper"


async def test_archived_repository_is_read_only(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.repo("acme/site").archived = True
    for method, path in (("POST", ISSUES), ("PATCH", f"{ISSUES}/1"), ("POST", COMMENTS), ("POST", LABELS)):
        answer = await author.request(method, path, json={"title": "t", "body": "b", "name": "n"})
        assert (answer.status_code, answer.json()["message"]) == (403, "Repository was archived so is read-only.")
    assert (await author.get(f"{ISSUES}/1")).status_code == 200


async def test_locked_conversation(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.issue("acme/site", 1).locked = True
    answer = await author.post(COMMENTS, json={"body": "b"})
    assert (answer.status_code, answer.json()["message"]) == (403, "Unable to create comment because issue is locked.")


async def test_disabled_issues_leave_pull_requests(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.repo("acme/site").has_issues = False
    for method, path in (("GET", ISSUES), ("POST", ISSUES), ("GET", f"{ISSUES}/1"), ("POST", COMMENTS)):
        answer = await author.request(method, path, json={"title": "t", "body": "b"})
        assert (answer.status_code, answer.json()["message"]) == (410, "Issues are disabled for this repo")
    assert (await author.get(f"{ISSUES}/3")).status_code == 200
    assert (await author.post(f"{ISSUES}/3/comments", json={"body": "b"})).status_code == 201


async def test_deleted_issue(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.issue("acme/site", 1).deleted = True
    for path in (f"{ISSUES}/1", COMMENTS):
        answer = await author.get(path)
        assert (answer.status_code, answer.json()["message"]) == (410, "This issue was deleted")
    assert (await author.get(f"{ISSUES}/comments/9000001")).status_code == 404
    assert [each["number"] for each in (await author.get(ISSUES)).json()] == [3, 2]


async def test_transferred_issue_redirects_but_not_what_lies_below(
    forge: Forge, author: httpx.AsyncClient, outsider: httpx.AsyncClient
) -> None:
    moved = forge.state.transfer_issue("acme/site", 1, "acme/vault")
    place = f"http://forge.test/repositories/{moved.repo_id}/issues/{moved.number}"
    read = await author.get(f"{ISSUES}/1")
    assert (read.status_code, read.headers["location"]) == (301, place)
    assert read.json()["url"] == place
    assert (await author.patch(f"{ISSUES}/1", json={"title": "t"})).status_code == 307
    assert (await author.get(COMMENTS)).status_code == 404
    assert (await author.post(COMMENTS, json={"body": "b"})).status_code == 404
    assert (await outsider.get(f"{ISSUES}/1")).status_code == 404
    assert (await author.get(place)).json()["repository_url"].endswith("/acme/vault")


async def test_renamed_repository_redirects_reads_and_writes(forge: Forge, author: httpx.AsyncClient) -> None:
    repo = forge.state.rename_repo("acme/site", "home")
    read = await author.get("/repos/Acme/Site/issues?state=all&page=1")
    write = await author.post(ISSUES, json={"title": "t"})
    place = f"http://forge.test/repositories/{repo.id}/issues"
    assert (read.status_code, read.headers["location"]) == (301, f"{place}?state=all&page=1")
    assert (write.status_code, write.headers["location"]) == (307, place)
    assert set(write.json()) == {"message", "url", "documentation_url"}
    assert write.json()["message"] == "Moved Permanently"
    again = await author.post(place, json={"title": "t"})
    assert (again.status_code, again.json()["repository_url"]) == (201, "http://forge.test/repos/acme/home")
    forge.state.add_repo("acme", "site")
    assert (await author.get("/repos/acme/site")).json()["id"] != repo.id


async def test_moved_repository_has_another_owner(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.rename_repo("acme/site", "forge-author/site")
    assert (await author.get("/repos/acme/site")).status_code == 301
    shown = (await author.get("/repos/forge-author/site")).json()
    assert (shown["full_name"], shown["permissions"]["admin"]) == ("forge-author/site", True)
    assert "organization" not in shown


async def test_edits_need_the_author_or_push_access(
    forge: Forge, author: httpx.AsyncClient, outsider: httpx.AsyncClient
) -> None:
    assert (await outsider.patch(f"{ISSUES}/1", json={"title": "mine"})).status_code == 403
    own = await outsider.patch(f"{ISSUES}/2", json={"title": "mine", "labels": ["docs", "x"], "body": None})
    assert (own.status_code, own.json()["title"]) == (200, "mine")
    assert [label["name"] for label in own.json()["labels"]] == ["docs"]
    changed = (await author.patch(f"{ISSUES}/2", json={"labels": ["x"], "assignees": ["forge-author"]})).json()
    assert [label["name"] for label in changed["labels"]] == ["x"]
    assert changed["assignee"]["login"] == "forge-author"
    assert changed["title"] == "mine"
    refused = await outsider.post(f"{ISSUES}/2/labels", json={"labels": ["x"]})
    assert (refused.status_code, refused.json()["message"]) == (403, "Must have admin rights to Repository.")
    assert (await outsider.post(LABELS, json={"name": "mine"})).status_code == 404


async def test_closing_and_opening(author: httpx.AsyncClient) -> None:
    closed = (await author.patch(f"{ISSUES}/1", json={"state": "closed", "state_reason": "not_planned"})).json()
    assert (closed["state"], closed["state_reason"], closed["closed_by"]["login"]) == (
        "closed",
        "not_planned",
        "forge-author",
    )
    assert closed["closed_at"]
    opened = (await author.patch(f"{ISSUES}/1", json={"state": "open"})).json()
    assert (opened["state"], opened["state_reason"], opened["closed_by"]) == ("open", "reopened", None)


async def test_oversized_request_is_refused_before_it_is_kept(forge: Forge, author: httpx.AsyncClient) -> None:
    answer = await author.post(ISSUES, content=b" " * (REQUEST_MAX_BYTES + 1))
    assert answer.status_code == 413
    assert forge.log.count() == 0
