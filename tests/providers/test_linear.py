"""The Linear provider over scripted answers: partial, wrong, hostile and foreign ones."""

import json
from typing import Any

import httpx
import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from compass_forged.emulator.script import Rule
from compass_forged.errors import (
    BadAnswer,
    BadCredentials,
    BadCursor,
    BadRepo,
    BadRequest,
    ForeignAnswer,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
    RateLimited,
)
from compass_forged.providers import linear_teams
from compass_forged.providers.credentials import EnvToken
from compass_forged.providers.http import BODY_MAX_BYTES
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_documents import DOCUMENTS
from compass_forged.wire.schema import GHOST, CommentOnIssue, CreateIssue, ForgeAccount, GetIssue, ListIssues
from tests.support.forge_http import ScriptedForge, answer, new_context
from tests.support.linear import (
    ISSUE_ID,
    STAMPED,
    TEAM_ID,
    graph_error,
    graphql,
    issue_json,
    issues_answer,
    new_forge,
    new_http,
    on_forge,
    scripted,
    sent,
    team_answer,
)

CREATE = CreateIssue(repo="ENG", title="A title", body=STAMPED)
READ = GetIssue(repo="ENG", issue_number=7)
COMMENT = CommentOnIssue(repo="ENG", issue_number=7, body=STAMPED)
LISTING = ListIssues(repo="ENG")
NOT_FOUND = graph_error("Entity not found: Issue", type="invalid input", code="INPUT_ERROR")


def created(*errors: dict[str, object], success: bool = True, **issue: Any) -> Any:
    """A handler that answers a create with the id that it carried."""

    async def handler(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        given = sent(request)["input"]
        made = issue_json(**{"issue_id": given["id"], "title": given["title"], **issue})
        return graphql({"issueCreate": {"success": success, "issue": made}}, *errors)

    return handler


async def create(provider: LinearProvider) -> Any:
    return await provider.create_issue(CREATE, new_context()[0])


# --- what goes over the wire ----------------------------------------------------------------------------------------

HOSTILE = [
    '"}) { viewer { id } } #',
    'x") { issueDelete(id: "y") { success } } query A(',
    "}} mutation { issueArchive(id: $id) { success } }",
    '$input ${title} {{title}} %s {0} \\u0022 """',
    "a\u2028\u2029\ud7ff\U0001f600z",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_whatever_an_agent_writes_goes_as_a_variable_and_the_documents_stay_as_they_are(
    text: str, autojump_clock: MockClock
) -> None:
    forge = new_forge()
    forge.state.add_label(text)
    linear = on_forge(forge)
    await linear.learn_identity()
    await linear.create_issue(CreateIssue(repo="ENG", title=text, body=text, labels=[text]), new_context()[0])
    await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=2, body=text), new_context()[0])
    listed = await linear.list_issues(ListIssues(repo="ENG", labels=[text]), new_context()[0])
    await linear.get_issue(GetIssue(repo="ENG", issue_number=2), new_context()[0])
    for operation in ("IssueCreate", "CommentCreate"):
        await _lost(forge, linear, operation, text)

    known = {(document.name, document.text) for document in DOCUMENTS}
    requests = [entry.body for entry in forge.log.find()]
    assert {(body["operationName"], body["query"]) for body in requests} <= known
    assert all(set(body) == {"query", "operationName", "variables"} for body in requests)
    assert {body["operationName"] for body in requests} >= {"Viewer", "TeamByKey", "Labels", "IssueById", "CommentById"}
    assert [issue.title for issue in listed.items] == [text]
    assert forge.state.issue("ENG-2").title == text


async def _lost(forge: Any, linear: LinearProvider, operation: str, text: str) -> None:
    forge.script.add(Rule(path=f"/graphql/{operation}", commit=True, drop=True))
    if operation == "IssueCreate":
        await linear.create_issue(CreateIssue(repo="ENG", title=text, body=text), new_context()[0])
    else:
        await linear.comment_on_issue(CommentOnIssue(repo="ENG", issue_number=1, body=text), new_context()[0])


@pytest.mark.parametrize("repo", ["", "a b", "acme/site", "ENG-1", "é", "x" * 33, "_X", "EN\nG", "ENG "])
def test_a_repo_that_is_no_teams_key_is_refused_without_a_request(repo: str) -> None:
    provider, forge = scripted()
    with pytest.raises(BadRepo):
        provider.canonical_repo(repo)
    assert not forge.requests


@pytest.mark.parametrize(("repo", "key"), [("eng", "ENG"), ("PLA4", "PLA4"), ("a_b", "A_B")])
def test_a_key_is_kept_in_upper_case(repo: str, key: str) -> None:
    assert scripted()[0].canonical_repo(repo) == key


async def test_a_keys_digit_and_its_case_are_no_matter() -> None:
    provider, forge = scripted(
        team_answer("PLA4"), issues_answer(issue_json("PLA4-16916", team={"id": TEAM_ID, "key": "PLA4"}))
    )
    issue = await provider.get_issue(GetIssue(repo="pla4", issue_number=16916), new_context()[0])
    assert (issue.repo, issue.number) == ("PLA4", 16916)
    assert sent(forge.requests[0]) == {"key": "PLA4"}
    assert sent(forge.requests[1]) == {"team": TEAM_ID, "number": 16916.0}


# --- writes ---------------------------------------------------------------------------------------------------------


async def test_a_create_carries_what_it_must_and_nothing_else() -> None:
    provider, forge = scripted(team_answer(), created())
    context, guard = new_context()
    issue = await provider.create_issue(CREATE, context)
    given = sent(forge.requests[1])["input"]
    assert set(given) == {"id", "teamId", "title", "description"}
    assert (given["teamId"], given["title"], given["description"]) == (TEAM_ID, "A title", STAMPED)
    assert (issue.repo, issue.number) == ("ENG", 7)
    assert guard.sendings == 1
    assert context.forge_requests == 2


@pytest.mark.parametrize(
    "handler",
    [
        created(success=False),
        created(url="https://linear.app/acme/issue/ENG-8/other"),
        created(url="ftp://linear.app/acme/issue/ENG-7"),
        created(url="https://user@linear.app/acme/issue/ENG-7"),
        created(url=""),
        created(url="https://linear.app/acmé/issue/ENG-7"),
        created(url="https://[linear.app/issue/ENG-7"),
        created(identifier="ENG-0"),
        created(identifier="ENG"),
        created(identifier=f"ENG-{2**63}"),
        created(issue_id="99999999-9999-4999-8999-999999999999"),
        created(team={"id": "another", "key": "ENG"}),
        created(team=None),
        graphql({"issueCreate": {"success": True, "issue": None}}),
        graphql({"issueCreate": {"success": True}}),
        graphql({"issueCreate": None}),
        graphql({}),
        graphql([]),
        answer(200, b"not json"),
        answer(200, b"[" * 100_000),
        answer(202, {"data": {}}),
    ],
)
async def test_a_yes_that_is_not_about_this_create_is_none(handler: Any, autojump_clock: MockClock) -> None:
    provider, forge = scripted(team_answer(), handler, issues_answer(), issues_answer())
    with pytest.raises(ForgeError) as failed:
        await create(provider)
    assert failed.value.outcome == "unknown"
    assert len(forge.requests) == 4  # looked for twice, and never sent again


async def test_a_yes_with_errors_beside_it_is_a_yes_that_says_so() -> None:
    provider, _ = scripted(team_answer(), created(graph_error("labels are late", type="internal error")))
    issue = await create(provider)
    assert issue.number == 7
    assert issue.warnings == ["the forge could not tell everything: labels are late"]


async def test_a_lookup_that_fails_leaves_an_unknown_end_unknown(autojump_clock: MockClock) -> None:
    provider, _ = scripted(team_answer(), httpx.ReadError("cut"), *[httpx.ReadError("cut")] * 6)
    with structlog.testing.capture_logs() as logs, pytest.raises(ForgeUnavailable) as failed:
        await create(provider)
    assert failed.value.outcome == "unknown"
    assert [line["event"] for line in logs].count("what was written cannot be looked for") == 2


async def test_an_earlier_attempt_that_cannot_be_read_is_unknown(autojump_clock: MockClock) -> None:
    exists = graphql(
        None, graph_error(f"Entity Issue with id {ISSUE_ID} already exists", code="INPUT_ERROR"), status=400
    )
    provider, _ = scripted(team_answer(), exists, issues_answer(), issues_answer())
    with pytest.raises(ForgeUnavailable, match="earlier attempt") as failed:
        await create(provider)
    assert failed.value.outcome == "unknown"


@pytest.mark.parametrize(
    ("refusal", "kind", "outcome"),
    [
        (graphql(None, graph_error("forbidden", type="forbidden"), status=403), ForgeStatus, "rejected"),
        (graphql(None, graph_error("Argument Validation Error", code="INVALID_INPUT")), ForgeStatus, "rejected"),
        (graphql(None, graph_error("Query too complex", code="INPUT_ERROR"), status=400), BadRequest, "rejected"),
        (graphql(None, graph_error("x", code="RATELIMITED"), status=400), RateLimited, "rejected"),
        (answer(413, b"<html>"), ForgeStatus, "rejected"),
    ],
)
async def test_a_definite_no_is_told_and_nothing_is_looked_for(
    refusal: httpx.Response, kind: type[ForgeError], outcome: str
) -> None:
    provider, forge = scripted(team_answer(), refusal)
    with pytest.raises(kind) as failed:
        await create(provider)
    assert failed.value.outcome == outcome
    assert len(forge.requests) == 2


async def test_a_comment_is_checked_for_its_id_its_issue_and_its_page(autojump_clock: MockClock) -> None:
    place = {"id": ISSUE_ID, "identifier": "ENG-7", "trashed": None, "team": {"id": TEAM_ID, "key": "ENG"}}

    def commented(*, success: bool = True, **more: object) -> Any:
        async def handler(request: httpx.Request) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            made = {
                "id": sent(request)["input"]["id"],
                "url": "https://linear.app/c",
                "issue": {"id": ISSUE_ID},
                **more,
            }
            return graphql({"commentCreate": {"success": success, "comment": made}})

        return handler

    provider, forge = scripted(team_answer(), issues_answer(place), commented())
    ref = await provider.comment_on_issue(COMMENT, new_context()[0])
    assert ref.url == "https://linear.app/c"
    assert sent(forge.requests[2])["input"] == {"id": ref.comment_id, "issueId": ISSUE_ID, "body": STAMPED}
    provider, _ = scripted(team_answer(), issues_answer(place), commented(issue=None))
    assert (await provider.comment_on_issue(COMMENT, new_context()[0])).url == "https://linear.app/c"
    wrongs: list[dict[str, Any]] = [{"id": "other"}, {"issue": {"id": "other"}}, {"url": None}, {"success": False}]
    for wrong in wrongs:
        nothing = [graphql({"comments": {"nodes": []}}) for _ in range(2)]
        provider, _ = scripted(team_answer(), issues_answer(place), commented(**wrong), *nothing)
        with pytest.raises(BadAnswer) as failed:
            await provider.comment_on_issue(COMMENT, new_context()[0])
        assert failed.value.outcome == "unknown"


# --- reads ----------------------------------------------------------------------------------------------------------


async def read(*script: Any) -> Any:
    provider, _ = scripted(team_answer(), *script)
    return await provider.get_issue(READ, new_context()[0])


@pytest.mark.parametrize(
    ("who", "author"),
    [
        ({"creator": {"id": "u", "name": "Mona Lisa", "displayName": "mona", "app": False}}, ForgeAccount("mona")),
        ({"creator": {"id": "u", "name": "R&amp;D", "displayName": "", "app": True}}, ForgeAccount("R&D", is_bot=True)),
        ({"creator": None, "botActor": {"name": "GitHub"}}, ForgeAccount("GitHub", is_bot=True)),
        (
            {"creator": None, "botActor": {"name": "compass", "userDisplayName": "Compass"}},
            ForgeAccount("Compass", is_bot=True),
        ),
        ({"creator": None, "externalUserCreator": {"name": "Ann", "displayName": "ann"}}, ForgeAccount("ann")),
        ({"creator": None, "botActor": {"name": None}}, ForgeAccount("ghost", is_bot=True)),
        ({"creator": None}, GHOST),
    ],
)
async def test_an_author_is_whom_the_answer_names(who: dict[str, Any], author: ForgeAccount) -> None:
    assert (await read(issues_answer(issue_json(**who)))).author == author


async def test_what_may_be_null_is_no_trouble() -> None:
    bare = {"id": ISSUE_ID, "identifier": "ENG-7", "team": {"id": TEAM_ID}}
    nulls = issue_json(
        description=None, state=None, labels=None, creator=None, createdAt=None, updatedAt="x", comments=None, url=None
    )
    for node in (bare, nulls):
        issue = await read(issues_answer(node))
        assert (issue.number, issue.body, issue.state, issue.labels, issue.comments) == (7, "", "open", [], [])
        assert issue.author == GHOST


async def test_a_comment_that_cannot_be_read_does_not_take_its_neighbours_with_it() -> None:
    comments = {"nodes": [{"id": "c2", "body": "two", "user": None}, {"id": 7}, {"id": "c1", "body": None}]}
    issue = await read(issues_answer(issue_json(comments=comments)))
    assert [(comment.id, comment.body, comment.author) for comment in issue.comments] == [
        ("c1", "", GHOST),
        ("c2", "two", GHOST),
    ]
    assert issue.comments_total == 3
    assert issue.warnings == ["1 of the forge's comments could not be read and is left out"]


async def test_an_issue_whose_every_comment_is_broken_is_not_shown_as_one_without() -> None:
    with pytest.raises(BadAnswer):
        await read(issues_answer(issue_json(comments={"nodes": [{"id": 7}]})))


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([issues_answer(), graphql(None, NOT_FOUND)], ForgeStatus),
        ([issues_answer(), graphql(None, graph_error("Entity Not Found"), status=400)], ForgeStatus),
        ([issues_answer(issue_json("ENG-8"))], ForeignAnswer),
        ([issues_answer(issue_json(team={"id": "other", "key": "ENG"}))], ForeignAnswer),
        ([issues_answer(), graphql({"issue": issue_json("OPS-9")})], ForeignAnswer),
        ([graphql({"issues": None})], BadAnswer),
        ([graphql({"issues": {"nodes": None}})], BadAnswer),
        ([graphql({"issues": {"nodes": [7]}})], BadAnswer),
        ([graphql({"issues": None}, graph_error("forbidden", type="forbidden"))], ForgeStatus),
        ([graphql({"issues": None}, graph_error("x", type="internal error")) for _ in range(3)], ForgeUnavailable),
        ([graphql(None, graph_error("Something went wrong")) for _ in range(3)], ForgeUnavailable),
        ([answer(503, b"<html>") for _ in range(3)], ForgeUnavailable),
        ([answer(429, b"<html>")], RateLimited),
        ([answer(302, b"", {"location": "https://api.linear.app/graphql/2"})], ForgeStatus),
    ],
)
async def test_a_read_fails_as_what_came_and_never_as_something_missing(
    script: list[Any], kind: type[ForgeError], autojump_clock: MockClock
) -> None:
    with pytest.raises(kind):
        await read(*script)


async def test_a_page_that_is_partly_there_is_answered_and_says_so() -> None:
    provider, _ = scripted(
        team_answer(),
        graphql(
            {"issues": {"nodes": [issue_json()], "pageInfo": {"hasNextPage": False}}},
            graph_error("some are late", type="internal error"),
            graph_error("some are late", type="internal error"),
        ),
    )
    page = await provider.list_issues(LISTING, new_context()[0])
    assert [issue.number for issue in page.items] == [7]
    assert page.warnings == ["the forge could not tell everything: some are late"]


async def test_an_item_that_cannot_be_read_is_left_out_and_counted() -> None:
    provider, _ = scripted(team_answer(), issues_answer({"id": "u"}, issue_json("ENG-9"), issue_json("ENG-8")))
    page = await provider.list_issues(LISTING, new_context()[0])
    assert [issue.number for issue in page.items] == [9, 8]
    assert page.warnings == ["1 of the forge's items could not be read and is left out"]


async def test_more_than_a_page_is_never_silent() -> None:
    provider, forge = scripted(
        team_answer(),
        issues_answer(*(issue_json(f"ENG-{n}") for n in range(1, 101)), hasNextPage=True, endCursor="c100"),
    )
    page = await provider.list_issues(ListIssues(repo="ENG", limit=120), new_context()[0])
    assert len(page.items) == 100
    assert page.next_cursor
    assert sent(forge.requests[1])["first"] == 100
    for cursor in (None, "", "é"):
        provider, _ = scripted(team_answer(), issues_answer(issue_json(), hasNextPage=True, endCursor=cursor))
        with pytest.raises(BadAnswer):
            await provider.list_issues(ListIssues(repo="ENG", limit=1), new_context()[0])


async def test_a_listing_of_nothing_but_deleted_issues_ends_with_a_cursor() -> None:
    pages = [issues_answer(issue_json(trashed=True), hasNextPage=True, endCursor=f"c{number}") for number in range(10)]
    provider, forge = scripted(team_answer(), *pages)
    page = await provider.list_issues(ListIssues(repo="ENG", state="all"), new_context()[0])
    assert not page.items
    assert page.next_cursor.endswith("~c9")
    assert len(forge.requests) == 11


async def test_a_page_that_is_too_large_is_read_in_smaller_ones() -> None:
    huge = answer(200, b" " * (BODY_MAX_BYTES + 1))
    provider, forge = scripted(team_answer(), huge, huge, issues_answer(issue_json()))
    page = await provider.list_issues(ListIssues(repo="ENG", limit=10), new_context()[0])
    assert [issue.number for issue in page.items] == [7]
    assert [sent(request)["first"] for request in forge.requests[1:]] == [10, 5, 3]


async def test_one_issue_that_is_too_large_by_itself_is_told_as_such() -> None:
    huge = [answer(200, b" " * (BODY_MAX_BYTES + 1)) for _ in range(2)]
    provider, _ = scripted(team_answer(), *huge)
    with pytest.raises(BadAnswer, match="is over"):
        await provider.list_issues(ListIssues(repo="ENG", limit=2), new_context()[0])


@pytest.mark.parametrize(
    "cursor", ["x", "l1~0000000000000000~c1", "l1~~c", "i1~0000000000000000~0~page=2", "l1~0000000000000000~" + "é"]
)
async def test_a_cursor_of_another_listing_is_refused_without_a_request(cursor: str) -> None:
    provider, forge = scripted()
    with pytest.raises(BadCursor):
        await provider.list_issues(ListIssues(repo="ENG", cursor=cursor), new_context()[0])
    assert not forge.requests


async def test_a_cursor_is_bound_to_its_filters() -> None:
    provider, _ = scripted(team_answer(), issues_answer(issue_json(), hasNextPage=True, endCursor="c1"))
    page = await provider.list_issues(ListIssues(repo="ENG", limit=1), new_context()[0])
    for other in (
        ListIssues(repo="OPS", cursor=page.next_cursor),
        ListIssues(repo="ENG", state="closed", cursor=page.next_cursor),
        ListIssues(repo="ENG", labels=["bug"], cursor=page.next_cursor),
    ):
        with pytest.raises(BadCursor):
            await provider.list_issues(other, new_context()[0])


# --- teams and identities -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes", [[], [{"id": "", "key": "ENG"}], [{"id": "t", "key": "OPS"}], [{"id": "t", "key": ""}]]
)
async def test_a_team_that_is_not_the_one_asked_for_is_none(nodes: list[object]) -> None:
    provider, _ = scripted(graphql({"teams": {"nodes": nodes}}))
    with pytest.raises(ForgeStatus) as refused:
        await create(provider)
    assert (refused.value.status, refused.value.outcome) == (404, "not_sent")


async def test_why_something_is_not_there_is_for_the_log_alone() -> None:
    provider, _ = scripted(team_answer(), graphql(None, graph_error("this team is private", type="forbidden")))
    with structlog.testing.capture_logs() as logs, pytest.raises(ForgeStatus):
        await provider.get_issue(READ, new_context()[0])
    (line,) = [line for line in logs if line["event"] == "the forge refuses"]
    assert (line["status"], "this team is private" in line["why"]) == (403, True)


async def test_a_team_that_answers_under_another_id_is_not_the_one_that_was_renamed(autojump_clock: MockClock) -> None:
    nothing = graphql({"teams": {"nodes": []}})
    provider, _ = scripted(
        team_answer(), issues_answer(issue_json()), nothing, graphql({"teams": {"nodes": [{"id": "x", "key": "CORE"}]}})
    )
    await provider.get_issue(READ, new_context()[0])
    await trio.sleep(301)
    with pytest.raises(ForgeStatus, match="404"):
        await provider.get_issue(READ, new_context()[0])


async def test_no_more_teams_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_teams, "TEAMS_MAX", 2)
    script: list[Any] = []
    for key in ("A", "B", "C", "A"):
        place = {"id": TEAM_ID, "key": key}
        script += [team_answer(key), issues_answer(issue_json(f"{key}-7", team=place))]
    provider, forge = scripted(*script)
    for key in ("A", "B", "C", "A"):
        await provider.get_issue(GetIssue(repo=key, issue_number=7), new_context()[0])
    assert len(forge.requests) == 8


async def test_a_limit_at_the_look_up_of_a_team_is_no_missing_team() -> None:
    provider, forge = scripted(graphql(None, graph_error("Rate limit exceeded", code="RATELIMITED"), status=400))
    with pytest.raises(RateLimited) as refused:
        await create(provider)
    assert refused.value.outcome == "not_sent"
    assert len(forge.requests) == 1


async def test_those_who_ask_for_a_missing_team_at_once_are_answered_by_one_look() -> None:
    async def slowly(_request: httpx.Request) -> httpx.Response:
        await trio.testing.wait_all_tasks_blocked()
        return graphql({"teams": {"nodes": []}})

    provider, forge = scripted(slowly)
    refused: list[int] = []

    async def ask() -> None:
        with pytest.raises(ForgeStatus) as missing:
            await provider.get_issue(READ, new_context()[0])
        refused.append(missing.value.status)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert refused == [404] * 5
    assert len(forge.requests) == 1


async def test_a_refused_token_is_read_anew_once_and_then_the_role_is_broken() -> None:
    refusal = [graphql(None, graph_error("no", type="authentication error"), status=status) for status in (401, 200)]
    provider, forge = scripted(*refusal)
    with pytest.raises(BadCredentials):
        await create(provider)
    with pytest.raises(BadCredentials) as failed:
        await create(provider)
    assert failed.value.outcome == "not_sent"
    assert len(forge.requests) == 2


@pytest.mark.parametrize("viewer", [None, {}, {"id": ""}, {"id": 7}])
async def test_a_viewer_without_an_id_is_none(viewer: object) -> None:
    provider, _ = scripted(graphql({"viewer": viewer}))
    with pytest.raises(BadAnswer):
        await provider.learn_identity()


async def test_an_identity_is_known_by_its_id_whatever_its_form() -> None:
    ids = []
    for viewer_id in ("1f0c2d3e-0000-4000-8000-000000000001", "usr_1", "usr_2", "usr_1"):
        provider, _ = scripted(graphql({"viewer": {"id": viewer_id, "name": "x", "app": False}}))
        ids.append((await provider.learn_identity()).id)
    assert len(set(ids)) == 3
    assert ids[1] == ids[3]


async def test_another_token_may_be_anothers_so_nothing_is_said_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LINEAR_TOKEN", "lin_oauth_the-first-of-two-0001")
    viewer = graphql({"viewer": {"id": "a-1", "name": "compass", "displayName": "compass", "app": True}})
    forge = ScriptedForge([viewer, team_answer(), created(), team_answer(), created()])
    provider = LinearProvider(new_http(forge, source=EnvToken("LINEAR_TOKEN")), create_as_user="Compass")
    await provider.learn_identity()
    await create(provider)
    monkeypatch.setenv("LINEAR_TOKEN", "lin_oauth_the-second-of-two-0002")
    await create(provider)
    inputs = [json.loads(request.content)["variables"]["input"] for request in forge.requests[2::2]]
    assert [given.get("createAsUser") for given in inputs] == ["Compass", None]


async def test_a_team_that_one_token_saw_is_looked_up_anew_under_another(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A token of another workspace has another team of that key; a listing by the old id would just be empty."""
    monkeypatch.setenv("LINEAR_TOKEN", "lin_oauth_the-first-of-two-0001")
    other = "33333333-3333-4333-8333-333333333333"
    forge = ScriptedForge([team_answer(), issues_answer(), team_answer(team_id=other), issues_answer()])
    provider = LinearProvider(new_http(forge, source=EnvToken("LINEAR_TOKEN")))
    await provider.list_issues(LISTING, new_context()[0])
    monkeypatch.setenv("LINEAR_TOKEN", "lin_oauth_the-second-of-two-0002")
    await provider.list_issues(LISTING, new_context()[0])
    filters = [sent(request)["filter"]["team"]["id"]["eq"] for request in forge.requests[1::2]]
    assert filters == [TEAM_ID, other]


# --- a write that is done and whose word does not come back whole ---------------------------------------------------

WITHIN = [
    graph_error("Invalid scope: `read` required", type="forbidden", code="FORBIDDEN"),
    graph_error("Entity not found: Team", type="invalid input", code="INPUT_ERROR"),
    graph_error("Argument Validation Error", type="invalid input", code="INVALID_INPUT"),
    graph_error("Rate limit exceeded", type="ratelimited", code="RATELIMITED"),
    graph_error("Authentication required, not authenticated", type="authentication error"),
    graph_error("Query too complex", code="INPUT_ERROR"),
]


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("problem", WITHIN)
async def test_an_error_within_what_a_write_made_does_not_say_that_nothing_was_made(
    problem: dict[str, object], status: int, autojump_clock: MockClock
) -> None:
    """GraphQL looks at the fields of what a mutation answers once that has run: the comment stands."""
    failed = graphql(None, {**problem, "path": ["commentCreate", "comment", "url"]}, status=status)
    nothing = graphql({"comments": {"nodes": []}})
    provider, forge = scripted(team_answer(), issues_answer(issue_json()), failed, nothing, nothing)
    with pytest.raises(ForgeError) as caught:
        await provider.comment_on_issue(COMMENT, new_context()[0])
    assert caught.value.outcome == "unknown"
    assert len(forge.requests) == 5  # written once, and looked for


async def test_an_error_within_a_comment_that_stands_leaves_it_done(autojump_clock: MockClock) -> None:
    failed = graphql(None, {**WITHIN[0], "path": ["commentCreate", "comment", "issue"]}, status=400)

    async def stands(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        found = {"id": sent(request)["id"], "url": "https://linear.app/acme/issue/ENG-7#c", "issue": {"id": ISSUE_ID}}
        return graphql({"comments": {"nodes": [found]}})

    provider, _ = scripted(team_answer(), issues_answer(issue_json()), failed, stands)
    written = await provider.comment_on_issue(COMMENT, new_context()[0])
    assert written.url.endswith("ENG-7#c")


@pytest.mark.parametrize("kind", ["ratelimited", "authentication error"])
async def test_an_issue_that_came_is_made_whatever_stands_beside_it(kind: str, autojump_clock: MockClock) -> None:
    beside: dict[str, object] = {
        "message": "x",
        "path": ["issueCreate", "issue", "creator"],
        "extensions": {"type": kind},
    }
    provider, forge = scripted(team_answer(), created(beside, creator=None))
    issue = await create(provider)
    assert issue.number == 7
    assert issue.warnings
    assert len(forge.requests) == 2


# --- what a broken forge does to a walk, a look-up and a replay -----------------------------------------------------


async def test_a_last_page_that_cannot_be_read_takes_nothing_with_it(autojump_clock: MockClock) -> None:
    more = issues_answer(issue_json("ENG-1"), hasNextPage=True, endCursor="c-1")
    provider, _ = scripted(team_answer(), more, issues_answer({"id": 1}))
    page = await provider.list_issues(LISTING, new_context()[0])
    assert [issue.number for issue in page.items] == [1]
    assert page.warnings == ["1 of the forge's items could not be read and is left out"]


async def test_a_walk_that_is_led_in_circles_ends(autojump_clock: MockClock) -> None:
    round_trip = [issues_answer(issue_json("ENG-1"), hasNextPage=True, endCursor="c-1") for _ in range(12)]
    provider, forge = scripted(team_answer(), *round_trip)
    with pytest.raises(BadAnswer, match="says that there is more"):
        await provider.list_issues(LISTING, new_context()[0])
    assert len(forge.requests) == 3


@pytest.mark.parametrize(
    "problem",
    [
        graph_error("Argument Validation Error", type="invalid input", code="INVALID_INPUT"),
        graph_error("Could not find it", type="invalid input"),
        graph_error("No", type="forbidden"),
        NOT_FOUND,
    ],
)
async def test_a_number_that_a_team_has_not_is_not_found_in_whatever_words(
    problem: dict[str, object], autojump_clock: MockClock
) -> None:
    provider, _ = scripted(team_answer(), issues_answer(), graphql(None, problem, status=400))
    with pytest.raises(ForgeStatus) as caught:
        await provider.get_issue(READ, new_context()[0])
    assert caught.value.status == 404


@pytest.mark.parametrize(
    "words", ["Entity already exists", "Issue with id 7 already exists", "Entity Issue already exists"]
)
async def test_an_id_that_is_taken_is_read_back_in_whatever_words(words: str, autojump_clock: MockClock) -> None:
    taken = graphql(None, graph_error(words, type="invalid input", code="INPUT_ERROR"), status=400)

    async def stands(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return issues_answer(issue_json(issue_id=sent(request)["id"]))

    provider, _ = scripted(team_answer(), taken, stands)
    assert (await create(provider)).number == 7


@pytest.mark.parametrize(
    "problem",
    [
        graph_error("Invalid scope: `app` required", type="forbidden", code="FORBIDDEN"),
        graph_error("Not for this plan", type="feature not accessible"),
        graph_error("No", type="forbidden"),
        graph_error("No", type="invalid input"),
    ],
)
async def test_a_name_may_be_refused_in_whatever_words(problem: dict[str, object], autojump_clock: MockClock) -> None:
    viewer = graphql({"viewer": {"id": "a-1", "name": "compass", "displayName": "compass", "app": True}})
    provider, forge = scripted(viewer, team_answer(), graphql(None, problem, status=400), created())
    await provider.learn_identity()
    assert (await create(provider)).number == 7
    inputs = [sent(request)["input"] for request in forge.requests[2:]]
    assert [given.get("createAsUser") for given in inputs] == ["Compass", None]
    assert not provider.writes_as
