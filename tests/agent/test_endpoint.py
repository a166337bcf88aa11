"""What a user is told when nobody can be reached at the path: the same from both clients."""

import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from compass_forged.agent import DaemonUnreachable, SyncForgeClient, connect, endpoint
from tests.support.scripted_daemon import run


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="cf") as name:
        yield Path(name)


def listen(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    return sock


def missing(folder: Path) -> Path:
    return folder / "forge.sock"


def dead(folder: Path) -> Path:
    listen(folder / "forge.sock").close()
    return folder / "forge.sock"


def regular_file(folder: Path) -> Path:
    (folder / "forge.sock").touch()
    return folder / "forge.sock"


def file_on_the_way(folder: Path) -> Path:
    return regular_file(folder) / "forge.sock"


def too_long(folder: Path) -> Path:
    return folder / ("x" * 108)


CASES = {
    missing: ("nothing is there; is the daemon running and the container's directory mounted?", True),
    dead: ("nobody listens; is the daemon running? (mount the container's directory, not the socket file)", True),
    regular_file: ("not a socket; give the path of the container's forge.sock", False),
    file_on_the_way: ("a part of the path is not a directory", False),
    too_long: ("AF_UNIX path too long", False),
}


def refusals(path: Path) -> Iterator[DaemonUnreachable]:
    """What each client raises at ``path``; none of them waits, since none was told to."""

    async def main() -> None:
        async with connect(path):
            pass

    for backend in ("asyncio", "trio"):
        with pytest.raises(DaemonUnreachable) as unreachable:
            run(backend, main)
        yield unreachable.value
    with pytest.raises(DaemonUnreachable) as unreachable, SyncForgeClient(path):
        pass
    yield unreachable.value


@pytest.mark.parametrize("case", CASES)
def test_a_path_where_nobody_listens_is_named_with_the_way_to_mend_it(case: object, folder: Path) -> None:
    why, transient = CASES[case]  # type: ignore[index] # the cases are functions of several names
    path = case(folder)  # type: ignore[operator] # likewise
    for error in refusals(path):
        assert str(error) == f"unavailable: cannot reach the daemon at {path}: {why}"
        assert (error.path, error.transient, error.outcome) == (str(path), transient, "not_sent")


def test_a_datagram_socket_is_named(folder: Path) -> None:
    with listen(folder / "forge.sock", socket.SOCK_DGRAM):
        for error in refusals(folder / "forge.sock"):
            assert "not a stream socket" in str(error)
            assert not error.transient


def test_a_full_backlog_is_transient(folder: Path) -> None:
    with listen(folder / "forge.sock") as listener:
        listener.listen(0)
        with endpoint.open_socket(str(folder / "forge.sock")), pytest.raises(DaemonUnreachable) as unreachable:
            endpoint.open_socket(str(folder / "forge.sock"))
        assert "too many connections wait to be accepted" in str(unreachable.value)
        assert unreachable.value.transient


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_forbidden_socket_is_named(folder: Path) -> None:
    with listen(folder / "forge.sock") as listener:
        listener.listen()
        (folder / "forge.sock").chmod(0)
        for error in refusals(folder / "forge.sock"):
            assert "permission denied" in str(error)


class Failing(socket.socket):
    """A socket whose connect fails as it is told."""

    failure: BaseException

    def connect(self, _address: object) -> NoReturn:
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (PermissionError(13, "Permission denied"), "permission denied; this process must be in the socket's group"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_other_failures_are_named_and_not_waited_for(
    failure: OSError, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Failing, "failure", failure, raising=False)
    monkeypatch.setattr("compass_forged.agent.endpoint.socket.socket", Failing)
    with pytest.raises(DaemonUnreachable) as unreachable:
        endpoint.open_socket(str(folder / "forge.sock"))
    assert str(unreachable.value).endswith(why)
    assert not unreachable.value.transient


def test_an_interrupt_while_connecting_leaks_no_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "failure", KeyboardInterrupt(), raising=False)
    monkeypatch.setattr("compass_forged.agent.endpoint.socket.socket", Failing)
    with pytest.raises(KeyboardInterrupt):
        endpoint.open_socket(str(folder / "forge.sock"))
    # A socket left open would end the run with a ResourceWarning.


def test_a_socket_that_vanishes_while_it_is_looked_at_was_a_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Failing, "failure", ConnectionRefusedError(111, "refused"), raising=False)
    monkeypatch.setattr("compass_forged.agent.endpoint.socket.socket", Failing)
    with pytest.raises(DaemonUnreachable) as unreachable:
        endpoint.open_socket(str(folder / "forge.sock"))
    assert "nobody listens" in str(unreachable.value)
    assert unreachable.value.transient


def test_pauses_double_up_to_a_second_and_vary() -> None:
    pauses = list(itertools.islice(endpoint.backoff(), 12))
    for index, pause in enumerate(pauses):
        longest = min(0.02 * 2**index, 1)
        assert longest / 2 <= pause <= longest
    assert pauses[-1] != pauses[-2]
