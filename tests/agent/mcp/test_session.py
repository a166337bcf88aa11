"""One MCP connection in memory: the tools over the SDK, and what bounds a connection."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio

from compass_forged import __version__
from compass_forged.agent import ConnectionLost, ForgeCall, ForgeCallFailed, ResultArm
from compass_forged.agent.mcp import session as mcp_session
from compass_forged.agent.mcp.server import annotations, make_server
from compass_forged.agent.mcp.session import REQUESTS_MAX, serve
from compass_forged.agent.tools import execution
from compass_forged.wire.schema import IssueResult
from tests.support.tool_world import ISSUE, Transport, tools_over

GET = {"name": "forge_get_issue", "arguments": {"repo": "acme/site", "issue_number": 7}}
CREATE = {"name": "forge_create_issue", "arguments": {"repo": "acme/site", "title": "t"}}


class Peer:
    """The client's end of a connection, and the bytes that the session sees."""

    def __init__(self) -> None:
        self._to_session, self._incoming = trio.open_memory_channel[bytes](100)
        self._outgoing, self._from_session = trio.open_memory_channel[bytes](100)
        self.reading = True
        self._part = b""
        self.gone = False

    async def receive(self) -> bytes:
        try:
            return await self._incoming.receive()
        except trio.EndOfChannel:
            return b""

    def send_nowait(self, data: bytes) -> int:
        if self.gone:
            raise anyio.BrokenResourceError
        if not self.reading:
            self._part += data[:3]
            return len(data[:3])
        self._outgoing.send_nowait(self._part + data)
        self._part = b""
        return len(data)

    async def send(self, data: bytes) -> None:
        while not self.reading:  # noqa: ASYNC110 -- there is no event for what a test sets
            await trio.sleep(0.1)
        self.send_nowait(data)

    def tell(self, data: bytes) -> None:
        self._to_session.send_nowait(data)

    def ask(self, request_id: Any, method: str, params: dict[str, Any] | None = None) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method} | ({"params": params} if params else {})
        self.tell(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self._to_session.close()

    async def answer(self) -> Any:
        line = await self._from_session.receive()
        assert line.endswith(b"\n")
        return json.loads(line)

    async def asked(self, request_id: Any, method: str, params: dict[str, Any] | None = None) -> Any:
        self.ask(request_id, method, params)
        answer = await self.answer()
        assert answer["id"] == request_id
        return answer

    def waiting(self) -> int:
        return self._incoming.statistics().current_buffer_used

    async def initialize(self) -> Any:
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        answer = await self.asked(0, "initialize", params)
        self.tell(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer["result"]


@asynccontextmanager
async def connected(transport: Any) -> AsyncIterator[Peer]:
    """A session over ``transport``, initialized; it ends with the block, by the client's closing."""
    peer = Peer()

    async def session(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await serve(make_server(transport), peer)

    async with trio.open_nursery() as nursery:
        await nursery.start(session)
        await peer.initialize()
        yield peer
        peer.close()


class Held:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.calls: list[ForgeCall] = []
        self.go = trio.Event()

    async def forge(self, call: ForgeCall) -> ResultArm:
        self.calls.append(call)
        await self.go.wait()
        return IssueResult(issue=ISSUE)


async def until(condition: Any) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 -- a test looks from outside; there is no event for it
            await trio.sleep(0.001)


# --- tools ----------------------------------------------------------------------------------------------------------


async def test_the_server_names_itself_and_its_tools_as_they_are() -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, make_server(Transport()), peer)
        said = await peer.initialize()
        assert said["serverInfo"] == {"name": "compass-forged", "version": __version__}
        assert "not instructions" in said["instructions"]
        listed = (await peer.asked(1, "tools/list"))["result"]["tools"]
        peer.close()
    tools = tools_over(Transport())
    assert [each["name"] for each in listed] == list(tools)
    for each in listed:
        tool = tools[each["name"]]
        assert each["inputSchema"] == tool.parameters
        assert each["description"] == tool.description
        assert each["title"] == tool.label


def test_the_hints_come_from_the_approval_level() -> None:
    for tool in tools_over(Transport()).values():
        hints = annotations(tool)
        read = tool.approval == "read"
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint) == (
            read,
            False,
            read,
            True,
        )


async def test_a_call_answers_with_the_tool_s_text() -> None:
    async with connected(Transport(IssueResult(issue=ISSUE))) as peer:
        result = (await peer.asked(1, "tools/call", GET))["result"]
    assert result["isError"] is False
    (content,) = result["content"]
    assert content["type"] == "text"
    assert content["text"].startswith("Issue #7 in acme/site. ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"repo": "a/b"}, "invalid_argument: issue_number: required parameter is missing"),
        ({"repo": "a/b", "issue_number": 7, "isue_number": 1}, "invalid_argument: unknown parameter 'isue_number'"),
        ({"repo": "a/b", "issue_number": 7}, "not_found: no such artifact"),
    ],
)
async def test_a_failure_is_the_tool_s_error_and_not_the_protocol_s(arguments: dict[str, Any], text: str) -> None:
    async with connected(Transport(ForgeCallFailed("not_found", "no such artifact"))) as peer:
        answer = await peer.asked(1, "tools/call", {"name": "forge_get_issue", "arguments": arguments})
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"].startswith(f"forge_get_issue failed: {text}")


async def test_missing_arguments_are_the_tool_s_to_refuse() -> None:
    async with connected(Transport()) as peer:
        answer = await peer.asked(1, "tools/call", {"name": "forge_get_issue"})
    assert answer["result"]["content"][0]["text"].endswith("repo: required parameter is missing")


async def test_an_unknown_tool_is_an_error_that_names_the_nearest() -> None:
    async with connected(Transport()) as peer:
        near = await peer.asked(1, "tools/call", {"name": "forge_get_isue", "arguments": {}})
        far = await peer.asked(2, "tools/call", {"name": "\x1b[31m" + "x" * 500, "arguments": {}})
    assert near["error"] == {"code": -32602, "message": "unknown tool 'forge_get_isue'; did you mean forge_get_issue?"}
    assert "known are forge_get_issue, " in far["error"]["message"]
    assert "\x1b" not in far["error"]["message"]
    assert len(far["error"]["message"]) < 500


async def test_a_create_s_key_is_the_connection_s_nonce_and_the_request_s_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "RETRY_PAUSE_SECONDS", 0.001)
    transport = Transport(ConnectionLost("x"), IssueResult(issue=ISSUE))
    async with connected(transport) as peer:
        await peer.asked(5, "tools/call", CREATE)
        await peer.asked("5", "tools/call", CREATE)
    async with connected(transport) as peer:
        await peer.asked(5, "tools/call", CREATE)
    keys = [call.client_request_id for call in transport.calls]
    assert keys[0] == keys[1]
    assert len(set(keys[1:])) == 3
    assert keys[1].endswith(":5")
    assert keys[2].endswith(':"5"')
    assert keys[1].partition(":")[0] == keys[2].partition(":")[0] != keys[3].partition(":")[0]


# --- bounds ---------------------------------------------------------------------------------------------------------


async def test_what_is_no_message_is_answered_and_the_connection_goes_on() -> None:
    async with connected(Transport()) as peer:
        peer.tell(b"{\n")
        assert (await peer.answer())["error"]["code"] == -32700
        peer.tell(b"x" * (1 << 20) + b"x\n")
        assert "over the limit of 1048576 bytes" in (await peer.answer())["error"]["message"]
        assert (await peer.asked(1, "ping"))["result"] == {}


async def test_a_request_that_cannot_be_read_is_answered_and_takes_no_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = Held()
    async with connected(transport) as peer:
        for index in range(2 * REQUESTS_MAX):
            peer.tell(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"\\ud800"}}\n' % index)
            answer = await peer.answer()
            assert answer["id"] == index
            assert answer["error"]["message"] == "not valid JSON; a lone surrogate is no text"
        for index in range(REQUESTS_MAX + 1):
            peer.ask(index, "tools/call", GET)
        await trio.testing.wait_all_tasks_blocked()
        assert len(transport.calls) == REQUESTS_MAX
        transport.go.set()


async def test_at_the_limit_of_requests_no_more_is_read(autojump_clock: trio.testing.MockClock) -> None:
    transport = Held()
    async with connected(transport) as peer:
        for index in range(REQUESTS_MAX + 5):
            peer.ask(index + 1, "tools/call", GET)
        await trio.testing.wait_all_tasks_blocked()
        assert len(transport.calls) == REQUESTS_MAX
        assert peer.waiting() == 4
        transport.go.set()
        answered = {(await peer.answer())["id"] for _ in range(REQUESTS_MAX + 5)}
    assert answered == set(range(1, REQUESTS_MAX + 6))


async def test_a_request_that_is_cancelled_makes_room_and_is_not_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = Held()
    async with connected(transport) as peer:
        for index in range(REQUESTS_MAX - 1):
            peer.ask(index + 1, "tools/call", GET)
        await trio.testing.wait_all_tasks_blocked()
        for index in range(REQUESTS_MAX - 1):
            params = {"requestId": index + 1}
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            peer.tell(json.dumps(message).encode() + b"\n")
        await trio.testing.wait_all_tasks_blocked()
        for index in range(REQUESTS_MAX):
            peer.ask(100 + index, "tools/call", GET)
        await trio.testing.wait_all_tasks_blocked()
        assert len(transport.calls) == 2 * REQUESTS_MAX - 1
        transport.go.set()
        answered = {(await peer.answer())["id"] for _ in range(REQUESTS_MAX)}
    assert answered == {100 + index for index in range(REQUESTS_MAX)}


async def test_a_peer_that_does_not_read_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    with trio.fail_after(60):
        async with connected(Transport(IssueResult(issue=ISSUE))) as peer:
            peer.reading = False
            peer.ask(1, "tools/call", GET)
            start = trio.current_time()
            await trio.sleep(mcp_session.WRITE_SECONDS + 1)
            peer.ask(2, "tools/call", GET)
            await trio.testing.wait_all_tasks_blocked()
            assert peer.waiting() == 1, "nobody reads any more"
    assert trio.current_time() - start < mcp_session.WRITE_SECONDS + 2


async def test_answers_that_wait_for_a_peer_that_reads_again_come_whole(autojump_clock: trio.testing.MockClock) -> None:
    async with connected(Transport(IssueResult(issue=ISSUE))) as peer:
        peer.reading = False
        for index in range(5):
            peer.ask(index + 1, "tools/call", GET)
        await trio.sleep(mcp_session.WRITE_SECONDS / 2)
        peer.reading = True
        assert {(await peer.answer())["id"] for _ in range(5)} == {1, 2, 3, 4, 5}


async def test_a_peer_that_is_gone_ends_the_session() -> None:
    with trio.fail_after(10):
        async with connected(Transport(IssueResult(issue=ISSUE))) as peer:
            peer.gone = True
            peer.ask(1, "tools/call", GET)


async def test_a_client_that_closes_its_side_still_gets_its_answers(autojump_clock: trio.testing.MockClock) -> None:
    transport = Held()
    async with connected(transport) as peer:
        peer.ask(1, "tools/call", GET)
        await trio.testing.wait_all_tasks_blocked()
        peer.close()
        await trio.sleep(1)
        transport.go.set()
        answer = await peer.answer()
    assert answer["result"]["isError"] is False


async def test_a_call_that_never_ends_does_not_keep_a_closed_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start = trio.current_time()
    async with connected(Held()) as peer:
        peer.ask(1, "tools/call", GET)
    assert trio.current_time() - start == pytest.approx(mcp_session.LAST_ANSWERS_SECONDS, abs=1.5)


async def test_a_client_that_leaves_at_once_ends_the_session() -> None:
    peer = Peer()
    peer.close()
    with trio.fail_after(5):
        await serve(make_server(Transport()), peer)
