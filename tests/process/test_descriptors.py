"""A whole daemon that runs out of descriptors: it pauses, serves whom it has, and goes on."""

import resource
import select
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from compass_forged.wire.codec import decode_reply
from compass_forged.wire.frames import FrameBuffer
from compass_forged.wire.schema import FaultFrame
from tests.support.core import call_of, frame_of
from tests.support.world import ROOT, Place, daemon, place

pytestmark = pytest.mark.process

ROOM = 20
"""Descriptors that are left to the daemon; the containers ask for 31."""


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        found.configure("http://127.0.0.1:9", store='"memory"')
        yield found


def _connect(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(path))  # the kernel takes it, whether or not the daemon can
    return sock


def _ask(sock: socket.socket) -> None:
    sock.sendall(frame_of(call_of()))


def _is_answered(sock: socket.socket) -> bool:
    buffer = FrameBuffer(1 << 20)
    while (payload := buffer.next_frame()) is None:
        data = sock.recv(1 << 16)
        if not data:
            return False
        buffer.feed(data)
    reply = decode_reply(payload)
    return isinstance(reply, FaultFrame) and reply.code == "permission_denied"  # no session is bound


def _readable(socks: list[socket.socket]) -> list[socket.socket]:
    """Those that have an answer, or get one within a moment."""
    return select.select(socks, [], [], 0.5)[0]


def test_without_descriptors_the_daemon_pauses_serves_whom_it_has_and_recovers(where: Place) -> None:
    with daemon(where) as process, where.control() as control, ExitStack() as stack:
        for name in ("one", "two"):
            control.open_container(name)
        pid = process.process.pid
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + ROOM, used + ROOM))

        first = stack.enter_context(closing(_connect(where.socket("one"))))
        _ask(first)
        assert _is_answered(first)
        crowd = [
            stack.enter_context(closing(_connect(where.socket(name)))) for name in ("one", "two") for _ in range(15)
        ]
        for sock in crowd:
            _ask(sock)
        served: list[socket.socket] = []
        while more := _readable([sock for sock in crowd if sock not in served]):
            assert all(_is_answered(sock) for sock in more)
            served += more
        waiting = [sock for sock in crowd if sock not in served]
        assert len(served) <= ROOM
        assert waiting  # for at least as long as that took: several rounds of the pause

        for sock in (first, *served):
            _ask(sock)
            assert _is_answered(sock)
        assert control.status().containers == 2  # over the connection that it has
        assert not _readable(waiting)

        for sock in served:
            sock.close()
        assert all(_is_answered(sock) for sock in waiting)  # whoever waited is let in
        assert process.process.poll() is None

    lines = [line for line in where.logged() if str(line["event"]).startswith("accept paused")]
    assert lines
    assert len({line["socket"] for line in lines}) == len(lines) <= 2  # once a minute for each listener
    assert not [line for line in where.logged() if "exception" in line or "traceback" in line]


def test_a_limit_that_serves_no_container_is_refused_at_the_start(where: Place) -> None:
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 100 && exec "$@"', "sh", sys.executable, "-m", "compass_forged", "serve",
         "--config", str(where.config)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    # Two credentials' 16 connections each, the store's 4 and the one that listens, the control socket's 16 with its
    # listener and directory, 64 to spare; then a container's 16, with its listener and directory.
    needed = 2 * 16 + 4 + 1 + 16 + 2 + 64 + 16 + 2
    assert done.stderr == (
        f"compass-forged: RLIMIT_NOFILE is 100; raise it to {needed} at least (ulimit -n, or LimitNOFILE=)\n"
    )
    assert not where.run_dir.exists()
