"""Replays of the cases about Linear, and about errors in GraphQL's shape. On a clock that jumps."""

import json
from typing import Any

import httpx
import structlog.testing
import trio

from compass_forged import owner
from compass_forged.emulator.linear_state import Authorship
from compass_forged.emulator.script import Rule
from compass_forged.errors import StoreUnavailable
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    ErrorResult,
    GetIssue,
    IssueCommentResult,
    ListIssues,
)
from tests.emulator.inprocess import ForgeTransport
from tests.support.cases import Case
from tests.support.forge_http import Handler, answer
from tests.support.linear import (
    API_KEY,
    TEAM_ID,
    TOKEN,
    LinearDesk,
    graphql,
    issues_answer,
    new_forge,
    on_forge,
    scripted,
    sent,
    team_answer,
)
from tests.support.service import error_of, issue_of, page_of, raising

CREATE = CreateIssue(repo="ENG", title="t", body="The words.")
READ = GetIssue(repo="ENG", issue_number=1)
COMMENT = CommentOnIssue(repo="ENG", issue_number=1, body="A remark.")
LISTING = ListIssues(repo="ENG")
HOUR_MS = 3_600_000
PLACE = {"id": "i-1", "identifier": "ENG-1", "team": {"id": TEAM_ID, "key": "ENG"}}


def told(reply: dict[str, Any]) -> httpx.Response:
    """A case's scripted reply, to a request to any host."""
    body = reply["body"]
    content = body.encode() if isinstance(body, str) else body
    return answer(reply["status"], content, reply["headers"])


def over_forge(**options: Any) -> LinearDesk:
    forge = new_forge()
    return LinearDesk(on_forge(forge, **options), forge)


async def refused(arm: Arm, *script: Any, key: str = "", **options: Any) -> tuple[ErrorResult, list[httpx.Request]]:
    """What a call is refused with, and the requests that it cost."""
    provider, forge = scripted(*script, **options)
    error = error_of(await LinearDesk(provider).ask(arm, key))
    return error, forge.requests


# --- limits ---------------------------------------------------------------------------------------------------------


async def limited_at_the_look_up(case: Case) -> None:
    error, requests = await refused(CREATE, told(case.input["forge"][0]))
    assert (error.code, error.outcome, len(requests)) == ("resource_exhausted", "not_sent", 1)
    assert 0 < error.retry_after_ms <= HOUR_MS


async def limited_by_a_page(case: Case) -> None:
    error, _ = await refused(LISTING, team_answer(), told(case.input["forge"][0]))
    assert error.code == "resource_exhausted"
    assert 0 < error.retry_after_ms <= HOUR_MS
    assert "html" not in error.message.lower()


async def limited_in_milliseconds(case: Case) -> None:
    wall_clock = case.input["now_ms"] / 1000
    error, _ = await refused(
        COMMENT, team_answer(), issues_answer(PLACE), told(case.input["forge"][0]), wall_clock=wall_clock
    )
    assert (error.code, error.outcome) == ("resource_exhausted", "rejected")
    assert 59_000 <= error.retry_after_ms <= 62_000


async def limited_until_nobody_knows(case: Case) -> None:
    forms: dict[str, dict[str, str]] = {
        "no retry-after, no reset headers": {},
        "retry-after: ''": {"retry-after": ""},
        "retry-after: 'abc'": {"retry-after": "abc"},
        "reset header in the past": {
            "x-ratelimit-requests-remaining": "0",
            "x-ratelimit-requests-reset": "1600000000000",
        },
    }
    assert set(case.input["variants"]) == forms.keys()
    for headers in (*forms.values(), {"retry-after": "NaN"}, {"retry-after": "1e9"}):
        reply = {**case.input["forge"][0], "headers": headers}
        error, requests = await refused(LISTING, team_answer(), told(reply))
        assert (error.code, len(requests)) == ("resource_exhausted", 2)
        assert 1000 <= error.retry_after_ms <= HOUR_MS


async def empty_comments_cost_nothing(_case: Case) -> None:
    desk = over_forge()
    header = "> `compass:owner agent=scout owner=ada session=s-1`"
    for body in ("", "  \n\t", "\u200b\u2060\ufeff", header, f"{header}\n\n{header}\n"):
        error = error_of(await desk.ask(CommentOnIssue(repo="ENG", issue_number=1, body=body)))
        assert (error.code, error.outcome) == ("invalid_argument", "not_sent")
    assert desk.forge.log.count() == 0


# --- errors ---------------------------------------------------------------------------------------------------------


async def bare_words(case: Case) -> None:
    reply = case.input["forge"][0]
    error, requests = await refused(READ, team_answer(), *(told(reply) for _ in range(3)))
    assert (error.code, len(requests)) == ("unavailable", 4)  # the team, and three tries
    error, requests = await refused(CREATE, team_answer(), told(reply), issues_answer(), issues_answer())
    assert (error.code, error.outcome) == ("unavailable", "unknown")
    operations = [json.loads(request.content)["operationName"] for request in requests]
    assert operations == ["TeamByKey", "IssueCreate", "IssueById", "IssueById"]


async def our_queries_are_cheap(case: Case) -> None:
    desk = over_forge()
    for arm in (READ, ListIssues(repo="ENG", limit=100), CREATE):
        await desk.ask(arm)
    assert all(entry.status == 200 for entry in desk.forge.log.find())
    nested = "{ issues { nodes { comments { nodes { id issue { labels { nodes { id } } } } } } } }"
    async with _client(desk) as http:
        dear = (await http.post("/graphql", json={"query": nested})).json()
    assert dear["errors"][0]["message"] == case.input["forge"][0]["body"]["errors"][0]["message"]
    error, requests = await refused(READ, team_answer(), told(case.input["forge"][0]))
    assert (error.code, len(requests)) == ("internal", 2)


def _client(desk: LinearDesk) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(transport=ForgeTransport(desk.forge), base_url="https://api.linear.app", headers=headers)


async def our_faults_are_internal(case: Case) -> None:
    reply = case.input["forge"][0]
    words = reply["body"]["errors"][0]["message"]
    for arm, before in ((CREATE, [team_answer()]), (LISTING, [team_answer()]), (READ, [])):
        with structlog.testing.capture_logs() as logs:
            error, requests = await refused(arm, *before, told(reply))
        assert (error.code, error.outcome) == ("internal", "rejected" if arm is CREATE else "")
        assert len(requests) == len(before) + 1  # not tried again
        assert words in error.message
        assert any(words in str(line.get("error", "")) for line in logs)


async def keys_are_resolved_first(case: Case) -> None:
    desk = over_forge()
    assert issue_of(await desk.ask(CREATE)).number == 2
    (entry,) = desk.forge.log.find("POST", "/graphql/IssueCreate")
    assert entry.body["variables"]["input"]["teamId"] == desk.forge.state.team("ENG").id
    error, _ = await refused(CREATE, team_answer(), told(case.input["forge"][0]))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert "teamId must be a UUID" in error.message


async def refused_values_are_named(case: Case) -> None:
    error, _ = await refused(CREATE, team_answer(), told(case.input["forge"][0]))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert "stateId must be a UUID" in error.message


async def missing_is_missing(case: Case) -> None:
    messages = set()
    for reply in case.input["variants"]:
        error, _ = await refused(GetIssue(repo="ENG", issue_number=99999), team_answer(), issues_answer(), told(reply))
        assert error.code == "not_found"
        messages.add(error.message)
    assert len(messages) == 1


async def success_decides(case: Case) -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        payload = dict(case.input["forge"][0]["body"]["data"]["issueUpdate"])
        payload["issue"] = {**payload["issue"], "id": sent(request)["input"]["id"], "team": {"id": TEAM_ID}}
        return graphql({"issueCreate": payload})

    error, _ = await refused(CREATE, team_answer(), handler, issues_answer(), issues_answer())
    assert (error.code, error.outcome) == ("internal", "unknown")


async def errors_before_emptiness(case: Case) -> None:
    failed, forbidden, nothing = case.input["variants"]

    def listed(reply: dict[str, Any]) -> httpx.Response:
        body = {**reply["body"], "data": {"issues": None}}
        return told({**reply, "body": body})

    error, _ = await refused(READ, team_answer(), *(listed(failed) for _ in range(3)))
    assert error.code == "unavailable"
    error, _ = await refused(READ, team_answer(), listed(forbidden))
    assert error.code == "not_found"
    none_of_it, _ = await refused(READ, team_answer(), issues_answer(), told(nothing))
    assert none_of_it.code == "internal"  # the schema has no such answer: null comes with an error
    missing, _ = await refused(READ, team_answer(), issues_answer(), told(_entity_not_found()))
    assert (missing.code, missing.message) == ("not_found", error.message)


def _entity_not_found() -> dict[str, Any]:
    error = {"message": "Entity not found: Issue", "extensions": {"code": "INPUT_ERROR", "type": "invalid input"}}
    return {"status": 200, "headers": {}, "body": {"data": None, "errors": [error]}}


# --- credentials ----------------------------------------------------------------------------------------------------


async def forms_of_tokens(case: Case) -> None:
    for token in (API_KEY, TOKEN):
        for bearer in (False, True):
            assert issue_of(await over_forge(token=token, bearer=bearer).ask(READ)).number == 1
    secret = "lin_api_a-key-that-nobody-knows-0001"
    with structlog.testing.capture_logs() as logs:
        error, requests = await refused(READ, *(told(case.input["forge"][0]) for _ in range(2)), token=secret)
    assert (error.code, len(requests)) == ("failed_precondition", 2)
    assert secret not in error.message
    assert secret not in json.dumps(logs)
    assert {request.headers["authorization"] for request in requests} == {secret}


async def statuses_are_told_apart(case: Case) -> None:
    html = {"content-type": "text/html"}
    error = {"message": "no", "extensions": {"code": "INPUT_ERROR"}}
    forms: dict[str, tuple[list[Handler | httpx.Response], str]] = {
        "400 INPUT_ERROR": ([answer(400, {"errors": [error]})], "invalid_argument"),
        "404 HTML": ([answer(404, b"<html>", html), *(answer(404, b"<html>", html) for _ in range(2))], "unavailable"),
        "413 payload too large (HTML)": ([answer(413, b"<html>", html)], "invalid_argument"),
        "422 JSON": ([answer(422, {"errors": [error]})], "invalid_argument"),
        "401 AUTHENTICATION_ERROR": ([answer(401, {}), answer(401, {})], "failed_precondition"),
        "403 FORBIDDEN": ([answer(403, {"errors": [{"extensions": {"code": "FORBIDDEN"}}]})], "not_found"),
    }
    assert set(case.input["variants"]) == forms.keys()
    for script, code in forms.values():
        refusal, _ = await refused(READ, team_answer(), *script)
        assert refusal.code == code
        assert "html" not in refusal.message


# --- what may be missing --------------------------------------------------------------------------------------------


async def empty_texts(case: Case) -> None:
    issue = case.input["forge"][0]["body"]["data"]["issue"]
    node = {**issue, "team": {"id": TEAM_ID, "key": "ENG"}}
    provider, forge = scripted(team_answer(), issues_answer(node))
    read = issue_of(await LinearDesk(provider).ask(READ))
    assert (read.title, read.body) == ("t", "")
    assert "documentContent" not in json.loads(forge.requests[1].content)["query"]


async def nulls_in_rows(case: Case) -> None:
    provider, _ = scripted(team_answer(), told(case.input["forge"][0]))
    page = page_of(await LinearDesk(provider).ask(LISTING))
    nodes = case.input["forge"][0]["body"]["data"]["issues"]["nodes"]
    assert [issue.title for issue in page.items] == [node["title"] for node in nodes]
    assert all(issue.author is not None and issue.author.login == "ghost" for issue in page.items)
    assert not page.warnings


async def comments_of_nobody(case: Case) -> None:
    issue = case.input["forge"][0]["body"]["data"]["issue"]
    node = {**issue, "team": {"id": TEAM_ID, "key": "BRA"}}
    provider, _ = scripted(team_answer("BRA"), issues_answer(node))
    read = issue_of(await LinearDesk(provider).ask(GetIssue(repo="BRA", issue_number=71)))
    (comment,) = read.comments
    assert comment.author.login == "ghost"
    assert comment.body == issue["comments"]["nodes"][0]["body"]
    assert comment.created_at == "2025-12-28T12:13:47.400000Z"


async def keys_with_digits(case: Case) -> None:
    identifier = case.input["forge"][0]["body"]["data"]["issue"]["identifier"]
    key, _, number = identifier.partition("-")
    for repo in (key, key.lower()):
        node = {"id": "u", "identifier": identifier, "title": "t", "team": {"id": TEAM_ID, "key": key}}
        provider, _ = scripted(team_answer(key), issues_answer(node))
        read = issue_of(await LinearDesk(provider).ask(GetIssue(repo=repo, issue_number=int(number))))
        assert (read.repo, read.number) == (key, int(number))
    error, requests = await refused(GetIssue(repo=f" {key} ", issue_number=1))
    assert (error.code, requests) == ("invalid_argument", [])


async def no_silent_fifty(_case: Case) -> None:
    desk = over_forge()
    team = desk.forge.state.team("OPS")
    for number in range(120):
        desk.forge.state.add_issue(team, Authorship(external="someone"), f"Issue {number}")
    first = page_of(await desk.ask(ListIssues(repo="OPS", limit=120)))
    rest = page_of(await desk.ask(ListIssues(repo="OPS", limit=120, cursor=first.next_cursor)))
    numbers = [issue.number for issue in (*first.items, *rest.items)]
    assert numbers == list(range(120, 0, -1))
    assert (len(first.items), rest.next_cursor) == (100, "")


async def order_is_linears(_case: Case) -> None:
    nodes = [
        {"id": f"u{n}", "identifier": f"ENG-{n}", "createdAt": created, "updatedAt": updated}
        for n, created, updated in (
            (3, "2031-01-01T00:00:00.000Z", "2026-05-04T03:03:31.000Z"),
            (1, "2020-01-01T00:00:00.000Z", "2031-01-01T00:00:00.000Z"),
            (2, "2026-05-04T03:02:01.000Z", "2020-01-01T00:00:00.000Z"),
        )
    ]
    pages = [issues_answer(node, hasNextPage=index < 2, endCursor=f"c{index}") for index, node in enumerate(nodes)]
    provider, _ = scripted(team_answer(), *pages)
    desk, numbers, cursor = LinearDesk(provider), [], ""
    while True:
        page = page_of(await desk.ask(ListIssues(repo="ENG", limit=1, cursor=cursor)))
        numbers += [issue.number for issue in page.items]
        if not (cursor := page.next_cursor):
            break
    assert numbers == [3, 1, 2]


# --- once -----------------------------------------------------------------------------------------------------------


async def records_that_are_lost(case: Case) -> None:
    desk = over_forge()
    key = case.input["client_request_id"]
    desk.store.hooks["record"].extend(raising(StoreUnavailable("away")) for _ in range(50))
    with structlog.testing.capture_logs() as logs:
        first = issue_of(await desk.ask(CREATE, key))
    assert any(line["event"] == "artifact could not be recorded" for line in logs)
    assert first.attribution is not None
    assert not first.attribution.verified
    desk.store.hooks.clear()
    desk.restart()
    again = issue_of(await desk.ask(CREATE, key))
    assert (again.number, again.replayed) == (first.number, True)
    assert len(desk.forge.state.titled("t")) == 1


async def a_write_is_not_repeated(case: Case) -> None:
    desk = over_forge()
    reply = case.input["forge"][0]
    desk.forge.script.add(Rule(path="/graphql/CommentCreate", commit=True, status=reply["status"], body=reply["body"]))
    result = await desk.ask(COMMENT, case.input["client_request_id"])
    assert isinstance(result, IssueCommentResult)
    comments = desk.forge.state.comments_of(desk.forge.state.issue("ENG-1"))
    assert [comment.id for comment in comments[1:]] == [result.comment.comment_id]
    assert desk.asked("CommentCreate") == 1


async def texts_pass_unchanged(_case: Case) -> None:
    desk = over_forge()
    body = "As they said: https://linear.app/acme/profiles/someone"
    await desk.ask(CommentOnIssue(repo="ENG", issue_number=1, body=body))
    held = desk.forge.state.comments_of(desk.forge.state.issue("ENG-1"))[-1].body
    assert owner.strip(held) == body
