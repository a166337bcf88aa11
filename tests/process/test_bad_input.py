"""Bad input of every kind against a real daemon: one clear error each, and the daemon goes on."""

import socket
import struct
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compass_forged.agent import DaemonUnreachable, ForgeCall, SyncForgeClient
from compass_forged.wire.schema import ListIssues
from tests.support.world import DaemonProcess, Place, daemon, place, run_cli

pytestmark = pytest.mark.process

GOOD: dict[str, Any] = {
    "frame": "call",
    "call_id": "c-1",
    "call": {"arm": "get_issue", "repo": "acme/site", "issue_number": 1},
}


@dataclass
class Raw:
    """A raw connection: bytes out, replies in."""

    sock: socket.socket
    rest: bytes = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self, value: object) -> None:
        payload = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
        self.send(struct.pack(">I", len(payload)) + payload)

    def reply(self) -> dict[str, Any]:
        head = self._exactly(4)
        assert head, "the daemon closed the connection"
        payload = self._exactly(struct.unpack(">I", head)[0])
        found: dict[str, Any] = msgspec.msgpack.decode(payload)
        return found

    def closed(self) -> bool:
        return self._exactly(1) == b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data


@pytest.fixture(scope="module")
def served() -> Generator[Place, None, None]:
    """A daemon whose forge is a port that nobody listens on: what is refused here never gets that far."""
    with place() as where:
        where.configure("http://127.0.0.1:9", store='"memory"')
        with daemon(where):
            with where.control() as control:
                control.open_container("box")
                control.bind_session("box", "s-1", agent="scout", owner="ada")
            yield where


@pytest.fixture
def raw(served: Place) -> Generator[Raw, None, None]:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(20)
        sock.connect(str(served.socket("box")))
        yield Raw(sock)


def with_call(**changes: object) -> dict[str, Any]:
    return {**GOOD, "call": {**GOOD["call"], **changes}}


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "frame: zero-length frame"),
        ((1 << 20) + 1, "frame: length 1048577 is over the limit of 1048576 bytes"),
        (0xFFFFFFFF, "frame: length 4294967295 is over the limit of 1048576 bytes"),
    ],
)
def test_a_length_that_cannot_be_gets_one_last_fault(raw: Raw, length: int, words: str) -> None:
    raw.send(struct.pack(">I", length))
    fault = raw.reply()
    assert (fault["frame"], fault["call_id"], fault["code"]) == ("fault", "", "invalid_argument")
    assert fault["message"].startswith(words)
    assert raw.closed()


@pytest.mark.parametrize(
    ("payload", "call_id", "message"),
    [
        (b"\xc1garbage", "", "frame: not valid MessagePack"),
        (b"GET / HTTP/1.1\r\n\r\n", "", "frame: "),
        ([1, 2, 3], "", "frame: expected object, got array"),
        ({k: v for k, v in GOOD.items() if k != "frame"}, "c-1", "frame: required field is missing"),
        ({**GOOD, "frame": "result"}, "c-1", "frame: "),
        ({**GOOD, "call_id": ""}, "", "call_id: "),
        ({**GOOD, "call_id": 7}, "", "call_id: expected str, got int"),
        ({**GOOD, "client_request_ids": "k"}, "c-1", "client_request_ids: unknown field; did you mean"),
        ({**GOOD, "forge": {"host": "x"}}, "c-1", "forge.provider: required field is missing"),
        ({**GOOD, "forge": {"provider": "github", "hots": "x"}}, "c-1", "forge.hots: unknown field"),
        ({**GOOD, "call": {"arm": "merge_everything"}}, "c-1", "call.arm: unknown value"),
        ({**GOOD, "call": {"repo": "acme/site"}}, "c-1", "call.arm: required field is missing"),
        (with_call(issue_number="1"), "c-1", "call.issue_number: expected int, got str"),
        (with_call(issue_nr=1), "c-1", "call.issue_nr: unknown field; did you mean 'issue_number'?"),
        (with_call(repo="x" * 600), "c-1", "call.repo: expected str of length <= 512"),
        (b"\x91" * 60000, "", "frame: "),
    ],
)
def test_a_frame_that_does_not_decode_is_answered_and_the_connection_goes_on(
    raw: Raw, payload: object, call_id: str, message: str
) -> None:
    raw.frame(payload)
    fault = raw.reply()
    assert (fault["frame"], fault["call_id"], fault["code"]) == ("fault", call_id, "invalid_argument")
    assert fault["message"].startswith(message), fault["message"]
    raw.frame(with_call(repo=""))
    assert raw.reply()["result"]["code"] == "invalid_argument"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repo": ""}, "repo: must not be blank"),
        ({"repo": " \t "}, "repo: must not be blank"),
        ({"repo": "../etc/passwd"}, "repo"),
        ({"repo": "acme/.."}, "repo"),
        ({"repo": "acme//site"}, "repo"),
        ({"repo": "acme/site?x=1"}, "repo"),
        ({"repo": "acme/%2e%2e"}, "repo"),
        ({"repo": "acme/site#1"}, "repo"),
        ({"repo": "аcme/site"}, "repo"),  # noqa: RUF001 -- a Cyrillic letter is the point
        ({"repo": "acme/site\n"}, "repo: must be one line"),
        ({"issue_number": 0}, "issue_number: must be from 1"),
        ({"issue_number": -1}, "issue_number: must be from 1"),
        ({"issue_number": 2**63}, "issue_number: must be from 1"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_band(raw: Raw, changes: dict[str, object], words: str) -> None:
    raw.frame(with_call(**changes))
    reply = raw.reply()
    assert reply["frame"] == "result"
    result = reply["result"]
    assert (result["arm"], result["code"]) == ("error", "invalid_argument")
    assert words in result["message"]
    assert len(result["message"]) <= 500
    assert "\n" not in result["message"]


def test_nothing_above_reached_the_forge_or_hurt_the_daemon(served: Place) -> None:
    with served.control() as control:
        status = control.status()
    assert status.calls_in_flight == 0
    assert not [row for row in status.counters if row.name == "internal_errors"]
    refused = [line for line in served.logged() if line.get("code") == "invalid_argument"]
    assert not [line for line in refused if line["forge_requests"]]


def test_an_unknown_forge_is_named_and_never_the_default(raw: Raw) -> None:
    raw.frame({**GOOD, "forge": {"provider": "gitlab", "host": "git.example"}})
    result = raw.reply()["result"]
    assert (result["code"], result["message"]) == ("not_found", "forge: gitlab:git.example is not configured here")


def test_a_forge_out_of_reach_is_unavailable(raw: Raw) -> None:
    raw.frame({**GOOD, "timeout_ms": 5000})
    assert raw.reply()["result"]["code"] == "unavailable"


def test_a_dead_socket_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "forge.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))  # bound, and nobody listens
    with pytest.raises(DaemonUnreachable, match=str(path)), SyncForgeClient(path) as client:
        client.forge(ForgeCall(call_id="c", arm=ListIssues(repo="acme/site")))
    done = run_cli("call", "list_issues", "repo=acme/site", "--socket", str(path))
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr


# --- starting -------------------------------------------------------------------------------------------------------


def _start(where: Place) -> tuple[int, str]:
    process = DaemonProcess(where)
    try:
        return process.process.wait(60), where.log.read_text()
    finally:
        process.close()


def test_a_missing_configuration_is_named() -> None:
    with place() as where:
        status, said = _start(where)
        assert status == 2
        assert said == f"compass-forged: {where.config}: no such file; write one, or name another with --config\n"


def test_a_token_that_cannot_be_read_is_named_without_its_value() -> None:
    with place() as where:
        where.configure("http://127.0.0.1:9", store='"memory"')
        (where.root / "author").unlink()
        status, said = _start(where)
        assert status == 2
        assert str(where.root / "author") in said
        assert said.count("\n") == 1
        (where.root / "author").write_text("two\nlines\n")
        status, said = _start(where)
        assert status == 2
        assert "holds more than one line" in said.splitlines()[-1]
        assert "two" not in said


def test_postgres_away_at_the_start_is_one_line_without_the_password() -> None:
    with place() as where:
        dsn = "postgresql://forged:hunter2hunter2@127.0.0.1:9/forged"
        where.configure("http://127.0.0.1:9", store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn})
        status, said = _start(where)
        assert status == 1
        assert said.count("\n") == 1
        assert said.startswith("compass-forged: store: ")
        assert "127.0.0.1" in said
        assert "hunter2" not in said


def test_no_forge_is_a_configuration_error() -> None:
    with place() as where:
        where.config.write_text(f'run_dir = "{where.run_dir}"\nstore = "memory"\n')
        status, said = _start(where)
        assert status == 2
        assert "none has a credential" in said
