"""Linear over the real socket and real HTTP, with the daemon in a process of its own."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest
import trio

from compass_forged import owner
from compass_forged.agent import ForgeCall, ForgeCallFailed, connect
from compass_forged.emulator.app import Forge
from compass_forged.emulator.linear_app import LinearForge
from compass_forged.emulator.linear_seed import default_linear_seed
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    CreatePullRequest,
    ForgeSelector,
    GetIssue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
)
from tests.support.linear import TOKEN
from tests.support.postgres import fresh_database
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, DaemonProcess, Place, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]

CREATE = CreateIssue(repo="ENG", title="Broken", body="It broke.\n\n🚧", labels=["bug"])


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


@asynccontextmanager
async def running(where: Place) -> AsyncGenerator[tuple[LinearForge, DaemonProcess], None]:
    """Both halves of the forge in this process, the daemon in its own."""
    linear = LinearForge(default_linear_seed(TOKEN))
    github = Forge(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}))
    async with serve_forge(github) as url, serve_forge(linear) as linear_url:
        secret = where.root / "linear"
        secret.touch(mode=0o600)
        secret.write_text(TOKEN)
        more = f'[[forge]]\nprovider = "linear"\nbase_url = "{linear_url}"\nauthor = {{ file = "{secret}" }}\n'
        dsn = await trio.to_thread.run_sync(fresh_database)
        where.configure(url, store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn}, extra=more)
        daemon = DaemonProcess(where)
        try:
            await trio.to_thread.run_sync(daemon.wait_ready)
            await trio.to_thread.run_sync(bind, where)
            yield linear, daemon
        finally:
            daemon.close()


def bind(where: Place) -> None:
    with where.control() as control:
        control.open_container("one")
        control.bind_session("one", "s-scout", agent="scout", owner="ada")


async def ask(where: Place, arm: Arm, key: str = "") -> object:
    async with connect(where.socket("one")) as client:
        call = ForgeCall(call_id="c-1", arm=arm, forge=ForgeSelector("linear"), client_request_id=key)
        return await client.forge(call)


async def test_linear_is_written_to_once_read_back_and_known_after_a_kill(where: Place) -> None:
    async with running(where) as (linear, daemon):
        made = await ask(where, CREATE, "k-1")
        assert isinstance(made, IssueResult)
        held = linear.state.issue("ENG-2")
        claim = owner.parse(held.description or "")
        assert claim is not None
        assert (claim.agent, claim.owner, claim.session) == ("scout", "ada", "s-scout")
        assert held.author.as_user == "Compass"
        assert (made.issue.number, made.issue.body, made.issue.labels) == (2, CREATE.body, ["Bug"])

        comment = await ask(where, CommentOnIssue(repo="ENG", issue_number=2, body="Seen."))
        listed = await ask(where, ListIssues(repo="eng"))
        assert isinstance(comment, IssueCommentResult)
        assert isinstance(listed, IssuesResult)
        assert [issue.number for issue in listed.items] == [2, 1]

        await trio.to_thread.run_sync(daemon.kill)
        again = DaemonProcess(where)
        try:
            await trio.to_thread.run_sync(again.wait_ready)
            replayed = await ask(where, CREATE, "k-1")
            read = await ask(where, GetIssue(repo="ENG", issue_number=2))
            with pytest.raises(ForgeCallFailed) as refused:
                await ask(where, CreatePullRequest(repo="ENG", title="t", head_ref="topic"))
        finally:
            again.close()
        assert isinstance(replayed, IssueResult)
        assert (replayed.issue.number, replayed.issue.replayed) == (2, True)
        assert isinstance(read, IssueResult)
        assert [each.body for each in read.issue.comments] == ["Seen."]
        assert refused.value.code == "unimplemented"
        assert linear.log.count("POST", "/graphql/IssueCreate") == 1


async def test_a_daemon_killed_between_the_yes_and_the_record_creates_no_second_issue(where: Place) -> None:
    async with running(where) as (linear, daemon):
        linear.script.add(Rule(path="/graphql/IssueCreate", delay_after=30))
        async with trio.open_nursery() as nursery:

            async def create() -> None:
                with pytest.raises(Exception):  # noqa: B017, PT011 -- however the connection ends
                    await ask(where, CREATE, "k-1")

            nursery.start_soon(create)
            with trio.fail_after(10):
                while not linear.state.titled("Broken"):  # noqa: ASYNC110 -- another process's doing
                    await trio.sleep(0.01)
            await trio.to_thread.run_sync(daemon.kill)
            nursery.cancel_scope.cancel()
        again = DaemonProcess(where)
        try:
            await trio.to_thread.run_sync(again.wait_ready)
            found = await ask(where, CREATE, "k-1")
        finally:
            again.close()
        assert isinstance(found, IssueResult)
        assert (found.issue.number, found.issue.replayed) == (2, True)
        assert len(linear.state.titled("Broken")) == 1
