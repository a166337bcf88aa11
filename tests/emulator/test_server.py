"""The forge over real HTTP, in this process and in one of its own."""

import importlib
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import trio
from click.testing import CliRunner

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.linear_app import LinearForge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import GRACE, NotLoopback, loopback_socket, serve_forge
from tests.emulator.inprocess import TOKENS

ISSUES = "/repos/acme/site/issues"
AS_AUTHOR = {"authorization": f"Bearer {TOKENS['forge-author']}"}


def _client(url: str, **settings: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=AS_AUTHOR, timeout=5, **settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_serves_over_http(host: str) -> None:
    forge = Forge(default_seed(TOKENS))
    async with serve_forge(forge, host=host) as url, _client(url) as http:
        made = await http.post(ISSUES, json={"title": "t", "body": "ü" * 60_000})
        assert made.status_code == 201
        assert made.headers["location"] == f"{url}{ISSUES}/4"
        assert made.headers.get_list("date") == [made.headers["date"]]
        assert made.headers["server"] == "compass-forge"
        seen = await http.get(made.headers["location"])
        again = await http.get(made.headers["location"], headers={"if-none-match": seen.headers["etag"]})
        assert (seen.json()["body"], again.status_code) == ("ü" * 60_000, 304)
        assert (await http.head("/user")).status_code == 200


async def test_drop_and_truncation_over_http_spare_the_server() -> None:
    forge = Forge(default_seed(TOKENS))
    async with serve_forge(forge) as url, _client(url) as http:
        forge.script.add(Rule("POST", drop=True, commit=True), Rule("POST", truncate=9))
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            await http.post(ISSUES, json={"title": "t"})
        with pytest.raises(httpx.RemoteProtocolError, match="received 9 bytes"):
            await http.post(ISSUES, json={"title": "t"})
        assert (await http.post(ISSUES, json={"title": "t"})).status_code == 201
        assert forge.state.commits["issue"] == 3


async def test_of_a_client_that_goes_within_its_request_nothing_comes_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forge = Forge(default_seed(TOKENS))
    async with serve_forge(forge) as url, _client(url) as http:
        before = forge.state.commits.get("issue", 0)
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
            head = f"POST {ISSUES} HTTP/1.1\r\nhost: x\r\nuser-agent: x\r\nauthorization: {AS_AUTHOR['authorization']}"
            await stream.send_all(f'{head}\r\ncontent-length: 100\r\n\r\n{{"title": "half'.encode())
            await trio.sleep(0.02)
        await trio.sleep(0.02)
        assert (await http.get("/user")).status_code == 200
        assert forge.log.count("POST") == 0
        assert forge.state.commits.get("issue", 0) == before
    assert caplog.records == []


async def test_many_at_once() -> None:
    forge = Forge(default_seed(TOKENS))
    statuses: list[int] = []

    async def create(http: httpx.AsyncClient) -> None:
        statuses.append((await http.post(ISSUES, json={"title": "t"})).status_code)

    async with serve_forge(forge) as url, _client(url) as http, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(create, http)
    assert statuses == [201] * 20
    assert sorted(forge.state.repo("acme/site").issues) == list(range(1, 24))


async def test_shutdown_is_bounded_while_an_answer_is_delayed() -> None:
    forge = Forge(default_seed(TOKENS))
    forge.script.add(Rule(delay=3600))

    async def ask(url: str) -> None:
        async with _client(url) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/user", timeout=30)

    with trio.fail_after(GRACE + 5):
        async with trio.open_nursery() as nursery, serve_forge(forge) as url:
            place = url  # the request outlives the server on purpose
            nursery.start_soon(ask, place)
            while not forge.log.count():  # noqa: ASYNC110 -- the log is a plain record without events
                await trio.sleep(0.005)


async def test_port_is_free_again_and_can_be_chosen() -> None:
    async with serve_forge(Forge()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            loopback_socket("127.0.0.1", port)
    async with serve_forge(Forge(), port=port) as again:
        assert again == url


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost", ""])  # noqa: S104 -- shown to be refused
async def test_only_loopback_is_bound(host: str) -> None:
    with pytest.raises(NotLoopback, match=r"use 127\.0\.0\.1 or ::1"):
        async with serve_forge(Forge(), host=host):
            pytest.fail("was bound")


async def test_error_in_the_block_ends_the_server() -> None:
    with pytest.RaisesGroup(KeyError):
        async with serve_forge(Forge()):
            raise KeyError("mine")


def test_package_imports_nothing_by_itself() -> None:
    code = (
        "import sys, compass_forged.emulator; "
        "heavy = {'starlette', 'hypercorn', 'trio', 'anyio'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


@pytest.mark.parametrize("gone", ["click", "graphql", "hypercorn", "starlette", "trio"])
def test_without_the_extra_it_is_named_in_one_line(gone: str) -> None:
    code = (
        f"import sys; sys.modules[{gone!r}] = None; sys.argv = ['emulator', '--help']; "
        "from compass_forged.emulator.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    expected = f"compass-forged emulator: {gone} is not installed; pip install 'compass-forged[emulator]'\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_nothing_of_the_daemon_is_imported() -> None:
    code = (
        "import sys, compass_forged.emulator.command, compass_forged.emulator.faults; "
        "sys.exit(', '.join(n for n in sys.modules if n.startswith('compass_forged.') "
        "and not n.startswith('compass_forged.emulator')) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


# --- as a process


class Process:
    """The forge as ``python -m compass_forged.emulator``."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "compass_forged.emulator", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_serves_until_a_signal(number: signal.Signals) -> None:
    with Process() as forge:
        control_file = Path(forge.said["control_token_file"])
        token_files = {login: Path(file) for login, file in forge.said["token_files"].items()}
        assert set(token_files) == {"forge-author", "forge-reviewer", "outsider"}
        for file in (control_file, *token_files.values()):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with httpx.Client(base_url=forge.said["url"], timeout=5) as http:
            token = {"authorization": f"Bearer {token_files['forge-author'].read_text()}"}
            control = {"authorization": f"Bearer {control_file.read_text()}"}
            assert http.get("/user", headers=token).json()["login"] == "forge-author"
            http.post("/_forge/script", json={"status": 502, "commit": True}, headers=control)
            assert http.post(ISSUES, json={"title": "t"}, headers=token).status_code == 502
            assert http.get("/_forge/state", headers=control).json()["commits"] == {"issue": 1}
            linear_token = Path(forge.said["linear_token_file"])
            assert stat.S_IMODE(linear_token.stat().st_mode) == 0o600
        with httpx.Client(base_url=forge.said["linear_url"], timeout=5) as http:
            bearer = {"authorization": f"Bearer {linear_token.read_text()}"}
            query = {"query": "{ viewer { name app } }"}
            viewer = http.post("/graphql", json=query, headers=bearer).json()["data"]["viewer"]
            assert viewer == {"name": "compass", "app": True}
            http.post("/_forge/script", json={"path": "/graphql/", "status": 502, "body": "no"}, headers=control)
            assert http.post("/graphql", json=query, headers=bearer).status_code == 502
        assert forge.end(number) == (0, "")
        assert not control_file.exists()


@pytest.mark.process
def test_process_takes_a_seed_a_folder_and_enterprise_ways(tmp_path: Path) -> None:
    seed = tmp_path / "seed.toml"
    seed.write_text('[tokens]\n"my-token" = "ann"\n"other" = "ann"\n[[accounts]]\nlogin = "ann"\n')
    with Process("--seed", str(seed), "--dir", str(tmp_path), "--enterprise", "3.19.0") as forge:
        assert forge.said["token_files"] == {"ann": str(tmp_path / "token-ann")}
        answer = httpx.get(f"{forge.said['url']}/api/v3/user", headers={"authorization": "Bearer my-token"}, timeout=5)
        assert answer.json()["login"] == "ann"
        assert answer.headers["x-github-enterprise-version"] == "enterprise-server@3.19.0"
        assert forge.end(signal.SIGTERM) == (0, "")
    assert (tmp_path / "token-ann").read_text() == "my-token"


def test_the_folder_of_the_tokens_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("compass_forged.emulator.command")
    folder = tmp_path / "made" / "here"
    announced: list[dict[str, Any]] = []

    async def run(
        _forge: Forge, _linear: LinearForge, _port: int, _linear_port: int, announcement: dict[str, Any]
    ) -> None:
        await trio.lowlevel.checkpoint()
        announced.append(announcement)

    monkeypatch.setattr(module, "run", run)
    for _ in range(2):  # one that is there already is used as it is
        done = CliRunner().invoke(module.main, ["--dir", str(folder)])
        assert (done.exit_code, done.output) == (0, "")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert announced[-1]["control_token_file"] == str(folder / "control-token")
        assert stat.S_IMODE((folder / "control-token").stat().st_mode) == 0o600


def test_a_file_where_the_folder_should_be_is_a_usage_error(tmp_path: Path) -> None:
    main = importlib.import_module("compass_forged.emulator.command").main
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(main, ["--dir", str(tmp_path / "file")])
    assert (refused.exit_code, "is a file" in refused.output) == (2, True)


def test_command_refuses_bad_seeds_and_taken_ports(tmp_path: Path) -> None:
    main = importlib.import_module("compass_forged.emulator.command").main
    seed = tmp_path / "seed.json"
    seed.write_text('{"nonsense": 1}')
    refused = CliRunner().invoke(main, ["--seed", str(seed)])
    assert (refused.exit_code, "unknown name 'nonsense'" in refused.output) == (1, True)
    with loopback_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        refused = CliRunner().invoke(main, ["--port", str(port)])
    assert (refused.exit_code, f"port {port}: " in refused.output) == (1, True)
    assert "choose another with --port" in refused.output


def test_token_files_replace_links(tmp_path: Path) -> None:
    main = importlib.import_module("compass_forged.emulator.command")
    target = tmp_path / "elsewhere"
    target.write_text("mine")
    (tmp_path / "control-token").symlink_to(target)
    main.write_tokens(tmp_path, "control", {})
    assert target.read_text() == "mine"
    assert (tmp_path / "control-token").read_text() == "control"
    assert stat.S_IMODE((tmp_path / "control-token").stat().st_mode) == 0o600


def test_settings_are_quiet_about_the_control_token() -> None:
    assert "hidden" not in repr(ForgeSettings(control_token="hidden"))
