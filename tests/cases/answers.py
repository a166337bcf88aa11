"""Replays of the cases about what a forge's answers hold, or lack; about lists, sizes, and bytes."""

import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest
import trio

from compass_forged import owner
from compass_forged.agent.errors import CallRefused
from compass_forged.agent.exchange import frame_of
from compass_forged.errors import CallError, ForgeError
from compass_forged.policy import check_shape, clean_message, to_call_error
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.http import BODY_MAX_BYTES
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES
from compass_forged.wire.schema import (
    GHOST,
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    InlineComment,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    PullRequest,
    ResultFrame,
    ReviewRef,
    SubmitReview,
)
from tests.support.cases import Case, Desk, github_at, raw_forge, refused, running
from tests.support.core import call_of
from tests.support.forge_http import (
    Handler,
    ScriptedForge,
    answer,
    comment_json,
    handler,
    issue_json,
    new_context,
    new_github,
    pull_json,
    review_comment_json,
    review_json,
)

REPO = "acme/widget"
READ = GetIssue(repo=REPO, issue_number=7)
LISTING = ListIssues(repo=REPO)
GET = GetPullRequest(repo=REPO, pull_number=9)
CREATE = CreateIssue(repo=REPO, title="t")
OPEN = CreatePullRequest(repo=REPO, title="t", head_ref="topic", base_ref="main")
INLINE = InlineComment(path="a.c", line=10, body="x")
REVIEW = SubmitReview(repo=REPO, pull_number=9, verdict="comment", body="b")
PATCH = "@@ -8,3 +8,4 @@\n eight\n nine\n+ten\n ten"


def issue(number: int = 7, **more: object) -> dict[str, object]:
    return issue_json(number, REPO, **more)


def pull(**more: object) -> dict[str, object]:
    return pull_json(9, REPO, **more)


def submitted(**more: object) -> dict[str, object]:
    return review_json(80, 9, REPO, **more)


def reply_of(case: Case, index: int = 0) -> httpx.Response:
    """The scripted answer of a case."""
    told = case.input["forge"][index]
    body = told["body"]
    return answer(told["status"], body.encode() if isinstance(body, str) else body, told["headers"])


async def refusal_of(call: Awaitable[object]) -> CallError:
    """What an agent is answered where a provider fails."""
    with pytest.raises(ForgeError) as failed:
        await call
    return to_call_error(failed.value, write=True)


@dataclass
class Hub:
    """GitHub, whose pull request 9 changes ``a.c`` as ``PATCH`` says; each path is answered in a way of its own."""

    answers: dict[str, object]

    def github(self) -> tuple[GitHubProvider, ScriptedForge]:
        usual: dict[str, object] = {
            "GET pulls/9": pull(),
            "GET pulls/9/files": [{"filename": "a.c", "patch": PATCH}],
            "POST pulls/9/reviews": submitted(),
            "GET pulls/9/reviews": [],
            "GET pulls/9/comments": [],
            "GET check-runs": {"check_runs": []},
            "GET status": {"statuses": []},
        }
        known = {**usual, **self.answers}

        @handler
        def reply(request: httpx.Request) -> httpx.Response:
            path = request.url.path.removeprefix(f"/repos/{REPO}/")
            name = f"{request.method} {path.rpartition('/')[2] if path.startswith('commits/') else path}"
            told = known[name]
            step = told.pop(0) if isinstance(told, list) and told and isinstance(told[0], httpx.Response) else told
            return step if isinstance(step, httpx.Response) else answer(200, step)

        return new_github(*[reply] * 40)


async def submit(arm: SubmitReview = REVIEW, **answers: object) -> tuple[ReviewRef, list[Any]]:
    """The review's acknowledgement, and the bodies of what was posted."""
    github, forge = Hub(answers).github()
    ref = await github.submit_review(arm, new_context()[0])
    return ref, [json.loads(request.content) for request in forge.requests if request.method == "POST"]


async def read_pull(**answers: object) -> PullRequest:
    return await Hub(answers).github()[0].get_pull_request(GET, new_context()[0])


async def listed(*script: httpx.Response, arm: ListIssues = LISTING) -> IssuesResult:
    result = await Desk(new_github(*script)[0]).ask(arm)
    assert isinstance(result, IssuesResult), result
    return result


# --- what is null, or is no JSON ------------------------------------------------------------------------------------


async def null_bodies(case: Case) -> None:
    """A text that is null is an empty one, wherever it stands, and never the word."""
    rows = case.input["forge"][0]["body"]
    found = await listed(answer(200, [issue(row["number"], body=row["body"]) for row in rows]))
    assert [each.body for each in found.items] == ["x", ""]
    read = await Desk(new_github(answer(200, issue(body=None)))[0]).ask(READ)
    assert isinstance(read, IssueResult)
    assert read.issue.body == ""
    shown = await read_pull(
        **{
            "GET pulls/9": pull(body=None),
            "GET pulls/9/reviews": [submitted(body=None)],
            "GET pulls/9/comments": [review_comment_json(1, 9, REPO, body=None)],
        }
    )
    assert (shown.body, shown.reviews[0].body, shown.threads[0].comments[0].body) == ("", "", "")


async def no_null_is_written(case: Case) -> None:
    """A create without a text has the header for one; nothing that is sent is null, or reads ``null``."""
    assert case.input["forge"][0]["body"]["body"] is None
    github, forge = new_github(answer(201, issue(body=None)), answer(201, pull(body=None)))
    made = await Desk(github).ask(CREATE)
    assert isinstance(made, IssueResult)
    assert made.issue.body == ""
    await github.create_pull_request(OPEN, new_context()[0])
    posted = forge.bodies()
    assert owner.parse(posted[0]["body"]) is not None
    assert owner.strip(posted[0]["body"]) == ""
    assert "null" not in json.dumps(posted)
    assert "None" not in json.dumps(posted)
    assert posted[1] == {"title": "t", "head": "topic", "base": "main", "body": ""}


async def nobody_s_comments(case: Case) -> None:
    """A review comment by nobody, on a line that is gone, is listed with the others."""
    told = case.input["forge"][0]["body"]
    shown = await read_pull(**{"GET pulls/9/comments": [*told, review_comment_json(2, 9, REPO, line=3)]})
    assert [(each.path, each.line, each.comments[0].author.login) for each in shown.threads] == [
        ("a.py", None, GHOST.login),
        ("a.py", 3, "ada"),
    ]
    assert shown.warnings == []


async def reviews_of_no_commit(case: Case) -> None:
    """A review whose commit is null or missing is listed."""
    shown = await read_pull(**{"GET pulls/9/reviews": case.input["forge"][0]["body"]})
    assert [each.verdict for each in shown.reviews] == ["approved", "commented"]
    assert [each.author.login for each in shown.reviews] == ["u", "u"]


async def pages_for_people(case: Case) -> None:
    """An error page for people is judged by its status; a good status with such a page is no answer."""
    told = case.input["forge"][0]
    for arm in (READ, LISTING):
        failed = refused(await Desk(new_github(*[reply_of(case)] * 3)[0]).ask(arm))
        assert failed.code == "unavailable"
        page = answer(200, str(told["body"]).encode(), told["headers"])
        odd = refused(await Desk(new_github(page)[0]).ask(arm))
        assert odd.code == "internal"
        for error in (failed, odd):
            assert "<" not in error.message
            assert "JSON" not in error.message
    write = refused(await Desk(new_github(reply_of(case))[0]).ask(CREATE))
    assert (write.code, write.outcome) == ("unavailable", "unknown")


async def not_ready(_case: Case) -> None:
    """An answer that is promised for later is no empty list; it says when to come back."""
    for arm in (LISTING, READ):
        error = refused(await Desk(new_github(answer(202, {}))[0]).ask(arm))
        assert error.code == "unavailable"
        assert error.retry_after_ms > 0
    for part in ("GET pulls/9/reviews", "GET pulls/9/comments", "GET check-runs", "GET pulls/9"):
        later = await refusal_of(read_pull(**{part: answer(202, {})}))
        assert (later.code, later.retry_after_ms > 0) == ("unavailable", True), part


async def tags_that_are_not_repeated(case: Case) -> None:
    """An answer that still holds keeps its tag, whether or not the forge repeats it."""
    unchanged = case.input["forge"][0]
    assert "etag" not in unchanged["headers"]
    again = [answer(unchanged["status"], None, unchanged["headers"]) for _ in range(2)]
    github, forge = new_github(answer(200, issue(), {"etag": 'W/"A"'}), *again)
    desk = Desk(github)
    for _ in range(3):
        read = await desk.ask(READ)
        assert isinstance(read, IssueResult), read
        assert read.issue.title == "Issue 7"
    assert [request.headers.get("if-none-match") for request in forge.requests] == [None, 'W/"A"', 'W/"A"']


async def no_content(_case: Case) -> None:
    """A list without content is an empty one; one of no bytes is none."""
    assert (await listed(answer(204))).items == []
    shown = await read_pull(**{"GET pulls/9/reviews": answer(204), "GET pulls/9/comments": answer(204)})
    assert (shown.reviews, shown.threads) == ([], [])
    assert refused(await Desk(new_github(answer(200, b""))[0]).ask(LISTING)).code == "internal"


async def surrogates(case: Case) -> None:
    """Half a character costs neither its item nor its neighbours, and leaves as a replacement character."""
    raw = case.input["forge"][0]["body"].removeprefix("RAW BYTES: ")
    halves = raw.replace("\\\\u", "\\u")
    assert halves != raw
    for told, text in ((halves, "\ufffd\ufffd\ufffd tail"), (raw, "\\udcef\\udcbf\\udcbd tail")):
        github, _ = new_github(answer(200, issue(comments=2)), answer(200, told.encode()))
        read = await Desk(github).ask(READ)
        assert isinstance(read, IssueResult)
        assert [comment.body for comment in read.issue.comments] == [text, "ok"]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(read))


async def surrogates_of_agents(case: Case) -> None:
    """A path that is no text is refused by the library, in words; nothing is sent."""
    await trio.lowlevel.checkpoint()
    path = case.input["request"]["comments"][0]["path"].replace("\ufffd", "\udce9")
    for odd in (path, "src/caf\udce9.py", "\ud800"):
        arm = msgspec.structs.replace(REVIEW, comments=[InlineComment(path=odd, line=1, body="x")])
        with pytest.raises(CallRefused, match="a field cannot be encoded"):
            frame_of(ForgeCall(call_id="1", arm=arm))


# --- reviews that are refused ---------------------------------------------------------------------------------------


async def refused_reviews(case: Case) -> None:
    """A review that the forge refuses is refused in its words, on one line; it is sent once, and is none."""
    reply = reply_of(case)
    told = case.input["forge"][0]["body"]
    (complaint,) = told.get("errors") or [told["message"]]
    words = complaint if isinstance(complaint, str) else complaint["message"]
    github, forge = Hub({"POST pulls/9/reviews": reply}).github()
    error = await refusal_of(github.submit_review(REVIEW, new_context()[0]))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert words in clean_message(error.message)
    assert "\n" not in clean_message(error.message)
    assert [request.method for request in forge.requests] == ["POST"]


async def comments_off_the_diff(case: Case) -> None:
    """What no line of the diff can hold stands in the summary, and is counted as such: none vanishes."""
    odd = [INLINE, InlineComment(path="a.c", line=99, body="far off"), InlineComment(path="b/a.c", line=10, body="odd")]
    given = case.input.get("request", {}).get("comments", [])
    odd += [InlineComment(path=each["path"], line=each["line"], body="of the case") for each in given]
    ref, (posted,) = await submit(msgspec.structs.replace(REVIEW, comments=odd))
    assert (ref.inline_count, ref.folded_count) == (1, len(odd) - 1)
    assert [each["body"] for each in posted["comments"]] == ["x"]
    assert all(f"> {each.body}" in posted["body"] for each in odd[1:])
    assert ref.warnings


async def ranges(case: Case) -> None:
    """A range of one line is sent as that line; one that runs upwards is refused before anything is."""
    given = case.input["request"]["comments"][0]
    one = msgspec.convert(given, InlineComment)
    _, (posted,) = await submit(msgspec.structs.replace(REVIEW, comments=[one]))
    assert posted["comments"] == [{"path": "a.c", "line": 10, "side": "RIGHT", "body": "x"}]
    upwards = msgspec.structs.replace(REVIEW, comments=[msgspec.structs.replace(one, start_line=11)])
    with pytest.raises(CallError, match="start_line") as refused_here:
        check_shape(ForgeCall(call_id="1", arm=upwards))
    assert (refused_here.value.code, refused_here.value.outcome) == ("invalid_argument", "not_sent")


async def leftovers(case: Case) -> None:
    """A review that was begun and never submitted is removed if it is ours, and then ours is submitted."""
    header = "> `compass:owner agent=scout owner=ada session=s-1 ref=abcdefghijklmnop`"
    left = submitted(id=77, state="PENDING", body=f"{header}\n\nbegun")
    script: list[httpx.Response | Handler] = [
        reply_of(case, 1),
        answer(200, [submitted(id=5), left]),
        answer(200, left),
        answer(200, submitted()),
    ]
    github, forge = new_github(*script)
    ref = await github.submit_review(REVIEW, new_context()[0])
    assert (ref.review_id, len(ref.warnings)) == ("80", 1)
    assert [request.method for request in forge.requests] == ["POST", "GET", "DELETE", "POST"]
    assert forge.requests[2].url.path.endswith("/pulls/9/reviews/77")


async def one_request(case: Case) -> None:
    """However many its comments, a review is one request."""
    assert "60 comments" in case.input["op"]
    ref, posted = await submit(
        msgspec.structs.replace(REVIEW, comments=[INLINE] * 60),
        **{"POST pulls/9/reviews": [answer(200, submitted()), reply_of(case)]},
    )
    assert (ref.inline_count, len(posted), len(posted[0]["comments"])) == (60, 1, 60)


async def a_verdict_is_a_review(case: Case) -> None:
    """Each verdict is a review of its own; one that comes back in another state is not what was asked for."""
    assert "REQUEST_CHANGES" in case.input["op"]
    changes = msgspec.structs.replace(REVIEW, verdict="request_changes")
    ref, (posted,) = await submit(changes, **{"POST pulls/9/reviews": submitted(state="CHANGES_REQUESTED")})
    assert (ref.verdict, posted["event"]) == ("request_changes", "REQUEST_CHANGES")
    for state in ("COMMENTED", "PENDING", "APPROVED"):
        error = await refusal_of(submit(changes, **{"POST pulls/9/reviews": submitted(state=state)}))
        assert (error.code, error.outcome) == ("internal", "unknown")


async def empty_reviews(case: Case) -> None:
    """A review that says nothing is refused before anything is asked; so is one that is only a header."""
    await trio.lowlevel.checkpoint()
    assert case.input["request"]["body"] == ""
    for body in ("", " \n", "\u200b", "> `compass:owner agent=mole owner=x session=y`"):
        for verdict in ("comment", "request_changes"):
            arm = msgspec.structs.replace(REVIEW, body=body, verdict=verdict)
            with pytest.raises(CallError, match="body") as blank:
                check_shape(ForgeCall(call_id="1", arm=arm))
            assert blank.value.code == "invalid_argument"
    check_shape(ForgeCall(call_id="1", arm=msgspec.structs.replace(REVIEW, body="", verdict="approve")))


async def stale_heads(case: Case) -> None:
    """Lines are sent with the commit in whose diff they were found; one that is gone is told in the forge's words."""
    arm = msgspec.structs.replace(REVIEW, comments=[INLINE])
    _, (posted,) = await submit(arm)
    assert posted["commit_id"] == "a" * 40
    error = await refusal_of(submit(arm, **{"POST pulls/9/reviews": reply_of(case)}))
    assert error.code == "invalid_argument"
    assert "commit_id is not part of the pull request" in error.message


async def replies_to_replies(case: Case) -> None:
    """A reply to a reply stands in the thread that both belong to."""
    shown_as = case.input["forge"][1]["body"]
    chain = [(7, 6), (shown_as["id"], shown_as["in_reply_to_id"]), (5, None)]
    rows = [review_comment_json(number, 9, REPO, in_reply_to_id=to) for number, to in chain]
    shown = await read_pull(**{"GET pulls/9/comments": rows})
    assert [[each.id for each in thread.comments] for thread in shown.threads] == [["5", "6", "7"]]


async def heads_just_pushed(case: Case) -> None:
    """A branch that was pushed a moment ago is waited for once; one that stays unknown is refused by field and code."""
    github, forge = new_github(reply_of(case), answer(201, pull_json(12, REPO)))
    assert (await github.create_pull_request(OPEN, new_context()[0])).number == 12
    assert len(forge.requests) == 2
    github, forge = new_github(reply_of(case), reply_of(case))
    error = await refusal_of(github.create_pull_request(OPEN, new_context()[0]))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert "PullRequest.head: invalid" in error.message
    assert len(forge.requests) == 2


async def refused_creates(case: Case) -> None:
    """A create that is refused says which field and which value, on one line; it is sent once, and is none."""
    told = case.input["forge"][0]["body"]
    github, forge = new_github(reply_of(case))
    desk = Desk(github)
    error = refused(await desk.ask(CREATE, "k-1"))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert "\n" not in error.message
    assert all(each["field"] in error.message for each in told.get("errors", []))
    assert all(each["value"] in error.message for each in told.get("errors", []))
    assert " ".join(told["message"].split())[:80] in error.message
    (posted,) = forge.bodies()
    assert set(posted) == {"title", "body"}


# --- lists ------------------------------------------------------------------------------------------------------------


async def links_of_any_form(case: Case) -> None:
    """A next page is found by whatever words name it, and nothing is lost or comes twice."""
    first, second = case.input["forge"]
    pages = [answer(200, [issue(row["number"]) for row in told["body"]], told["headers"]) for told in (first, second)]
    github, forge = new_github(*pages)
    found = await Desk(github).ask(LISTING)
    assert isinstance(found, IssuesResult)
    assert [each.number for each in found.items] == [1, 2, 3]
    assert dict(forge.requests[1].url.params) == {
        **dict(forge.requests[0].url.params), "after": "Y3Vyc29y", "per_page": "2"
    }  # fmt: skip
    assert forge.requests[1].url.host == "api.github.com"


async def cursors_by_hand(case: Case) -> None:
    """A cursor that no listing handed out is refused as such; nothing is sent."""
    assert "'123'" in case.input["op"]
    for cursor in ("123", "page=2", "i1~0123456789abcdef~0~page=2"):
        github, forge = new_github()
        error = refused(await Desk(github).ask(ListIssues(repo=REPO, cursor=cursor)))
        assert error.code == "invalid_argument"
        assert "cursor" in error.message
        assert forge.requests == []


async def pages_too_far(case: Case) -> None:
    """A page that the forge does not serve any more is refused in its words, and asked for once."""
    told = case.input["forge"][0]
    link = {"link": '<https://api.github.com/x?page=2&per_page=100>; rel="next"'}
    github, forge = new_github(answer(200, [issue(1)], link), answer(told["status"], told["body"]))
    error = refused(await Desk(github).ask(LISTING))
    assert error.code == "invalid_argument"
    assert told["body"]["message"] in error.message
    assert len(forge.requests) == 2


async def pages_to_the_end(_case: Case) -> None:
    """Page after page, every item comes once; a page without items ends it, whatever is said of a next one."""

    @handler
    def page(request: httpx.Request) -> httpx.Response:
        at = int(request.url.params.get("page", "1"))
        rows = [issue(each) for each in range(1020, 0, -1)[(at - 1) * 100 : at * 100]]
        return answer(200, rows, {"link": f'<https://api.github.com/x?per_page=100&page={at + 1}>; rel="next"'})

    desk = Desk(new_github(*[page] * 99)[0])
    seen: list[int] = []
    cursor = ""
    for _ in range(40):
        found = await desk.ask(ListIssues(repo=REPO, limit=30, cursor=cursor))
        assert isinstance(found, IssuesResult)
        seen += [each.number for each in found.items]
        cursor = found.next_cursor
        if not cursor:
            break
    assert seen == list(range(1020, 0, -1))


# --- sizes ------------------------------------------------------------------------------------------------------------


async def too_long(case: Case) -> None:
    """A text that the forge finds too long is refused in its words."""
    error = refused(await Desk(new_github(reply_of(case))[0]).ask(CommentOnIssue(repo=REPO, issue_number=7, body="b")))
    assert (error.code, error.outcome) == ("invalid_argument", "rejected")
    assert "Body is too long" in error.message


async def titles(case: Case) -> None:
    """How long a title may be, the forge says; one that shows nothing, or more than a line, is refused here."""
    told = reply_of(case)
    for title in ("x" * 256, "x" * 257, "x" * 1024, "\U0001f308" * 256):
        github, forge = new_github(answer(201, issue(title=title)))
        made = await Desk(github).ask(CreateIssue(repo=REPO, title=title))
        assert isinstance(made, IssueResult), title
        assert forge.bodies()[0]["title"] == title
    error = refused(await Desk(new_github(told)[0]).ask(CreateIssue(repo=REPO, title="x" * 1025)))
    assert (error.code, "title is too long" in error.message) == ("invalid_argument", True)
    for title in ("a\nb", "   ", "\u200b", "", "\u2060\u3164 ", "a\x00b", "a\u2028b"):
        github, forge = new_github()
        error = refused(await Desk(github).ask(CreateIssue(repo=REPO, title=title)))
        assert (error.code, error.outcome, forge.requests) == ("invalid_argument", "not_sent", []), title


async def diffs_too_large(case: Case) -> None:
    """A diff that the forge does not show keeps no review from being submitted: its comments are folded."""
    variants = case.input.get("variants") or case.input["forge"]
    for told in variants:
        ref, (posted,) = await submit(
            msgspec.structs.replace(REVIEW, comments=[INLINE]),
            **{"GET pulls/9/files": answer(told["status"], told["body"])},
        )
        assert (ref.inline_count, ref.folded_count) == (0, 1)
        assert "> x" in posted["body"]
    github, forge = Hub({}).github()
    await github.submit_review(msgspec.structs.replace(REVIEW, comments=[INLINE]), new_context()[0])
    assert all(request.headers["accept"] == "application/vnd.github+json" for request in forge.requests)


async def many_comments(case: Case) -> None:
    """A pull request with more comments than a reply can hold is read in part, the newest, and says so."""
    assert "400 review comments of 20 kB" in case.input["forge"][0]

    @handler
    def page(request: httpx.Request) -> httpx.Response:
        at, size = (int(request.url.params[name]) for name in ("page", "per_page"))
        numbers = range(400, 0, -1)[(at - 1) * size : at * size]
        return answer(200, [review_comment_json(each, 9, REPO, body="x" * 20_000) for each in numbers])

    async def reply(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/pulls/9/comments"):
            return await page(request)
        if path.endswith("/pulls/9"):
            return answer(200, pull())
        return answer(200, {"check_runs": [], "statuses": []} if "/commits/" in path else [])

    github, _ = new_github(*[reply] * 20)
    shown = await github.get_pull_request(GET, new_context()[0])
    ids = [int(thread.comments[0].id) for thread in shown.threads]
    assert ids == list(range(ids[0], 401))
    assert len(msgspec.msgpack.encode(shown)) < REPLY_MAX_BYTES // 2
    assert shown.warnings == [f"only the newest {len(ids)} review comments are shown"]


async def large_frames(_case: Case) -> None:
    """The largest texts that a forge takes fit into a frame, and replies into theirs; both ends agree on how large."""
    forge = FakeProvider(body_limit=0)
    async with running(forge) as daemon:
        client = await daemon.connect()
        async with client.stream:
            widest = "\U0001f308" * 65_000
            create = call_of(CreateIssue(repo=REPO, title="t", body=widest), "c")
            assert len(encode_call(create)) < FRAME_MAX_BYTES
            await client.send(create)
            made = await client.reply()
            assert isinstance(made, ResultFrame)
            assert isinstance(made.result, IssueResult)
            number = made.result.issue.number
            stored = forge.issues[REPO, number]
            for size in (129 << 10, 1 << 20, REPLY_MAX_BYTES - (16 << 10)):
                stored.body = "x" * size
                await client.send(call_of(GetIssue(repo=REPO, issue_number=number), "g"))
                read = await client.reply()
                assert isinstance(read, ResultFrame)
                assert isinstance(read.result, IssueResult), read.result
                assert len(read.result.issue.body) == size


async def bombs(_case: Case) -> None:
    """An answer that unfolds without end, or announces one, is let go at the cap; the next call works."""
    bomb = gzip.compress(b"[" * (64 << 20), 9)

    async def explode(stream: trio.SocketStream, _method: str, path: str) -> None:
        if path.endswith("/issues/1"):
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
            await stream.send_all(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(bomb), bomb))
        elif path.endswith("/issues/2"):
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
            await stream.aclose()
        else:
            content = json.dumps(issue(3)).encode()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    async with raw_forge(explode) as forge, github_at(forge.port) as (github, _):
        desk = Desk(github)
        for number in (1, 2):
            error = refused(await desk.ask(GetIssue(repo=REPO, issue_number=number)))
            assert error.code in {"unavailable", "internal"}
        read = await desk.ask(GetIssue(repo=REPO, issue_number=3))
        assert isinstance(read, IssueResult)
    assert len(bomb) < BODY_MAX_BYTES


# --- bytes ------------------------------------------------------------------------------------------------------------

WRITES: tuple[Callable[[str], Arm], ...] = (
    lambda body: CreateIssue(repo=REPO, title="t", body=body),
    lambda body: CommentOnIssue(repo=REPO, issue_number=7, body=body),
    lambda body: CreatePullRequest(repo=REPO, title="t", head_ref="topic", base_ref="main", body=body),
    lambda body: CommentOnPullRequest(repo=REPO, pull_number=7, body=body),
    lambda body: SubmitReview(repo=REPO, pull_number=9, verdict="comment", body=body),
    lambda body: SubmitReview(
        repo=REPO, pull_number=9, verdict="comment", body="b", comments=[InlineComment(path="a.c", line=10, body=body)]
    ),
)


async def texts_as_they_are(case: Case) -> None:
    """A text is written byte for byte as it was sent, by every arm."""
    assert "literal backslash n" in case.input["op"]
    for body in ("line1\\nline2", "a\r\nb\rc\n", "  \ttrailing  \n\n", "\\u0041 \\x00 %0A &amp; é\u0301 \U0001f308"):
        github, forge = Hub(
            {
                "POST issues": answer(201, issue()),
                "POST pulls": answer(201, pull()),
                "POST pulls/9/reviews": [answer(200, submitted()), answer(200, submitted())],
                "POST issues/7/comments": [answer(201, comment_json(number, 7, REPO)) for number in (1, 2)],
            }
        ).github()
        context, _ = new_context()
        for write in WRITES:
            match write(body):
                case CreateIssue() as arm:
                    await github.create_issue(arm, context)
                case CommentOnIssue() as arm:
                    await github.comment_on_issue(arm, context)
                case CreatePullRequest() as arm:
                    await github.create_pull_request(arm, context)
                case CommentOnPullRequest() as arm:
                    await github.comment_on_pull_request(arm, context)
                case SubmitReview() as arm:
                    await github.submit_review(arm, context)
        posted = [json.loads(request.content) for request in forge.requests if request.method == "POST"]
        assert [each["body"] for each in posted] == [body] * 5 + ["b"]
        assert posted[5]["comments"][0]["body"] == body
        assert owner.strip(owner.stamp(body, owner.Author("a", "b", "c"), 0)) == body


async def no_nul_is_written(case: Case) -> None:
    """A NUL character is refused wherever an agent may put one, before a forge or a store is asked."""
    body = case.input["request"]["body"]
    arms = [write(body) for write in WRITES]
    arms += [
        CreateIssue(repo=REPO, title=body),
        CreateIssue(repo=REPO, title="t", labels=[body]),
        CreatePullRequest(repo=REPO, title="t", head_ref=body),
        CreatePullRequest(repo=REPO, title="t", head_ref="topic", base_ref=body),
        msgspec.structs.replace(REVIEW, comments=[InlineComment(path=body, line=1, body="x")]),
    ]
    github, forge = new_github()
    desk = Desk(github)
    for arm in arms:
        error = refused(await desk.ask(arm))
        assert (error.code, error.outcome) == ("invalid_argument", "not_sent"), arm
    assert refused(await desk.ask(CREATE, body)).code == "invalid_argument"
    assert forge.requests == []


async def edited_by_hand(_case: Case) -> None:
    """A text that a person's browser has given other line ends keeps its header, and its create its memo."""
    github, forge = new_github(answer(201, issue()))
    desk = Desk(github)
    made = await desk.ask(msgspec.structs.replace(CREATE, body="one\n\ntwo\n"), "k-1")
    assert isinstance(made, IssueResult)
    edited = forge.bodies()[0]["body"].replace("\n", "\r\n").rstrip()
    forge.script += [answer(200, issue(body=edited)), answer(200, [issue(body=edited)])]
    for arm in (READ, LISTING):
        found = await desk.ask(arm)
        read = found.items[0] if isinstance(found, IssuesResult) else getattr(found, "issue", None)
        assert isinstance(read, Issue)
        assert read.body == "one\r\n\r\ntwo"
        assert read.attribution is not None
        assert (read.attribution.agent, read.attribution.owner) == ("scout", "ada")
    again = await desk.ask(msgspec.structs.replace(CREATE, body="one\n\ntwo\n"), "k-1")
    assert isinstance(again, IssueResult)
    assert again.issue.replayed
    assert len(forge.requests) == 3


async def one_header(_case: Case) -> None:
    """A text that comes back with other line ends and is written anew has one header, and is otherwise untouched."""
    author = owner.Author("scout", "ada", "s-1")
    body = "the human's text\r\n\r\n> a quote\r\n"
    once = owner.stamp(body, author, 0)
    for _ in range(3):
        once = owner.stamp(once.replace("\r\n", "\n").replace("\n", "\r\n"), author, 0)
        assert once.count("compass:owner") == 1
        assert owner.strip(once) == body
    github, forge = new_github(answer(201, comment_json(1, 7, REPO)))
    result = await Desk(github).ask(CommentOnIssue(repo=REPO, issue_number=7, body=once))
    assert isinstance(result, IssueCommentResult)
    assert forge.bodies()[0]["body"].count("compass:owner") == 1
