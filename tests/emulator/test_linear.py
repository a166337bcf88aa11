"""The Linear half of the bundled forge: as strict as Linear, and scripted like the other half."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.emulator.asgi import ConnectionDropped
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_complexity import FIRST_DEFAULT
from compass_forged.emulator.linear_limits import LinearLimitSettings
from compass_forged.emulator.linear_markdown import rewritten
from compass_forged.emulator.linear_seed import default_linear_seed
from compass_forged.emulator.linear_state import Authorship
from compass_forged.emulator.script import Rule
from compass_forged.emulator.state import UnknownName
from tests.emulator.inprocess import START, ForgeTransport, Hand

APP_TOKEN = "lin_oauth_app-0001"
KEY = "lin_api_mona-0001"
READER = "lin_oauth_reader-0001"
CONTROL = "control-token"
ISSUE = (
    "mutation A($input: IssueCreateInput!) { issueCreate(input: $input) { success issue { "
    "id identifier labels(first: 9) { nodes { name } } } } }"
)
COMMENT = "mutation A($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id body url } } }"
OWN_ID = "5f0c2d3e-0000-4000-8000-000000000001"


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def forge(clock: Hand) -> LinearForge:
    seed = default_linear_seed(APP_TOKEN)
    seed["tokens"] += [
        {"token": KEY, "user": "Mona & Co"},
        {"token": READER, "user": "Mona & Co", "oauth": True, "writes": False},
    ]
    seed["labels"].append({"name": "ops only", "team": "OPS"})
    seed["issues"].append({"team": "OPS", "title": "Done", "author": "Mona & Co", "state": "completed"})
    settings = LinearSettings(
        limits=LinearLimitSettings(requests=100, points=50_000),
        clients={"client": ("secret", "compass")},
        control_token=CONTROL,
    )
    return LinearForge(seed, settings=settings, clock=clock)


class Caller:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(self, query: str, token: str = f"Bearer {APP_TOKEN}", **variables: Any) -> httpx.Response:
        headers = {"authorization": token} if token else {}
        body = {"query": query, "variables": variables}
        return await self.http.post("/graphql", json=body, headers=headers)

    async def data(self, query: str, **variables: Any) -> Any:
        answer = await self.post(query, **variables)
        assert answer.status_code == 200, answer.text
        assert "errors" not in answer.json(), answer.text
        return answer.json()["data"]

    async def refusal(self, query: str, token: str = f"Bearer {APP_TOKEN}", **variables: Any) -> tuple[int, str, str]:
        """(status, code, message) of the one error."""
        answer = await self.post(query, token, **variables)
        (error,) = answer.json()["errors"]
        return answer.status_code, error["extensions"]["code"], error["message"]


@pytest.fixture
async def caller(forge: LinearForge) -> AsyncIterator[Caller]:
    async with httpx.AsyncClient(transport=ForgeTransport(forge), base_url="http://forge.test") as http:
        yield Caller(http)


# --- credentials ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        ("", 401, "Authentication required"),
        ("Bearer unknown", 401, "Authentication required"),
        ("unknown", 401, "Authentication required"),
        (APP_TOKEN, 401, "Authentication required"),
        (f"Bearer {KEY}", 400, "Remove the Bearer prefix"),
    ],
)
async def test_a_token_in_the_wrong_form_is_refused(caller: Caller, token: str, status: int, words: str) -> None:
    refused = await caller.refusal("{ viewer { id } }", token)
    assert refused[:2] == (status, "AUTHENTICATION_ERROR")
    assert words in refused[2]


async def test_each_token_acts_as_its_user(caller: Caller) -> None:
    people = {}
    for token in (KEY, f"Bearer {APP_TOKEN}", f"Bearer {READER}"):
        viewer = (await caller.post("{ viewer { name app } organization { urlKey } }", token)).json()["data"]
        people[token] = (viewer["viewer"]["name"], viewer["viewer"]["app"])
    assert list(people.values()) == [("Mona &amp; Co", False), ("compass", True), ("Mona &amp; Co", False)]


async def test_an_application_buys_tokens_and_loses_them_when_it_asks_for_other_scopes(
    caller: Caller, forge: LinearForge
) -> None:
    async def buy(secret: str = "secret", **form: str) -> httpx.Response:
        pair = base64.b64encode(f"client:{secret}".encode()).decode()
        given = {"grant_type": "client_credentials", "scope": "read,write", **form}
        return await caller.http.post("/oauth/token", data=given, headers={"authorization": f"Basic {pair}"})

    first = (await buy()).json()
    second = (await buy()).json()
    assert (first["token_type"], first["expires_in"]) == ("Bearer", 2_591_999)
    assert {first["access_token"], second["access_token"]} <= set(forge.state.tokens)
    third = (await buy(scope="read")).json()
    assert set(forge.state.tokens) & {first["access_token"], second["access_token"]} == set()
    team = forge.state.team("ENG").id
    refused = await caller.refusal(ISSUE, f"Bearer {third['access_token']}", input={"teamId": team, "title": "t"})
    assert refused == (400, "FORBIDDEN", "Invalid scope: `write` required")
    assert (await buy("wrong")).status_code == 401
    assert (await buy(grant_type="password")).json() == {"error": "unsupported_grant_type"}
    nonsense = await caller.http.post("/oauth/token", headers={"authorization": "Basic ###"})
    assert nonsense.status_code == 401
    assert all(entry.body is None for entry in forge.log.find("POST", "/oauth/token"))


# --- documents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("{ viewer { nonsense } }", "Cannot query field 'nonsense'"),
        ("{ viewer { id }", "Syntax Error"),
        ("query A($n: Int!) { issues(filter: {number: {eq: $n}}, first: 1) { nodes { id } } }", "type 'Int!'"),
    ],
)
async def test_a_document_that_does_not_fit_the_schema_is_refused(caller: Caller, query: str, words: str) -> None:
    status, code, message = await caller.refusal(query)
    assert (status, code) == (400, "GRAPHQL_VALIDATION_FAILED")
    assert words in message


async def test_a_body_that_is_no_query_is_refused(caller: Caller) -> None:
    for content in (b"", b"[]", b"{", b'{"query": 7}', b"[" * 100_000):
        answer = await caller.http.post("/graphql", content=content, headers={"authorization": f"Bearer {APP_TOKEN}"})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["extensions"]["code"] == "GRAPHQL_VALIDATION_FAILED"


async def test_other_paths_and_methods_are_not_there(caller: Caller) -> None:
    assert (await caller.http.get("/graphql")).status_code == 404
    assert (await caller.http.post("/rest", json={})).status_code == 404
    assert (await caller.http.post("/graphql", content=b" " * (8 << 20) + b"  ")).status_code == 413


async def test_a_query_costs_what_the_published_rule_says(caller: Caller) -> None:
    for query, points in (
        ("{ viewer { id name } }", 1.2),
        ("{ teams(first: 10) { nodes { id defaultIssueState { id } } pageInfo { endCursor } } }", 10 * 2.2 + 1.1),
        ("{ teams { nodes { ... on Team { id } } } }", FIRST_DEFAULT * 1.1),
        ("query A($n: Int) { teams(first: $n) { nodes { id } } }", FIRST_DEFAULT * 1.1),
    ):
        answer = await caller.post(query)
        assert float(answer.headers["x-complexity"]) == pytest.approx(points)


async def test_nested_pages_without_a_size_are_too_complex(caller: Caller, forge: LinearForge) -> None:
    query = "{ issues { nodes { comments { nodes { issue { labels { nodes { id } } } } } } } }"
    status, code, message = await caller.refusal(query)
    assert (status, code, message) == (400, "INPUT_ERROR", "Query too complex")
    assert await caller.data("{ issues(first: 1) { nodes { identifier } } }")
    assert forge.state.commits == {}


@pytest.mark.parametrize("first", [0, 251])
async def test_a_page_has_a_size(caller: Caller, first: int) -> None:
    refused = await caller.refusal("query A($n: Int) { teams(first: $n) { nodes { id } } }", n=first)
    assert refused[1] == "INVALID_INPUT"


async def test_pages_are_walked_by_cursor_and_a_foreign_cursor_is_refused(caller: Caller) -> None:
    query = (
        "query A($after: String) { teams(first: 1, after: $after) { nodes { key } "
        "pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }"
    )
    first = (await caller.data(query))["teams"]
    second = (await caller.data(query, after=first["pageInfo"]["endCursor"]))["teams"]
    assert [page["nodes"][0]["key"] for page in (first, second)] == ["ENG", "OPS"]
    assert [page["pageInfo"]["hasNextPage"] for page in (first, second)] == [True, False]  # SEC is not seen
    assert second["pageInfo"]["hasPreviousPage"]
    assert (await caller.refusal(query, after="nonsense"))[1] == "INPUT_ERROR"


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_both_limits_are_told_and_kept_and_end_with_their_hour(
    caller: Caller, forge: LinearForge, clock: Hand
) -> None:
    answer = await caller.post("{ viewer { id } }")
    assert answer.headers["x-ratelimit-requests-remaining"] == "99"
    assert answer.headers["x-ratelimit-complexity-limit"] == "50000"
    assert answer.headers["x-ratelimit-complexity-reset"] == str(int(START.timestamp() + 3600) * 1000)
    user = forge.state.user("compass").id
    for left in ({"requests": 0}, {"points": 0}):
        forge.limits.set_remaining(user, clock.now, **{"requests": 50, "points": 50, **left})
        assert (await caller.refusal("{ viewer { id } }"))[:2] == (400, "RATELIMITED")
    clock.now = clock.now.replace(hour=clock.now.hour + 2)
    assert (await caller.post("{ viewer { id } }")).status_code == 200


# --- creates --------------------------------------------------------------------------------------------------------


async def test_an_id_of_the_clients_is_taken_once(caller: Caller, forge: LinearForge) -> None:
    given = {"id": OWN_ID, "teamId": forge.state.team("ENG").id, "title": "t"}
    made = await caller.data(ISSUE, input=given)
    assert made["issueCreate"]["issue"] == {"id": OWN_ID, "identifier": "ENG-2", "labels": {"nodes": []}}
    assert await caller.refusal(ISSUE, input=given) == (
        400,
        "INPUT_ERROR",
        f"Entity Issue with id {OWN_ID} already exists",
    )
    on_it = {"id": OWN_ID, "issueId": "ENG-2", "body": "- one"}
    comment = (await caller.data(COMMENT, input=on_it))["commentCreate"]["comment"]
    assert (comment["id"], comment["body"]) == (OWN_ID, "* one")
    assert (await caller.refusal(COMMENT, input=on_it))[2] == f"Entity Comment with id {OWN_ID} already exists"
    assert forge.state.commits == {"issue": 1, "comment": 1}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"teamId": "ENG"}, "INVALID_INPUT", "Argument Validation Error"),
        ({"teamId": OWN_ID}, "INPUT_ERROR", "Entity not found: Team"),
        ({"teamId": "SEC"}, "INPUT_ERROR", "Entity not found: Team"),
        ({"id": "seven"}, "INVALID_INPUT", "Argument Validation Error"),
        ({"title": "  "}, "INVALID_INPUT", "Argument Validation Error"),
        ({"labelIds": [OWN_ID]}, "INPUT_ERROR", "Entity not found: IssueLabel"),
        ({"labelIds": ["area"]}, "INPUT_ERROR", "Cannot apply a label group"),
        ({"labelIds": ["web", "api"]}, "INPUT_ERROR", "not exclusive child labels"),
        ({"labelIds": ["ops only"]}, "INPUT_ERROR", "of another team"),
        ({"displayIconUrl": "https://x.example/i.png"}, "INPUT_ERROR", "only be used together"),
    ],
)
async def test_a_create_that_linear_would_refuse_is_refused_and_leaves_nothing(
    caller: Caller, forge: LinearForge, change: dict[str, Any], code: str, words: str
) -> None:
    labels = {label.name: label.id for label in forge.state.labels.values()}
    given = {"teamId": forge.state.team("ENG").id, "title": "t", **change}
    given["labelIds"] = [labels.get(name, name) for name in given.get("labelIds", ())]
    if given["teamId"] == "SEC":
        given["teamId"] = forge.state.team("SEC").id
    refused = await caller.refusal(ISSUE, input=given)
    assert refused[1] == code
    assert words in refused[2]
    assert forge.state.commits == {}


async def test_a_retired_team_and_a_name_that_may_not_be_chosen_are_refused(
    caller: Caller, forge: LinearForge, clock: Hand
) -> None:
    ops = forge.state.team("OPS")
    ops.retired_at = clock.now
    assert "retired" in (await caller.refusal(ISSUE, input={"teamId": ops.id, "title": "t"}))[2]
    named = {"teamId": forge.state.team("ENG").id, "title": "t", "createAsUser": "Someone"}
    assert "actor=app" in (await caller.refusal(ISSUE, KEY, input=named))[2]
    assert (await caller.data(ISSUE, input=named))["issueCreate"]["success"]


@pytest.mark.parametrize(
    "given",
    [
        {"issueId": "ENG-99", "body": "b"},
        {"issueId": "SEC-1", "body": "b"},
        {"issueId": "OPS-1", "body": "b"},
        {"issueId": "ENG-1", "body": " "},
        {"body": "b"},
    ],
)
async def test_a_comment_needs_an_issue_that_is_seen_and_something_to_say(
    caller: Caller, forge: LinearForge, given: dict[str, Any]
) -> None:
    forge.state.archive("OPS-1", trash=True)
    assert (await caller.refusal(COMMENT, input=given))[0] == 400
    assert forge.state.commits == {}


# --- reads ----------------------------------------------------------------------------------------------------------


async def test_one_thing_is_read_by_its_id_or_identifier_also_a_former_one(caller: Caller, forge: LinearForge) -> None:
    forge.state.move_issue("ENG-1", "OPS")
    query = "query A($id: String!) { issue(id: $id) { identifier previousIdentifiers team { key } priority number } }"
    for wanted in ("ENG-1", "OPS-2", "ops-2", forge.state.issue("OPS-2").id):
        issue = (await caller.data(query, id=wanted))["issue"]
        assert (issue["identifier"], issue["previousIdentifiers"]) == ("OPS-2", ["ENG-1"])
    assert (await caller.refusal(query, id="SEC-1"))[2] == "Entity not found: Issue"
    team = "query A($id: String!) { team(id: $id) { key retiredAt triageIssueState { type } } }"
    assert (await caller.data(team, id=forge.state.team("ENG").id))["team"]["key"] == "ENG"
    assert (await caller.refusal(team, id=forge.state.team("SEC").id))[2] == "Entity not found: Team"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"team": {"key": {"eq": "ENG"}}}, {"ENG-1"}),
        ({"team": {"key": {"eq": "eng"}}}, set()),
        ({"team": {"key": {"eqIgnoreCase": "eng"}}}, {"ENG-1"}),
        ({"team": {"key": {"in": ["OPS", "SEC"]}}}, {"OPS-1"}),
        ({"number": {"eq": 1.0}, "title": {"neq": "Done"}}, {"ENG-1"}),
        ({"state": {"type": {"nin": ["completed"]}}}, {"ENG-1"}),
        ({"or": [{"title": {"eq": "Done"}}, {"number": {"eq": 7.0}}]}, {"OPS-1"}),
        ({"and": [{"title": {"eq": "Done"}}, {"number": {"eq": 7.0}}]}, set()),
        ({"labels": {"some": {"name": {"eq": "R&D"}}}}, {"ENG-1"}),
        ({"labels": {"every": {"name": {"eq": "R&D"}}}}, {"ENG-1", "OPS-1"}),
        ({"title": None}, {"ENG-1", "OPS-1"}),
    ],
)
async def test_filters_mean_what_they_say(caller: Caller, wanted: dict[str, Any], found: set[str]) -> None:
    query = "query A($f: IssueFilter) { issues(filter: $f, first: 9, includeArchived: true) { nodes { identifier } } }"
    issues = (await caller.data(query, f=wanted))["issues"]["nodes"]
    assert {issue["identifier"] for issue in issues} == found


async def test_labels_are_of_a_team_or_of_the_workspace(caller: Caller) -> None:
    query = (
        "query A($f: IssueLabelFilter) { issueLabels(filter: $f, first: 50) { "
        "nodes { name isGroup parent { name } team { key } } } }"
    )
    shared = (await caller.data(query, f={"team": {"null": True}}))["issueLabels"]["nodes"]
    own = (await caller.data(query, f={"team": {"key": {"eq": "ENG"}}}))["issueLabels"]["nodes"]
    assert {label["name"] for label in shared} == {"bug", "R&amp;D", "area", "web", "api"}
    assert {label["name"] for label in own} == {"Bug"}
    assert next(label for label in shared if label["name"] == "web")["parent"] == {"name": "area"}


async def test_comments_come_newest_first_with_whoever_wrote_them(caller: Caller, forge: LinearForge) -> None:
    issue = forge.state.issue("ENG-1")
    forge.state.add_comment(issue, Authorship(external="ann"), "two")
    forge.state.add_comment(issue, Authorship(bot_name="compass", as_user="Compass"), "three")
    query = (
        "{ comments(first: 9) { nodes { "
        "body user { name } externalUser { name } botActor { name userDisplayName } } } }"
    )
    comments = (await caller.data(query))["comments"]["nodes"]
    assert [comment["body"] for comment in comments] == ["three", "two", "Ten by now."]
    assert comments[0]["botActor"] == {"name": "compass", "userDisplayName": "Compass"}
    assert comments[1]["externalUser"] == {"name": "ann"}
    assert comments[2]["user"] == {"name": "Mona &amp; Co"}


# --- script and control ---------------------------------------------------------------------------------------------


async def test_a_rule_breaks_one_operation(caller: Caller, forge: LinearForge) -> None:
    forge.script.add(
        Rule(path="/graphql/A", status=503, body="busy"),
        Rule(path="/graphql/A", headers={"X-More": "1"}),
        Rule(path="/graphql/A", status=200, body={"data": None}),
    )

    async def ask(name: str) -> httpx.Response:
        body = {"query": f"query {name} {{ viewer {{ id }} }}", "operationName": name}
        return await caller.http.post("/graphql", json=body, headers={"authorization": f"Bearer {APP_TOKEN}"})

    assert (await ask("B")).status_code == 200
    assert (await ask("A")).text == "busy"
    assert (await ask("A")).headers["x-more"] == "1"
    assert (await ask("A")).json() == {"data": None}
    assert [(entry.path, entry.login, entry.scripted) for entry in forge.log.find()] == [
        ("/graphql/B", "compass", False),
        ("/graphql/A", "compass", True),
        ("/graphql/A", "compass", True),
        ("/graphql/A", "compass", True),
    ]
    forge.script.add(Rule(drop=True, commit=True), Rule(truncate=5))
    with pytest.raises(httpx.RemoteProtocolError) as dropped:
        await ask("A")
    assert isinstance(dropped.value.__cause__, ConnectionDropped)
    with pytest.raises(httpx.RemoteProtocolError):
        await ask("A")


async def test_the_control_path_scripts_changes_and_tells(caller: Caller, forge: LinearForge) -> None:
    headers = {"authorization": f"Bearer {CONTROL}"}

    async def control(method: str, path: str, body: Any = None) -> httpx.Response:
        return await caller.http.request(method, f"/_forge/{path}", json=body, headers=headers)

    await caller.data("{ viewer { id } }")
    assert len((await control("GET", "log?path=/graphql/*")).json()["requests"]) == 1
    assert (await control("POST", "script", {"status": 500})).json() == {"pending": 1}
    assert (await control("POST", "script", [{"status": 500}])).json() == {"pending": 2}
    forge.script.clear()
    for change in (
        {"change": "rename_team", "key": "ENG", "to": "CORE"},
        {"change": "set_state", "issue": "CORE-1", "type": "canceled"},
        {"change": "move", "issue": "CORE-1", "to": "OPS"},
        {"change": "archive", "issue": "OPS-1"},
        {"change": "trash", "issue": "OPS-2"},
        {"change": "set_remaining", "user": "compass", "requests": 3},
        {"change": "revoke_token", "token": KEY},
    ):
        assert (await control("POST", "change", change)).json() == {"ok": True}
    assert (await caller.post("{ viewer { id } }")).headers["x-ratelimit-requests-remaining"] == "2"
    assert (await caller.refusal("{ viewer { id } }", KEY))[0] == 401
    teams = (await control("GET", "state")).json()["teams"]
    assert [(one["identifier"], one["trashed"], one["comments"]) for one in teams["OPS"]] == [
        ("OPS-2", True, ["Ten by now."]),
        ("OPS-1", False, []),
    ]
    assert KEY not in json.dumps(teams)
    mistakes: tuple[Any, ...] = ({"change": "nonsense"}, {"change": "trash", "issue": "X-1"}, [], None)
    for wrong in mistakes:
        assert (await control("POST", "change", wrong)).status_code == 400
    told = (await control("POST", "change", {"change": "nonsense"})).json()["error"]
    assert told.endswith(
        "unknown 'nonsense'; known are rename_team, move, set_state, archive, trash, revoke_token, set_remaining"
    )
    assert (await control("POST", "reset")).json() == {"ok": True}
    assert (await caller.post("{ viewer { id } }", KEY)).status_code == 200
    nonsense = await control("GET", "nonsense")
    assert nonsense.status_code == 404
    assert nonsense.json()["error"].endswith("POST /_forge/script, POST /_forge/reset, POST /_forge/change")
    assert (await caller.http.get("/_forge/log")).status_code == 401


async def test_an_empty_forge_has_nothing_and_is_filled_by_hand() -> None:
    forge = LinearForge()
    forge.state.add_user("Ann")
    forge.state.grant_token("lin_api_ann", "Ann")
    async with httpx.AsyncClient(transport=ForgeTransport(forge), base_url="http://forge.test") as http:
        caller = Caller(http)
        answer = await caller.post("{ teams(first: 1) { nodes { id } } }", "lin_api_ann")
        assert answer.json() == {"data": {"teams": {"nodes": []}}}
        assert (await http.get("/_forge/log")).status_code == 404
    for missing in (lambda: forge.state.user("Bob"), lambda: forge.state.team("X"), lambda: forge.state.issue("X-1")):
        with pytest.raises(UnknownName):
            missing()


# --- Markdown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ("- one\n+ two\n* three", "* one\n* two\n* three"),
        ("a\n\n\n\nb\n", "a\n\nb"),
        ("<!-- no\nmore -->text", "text"),
        ("<details><summary>More</summary>\nx</details>", "More\nx"),
        ("---", "***"),
        ("# Title ##", "# Title"),
        ("a ~ b", "a \\~ b"),
        ("`a ~ b` | c", "`a ~ b` \\| c"),
        ("```\n- kept ~\n<!-- kept -->\n\n\n```", "```\n- kept ~\n<!-- kept -->\n\n```"),
        ("> `code span`\r\n\r\ntext", "> `code span`\n\ntext"),
        ("~~~\n- kept\n~~~", "~~~\n- kept\n~~~"),
    ],
)
def test_markdown_comes_back_as_from_a_rich_text_document(given: str, back: str) -> None:
    assert rewritten(given) == back


@given(st.text(alphabet="-+*# `~|<!->ab\n\r0\0", max_size=60))
def test_any_text_comes_back_without_more_blank_lines_than_one_in_a_row(text: str) -> None:
    assert "\n\n\n" not in rewritten(text)
    assert "\r\n" not in rewritten(text)
