"""Replays of the cases about redirects, refusals of credentials and rights, and connections that must come back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import structlog.testing
import trio

from compass_forged.errors import StoreUnavailable
from compass_forged.ports import AuthoredArtifact, TokenSource
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_identity import learn_identity
from compass_forged.providers.http import CONCURRENCY_MAX, HttpTransport
from compass_forged.providers.identity import Identity
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import (
    CommentOnIssue,
    CreateIssue,
    GetIssue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
)
from tests.support.cases import Case, Desk, github_at, http_answer, never, raw_forge, refused
from tests.support.forge_http import answer, comment_json, issue_json, new_github

READ = GetIssue(repo="acme/widget", issue_number=7)
COMMENT = CommentOnIssue(repo="acme/widget", issue_number=7, body="hello")
CREATE = CreateIssue(repo="acme/widget", title="t", body="b")
LISTING = ListIssues(repo="acme/widget")
PLACE = "https://api.github.com/repositories/1000000003"


# --- redirects ------------------------------------------------------------------------------------------------------


async def a_renamed_repository_gets_its_issue(_case: Case) -> None:
    """The create is sent again whole to the new place, once that has been looked at; nothing goes elsewhere."""
    github, forge = new_github(
        answer(307, {"message": "Moved Permanently"}, {"location": f"{PLACE}/issues"}),
        answer(200, {"full_name": "acme/gadget"}),
        answer(201, issue_json(1, "acme/gadget")),
    )
    result = await Desk(github).ask(CREATE)
    assert isinstance(result, IssueResult)
    assert (result.issue.repo, result.issue.number) == ("acme/gadget", 1)
    first, _, last = forge.requests
    assert (first.method, last.method, first.content) == ("POST", "POST", last.content)
    assert b"compass:owner" in last.content
    assert {request.url.host for request in forge.requests} == {"api.github.com"}


async def a_renamed_repository_s_list_is_followed(_case: Case) -> None:
    """The list comes from the new place with its query; an object where a list is due is never an empty list."""
    moved = answer(301, {"message": "Moved Permanently"}, {"location": f"{PLACE}/issues?state=open&labels="})
    github, forge = new_github(moved, answer(200, [issue_json(1, "acme/gadget")]))
    result = await Desk(github).ask(LISTING)
    assert isinstance(result, IssuesResult)
    assert [issue.number for issue in result.items] == [1]
    assert forge.requests[1].url.query == b"state=open&labels="
    github, _ = new_github(answer(200, {"message": "Moved Permanently"}))
    assert refused(await Desk(github).ask(LISTING)).code == "internal"


async def redirects_that_lead_nowhere(_case: Case) -> None:
    """To itself, to another host, nowhere, or out of TLS: bounded, and the token stays."""
    for location in (
        "https://api.github.com/repos/acme/widget/issues/7",
        "https://evil.invalid/repositories/1/issues/7",
        "http://api.github.com/repositories/1/issues/7",
        "//evil.invalid/x",
        "",
    ):
        headers = {"location": location} if location else {}
        github, forge = new_github(*[answer(302, {}, headers)] * 9)
        with trio.fail_after(1):
            error = refused(await Desk(github).ask(READ))
        assert error.code == "not_found"
        assert len(forge.requests) <= 4
        assert {(request.url.scheme, request.url.host) for request in forge.requests} == {("https", "api.github.com")}


async def an_enterprise_that_moved(_case: Case) -> None:
    """A redirect to another host is told as one, and never as a bad credential."""
    headers = {"location": "https://gh.foo.invalid/api/v3/repos/acme/widget/issues/7", "content-type": "text/html"}
    github, forge = new_github(answer(307, b"<a href=...>Temporary Redirect</a>.", headers))
    error = refused(await Desk(github).ask(READ))
    assert (error.code, len(forge.requests)) == ("not_found", 1)
    assert not github.http.credential.broken


# --- credentials and rights -----------------------------------------------------------------------------------------


async def rights_are_no_limit(case: Case) -> None:
    """A refusal for want of rights is one request, looks as a 404 does, and shuts no gate."""
    steps = [step for step in case.input.get("forge", case.input.get("variants", [])) if step["status"] == 403]
    for step in steps:
        for arm in (COMMENT, READ, LISTING, CREATE):
            github, forge = new_github(answer(403, step["body"], step["headers"]))
            with structlog.testing.capture_logs() as logs:
                error = refused(await Desk(github).ask(arm))
            missing = refused(await Desk(new_github(answer(404, {"message": "Not Found"}))[0]).ask(arm))
            assert error == missing
            assert (error.code, error.retry_after_ms, len(forge.requests)) == ("not_found", 0, 1)
            assert github.http.gate.statistics().budget.closed_for == 0
            assert any(line["event"] == "the forge refuses" and line["status"] == 403 for line in logs)


async def a_single_401(_case: Case) -> None:
    """A token that is refused once is read anew and the write goes out again: a 401 has no effect."""
    github, forge = new_github(
        answer(401, {"message": "Bad credentials"}), answer(201, comment_json(91, repo="acme/widget"))
    )
    result = await Desk(github).ask(COMMENT)
    assert isinstance(result, IssueCommentResult)
    assert (result.comment.comment_id, len(forge.requests)) == ("91", 2)


async def a_forge_out_of_reach_is_no_bad_token(_case: Case) -> None:
    """No name, no connection, no TLS: unavailable, whatever is asked, and the role is not broken."""
    for failure in (httpx.ConnectError("EAI_AGAIN"), httpx.ConnectTimeout("refused"), httpx.ConnectError("TLS")):
        for arm in (READ, COMMENT):
            github, _ = new_github(*[failure] * 3, jitter=-0.5)
            error = refused(await Desk(github).ask(arm))
            assert error.code == "unavailable"
            assert not github.http.credential.broken


async def an_installation_token_serves(_case: Case) -> None:
    """A token that the forge names to nobody is one all the same."""
    github, _ = new_github(
        answer(403, {"message": "Resource not accessible by integration"}), answer(201, issue_json(7, "acme/widget"))
    )
    assert await learn_identity(github.http) == Identity("installation", 0, "")
    assert isinstance(await Desk(github).ask(CREATE), IssueResult)


async def a_token_in_the_forge_s_words(_case: Case) -> None:
    """Wherever the forge puts it, the token is in no answer and in no line of the log."""
    secret = "ghs_SECRETSECRETSECRET"

    class Source(TokenSource):
        async def token(self) -> str:
            await trio.lowlevel.checkpoint()
            return secret

        def invalidate(self) -> None: ...

    said = {"message": f"Bad credentials using token {secret}", "errors": [secret]}
    steps: tuple[httpx.Response | Exception, ...] = (
        *(answer(status, said) for status in (400, 401, 403, 404, 410, 422, 500)),
        answer(301, said, {"location": f"https://evil.invalid/?access_token={secret}"}),
        answer(200, said, {"link": f'<https://api.github.com/x?access_token={secret}>; rel="next"'}),
        httpx.ReadError(f"headers: Authorization: Bearer {secret}"),
    )
    for step in steps:
        for arm in (READ, CREATE):
            github, _ = new_github(*[step] * 3, source=Source(), jitter=-0.5)
            with structlog.testing.capture_logs() as logs:
                result = await Desk(github).ask(arm)
            assert secret not in repr(result)
            assert secret not in repr([{**line, "exc_info": None} for line in logs])


# --- connections ----------------------------------------------------------------------------------------------------


class _Switch:
    """A forge that leaves its answers half said until it is mended."""

    def __init__(self, half: bytes = b"", status: int = 200) -> None:
        self.half = half
        self._whole = http_answer(issue_json(7, "acme/widget"), status)

    async def __call__(self, stream: trio.SocketStream, _method: str, _path: str) -> None:
        if self.half:
            await stream.send_all(self.half)
            await never(stream, "", "")
        else:
            await stream.send_all(self._whole)


@asynccontextmanager
async def _reached(switch: _Switch) -> AsyncIterator[tuple[GitHubProvider, HttpTransport]]:
    async with raw_forge(switch) as forge, github_at(forge.port) as (github, transport):
        yield github, transport
        await transport.aclose()
        await forge.deserted()


async def a_deadline_within_the_body(_case: Case) -> None:
    """Fifty calls whose bodies drip until their deadlines: every connection is closed, and the next call is served."""
    switch = _Switch(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{")
    async with _reached(switch) as (github, transport):
        desk = Desk(github)
        await desk.ask(GetIssue(repo="acme/widget", issue_number=0))  # refused; it binds the session
        async with trio.open_nursery() as nursery:

            async def given_up(number: int) -> None:
                with trio.move_on_after(0.1):
                    await desk.ask(GetIssue(repo="acme/widget", issue_number=number))

            for number in range(1, 51):
                nursery.start_soon(given_up, number)
        assert transport.free_slots == CONCURRENCY_MAX
        assert transport.idle_connections == 0
        switch.half = b""
        with trio.fail_after(5):
            assert isinstance(await desk.ask(READ), IssueResult)


async def errors_with_large_bodies(_case: Case) -> None:
    """Refusals with bodies of 200 kB, and one beyond the cap: read or closed, and no slot is lost."""
    for status in (302, 403, 404, 422, 429, 500):
        body = b"x" * 200_000

        async def serve(
            stream: trio.SocketStream, _method: str, path: str, status: int = status, body: bytes = body
        ) -> None:
            if path.endswith("/7"):
                await stream.send_all(http_answer(issue_json(7, "acme/widget")))
            else:
                head = b"HTTP/1.1 %d X\r\nretry-after: 1\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
                await stream.send_all(head + body)

        async with raw_forge(serve) as forge, github_at(forge.port) as (github, transport):
            async with trio.open_nursery() as nursery:

                async def asked(number: int, github: GitHubProvider = github) -> None:
                    with trio.move_on_after(0.5):
                        await Desk(github).ask(GetIssue(repo="acme/widget", issue_number=100 + number))

                for number in range(25):
                    nursery.start_soon(asked, number)
            assert transport.free_slots == CONCURRENCY_MAX
            assert transport.idle_connections <= CONCURRENCY_MAX
            with trio.fail_after(5):
                assert isinstance(await Desk(github).ask(READ), IssueResult)


async def a_store_that_dies_after_the_answer(_case: Case) -> None:
    """Twenty creates whose records are lost: their connections are back, and the next create is served and recorded."""

    class Dying(MemoryStore):
        failing = True

        async def record_authored_artifact(self, artifact: AuthoredArtifact) -> None:
            if self.failing:
                raise StoreUnavailable("the store is out of reach")
            await super().record_authored_artifact(artifact)

    store = Dying()
    async with _reached(_Switch(status=201)) as (github, transport):
        desk = Desk(github, store)
        async with trio.open_nursery() as nursery:

            async def created(number: int) -> None:
                with trio.move_on_after(0.2):
                    await desk.ask(CREATE, f"key-{number:04}")

            for number in range(20):
                nursery.start_soon(created, number)
        assert transport.free_slots == CONCURRENCY_MAX
        store.failing = False
        with trio.fail_after(5):
            result: Any = await desk.ask(CREATE, "key-last")
        assert isinstance(result, IssueResult) or result.code == "unavailable"
        assert transport.free_slots == CONCURRENCY_MAX
