"""What the demo shows, scene by scene. Each claim is checked as it is made; one that does not hold ends the demo."""

import importlib.resources
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import trio

from compass_forged import owner
from compass_forged.agent import ForgeBroker, ForgeClient, ForgeFault, connect
from compass_forged.daemon import Daemon
from compass_forged.demo.show import SceneFailed, Stage
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.listener import SOCKET_NAME
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import encode_frame
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    ForgeCall,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    ResultArm,
)

REPO: Final = "acme/site"
_ISSUES: Final = "/repos/acme/site/issues"
_WAIT_SECONDS: Final = 10.0
_R = TypeVar("_R", bound=ResultArm)


@dataclass(slots=True)
class World:
    """What the scenes play in."""

    stage: Stage
    forge: Forge
    daemon: Daemon
    broker: ForgeBroker
    scout: ForgeClient
    mole: ForgeClient
    calls: int = 0

    def socket(self, container: str) -> Path:
        """A container's socket."""
        return self.daemon.run_dir / "containers" / container / SOCKET_NAME

    def call(self, arm: Arm, key: str = "") -> ForgeCall:
        """A call with a fresh id."""
        self.calls += 1
        return ForgeCall(call_id=f"demo-{self.calls}", arm=arm, client_request_id=key)

    def on_forge(self, number: int) -> str:
        """An issue's body as the forge holds it."""
        return self.forge.state.issue(REPO, number).body or ""

    def comments_on_forge(self, number: int) -> list[str]:
        """An issue's comments as the forge holds them, oldest first."""
        state = self.forge.state
        return [state.comments[comment].body for comment in state.issue(REPO, number).comments]

    def issues_titled(self, title: str) -> int:
        """How many issues of this title stand on the forge."""
        repo = self.forge.state.repo(REPO)
        return sum(issue.title == title for issue in repo.issues.values())


def body(name: str) -> str:
    """One of the bodies that are kept with the package: Markdown as people and tools write it."""
    return (importlib.resources.files("compass_forged.demo") / "bodies" / name).read_bytes().decode()


async def play(world: World) -> None:
    """All scenes in order.

    Raises:
        SceneFailed: a claim does not hold.
    """
    opened = await _open(world)
    await _cut_and_retry(world)
    await _forge_a_header(world)
    await _comment(world, opened)
    await _big(world)
    await _read_back(world, opened)
    await _unbound(world)
    await _index(world)


async def _open(world: World) -> Issue:
    stage = world.stage
    stage.scene("scout opens an issue")
    title, text = "Sign-in ends in a blank page on slow networks", body("login-timeout.md")
    stage.asked("scout", f"create_issue repo={REPO} title={title!r} body={len(text.encode())} bytes, labels=bug")
    key = world.broker.idempotency_key("call-1")
    arm = CreateIssue(repo=REPO, title=title, body=text, labels=["bug"])
    issue = _is(await world.scout.forge(world.call(arm, key)), IssueResult).issue
    stage.answered(f"issue #{issue.number}  {issue.url}")
    held = world.on_forge(issue.number)
    stage.body(f"what stands on the forge, {REPO}#{issue.number}", held)
    claim = owner.parse(held)
    stage.shows(
        "the first line says who speaks: agent scout of ada, in session s-scout-1",
        true=claim is not None and (claim.agent, claim.owner, claim.session) == ("scout", "ada", "s-scout-1"),
    )
    stage.shows("what scout wrote follows byte for byte", true=held.endswith("\n\n" + text))
    return issue


async def _cut_and_retry(world: World) -> None:
    stage = world.stage
    stage.scene("the connection is cut, and the call is made again")
    title, key = "Error pages lack their template", world.broker.idempotency_key("call-2")
    arm = CreateIssue(repo=REPO, title=title, body="`errors/504.html` was renamed in 3.2.", labels=["bug"])
    stage.asked("scout", f"create_issue title={title!r}, and hangs up while the forge is at work")
    before = world.forge.log.count("POST", _ISSUES)
    world.forge.script.add(Rule(method="POST", path=_ISSUES, delay_after=0.3))
    await _send_and_hang_up(world, world.call(arm, key), before)
    stage.answered("no answer: the connection is gone", refused=True)
    stage.asked("scout", "the same call again, under the same key")
    issue = _is(await world.scout.forge(world.call(arm, key)), IssueResult).issue
    stage.answered(f"issue #{issue.number}, created by the earlier attempt  {issue.url}")
    posts = world.forge.log.count("POST", _ISSUES) - before
    stage.shows("one POST in all", true=posts == 1)
    stage.shows("one issue of that title on the forge", true=issue.replayed and world.issues_titled(title) == 1)


async def _send_and_hang_up(world: World, call: ForgeCall, posts_before: int) -> None:
    """Send a call on a connection of its own and close it once the forge has the request."""
    stream = await trio.open_unix_socket(str(world.socket("scout")))
    async with stream:
        await stream.send_all(encode_frame(encode_call(call)))
        with trio.fail_after(_WAIT_SECONDS):
            while world.forge.log.count("POST", _ISSUES) == posts_before:  # noqa: ASYNC110 -- the forge tells nobody
                await trio.sleep(0.01)


async def _forge_a_header(world: World) -> None:
    stage = world.stage
    stage.scene("mole tries to speak as scout")
    text = body("forged.md")
    stage.body("what mole sends", text)
    arm = CreateIssue(repo=REPO, title="Please merge everything", body=text)
    issue = _is(await world.mole.forge(world.call(arm)), IssueResult).issue
    stage.answered(f"issue #{issue.number}  {issue.url}")
    held = world.on_forge(issue.number)
    stage.body(f"what stands on the forge, {REPO}#{issue.number}", held)
    claim = owner.parse(held)
    stage.shows(
        "stamped as mole of bob, its real author",
        true=claim is not None and (claim.agent, claim.owner, claim.session) == ("mole", "bob", "s-mole-1"),
    )
    stage.shows(
        "every line that read as a header of scout's is gone, the disguised ones too",
        true="agent=scout" not in held,
    )


async def _comment(world: World, opened: Issue) -> None:
    stage = world.stage
    stage.scene("mole comments on scout's issue")
    text = body("proxy-comment.md")
    stage.asked("mole", f"comment_on_issue #{opened.number}, Markdown with CRLF line ends and emoji")
    arm = CommentOnIssue(repo=REPO, issue_number=opened.number, body=text)
    ref = _is(await world.mole.forge(world.call(arm)), IssueCommentResult).comment
    stage.answered(f"comment {ref.comment_id}  {ref.url}")
    held = world.comments_on_forge(opened.number)[-1]
    stage.body("what stands on the forge", held, lines=4)
    stage.shows("stamped as mole, the text byte for byte", true=held.endswith("\n\n" + text) and "agent=mole" in held)


async def _big(world: World) -> None:
    stage = world.stage
    stage.scene("a report of 60 KB")
    text = body("crawl-report.md")
    size = len(text.encode())
    stage.asked("scout", f"create_issue with a body of {size} bytes")
    arm = CreateIssue(repo=REPO, title="Nightly crawl: dead links and error pages", body=text)
    issue = _is(await world.scout.forge(world.call(arm)), IssueResult).issue
    stage.answered(f"issue #{issue.number}  {issue.url}")
    back = _is(await world.scout.forge(world.call(GetIssue(repo=REPO, issue_number=issue.number))), IssueResult).issue
    stage.shows(f"read back, its {size} bytes are the same", true=back.body == text)


async def _read_back(world: World, opened: Issue) -> None:
    stage = world.stage
    stage.scene("scout lists the issues and reads its own back")
    page = _is(await world.scout.forge(world.call(ListIssues(repo=REPO, limit=20))), IssuesResult)
    stage.table(
        f"list_issues repo={REPO}",
        ["#", "title", "written by", "how that is known"],
        [[str(issue.number), issue.title, *_written_by(issue)] for issue in page.items],
    )
    arm = GetIssue(repo=REPO, issue_number=opened.number)
    issue = _is(await world.scout.forge(world.call(arm)), IssueResult).issue
    stage.body(f"get_issue #{issue.number}, as scout gets it", issue.body, lines=4)
    stage.shows("the header is stripped", true=issue.body == body("login-timeout.md"))
    said = issue.attribution
    stage.shows(
        "the attribution is verified: it comes from the daemon's own index, not from the text",
        true=said is not None and said.verified and said.agent == "scout",
    )
    stage.shows(
        "mole's comment came along, its attribution a claim read from the text",
        true=len(issue.comments) == 1
        and issue.comments[0].attribution is not None
        and issue.comments[0].attribution.agent == "mole"
        and not issue.comments[0].attribution.verified,
    )


def _written_by(issue: Issue) -> tuple[str, str]:
    if issue.attribution is None:
        return (issue.author.login if issue.author else "?"), "the forge's own account"
    who = f"agent {issue.attribution.agent} of {issue.attribution.owner}"
    return who, "verified by the index" if issue.attribution.verified else "a claim in the text"


async def _unbound(world: World) -> None:
    stage = world.stage
    stage.scene("a container with no session")
    before = world.forge.log.count()
    stage.asked("stray", f"list_issues repo={REPO}")
    async with connect(world.socket("stray")) as stray:
        try:
            await stray.forge(world.call(ListIssues(repo=REPO)))
        except ForgeFault as fault:
            stage.answered(f"{fault.code}: {fault.message}", refused=True)
            stage.shows(
                "it is refused, and the forge hears nothing of it",
                true=fault.code == "permission_denied" and world.forge.log.count() == before,
            )
            return
    raise SceneFailed("a container with no session was answered")


async def _index(world: World) -> None:
    stage = world.stage
    stage.scene("the ownership index")
    rows = await world.daemon.store.list_authored_artifacts()
    stage.ownership(rows)
    stage.shows("one row for each issue that an agent opened", true=len(rows) == 4)  # noqa: PLR2004 -- scenes 1, 2, 3, 5


def _is(result: ResultArm, kind: type[_R]) -> _R:
    if not isinstance(result, kind):
        raise SceneFailed(f"the answer is {type(result).__name__}, expected {kind.__name__}")
    return result
