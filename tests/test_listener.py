import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import listener as module
from compass_forged.errors import StartError
from compass_forged.listener import (
    SOCKET_PATH_MAX_BYTES,
    Peer,
    RunDir,
    UnixListener,
    bind_container,
    bind_control,
    remove_container_dir,
    serve_listener,
)
from compass_forged.stream import UnixStream
from tests.support.core import Logged, logged
from tests.support.host import until


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[RunDir]:
    with RunDir.locked(tmp_path / "run") as found:
        yield found


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary directory whose name leaves room for sockets of exact lengths."""
    with tempfile.TemporaryDirectory(prefix="f-", dir="/tmp") as path:
        yield Path(path)


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@asynccontextmanager
async def bound(run_dir: RunDir, name: str = "c1", *, group: int | None = None) -> AsyncIterator[UnixListener]:
    found = bind_container(run_dir, name, group=group)
    try:
        yield found
    finally:
        found.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_descriptors() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


def refused(run_dir: RunDir, name: str = "c1", group: int | None = None) -> str:
    """The one line with which a container's socket is refused; no descriptor is left open by it."""
    before = len(open_descriptors())
    with pytest.raises(StartError) as caught:
        bind_container(run_dir, name, group=group)
    assert len(open_descriptors()) == before
    message = str(caught.value)
    assert message.isprintable()
    return message


# --- the run directory ----------------------------------------------------------------------------------------------


def test_the_run_directory_is_made_where_missing(tmp_path: Path) -> None:
    with RunDir.locked(tmp_path / "a" / "b") as found:
        assert found.path == tmp_path / "a" / "b"
        assert (found.path / "containers").is_dir()
        assert mode_of(found.path / "lock") == 0o600
    with RunDir.locked(tmp_path / "a" / "b"):
        pass  # and may be taken again


async def test_a_second_daemon_is_refused_and_the_first_is_untouched(run_dir: RunDir) -> None:
    async with bound(run_dir) as first:
        inode = first.path.lstat().st_ino
        with (
            pytest.raises(StartError, match=r"run_dir .*: another daemon owns it; stop that one"),
            RunDir.locked(run_dir.path),
        ):
            pass
        assert first.path.lstat().st_ino == inode
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(first.path))


def test_a_killed_daemons_lock_is_free(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        from compass_forged.listener import RunDir
        with RunDir.locked(Path(sys.argv[1])):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run")], check=False)
    assert ended.returncode == -9
    with RunDir.locked(tmp_path / "run"):
        pass


def test_a_refused_run_directory_leaves_no_descriptor_open(run_dir: RunDir) -> None:
    before = open_descriptors()
    with pytest.raises(StartError), RunDir.locked(run_dir.path):
        pass
    assert open_descriptors() == before


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("below", ["", "/containers"])
def test_a_run_directory_that_others_may_write_is_refused(tmp_path: Path, below: str, mode: int) -> None:
    bad = Path(f"{tmp_path}/run{below}")
    bad.mkdir(parents=True)
    bad.chmod(mode)
    with (
        pytest.raises(StartError, match="be writable by it alone; chown or chmod it"),
        RunDir.locked(tmp_path / "run"),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to any group")
async def test_a_container_that_is_opened_again_without_a_group_is_the_daemons_own_again(run_dir: RunDir) -> None:
    for group, expected in ((4242, 4242), (None, os.getegid())):
        listener = bind_container(run_dir, "box", group=group)
        assert run_dir.container_dir("box").stat().st_gid == expected
        assert run_dir.container_socket("box").stat().st_gid == expected
        listener.close()
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("below", ["", "/containers"])
def test_a_run_directory_that_is_a_link_is_refused(tmp_path: Path, below: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = Path(f"{tmp_path}/run{below}")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StartError, match="is no directory of its own"), RunDir.locked(tmp_path / "run"):
        pass
    assert list(elsewhere.iterdir()) == []


def test_a_run_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StartError, match="must belong to uid"), RunDir.locked(tmp_path / "run"):
        pass


def test_a_file_in_place_of_the_run_directory_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(StartError, match="run_dir"), RunDir.locked(tmp_path / "run"):
        pass
    with (
        pytest.raises(StartError, match=r"Not a directory; create it, or set run_dir"),
        RunDir.locked(tmp_path / "run" / "below"),
    ):
        pass
    assert (tmp_path / "run").read_text() == "precious"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(StartError, match="no lock file"), RunDir.locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "target").exists()


# --- binding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
async def test_modes_are_the_same_under_any_umask(run_dir: RunDir, mask: int) -> None:
    with umask(mask):
        async with bound(run_dir) as container:
            assert os.umask(mask) == mask  # as it was
            assert mode_of(container.path) == 0o660
            assert mode_of(container.path.parent) == 0o750
            control = bind_control(run_dir)
            assert mode_of(control.path) == 0o600
            control.close()


async def test_an_older_directorys_mode_is_set_right(run_dir: RunDir) -> None:
    run_dir.container_dir("c1").mkdir(mode=0o700)
    async with bound(run_dir) as container:
        assert mode_of(container.path.parent) == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
async def test_a_group_owns_directory_and_socket(run_dir: RunDir) -> None:
    async with bound(run_dir, group=4242) as container:
        assert (container.path.lstat().st_gid, container.path.parent.stat().st_gid) == (4242, 4242)
        assert (mode_of(container.path), mode_of(container.path.parent)) == (0o660, 0o750)


def test_a_group_that_may_not_be_set_is_refused_and_leaves_no_socket(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchown", denied)
        said = refused(run_dir, group=4242)
        assert said.startswith("container c1: cannot set mode or group of ")
        assert said.endswith("Operation not permitted; this process's user must be in the socket's group")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchown", lambda *_: None)
        patch.setattr(os, "chown", denied)
        said = refused(run_dir, group=4242)
        assert said.endswith("forge.sock: Operation not permitted; this process's user must be in the socket's group")
    assert list(run_dir.container_dir("c1").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-a", "_a", ".a", "a b", "a\n", "ü", "a" * 129, "a\0"])
def test_a_bad_name_is_refused(run_dir: RunDir, name: str) -> None:
    assert refused(run_dir, name).startswith("container ")
    assert list((run_dir.path / "containers").iterdir()) == []


def test_a_linked_container_directory_is_not_followed(run_dir: RunDir, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run_dir.container_dir("c1").symlink_to(elsewhere)
    assert "is no directory of its own" in refused(run_dir)
    assert list(elsewhere.iterdir()) == []


def test_a_container_directory_that_others_may_write_is_refused(run_dir: RunDir) -> None:
    run_dir.container_dir("c1").mkdir()
    run_dir.container_dir("c1").chmod(0o777)
    assert "be writable by it alone" in refused(run_dir)
    assert mode_of(run_dir.container_dir("c1")) == 0o777  # named, not mended in silence


def test_a_container_directory_of_another_user_is_refused(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "must belong to uid" in refused(run_dir)


def test_a_container_directory_that_cannot_be_made_is_named(run_dir: RunDir) -> None:
    (run_dir.path / "containers").rmdir()
    assert refused(run_dir).startswith("container c1: cannot create ")


def test_a_file_in_place_of_the_container_directory_is_named_and_kept(run_dir: RunDir) -> None:
    run_dir.container_dir("c1").write_text("precious")
    assert "c1 is no directory of its own" in refused(run_dir)
    assert run_dir.container_dir("c1").read_text() == "precious"


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_what_is_no_socket_at_the_path_is_named_and_never_deleted(run_dir: RunDir, kind: str) -> None:
    path = run_dir.container_socket("c1")
    path.parent.mkdir()
    match kind:
        case "file":
            path.write_text("precious")
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/nonexistent")
        case _:
            os.mkfifo(path)
    before = path.lstat()
    message = refused(run_dir)
    assert str(path) in message
    assert "is not deleted" in message
    assert path.lstat().st_ino == before.st_ino


def test_what_appears_at_the_path_in_the_last_moment_is_kept(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(_directory: int, path: Path) -> None:
        path.write_text("precious")

    monkeypatch.setattr(module, "_clear_stale", plant)
    assert refused(run_dir).endswith("Address already in use")
    assert run_dir.container_socket("c1").read_text() == "precious"


async def test_a_stale_socket_is_replaced(run_dir: RunDir) -> None:
    path = run_dir.container_socket("c1")
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with bound(run_dir):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


async def test_a_path_of_107_bytes_binds_and_one_of_108_is_refused(short_path: Path) -> None:
    name = "c"
    fixed = len(os.fsencode(short_path / "r" / "containers" / name / "forge.sock"))
    fits = "r" * (1 + SOCKET_PATH_MAX_BYTES - fixed)
    with RunDir.locked(short_path / fits) as run_dir:
        async with bound(run_dir, name) as container:
            assert len(os.fsencode(container.path)) == 107
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(container.path))
    with RunDir.locked(short_path / (fits + "r")) as run_dir:
        assert "is over 107 bytes; set a shorter run_dir or container name" in refused(run_dir, name)
        assert list((run_dir.path / "containers").iterdir()) == []


def test_the_control_sockets_path_has_the_same_bound(tmp_path: Path) -> None:
    with RunDir.locked(tmp_path / ("r" * 100)) as run_dir, pytest.raises(StartError, match="over 107 bytes"):
        bind_control(run_dir)


# --- closing --------------------------------------------------------------------------------------------------------


async def test_closing_leaves_nothing(run_dir: RunDir) -> None:
    before = open_descriptors()
    async with bound(run_dir):
        assert open_descriptors() > before
    assert open_descriptors() == before
    assert list(run_dir.container_dir("c1").iterdir()) == []
    remove_container_dir(run_dir, "c1")
    assert not run_dir.container_dir("c1").exists()


async def test_a_directory_that_holds_something_else_stays(run_dir: RunDir) -> None:
    async with bound(run_dir):
        pass
    (run_dir.container_dir("c1") / "note").touch()
    remove_container_dir(run_dir, "c1")
    assert (run_dir.container_dir("c1") / "note").exists()


async def test_only_the_inode_that_was_bound_is_removed(run_dir: RunDir) -> None:
    async with bound(run_dir) as ours:
        ours.path.unlink()
        ours.path.write_text("another's")
    assert ours.path.read_text() == "another's"


async def test_closing_is_content_with_a_socket_or_directory_that_is_gone(run_dir: RunDir) -> None:
    async with bound(run_dir) as ours:
        ours.path.unlink()
        ours.path.parent.rmdir()
    assert not run_dir.container_dir("c1").exists()


# --- accepting ------------------------------------------------------------------------------------------------------


async def test_the_peer_is_who_the_kernel_says(run_dir: RunDir) -> None:
    async with bound(run_dir) as container:
        client = await trio.open_unix_socket(str(container.path))
        stream, peer = await container.accept()
        assert peer == Peer(os.getpid(), os.getuid(), os.getgid())
        await client.send_all(b"x")
        assert await stream.receive_some(1) == b"x"
        await client.aclose()
        await stream.aclose()


async def test_the_address_of_a_peer_is_ignored(run_dir: RunDir) -> None:
    async with bound(run_dir) as container:
        with socket.socket(socket.AF_UNIX) as client:
            client.bind("\0{ 'container': 'c9' }" + str(os.getpid()))
            client.setblocking(False)
            client.connect(str(container.path))
            stream, peer = await container.accept()
            assert peer.pid == os.getpid()
            await stream.aclose()


class Accepting:
    """Stands in for a listening socket: each accept raises or gives the next of a list; then none comes any more."""

    def __init__(self, *steps: OSError | socket.socket) -> None:
        self.steps = list(steps)

    def accept(self) -> tuple[socket.socket, str]:
        step = self.steps.pop(0)
        if isinstance(step, OSError):
            raise step
        return step, ""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


def with_accepts(container: UnixListener, *steps: OSError | socket.socket) -> None:
    container._socket.close()
    container._socket = Accepting(*steps)  # type: ignore[assignment]


def an_end() -> socket.socket:
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.setblocking(False)
    return ours


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
async def test_overload_pauses_the_accept_and_is_logged_once_a_minute(
    run_dir: RunDir, number: int, autojump_clock: MockClock, events: Logged
) -> None:
    async with bound(run_dir) as container:
        with_accepts(container, *[OSError(number, "overload")] * 900, an_end())
        stream, _ = await container.accept()
        assert trio.current_time() == pytest.approx(90)  # a tenth of a second each
        await stream.aclose()
        assert [event["log_level"] for event in events] == ["error", "error"]


async def test_overload_between_accepts_is_logged_once_a_minute_too(
    run_dir: RunDir, autojump_clock: MockClock, events: Logged
) -> None:
    async with bound(run_dir) as container:
        steps: list[OSError | socket.socket] = []
        for _ in range(50):
            steps += [OSError(errno.EMFILE, "overload"), an_end()]
        with_accepts(container, *steps)
        for _ in range(50):
            stream, _ = await container.accept()
            await stream.aclose()
        assert len(events) == 1


async def test_each_listener_that_is_overloaded_says_so_by_itself(
    run_dir: RunDir, autojump_clock: MockClock, events: Logged
) -> None:
    async def suffers(listener: UnixListener) -> None:
        with_accepts(listener, *[OSError(errno.EMFILE, "overload")] * 700, an_end())
        stream, _ = await listener.accept()
        await stream.aclose()

    async with bound(run_dir, "one") as one, bound(run_dir, "two") as two:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(suffers, one)
            nursery.start_soon(suffers, two)
        assert trio.current_time() == pytest.approx(70)
        assert sorted(event["socket"] for event in events) == sorted([str(one.path), str(two.path)] * 2)


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPERM, errno.EPROTO])
async def test_a_peer_that_is_gone_before_it_was_accepted_costs_nothing(
    run_dir: RunDir, number: int, events: Logged
) -> None:
    async with bound(run_dir) as container:
        with_accepts(container, OSError(number, "gone"), an_end())
        stream, _ = await container.accept()
        await stream.aclose()
        assert events == []


async def test_a_peer_whose_credentials_cannot_be_read_is_closed(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Peer] = [Peer(1, 2, 3)]

    def peer_of(_connection: object) -> Peer:
        if len(answers) == 1:
            answers.append(answers[0])
            raise OSError(errno.ENOTCONN, "gone")
        return answers[0]

    monkeypatch.setattr(module, "_peer_of", peer_of)
    async with bound(run_dir) as container:
        first, second = an_end(), an_end()
        with_accepts(container, first, second)
        stream, peer = await container.accept()
        assert peer == Peer(1, 2, 3)
        assert first.fileno() == -1
        await stream.aclose()


async def test_an_error_of_accept_that_is_not_known_ends_the_listener(run_dir: RunDir) -> None:
    async with bound(run_dir) as container:
        with_accepts(container, OSError(errno.EINVAL, "not listening"))
        with pytest.raises(OSError, match="not listening"):
            await container.accept()


@pytest.mark.process
def test_accepting_survives_a_process_without_descriptors(tmp_path: Path) -> None:
    script = """
        import os, resource, socket, sys
        from pathlib import Path
        import trio
        from compass_forged.listener import RunDir, bind_container, serve_listener

        async def echo(stream, peer):
            async with stream:
                while data := await stream.receive_some(100):
                    await stream.send_all(data)

        async def main(path):
            with RunDir.locked(path) as run_dir:
                listener = bind_container(run_dir, "c1")
                async with trio.open_nursery() as nursery:
                    async def serve():
                        await serve_listener(listener, echo, connections=50)
                    nursery.start_soon(serve)
                    before = await trio.open_unix_socket(str(listener.path))
                    await before.send_all(b"1")
                    assert await before.receive_some(1) == b"1"
                    waiting = socket.socket(socket.AF_UNIX)
                    resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
                    taken = []
                    try:
                        while True:
                            taken.append(os.open("/dev/null", os.O_RDONLY))
                    except OSError:
                        pass
                    waiting.connect(str(listener.path))  # the kernel takes it; the daemon has no descriptor for it
                    waiting.sendall(b"2")
                    await trio.sleep(0.05)
                    await before.send_all(b"3")  # live connections are served
                    assert await before.receive_some(1) == b"3"
                    for one in taken:
                        os.close(one)
                    waiting.setblocking(False)
                    with trio.fail_after(10):
                        stream = trio.SocketStream(trio.socket.from_stdlib_socket(waiting))
                        assert await stream.receive_some(1) == b"2"
                    nursery.cancel_scope.cancel()
                listener.close()
            print("served")

        trio.run(main, Path(sys.argv[1]))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "accept paused: out of file descriptors" in ended.stdout
    assert ended.stdout.endswith("served\n")


async def test_a_slot_is_taken_before_the_accept(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = [], trio.Event()
    accepted: list[Peer] = []
    accept = UnixListener.accept

    async def counted(listener: UnixListener) -> tuple[UnixStream, Peer]:
        found = await accept(listener)
        accepted.append(found[1])
        return found

    monkeypatch.setattr(UnixListener, "accept", counted)

    async def handler(stream: UnixStream, peer: Peer) -> None:
        async with stream:
            began.append(peer)
            await may_end.wait()

    async with bound(run_dir) as container:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve_listener(container, handler, connections=2))
            clients = [await trio.open_unix_socket(str(container.path)) for _ in range(3)]
            await until(lambda: len(began) == 2)
            with trio.move_on_after(0.02) as waiting:
                await clients[2].receive_some(1)
            # The third waits in the backlog: the kernel has it, this process has not.
            assert waiting.cancelled_caught
            assert (len(accepted), len(began)) == (2, 2)
            may_end.set()
            assert await clients[2].receive_some(1) == b""  # served, and ended like the others
            assert len(began) == 3
            nursery.cancel_scope.cancel()
        for client in clients:
            await client.aclose()


async def test_cancelling_ends_all_connections_and_leaves_the_listener_to_its_owner(run_dir: RunDir) -> None:
    began, ended = trio.Event(), trio.Event()

    async def handler(stream: UnixStream, _peer: Peer) -> None:
        try:
            async with stream:
                began.set()
                await trio.sleep_forever()
        finally:
            ended.set()

    async with bound(run_dir) as container:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve_listener(container, handler, connections=2))
            client = await trio.open_unix_socket(str(container.path))
            await began.wait()
            nursery.cancel_scope.cancel()
        assert ended.is_set()
        assert container.path.is_socket()
        await client.aclose()


async def test_a_closed_listener_serves_its_connections_to_their_end_and_takes_no_other(run_dir: RunDir) -> None:
    async def echoes(stream: UnixStream, _peer: Peer) -> None:
        async with stream:
            while data := await stream.receive_some():
                await stream.send_all(data)

    ended = trio.Event()
    async with bound(run_dir) as container, trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_listener(container, echoes, connections=4)
            ended.set()

        nursery.start_soon(serve)
        client = await trio.open_unix_socket(str(container.path))
        await client.send_all(b"a")
        assert await client.receive_some() == b"a"
        probe = socket.socket(socket.AF_UNIX)
        linked = run_dir.path / "linked"
        os.link(container.path, linked)  # the same socket under a name that stays
        container.close()
        assert not container.path.exists()
        with probe, pytest.raises(ConnectionRefusedError):
            probe.connect(str(linked))
        await client.send_all(b"b")
        assert await client.receive_some() == b"b"
        assert not ended.is_set()
        await client.aclose()
        await ended.wait()


async def test_a_listener_closed_while_all_its_places_are_taken_ends_with_its_connections(run_dir: RunDir) -> None:
    began = trio.Event()

    async def handler(stream: UnixStream, _peer: Peer) -> None:
        async with stream:
            began.set()
            assert await stream.receive_some() == b""

    async with bound(run_dir) as container, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_listener(container, handler, connections=1))
        client = await trio.open_unix_socket(str(container.path))
        await began.wait()
        container.close()
        await client.aclose()  # the nursery ends by itself


async def test_closing_twice_closes_nothing_of_anybody_else(run_dir: RunDir) -> None:
    container = bind_container(run_dir, "c1")
    container.close()
    before = open_descriptors()
    own = os.open(os.devnull, os.O_RDONLY)  # takes the number of one that was closed
    try:
        container.close()
        os.fstat(own)
        async with bound(run_dir) as again:
            container.close()
            assert again.path.is_socket()
        assert len(open_descriptors()) == len(before) + 1
    finally:
        os.close(own)


async def test_nobody_is_accepted_by_a_closed_listener(run_dir: RunDir) -> None:
    async with bound(run_dir) as container:
        async with trio.open_nursery() as nursery:

            async def waits() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await container.accept()

            nursery.start_soon(waits)
            await wait_all_tasks_blocked()
            container.close()
        with pytest.raises(trio.ClosedResourceError, match="this listener was closed"):
            await container.accept()


@pytest.mark.parametrize(("limit", "least", "most"), [(16, 12, 12), (3, 3, 6)])
async def test_those_who_wait_are_accepted_in_one_pass_but_nobody_waits_for_a_whole_crowd(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch, limit: int, least: int, most: int
) -> None:
    monkeypatch.setattr(module, "_ACCEPTS_MAX", limit)
    accepted = 0
    seen: list[int] = []
    accept = UnixListener.accept

    async def counted(self: UnixListener) -> tuple[UnixStream, Peer]:
        nonlocal accepted
        found = await accept(self)
        accepted += 1
        return found

    async def handler(stream: UnixStream, peer: Peer) -> None:
        seen.append(accepted)
        await stream.aclose()

    monkeypatch.setattr(UnixListener, "accept", counted)
    listener = bind_container(run_dir, "box")
    clients = [await trio.open_unix_socket(str(run_dir.container_socket("box"))) for _ in range(12)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_listener, listener, handler, connections=16))
        for client in clients:
            assert await client.receive_some() == b""
            await client.aclose()
        nursery.cancel_scope.cancel()
    listener.close()
    # The loop may run the accepting task again before the first that was accepted.
    assert least <= seen[0] <= most
    assert max(seen) == 12
