"""MCP in whole processes: one client on stdio, and the gateway beside a daemon."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from compass_forged.emulator.app import Forge
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.wire.schema import IssueResult
from tests.support.mcp_client import over_process, over_socket
from tests.support.peer import PeerUnavailable
from tests.support.scripted_daemon import Peer, scripted_daemon
from tests.support.socat import find_socat
from tests.support.tool_world import ISSUE
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, ROOT, DaemonProcess, Place, place, run_cli

pytestmark = pytest.mark.process

CLI = [sys.executable, "-m", "compass_forged", "mcp"]
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"x","version":"1"}}}\n'
)
ONE_LINE = "socat STDIO UNIX-CONNECT:/run/forge/mcp.sock"
GET = {"repo": "acme/site", "issue_number": 7}
T = TypeVar("T")


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


# --- stdio ----------------------------------------------------------------------------------------------------------


def answering(peer: Peer) -> None:
    while (call_id := peer.receive_or_end()) is not None:
        peer.result(call_id, IssueResult(issue=ISSUE))


def test_one_client_is_served_on_stdio_until_it_closes(where: Place) -> None:
    path = where.root / "forge.sock"
    with scripted_daemon(path, answering), over_process([*CLI, "--socket", str(path)]) as client:
        assert client.initialize()["serverInfo"]["name"] == "compass-forged"
        assert len(client.ask("tools/list")["tools"]) == 10
        text, is_error = client.call("forge_get_issue", GET)
        assert (text.split(".")[0], is_error) == ("Issue #7 in acme/site", False)
        client.tell(b"no json\n")
        assert client.answer()["error"]["code"] == -32700
        assert client.call("forge_get_issue", {}) == (
            "forge_get_issue failed: invalid_argument: repo: required parameter is missing",
            True,
        )


def test_what_is_piped_in_is_answered_though_the_input_ends(where: Place) -> None:
    path = where.root / "forge.sock"
    asked = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        '"clientInfo":{"name":"x","version":"1"}}}\n'
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"forge_get_issue","arguments":'
        '{"repo":"acme/site","issue_number":7}}}\n'
    )
    with scripted_daemon(path, answering):
        done = run_cli("mcp", "--socket", str(path), stdin=asked)
    assert done.returncode == 0, done.stderr
    assert "Issue #7 in acme/site" in done.stdout.splitlines()[1]
    assert done.stderr == ""


def test_input_from_a_file_is_taken_too(where: Place) -> None:
    path = where.root / "forge.sock"
    with scripted_daemon(path, answering):
        done = subprocess.run(
            [*CLI, "--socket", str(path)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_daemon_that_is_not_there_is_one_line_and_a_code(where: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (where.root / "file").touch()
    done = run_cli("mcp", "--socket", str(where.root / "file"))
    assert done.returncode == 69
    assert done.stderr.startswith("compass-forged mcp: cannot reach the daemon at ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_standard_input_or_output_it_says_so(where: Place, closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *CLI, "--socket", str(where.root / "forge.sock")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr == "compass-forged mcp: standard input or output is closed; start it with both open\n"


@pytest.mark.parametrize(
    ("told", "answered"),
    [
        (b"no json\n", b"-32700"),
        (INITIALIZE, b"serverInfo"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', b'"id":1'),
    ],
    ids=["before the handshake", "after the handshake", "without a handshake"],
)
def test_an_interrupt_ends_it_without_a_traceback(where: Place, told: bytes, answered: bytes) -> None:
    path = where.root / "forge.sock"
    with scripted_daemon(path, answering):
        process = subprocess.Popen(
            [*CLI, "--socket", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(told)
            process.stdin.flush()
            assert answered in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr.read() == b""


@pytest.mark.parametrize("arguments", [[], ["--socket", "a", "--gateway"], ["--sock", "a"]])
def test_a_wrong_option_is_a_usage_error(arguments: list[str]) -> None:
    done = run_cli("mcp", *arguments)
    assert done.returncode == 2
    assert "usage: compass-forged mcp" in done.stderr


def test_help_names_it_and_it_has_help_of_its_own() -> None:
    assert "Serve the forge tools over MCP" in run_cli("--help").stdout
    assert "--gateway" in run_cli("mcp", "--help").stdout
    assert "--gateway" in run_cli("--debug", "mcp", "--help").stdout


_WITHOUT = (
    "import sys; sys.modules.update(dict.fromkeys(['click', 'structlog', 'httpx', 'asyncpg', {gone!r}], None)); "
    "sys.argv = ['compass-forged', 'mcp', '--socket', {path!r}]; from compass_forged.__main__ import main; main()"
)


def test_in_a_container_nothing_of_the_daemon_is_needed(where: Place) -> None:
    path = where.root / "forge.sock"
    code = _WITHOUT.format(gone="rich", path=str(path))
    with scripted_daemon(path, answering), over_process([sys.executable, "-c", code]) as client:
        client.initialize()
        assert client.call("forge_get_issue", GET)[1] is False


def test_without_the_extra_it_says_which(where: Place) -> None:
    code = _WITHOUT.format(gone="mcp", path="x")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "compass-forged: mcp is not installed; pip install 'compass-forged[mcp]'\n"


SNIPPETS = re.findall(r"```(json|toml)\n(.*?)```", (ROOT / "docs" / "agents.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("language", "text"), SNIPPETS)
def test_what_the_docs_tell_a_client_to_start_is_a_command_of_ours(where: Place, language: str, text: str) -> None:
    read = json.loads(text)["mcpServers"] if language == "json" else tomllib.loads(text)["mcp_servers"]
    command = [read["forge"]["command"], *read["forge"]["args"]]
    if command[0] == "socat":
        assert " ".join(command) == ONE_LINE
        return
    assert command[:2] == ["compass-forged", "mcp"]
    path = where.root / "forge.sock"
    started = [*CLI, *(each.replace("/run/forge/forge.sock", str(path)) for each in command[2:])]
    with scripted_daemon(path, answering), over_process(started) as client:
        client.initialize()
        assert len(client.ask("tools/list")["tools"]) == 10


def test_the_docs_show_two_clients_and_the_one_line() -> None:
    assert [language for language, _ in SNIPPETS] == ["json", "toml", "json"]
    assert f"\n{ONE_LINE}\n" in (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


# --- the gateway ----------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A daemon, a forge, a gateway."""

    where: Place
    forge: Forge
    daemon: DaemonProcess
    gateway: "Gateway"

    def mcp(self, container: str) -> Path:
        return self.where.socket(container).with_name("mcp.sock")


class Gateway:
    """A gateway in a process of its own."""

    def __init__(self, where: Place) -> None:
        self.log = where.root / "gateway.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*CLI, "--gateway", "--config", str(where.config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()


def wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@asynccontextmanager
async def running(where: Place, *containers: str) -> AsyncGenerator[World, None]:
    forge = Forge(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}))
    async with serve_forge(forge) as url:
        where.configure(url, store='"memory"')
        world = World(where, forge, DaemonProcess(where), Gateway(where))
        try:
            await trio.to_thread.run_sync(world.daemon.wait_ready)
            for name in containers:
                await trio.to_thread.run_sync(open_container, world, name)
            yield world
        finally:
            world.gateway.close()
            world.daemon.close()


def open_container(world: World, name: str, *uids: int) -> None:
    """Open a container, bind an agent of its name, and wait for its MCP socket."""
    with world.where.control() as control:
        control.open_container(name, allowed_uids=uids)
        control.bind_session(name, f"s-{name}", agent=name, owner="ada")
    wait_for(lambda: listens(world.mcp(name)), world.gateway.log)


def listens(path: Path) -> bool:
    """Whether connections are taken at a socket: one that has only just been bound is there, and refuses them."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


async def aside(function: Callable[..., T], *arguments: object) -> T:
    return await trio.to_thread.run_sync(function, *arguments)


def created(path: Path, title: str) -> tuple[str, bool]:
    with over_socket(path) as client:
        client.initialize()
        return client.call("forge_create_issue", {"repo": "acme/site", "title": title})


async def test_each_container_speaks_for_itself(where: Place) -> None:
    async with running(where, "scout", "mole") as world:
        for name in ("scout", "mole"):
            text, is_error = await aside(created, world.mcp(name), f"by {name}")
            assert not is_error, text
        bodies = {issue.title: issue.body or "" for issue in world.forge.state.repo("acme/site").issues.values()}
    assert "agent=scout owner=ada session=s-scout" in bodies["by scout"]
    assert "agent=mole owner=ada session=s-mole" in bodies["by mole"]


async def test_the_socket_has_the_mode_and_the_group_of_the_one_beside_it(where: Place) -> None:
    async with running(where, "scout") as world:
        ours, beside = world.mcp("scout").stat(), world.where.socket("scout").stat()
        assert stat.S_IMODE(ours.st_mode) == stat.S_IMODE(beside.st_mode) == 0o660
        assert (ours.st_uid, ours.st_gid) == (beside.st_uid, beside.st_gid)


async def test_a_closed_container_takes_its_socket_and_its_connections_along(where: Place) -> None:
    async with running(where, "scout", "mole") as world:

        def close_scout() -> None:
            with over_socket(world.mcp("scout")) as client, over_socket(world.mcp("mole")) as other:
                client.initialize()
                other.initialize()
                with world.where.control() as control:
                    control.close_container("scout")
                assert client._reading.readline() == b"", "the connection ends"
                assert other.call("forge_list_issues", {"repo": "acme/site"})[1] is False

        await aside(close_scout)
        assert not world.mcp("scout").parent.exists()
        await aside(open_container, world, "scout")
        assert not (await aside(created, world.mcp("scout"), "again"))[1]


async def test_a_session_outlives_a_restart_of_the_daemon(where: Place) -> None:
    async with running(where, "scout") as world:

        def restarted() -> None:
            with over_socket(world.mcp("scout")) as client:
                client.initialize()
                assert client.call("forge_list_issues", {"repo": "acme/site"})[1] is False
                world.daemon.stop()
                world.daemon.close()
                world.daemon = DaemonProcess(where).wait_ready()
                open_container(world, "scout")  # the store in memory has forgotten it
                assert client.call("forge_list_issues", {"repo": "acme/site"})[1] is False

        await aside(restarted)


async def test_an_unbound_container_is_told_so(where: Place) -> None:
    async with running(where, "scout") as world:
        with world.where.control() as control:
            control.unbind_session("scout")
        text, is_error = await aside(created, world.mcp("scout"), "x")
    assert is_error
    assert text.startswith("forge_create_issue failed: permission_denied: ")


async def test_a_container_that_names_uids_is_served_to_them_alone(where: Place) -> None:
    async with running(where) as world:
        await aside(open_container, world, "scout", os.geteuid() + 1)

        def refused() -> None:
            with over_socket(world.mcp("scout")) as client, suppress(ConnectionError, BrokenPipeError):
                client.tell(b"{}\n")
                assert client._reading.readline() == b""

        await aside(refused)
        assert f"name uid {os.geteuid()} too" in world.gateway.log.read_text()
        await aside(open_container, world, "scout", os.geteuid())
        assert not (await aside(created, world.mcp("scout"), "x"))[1]


async def test_at_most_four_connections_of_a_container_are_served_and_the_others_go_on(where: Place) -> None:
    async with running(where, "scout", "mole") as world:

        def crowd() -> None:
            held = [socket.socket(socket.AF_UNIX) for _ in range(6)]
            try:
                for each in held:
                    each.connect(str(world.mcp("scout")))
                assert not created(world.mcp("mole"), "beside")[1]
                held[5].settimeout(0.5)
                held[5].sendall(b"no json\n")
                with pytest.raises(TimeoutError):
                    held[5].recv(1)
                held[0].close()
                held[1].close()
                held[5].settimeout(30)
                assert held[5].recv(1) == b"{"
            finally:
                for each in held:
                    each.close()

        await aside(crowd)


async def test_what_stands_at_the_socket_s_path_is_not_deleted(where: Place) -> None:
    async with running(where) as world:
        with world.where.control() as control:
            control.open_container("scout")
        # Before the gateway has looked, or after: the file's place is taken or it is beside a socket of its own.
        taken = world.mcp("mole")
        taken.parent.mkdir(mode=0o750)
        taken.write_text("mine")
        with world.where.control() as control:
            control.open_container("mole")
        await aside(
            wait_for, lambda: "something that is no socket is there" in world.gateway.log.read_text(), world.gateway.log
        )
        await aside(wait_for, world.mcp("scout").is_socket, world.gateway.log)
        assert taken.read_text() == "mine"
        assert world.gateway.log.read_text().count("something that is no socket is there") == 1


async def test_there_is_one_gateway_and_it_leaves_nothing(where: Place) -> None:
    async with running(where, "scout") as world:
        second = await aside(run_cli, "mcp", "--gateway", "--config", str(where.config))
        assert second.returncode == 1
        assert "another MCP gateway owns it" in second.stderr
        assert await aside(world.gateway.stop) == 0
        assert not world.mcp("scout").exists()
        assert world.where.socket("scout").is_socket()
        # One that was killed leaves its socket; the next one takes its place.
        killed = Gateway(where)
        await aside(wait_for, world.mcp("scout").is_socket, killed.log)
        killed.kill()
        assert world.mcp("scout").is_socket()
        again = Gateway(where)
        try:
            await aside(wait_for, lambda: again.log.read_text().count("serving MCP") >= 3, again.log)
            assert not (await aside(created, world.mcp("scout"), "y"))[1]
        finally:
            again.close()


@pytest.fixture
def socat() -> tuple[str, ...]:
    try:
        return find_socat()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.peer
async def test_the_one_line_of_the_docs_serves_a_container_without_python(where: Place, socat: tuple[str, ...]) -> None:
    async with running(where, "scout") as world:
        name, *addresses = ONE_LINE.replace("/run/forge", str(world.mcp("scout").parent)).split()
        assert name == "socat"
        command = [*socat, *addresses]

        def through_socat() -> tuple[str, bool]:
            with over_process(command) as client:
                client.initialize()
                return client.call("forge_create_issue", {"repo": "acme/site", "title": "by socat"})

        text, is_error = await aside(through_socat)
        assert (text.startswith("Created issue #"), is_error) == (True, False), text
