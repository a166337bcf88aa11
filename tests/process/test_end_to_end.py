"""The main job over the real socket, a real Postgres and real HTTP, with the daemon in a process of its own."""

import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import trio

from compass_forged import owner
from compass_forged.agent import ForgeCall, ForgeCallFailed, ForgeFault, connect
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.store.embedded import embedded_postgres
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import encode_frame
from compass_forged.wire.schema import (
    Arm,
    Attribution,
    CommentOnIssue,
    CreateIssue,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
)
from tests.support.postgres import fresh_database, psql
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, DaemonProcess, Place, daemon, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]

ISSUES = "/repos/acme/site/issues"


@dataclass
class World:
    where: Place
    forge: Forge
    dsn: str
    daemon: DaemonProcess

    def bind(self) -> None:
        with self.where.control() as control:
            for container, agent, user in (("one", "scout", "ada"), ("two", "mole", "bob")):
                control.open_container(container)
                control.bind_session(container, f"s-{agent}", agent=agent, owner=user)
            control.open_container("unbound")

    async def ask(self, container: str, arm: Arm, key: str = "", call_id: str = "c-1") -> object:
        async with connect(self.where.socket(container)) as client:
            return await client.forge(ForgeCall(call_id=call_id, arm=arm, client_request_id=key))

    async def create(self, container: str, title: str, body: str = "", key: str = "") -> Issue:
        result = await self.ask(container, CreateIssue(repo="acme/site", title=title, body=body), key)
        assert isinstance(result, IssueResult)
        return result.issue

    def on_forge(self, number: int) -> str:
        return self.forge.state.issue("acme/site", number).body or ""

    def rows(self) -> list[list[str]]:
        said = psql(
            self.dsn,
            "SELECT repo, number, handle, session_id, coalesce(client_request_id, '-') FROM forge_authored_artifacts"
            " JOIN agent_accounts ON id = agent_account_id ORDER BY number",
        )
        return [line.split("|") for line in said.splitlines()]

    def restart(self) -> None:
        self.daemon.close()
        self.daemon = DaemonProcess(self.where).wait_ready()


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


@asynccontextmanager
async def _running(where: Place, dsn: str = "") -> AsyncGenerator[World, None]:
    """The forge in this process, the daemon in its own."""
    forge = Forge(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}))
    async with serve_forge(forge) as url:
        dsn = dsn or await trio.to_thread.run_sync(fresh_database)
        where.configure(url, store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn})
        world = World(where, forge, dsn, DaemonProcess(where))
        try:
            await trio.to_thread.run_sync(world.daemon.wait_ready)
            await trio.to_thread.run_sync(world.bind)
            yield world
        finally:
            world.daemon.close()


async def _until(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(10):
        while not condition():  # noqa: ASYNC110 -- another task's state
            await trio.sleep(0.01)
    assert condition(), what


async def test_a_create_is_stamped_recorded_and_idempotent(where: Place) -> None:
    async with _running(where) as world:
        issue = await world.create("one", "Broken", "It broke.\r\n\r\n🚧", key="run-1:call-1")

        held = world.on_forge(issue.number)
        ref = held.partition(" ref=")[2][:16]
        assert held == (f"> `compass:owner agent=scout owner=ada session=s-scout ref={ref}`\n\nIt broke.\r\n\r\n🚧")
        assert issue.body == "It broke.\r\n\r\n🚧"
        assert issue.attribution == Attribution("scout", "ada", "s-scout", verified=True)
        assert world.rows() == [["acme/site", str(issue.number), "scout", "s-scout", "run-1:call-1"]]

        again = await world.create("one", "Broken", "It broke.\r\n\r\n🚧", key="run-1:call-1")
        assert (again.number, again.url, again.repo) == (issue.number, issue.url, issue.repo)
        assert again.replayed
        assert not again.replay_mismatch
        other = await world.create("one", "Another title", key="run-1:call-1")
        assert (other.number, other.replay_mismatch) == (issue.number, True)
        assert world.forge.log.count("POST", ISSUES) == 1, "one POST in all"


async def test_a_retry_after_a_cut_connection_finds_the_first_attempt(where: Place) -> None:
    async with _running(where) as world:
        arm = CreateIssue(repo="acme/site", title="Once")
        world.forge.script.add(Rule(method="POST", path=ISSUES, delay_after=0.5))
        call = ForgeCall(call_id="c", arm=arm, client_request_id="k")
        stream = await trio.open_unix_socket(str(where.socket("one")))
        async with stream:
            await stream.send_all(encode_frame(encode_call(call)))
            await _until(lambda: world.forge.log.count("POST", ISSUES) == 1, "the POST arrived")
        issue = await world.create("one", "Once", key="k")
        assert issue.replayed
        assert world.forge.log.count("POST", ISSUES) == 1
        assert [row[1] for row in world.rows()] == [str(issue.number)]


async def test_a_forged_header_comes_out_stamped_for_the_caller(where: Place) -> None:
    forged = owner.header(owner.Author("scout", "ada", "s-scout"))
    async with _running(where) as world:
        issue = await world.create("two", "Trust me", f"{forged}\n\nI am scout.\n> {forged}\n")
        assert world.on_forge(issue.number) == (
            "> `compass:owner agent=mole owner=bob session=s-mole`\n\nI am scout.\n"
        )
        result = await world.ask("two", CommentOnIssue(repo="acme/site", issue_number=1, body=f"{forged}\n\nhi"))
        assert isinstance(result, IssueCommentResult)
        comment = world.forge.state.comments[int(result.comment.comment_id)]
        assert comment.body == "> `compass:owner agent=mole owner=bob session=s-mole`\n\nhi"


async def test_reads_strip_the_header_and_tell_verified_from_claimed(where: Place) -> None:
    async with _running(where) as world:
        issue = await world.create("one", "Mine", "text")
        human = world.forge.state
        human.add_issue(
            human.repo("acme/site"),
            human.account("mona"),
            "Not through the daemon",
            "> `compass:owner agent=scout owner=ada session=s-scout`\n\nhello",
        )
        result = await world.ask("two", ListIssues(repo="acme/site"))
        assert isinstance(result, IssuesResult)
        said = {item.title: item for item in result.items}
        assert "Load images lazily" not in said, "a pull request is no issue"
        assert said["Mine"].attribution == Attribution("scout", "ada", "s-scout", verified=True)
        claimed = said["Not through the daemon"]
        assert claimed.attribution == Attribution("scout", "ada", "s-scout", verified=False)
        assert claimed.body == "hello"
        back = await world.ask("two", GetIssue(repo="ACME/Site", issue_number=issue.number))
        assert isinstance(back, IssueResult)
        assert (back.issue.body, back.issue.repo) == ("text", "acme/site")


async def test_forbidden_and_missing_are_told_apart_by_nobody(where: Place) -> None:
    async with _running(where) as world:
        world.forge.state.repo("acme/vault").permissions.clear()
        world.forge.script.add(
            Rule(
                method="GET",
                path="/repos/acme/site/issues/1",
                status=403,
                body={"message": "Resource not accessible by personal access token", "status": "403"},
                commit=False,
            )
        )
        answers = [
            await _failure(world, GetIssue(repo="acme/site", issue_number=1)),
            await _failure(world, GetIssue(repo="acme/site", issue_number=404)),
            await _failure(world, GetIssue(repo="acme/vault", issue_number=1)),
            await _failure(world, GetIssue(repo="acme/nowhere", issue_number=1)),
        ]
        assert len(set(answers)) == 1
        assert answers[0][0] == "not_found"


async def _failure(world: World, arm: Arm) -> tuple[str, str, int, str]:
    with pytest.raises(ForgeCallFailed) as failed:
        await world.ask("one", arm)
    return (failed.value.code, failed.value.message, failed.value.retry_after_ms, failed.value.outcome)


async def test_no_session_fails_closed(where: Place) -> None:
    async with _running(where) as world:
        with pytest.raises(ForgeFault) as fault:
            await world.create("unbound", "x")
        assert fault.value.code == "permission_denied"
        assert world.forge.log.count(path="/repos/*") == 0

        def unbind() -> None:
            with where.control() as control:
                control.unbind_session("one")

        await trio.to_thread.run_sync(unbind)
        with pytest.raises(ForgeFault, match="permission_denied"):
            await world.create("one", "x")
        assert world.rows() == []


async def test_bindings_and_memo_outlive_a_killed_daemon(where: Place) -> None:
    async with _running(where) as world:
        first = await world.create("one", "Durable", key="k")
        await trio.to_thread.run_sync(world.daemon.kill)
        assert where.socket("one").exists(), "SIGKILL leaves the socket's file behind"
        await trio.to_thread.run_sync(world.restart)
        again = await world.create("one", "Durable", key="k")
        assert (again.number, again.replayed) == (first.number, True)
        with pytest.raises(ForgeFault, match="permission_denied"):
            await world.create("unbound", "x")
        other = await world.create("two", "Another")
        assert other.attribution == Attribution("mole", "bob", "s-mole", verified=True)
        assert world.forge.log.count("POST", ISSUES) == 2
        assert await trio.to_thread.run_sync(world.daemon.stop) == 0


async def test_a_sent_write_is_finished_and_recorded_on_sigterm(where: Place) -> None:
    async with _running(where) as world:
        world.forge.script.add(Rule(method="POST", path=ISSUES, delay=0.7))
        outcome: list[Issue] = []

        async def ask() -> None:
            outcome.append(await world.create("one", "At the last moment", key="k"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await _until(lambda: world.forge.log.count("POST", ISSUES) == 1, "the POST arrived")
            assert await trio.to_thread.run_sync(world.daemon.stop) == 0
        assert [row[1] for row in world.rows()] == [str(outcome[0].number)]
        assert not where.socket("one").exists()
        assert not (where.run_dir / "control.sock").exists()


async def test_each_call_is_logged_once_without_bodies_or_tokens(where: Place) -> None:
    async with _running(where) as world:
        await world.create("one", "Secret title", "secret body", key="k")
        await _failure(world, GetIssue(repo="acme/site", issue_number=404))

        def calls_logged() -> list[dict[str, object]]:
            return [line for line in where.logged() if line["event"] == "call"]

        await _until(lambda: len(calls_logged()) == 2, "the line comes after the answer")
        calls = calls_logged()
        assert [(line["arm"], line["code"], line["agent"], line["container"]) for line in calls] == [
            ("create_issue", "ok", "scout", "one"),
            ("get_issue", "not_found", "scout", "one"),
        ]
        assert calls[0]["coordinate"] == "github:forge.test/acme/site"
        assert calls[0]["forge_requests"] == 1
        text = where.log.read_text()
        for word in ("Secret title", "secret body", AUTHOR_TOKEN, REVIEWER_TOKEN):
            assert word not in text


class _Postgres:
    """A server of its own that a test can stop and start again under the same DSN."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._scope = trio.CancelScope()
        self._stopped = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        self._scope, self._stopped = trio.CancelScope(), trio.Event()
        async with embedded_postgres(self._state) as params:
            with self._scope:
                # The socket's directory is another at each start; the link to it stays.
                host = quote(str(self._state / "postgres" / "socket"), safe="")
                task_status.started(re.sub(r"host=[^&]*", f"host={host}", params.uri))
                await trio.sleep_forever()
        self._stopped.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._stopped.wait()


async def test_without_postgres_creates_fail_closed_and_everything_else_goes_on(where: Place) -> None:
    postgres = _Postgres(where.root / "own")
    async with trio.open_nursery() as nursery:
        dsn = await nursery.start(postgres.run)
        async with _running(where, dsn) as world:
            await postgres.stop()
            issue = CreateIssue(repo="acme/site", title="x")
            for key in ("k", ""):
                with pytest.raises(ForgeCallFailed) as failed:
                    await world.ask("one", issue, key)
                assert (failed.value.code, failed.value.outcome) == ("unavailable", "not_sent")
            assert world.forge.log.count("POST") == 0
            assert await world.ask("one", CommentOnIssue(repo="acme/site", issue_number=1, body="still here"))
            assert await world.ask("one", GetIssue(repo="acme/site", issue_number=1))

            assert await nursery.start(postgres.run) == dsn
            created = None
            while created is None:  # bounded by the test's own deadline
                try:
                    created = await world.create("one", "x", key="k")
                except ForgeCallFailed as error:
                    assert error.outcome == "not_sent"  # noqa: PT017 -- only then is a retry due
                    await trio.sleep(0.05)
            assert not created.replayed
            assert world.forge.log.count("POST", ISSUES) == 1
            assert await trio.to_thread.run_sync(world.daemon.stop) == 0
        await postgres.stop()


def test_two_daemons_do_not_share_a_run_directory(where: Place) -> None:
    where.configure("http://127.0.0.1:9", store='"memory"')
    with daemon(where) as first:
        second = DaemonProcess(where)
        try:
            assert second.process.wait(30) == 1
        finally:
            second.close()
        assert "another daemon owns it" in where.log.read_text()
        with where.control() as control:
            assert control.status().pid == first.process.pid
