"""A create whose connection is cut, against a whole daemon over real sockets: the tool finds the one it has made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from compass_forged.agent import ForgeBroker, connect, create_forge_tools
from compass_forged.agent.tools import execution
from compass_forged.ports import CallContext
from compass_forged.providers.fake import FakeProvider
from compass_forged.wire.schema import CreateIssue, Issue
from tests.support.cases import running, short_directory
from tests.support.host import until


class SlowForge(FakeProvider):
    """Counts the issues that it was asked to make, and takes its time for each."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.go_on = trio.Event()

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        self.asked += 1
        made = await super().create_issue(arm, context)
        await self.go_on.wait()
        return made


@asynccontextmanager
async def cut_once(path: Path, daemon: Path, cut: trio.Event) -> AsyncIterator[None]:
    """A socket before the daemon's; the first connection through it is cut when ``cut`` is set."""

    async def forward(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream, await trio.open_unix_socket(str(daemon)) as inner, trio.open_nursery() as both:
            both.start_soon(forward, stream, inner)
            both.start_soon(forward, inner, stream)
            if not cut.is_set():
                await cut.wait()
                both.cancel_scope.cancel()

    sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await sock.bind(str(path))
    sock.listen()
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, [trio.SocketListener(sock)])
        yield
        nursery.cancel_scope.cancel()


async def test_a_create_that_was_cut_is_joined_by_the_tool_s_own_second_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "RETRY_PAUSE_SECONDS", 0.01)
    forge, cut = SlowForge(), trio.Event()
    with short_directory() as place:
        async with (
            running(forge) as daemon,
            cut_once(place / "forge.sock", daemon.socket(), cut),
            connect(place / "forge.sock") as client,
            trio.open_nursery() as nursery,
        ):
            (tool,) = [each for each in create_forge_tools(ForgeBroker(client)) if each.name == "forge_create_issue"]
            said: list[str] = []

            async def create() -> None:
                said.append(await tool.execute("call_1", {"repo": "acme/site", "title": "once"}))

            nursery.start_soon(create)
            await until(lambda: forge.asked == 1)
            cut.set()
            await until(lambda: client.statistics().connections == 2)
            await trio.sleep(0.05)
            forge.go_on.set()
    assert forge.asked == 1
    assert "#" in said[0]
    assert "acme/site" in said[0]
