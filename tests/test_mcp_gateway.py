"""The MCP gateway in this process: what it does where the machine or the daemon fails it."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from compass_forged import mcp_gateway
from compass_forged.listener import MCP_SOCKET_NAME, RunDir, UnixListener
from compass_forged.mcp_gateway import McpGateway
from compass_forged.providers.fake import FakeProvider
from tests.support.cases import Running, running
from tests.support.host import until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_gateway, "LOOK_SECONDS", 0.01)


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged as a crash."""
    seen: list[str] = []
    log = mcp_gateway._log
    monkeypatch.setattr(log, "exception", lambda event, **_: seen.append(event), raising=False)
    return seen


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Running, McpGateway]]:
    """A daemon with the containers c1 and c2, and a gateway beside it, both serving."""
    async with running(FakeProvider()) as daemon:
        with RunDir.locked(daemon.path, what="MCP gateway") as run_dir:
            gateway = McpGateway(run_dir)

            async def serve(*, task_status: trio.TaskStatus[None]) -> None:
                task_status.started()
                await gateway.run()

            async with trio.open_nursery() as nursery:
                await nursery.start(serve)
                await until(lambda: mcp(daemon, "c1").is_socket() and mcp(daemon, "c2").is_socket())
                yield daemon, gateway
                nursery.cancel_scope.cancel()


def mcp(daemon: Running, container: str) -> Path:
    return daemon.socket(container).with_name(MCP_SOCKET_NAME)


async def test_where_the_containers_cannot_be_looked_at_what_is_served_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (daemon, gateway):
        looked = 0

        def scandir(_: object) -> Iterator[os.DirEntry[str]]:
            nonlocal looked
            looked += 1
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", scandir)
            await until(lambda: looked > 3)
            assert mcp(daemon, "c1").is_socket()
            assert gateway._refused == {"": "cannot look at the containers: Too many open files"}
        await until(lambda: not gateway._refused)
        assert set(gateway._served) == {"c1", "c2"}


async def test_a_listener_that_crashes_is_bound_anew_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, crashes: list[str]
) -> None:
    accept = UnixListener.accept
    broken: list[Path] = []

    async def accepting(self: UnixListener) -> object:
        if self.path.parent.name == "c1" and self.path.name == MCP_SOCKET_NAME and not broken:
            broken.append(self.path)
            raise RuntimeError("no")
        return await accept(self)

    monkeypatch.setattr(UnixListener, "accept", accepting)
    async with serving() as (daemon, gateway):
        await until(lambda: bool(crashes))
        await until(lambda: "c1" in gateway._served and mcp(daemon, "c1").is_socket())
        async with await trio.open_unix_socket(str(mcp(daemon, "c1"))) as stream:
            await stream.send_all(b"no json\n")
            assert b"-32700" in await stream.receive_some()
    assert crashes == ["MCP listener crashed"]


async def test_a_connection_that_crashes_costs_no_other(monkeypatch: pytest.MonkeyPatch, crashes: list[str]) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no")

    async with serving() as (daemon, _):
        with monkeypatch.context() as patched:
            patched.setattr(mcp_gateway, "make_server", broken)
            async with await trio.open_unix_socket(str(mcp(daemon, "c1"))) as stream:
                assert await stream.receive_some() == b""
        assert crashes == ["MCP connection crashed"]
        async with await trio.open_unix_socket(str(mcp(daemon, "c1"))) as stream:
            await stream.send_all(b"no json\n")
            assert b"-32700" in await stream.receive_some()


async def test_a_connection_ends_where_the_daemon_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_gateway, "DAEMON_SECONDS", 0.05)
    async with serving() as (daemon, _):
        daemon.socket("c1").unlink()
        async with await trio.open_unix_socket(str(mcp(daemon, "c1"))) as stream:
            assert await stream.receive_some() == b""


async def test_a_connection_is_refused_where_the_daemon_cannot_be_asked() -> None:
    async with serving() as (daemon, _):
        (daemon.path / "control.sock").unlink()
        async with await trio.open_unix_socket(str(mcp(daemon, "c1"))) as stream:
            assert await stream.receive_some() == b""
