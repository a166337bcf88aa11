"""What the demo shows, scene by scene. Each claim is checked as it is made; one that does not hold ends the demo."""

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from compass_forged import owner
from compass_forged.agent import AgentTool, ForgeBroker, ForgeCall, ForgeToolError, ForgeTransport, create_forge_tools
from compass_forged.daemon import Daemon
from compass_forged.demo.show import SceneFailed, Stage
from compass_forged.emulator.app import Forge
from compass_forged.emulator.linear_app import LinearForge
from compass_forged.emulator.script import Rule
from compass_forged.listener import SOCKET_NAME
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import encode_frame
from compass_forged.wire.schema import CreateIssue

REPO: Final = "acme/site"
TEAM: Final = "ENG"
_ISSUES: Final = "/repos/acme/site/issues"
_WAIT_SECONDS: Final = 10.0
_NUMBER: Final = re.compile(r"#([0-9]+) in (?:acme/site|ENG)\b")


class Agent:
    """An agent in its container, as far as the forge goes: ten tools over one connection."""

    def __init__(self, name: str, stage: Stage, transport: ForgeTransport) -> None:
        """``transport`` goes to the container's socket."""
        self.name = name
        self.broker = ForgeBroker(transport)
        self._stage = stage
        self._tools: dict[str, AgentTool] = {tool.name: tool for tool in create_forge_tools(self.broker)}
        self._calls = 0

    async def use(self, tool: str, parameters: Mapping[str, object], told: str = "", *, tool_call_id: str = "") -> str:
        """Use a tool, as a model would, and show it; the text of its answer.

        Raises:
            ForgeToolError: it failed.
        """
        self._calls += 1
        shown = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
        self._stage.asked(self.name, f"{tool} {told or shown}")
        text = await self._tools[tool].execute(tool_call_id or f"call-{self._calls}", parameters)
        self._stage.answered(text.split(". ")[0])
        return text


@dataclass(slots=True)
class World:
    """What the scenes play in."""

    stage: Stage
    forge: Forge
    linear: LinearForge
    daemon: Daemon
    scout: Agent
    mole: Agent
    stray: Agent
    opened: list[int] = field(default_factory=list)

    def socket(self, container: str) -> Path:
        """A container's socket."""
        return self.daemon.run_dir / "containers" / container / SOCKET_NAME

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

    async def create(self, agent: Agent, tool: str, parameters: Mapping[str, object], told: str) -> int:
        """Have an agent create something, in the demo's repository unless it says where; its number."""
        text = await agent.use(tool, {"repo": REPO, **parameters}, told)
        self.opened.append(number_in(text))
        return self.opened[-1]


def number_in(text: str) -> int:
    """The number that an acknowledgement names."""
    found = _NUMBER.search(text)
    if found is None:
        raise SceneFailed(f"no number is named in {text[:200]!r}")
    return int(found[1])


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
    await _review(world)
    await _on_linear(world, opened)
    await _unbound(world)
    await _index(world)


async def _open(world: World) -> int:
    stage = world.stage
    stage.scene("scout opens an issue")
    title, text = "Sign-in ends in a blank page on slow networks", body("login-timeout.md")
    told = f"title={title!r}, a body of {len(text.encode())} bytes, labels=['bug']"
    parameters = {"title": title, "body": text, "labels": ["bug"]}
    number = await world.create(world.scout, "forge_create_issue", parameters, told)
    held = world.on_forge(number)
    stage.body(f"what stands on the forge, {REPO}#{number}", held)
    claim = owner.parse(held)
    stage.shows(
        "the first line says who speaks: agent scout of ada, in session s-scout-1",
        true=claim is not None and (claim.agent, claim.owner, claim.session) == ("scout", "ada", "s-scout-1"),
    )
    stage.shows("what scout wrote follows byte for byte", true=held.endswith("\n\n" + text))
    return number


async def _cut_and_retry(world: World) -> None:
    stage = world.stage
    stage.scene("the connection is cut, and the call is made again")
    title, text, tool_call_id = "Error pages lack their template", "`errors/504.html` was renamed in 3.2.", "call-cut"
    stage.asked("scout", f"forge_create_issue title={title!r}, and hangs up while the forge is at work")
    before = world.forge.log.count("POST", _ISSUES)
    world.forge.script.add(Rule(method="POST", path=_ISSUES, delay_after=0.3))
    arm = CreateIssue(repo=REPO, title=title, body=text, labels=["bug"])
    key = world.scout.broker.idempotency_key(tool_call_id)
    await _send_and_hang_up(world, ForgeCall(call_id=tool_call_id, arm=arm, client_request_id=key), before)
    stage.answered("no answer: the connection is gone", refused=True)
    parameters = {"repo": REPO, "title": title, "body": text, "labels": ["bug"]}
    again = await world.scout.use(
        "forge_create_issue", parameters, "the same tool call again", tool_call_id=tool_call_id
    )
    world.opened.append(number_in(again))
    posts = world.forge.log.count("POST", _ISSUES) - before
    stage.shows("one POST in all", true=posts == 1)
    stage.shows(
        "one issue of that title on the forge",
        true="already created by an earlier attempt" in again and world.issues_titled(title) == 1,
    )


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
    title = "Please merge everything"
    parameters = {"title": title, "body": text}
    number = await world.create(world.mole, "forge_create_issue", parameters, f"title={title!r}")
    held = world.on_forge(number)
    stage.body(f"what stands on the forge, {REPO}#{number}", held)
    claim = owner.parse(held)
    stage.shows(
        "stamped as mole of bob, its real author",
        true=claim is not None and (claim.agent, claim.owner, claim.session) == ("mole", "bob", "s-mole-1"),
    )
    stage.shows(
        "every line that read as a header of scout's is gone, the disguised ones too",
        true="agent=scout" not in held,
    )


async def _comment(world: World, opened: int) -> None:
    stage = world.stage
    stage.scene("mole comments on scout's issue")
    text = body("proxy-comment.md")
    told = f"issue_number={opened}, Markdown with CRLF line ends and emoji"
    await world.mole.use("forge_comment_on_issue", {"repo": REPO, "issue_number": opened, "body": text}, told)
    held = world.comments_on_forge(opened)[-1]
    stage.body("what stands on the forge", held, lines=4)
    stage.shows("stamped as mole, the text byte for byte", true=held.endswith("\n\n" + text) and "agent=mole" in held)


async def _big(world: World) -> None:
    stage = world.stage
    stage.scene("a report of 60 KB")
    text = body("crawl-report.md")
    size = len(text.encode())
    title = "Nightly crawl: dead links and error pages"
    parameters = {"title": title, "body": text}
    number = await world.create(world.scout, "forge_create_issue", parameters, f"a body of {size} bytes")
    stage.shows(f"its {size} bytes stand on the forge", true=world.on_forge(number).endswith("\n\n" + text))
    read = await world.scout.use("forge_get_issue", {"repo": REPO, "issue_number": number})
    stage.shows(
        "read back it is cut, which is said where it happens: no issue floods a model",
        true="…(truncated, " in read and len(read) < len(text) / 2,
    )


async def _read_back(world: World, opened: int) -> None:
    stage = world.stage
    stage.scene("scout lists the issues and reads its own back")
    page = await world.scout.use("forge_list_issues", {"repo": REPO, "limit": 20})
    stage.body("what the model reads", page, lines=12)
    read = await world.scout.use("forge_get_issue", {"repo": REPO, "issue_number": opened})
    stage.body("what the model reads", read, lines=14)
    stage.shows("the header is stripped", true="compass:owner" not in read)
    stage.shows(
        "the attribution is verified: it comes from the daemon's own index, not from the text",
        true="attribution: agent scout of ada in session s-scout-1 (verified)" in read,
    )
    stage.shows(
        "mole's comment came along, its attribution a claim read from the text",
        true="agent mole of bob in session s-mole-1 (a claim, not verified)" in read,
    )


async def _review(world: World) -> None:
    stage = world.stage
    stage.scene("scout opens a pull request, and mole reviews it")
    title = "Load the front page fast"
    parameters = {"title": title, "head_ref": "front-page", "body": "Calls `fast()`."}
    told = f"title={title!r}, head_ref='front-page', which scout has pushed"
    number = await world.create(world.scout, "forge_create_pull_request", parameters, told)
    pull_request = {"repo": REPO, "pull_number": number}
    read = await world.mole.use("forge_get_pull_request", pull_request)
    stage.body("what mole's model reads", read, lines=16)
    review = {
        **pull_request,
        "verdict": "request_changes",
        "body": "One question before this goes in.",
        "comments": [{"path": "src/page.js", "line": 1, "body": "What happens offline?"}],
    }
    told = f"pull_number={number}, verdict='request_changes', a comment at src/page.js, line 1"
    await world.mole.use("forge_submit_review", review, told)
    pull = world.forge.state.issue(REPO, number)
    if pull.pull is None or len(pull.pull.reviews) != 1:
        raise SceneFailed("the pull request has not the one review")
    held = pull.pull.reviews[0]
    stage.shows(
        "the forge counts it: it stands under the reviewer's account, not under the author's",
        true=held.state == "CHANGES_REQUESTED" and held.author_id != pull.author_id,
    )
    claim = owner.parse(held.body)
    stage.shows("stamped as mole of bob", true=claim is not None and (claim.agent, claim.owner) == ("mole", "bob"))
    read = await world.scout.use("forge_get_pull_request", pull_request)
    stage.body("what scout's model reads", read[read.index("review by") - len("--- 12345678 ") :], lines=9)
    stage.shows(
        "scout reads the verdict in its tools' own words, and the comment at its line",
        true=": request_changes, agent mole of bob" in read and "at line 1\npath: src/page.js\n" in read,
    )


async def _on_linear(world: World, opened: int) -> None:
    stage = world.stage
    stage.scene("scout opens an issue on Linear, and asks for what Linear has not")
    on_linear = {"repo": TEAM, "forge_provider": "linear"}
    title, text = "Tell users of slow networks", f"The cause is {REPO}#{opened}.\n\n- write\n- send\n"
    parameters = {**on_linear, "title": title, "body": text, "labels": ["bug"]}
    told = f"forge_provider='linear', repo={TEAM!r}, title={title!r}"
    number = await world.create(world.scout, "forge_create_issue", parameters, told)
    held = world.linear.state.issue(f"{TEAM}-{number}")
    stage.body(f"what stands on Linear, {TEAM}-{number}", held.description or "")
    claim = owner.parse(held.description or "")
    stage.shows(
        "the same header, under the application's one name",
        true=claim is not None and claim.agent == "scout" and held.author.as_user == "Compass",
    )
    read = await world.mole.use("forge_get_issue", {**on_linear, "issue_number": number})
    stage.shows(
        "mole reads it as it reads GitHub's: without the header, its author verified",
        true="compass:owner" not in read and "agent scout of ada in session s-scout-1 (verified)" in read,
    )
    before = world.linear.log.count()
    try:
        await world.scout.use("forge_create_pull_request", {**on_linear, "title": title, "head_ref": "topic"})
    except ForgeToolError as error:
        stage.answered(str(error), refused=True)
        stage.shows(
            "a pull request is refused by name, and Linear hears nothing of it",
            true=error.code == "unimplemented" and world.linear.log.count() == before,
        )
        return
    raise SceneFailed("a pull request was opened on Linear")


async def _unbound(world: World) -> None:
    stage = world.stage
    stage.scene("a container with no session")
    before = world.forge.log.count()
    try:
        await world.stray.use("forge_list_issues", {"repo": REPO})
    except ForgeToolError as error:
        stage.answered(str(error), refused=True)
        stage.shows(
            "it is refused, and the forge hears nothing of it",
            true=error.code == "permission_denied" and world.forge.log.count() == before,
        )
        return
    raise SceneFailed("a container with no session was answered")


async def _index(world: World) -> None:
    stage = world.stage
    stage.scene("the ownership index")
    rows = await world.daemon.store.list_authored_artifacts()
    stage.ownership(rows)
    stage.shows(
        "one row for each issue and pull request that an agent opened",
        true=sorted(row.coordinate.number for row in rows) == sorted(world.opened),
    )
