"""What is sent is valid against GitHub's own OpenAPI document, and what GitHub is known to answer translates."""

import json
from typing import Any

import httpx
import jsonschema
import pytest

from compass_forged.errors import BadCredentials, ForgeError, ForgeStatus, RateLimited
from compass_forged.providers.caller import ForgeAnswer
from compass_forged.providers.github_dialect import GitHubDialect, detail_of
from compass_forged.providers.github_issues import ListPosition, read_issue_page, write_cursor
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.wire.schema import CommentOnIssue, CreateIssue, ForgeRef, GetIssue, ListIssues
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


@needs_shared
@pytest.mark.parametrize("example", [item for item in examples() if item.id.startswith("issues-page-")])
def test_every_known_page_translates(example: dict[str, Any]) -> None:
    repo = "octokit-fixture-org/paginate-issues"
    told = ForgeAnswer(200, example["headers"], json.dumps(example["body"]).encode())
    page = read_issue_page(told, ListIssues(repo=repo), ForgeRef(provider="github", host="github.com"), ListPosition())
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
