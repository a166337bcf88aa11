"""A whole daemon at its memory limit."""

import socket
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from compass_forged.agent import ForgeCall, ForgeCallFailed, SyncForgeClient
from compass_forged.control.schema import MemoryState
from compass_forged.wire.schema import CommentOnIssue, CreateIssue
from tests.support.core import RawClient, call_of, error_of, frame_of
from tests.support.world import Place, daemon, place

pytestmark = pytest.mark.process

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


def configure(where: Place, limit: int) -> None:
    where.configure(NOWHERE, store='"memory"', extra=f"[limits]\nmemory_max_bytes = {limit}\n")


def memory(where: Place) -> MemoryState:
    with where.control() as control:
        found = control.status().memory
    assert found is not None
    return found


def bind(where: Place) -> Path:
    with where.control() as control:
        control.open_container("one")
        control.bind_session("one", "s-1", agent="scout", owner="ada")
    return where.socket("one")


def failure(client: SyncForgeClient, call: ForgeCall) -> tuple[str, str]:
    with pytest.raises(ForgeCallFailed) as failed:
        client.forge(call)
    return failed.value.code, failed.value.outcome


def test_near_its_limit_a_daemon_refuses_creates_and_at_it_connections(where: Place) -> None:
    configure(where, 1 << 40)
    with daemon(where):
        used = memory(where).used
        assert memory(where).stage == "normal"
        assert used > 10 << 20

    configure(where, int(used / 0.9))
    with daemon(where):
        path = bind(where)
        assert memory(where).stage == "tight"
        with SyncForgeClient(path) as client:
            create = CreateIssue(repo="acme/site", title="x")
            assert failure(client, ForgeCall(call_id="1", arm=create)) == ("resource_exhausted", "not_sent")
            comment = CommentOnIssue(repo="acme/site", issue_number=1, body="x")
            assert failure(client, ForgeCall(call_id="2", arm=comment)) == ("unavailable", "not_sent")  # nobody listens

    configure(where, used // 2)
    with daemon(where):
        path = bind(where)
        assert memory(where).stage == "full"
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.settimeout(0.3)
            waiting.connect(str(path))
            waiting.sendall(frame_of(call_of()))
            with pytest.raises(TimeoutError):
                waiting.recv(1)
    assert [(line["stage"], line["before"]) for line in where.logged() if line["event"] == "memory"] == [
        ("tight", "normal"),
        ("full", "normal"),
    ]


def _peak_bytes(pid: int) -> int:
    """The largest resident size that a process ever had (proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


async def test_a_flood_of_large_requests_keeps_to_the_bound(where: Place) -> None:
    bound = 16 << 20
    where.configure(NOWHERE, store='"memory"', extra=f"[limits]\nbodies_max_bytes = {bound}\n")
    large = CommentOnIssue(repo="acme/site", issue_number=1, body="x" * ((1 << 20) - 500))
    calls, containers, connections = 6, 6, 4

    async def flood(path: Path, nursery: trio.Nursery) -> None:
        client = RawClient(await trio.open_unix_socket(str(path)))
        async with client.stream:
            nursery.start_soon(client.send, *(call_of(large, str(number)) for number in range(calls)))
            for reply in (await client.replies(calls)).values():
                assert error_of(reply) == ("invalid_argument", "not_sent")  # no forge takes bodies of that size

    with daemon(where) as process:
        with where.control() as control:
            for number in range(containers):
                control.open_container(f"c{number}")
                control.bind_session(f"c{number}", f"s-{number}", agent=f"a{number}", owner="ada")
        before = _peak_bytes(process.process.pid)
        async with trio.open_nursery() as nursery:
            for number in range(containers):
                for _ in range(connections):
                    nursery.start_soon(flood, where.socket(f"c{number}"), nursery)
        with where.control() as control:
            status = control.status()
        assert status.request_bytes_held == 0
        assert sum(row.count for row in status.counters if row.name == "body_waits") > 0
        # 144 MiB have passed. A request takes up to three times its length, and free heap is not handed back at once.
        assert _peak_bytes(process.process.pid) - before < 6 * bound
