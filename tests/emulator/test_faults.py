"""Each fault of the proxy, as an HTTP client meets it, and what the forge did meanwhile. Real sockets, real clock."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from compass_forged.emulator import faults
from compass_forged.emulator.app import Forge
from compass_forged.emulator.faults import FaultProxy, Plan, fault_proxy
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from tests.emulator.inprocess import TOKENS

ISSUES = "/repos/acme/site/issues"
BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""A reset under a write is seen as one of these: it depends on whether the write or the read meets it."""
BIG = {"title": "t", "body": "x" * 60_000}


class Rig:
    """A forge, a proxy before it and a client of the proxy that opens a connection for each request."""

    def __init__(self, forge: Forge, proxy: FaultProxy, http: httpx.AsyncClient) -> None:
        self.forge = forge
        self.proxy = proxy
        self.http = http

    async def create(self) -> httpx.Response:
        return await self.http.post(ISSUES, json=BIG)

    @property
    def created(self) -> int:
        return self.forge.state.commits["issue"]

    async def closed(self) -> None:
        """Wait until the proxy has let go of every connection."""
        with trio.fail_after(5):
            while self.proxy.open:  # noqa: ASYNC110 -- the proxy has a count, no event
                await trio.sleep(0.005)


@asynccontextmanager
async def rig(*, keepalive: int = 0) -> AsyncGenerator[Rig]:
    forge = Forge(default_seed(TOKENS))
    async with serve_forge(forge) as url, fault_proxy(int(url.rpartition(":")[2])) as proxy:
        limits = httpx.Limits(max_keepalive_connections=keepalive)
        headers = {"authorization": f"Bearer {TOKENS['forge-author']}"}
        async with httpx.AsyncClient(base_url=proxy.url, limits=limits, headers=headers, timeout=5) as http:
            yield Rig(forge, proxy, http)


async def test_passes_through_without_a_plan() -> None:
    async with rig() as it:
        answer = await it.create()
        assert answer.status_code == 201
        # Links lead back through the proxy, since the forge builds them from the host that it was asked under.
        assert answer.headers["location"] == f"{it.proxy.url}{ISSUES}/4"
        assert (await it.http.get(answer.headers["location"])).json()["body"] == BIG["body"]
        await it.closed()
        assert (it.proxy.connections, it.proxy.planned) == (2, 0)


async def test_refused_connection() -> None:
    async with rig() as it:
        it.proxy.plan(faults.refuse_connection())
        with pytest.raises(BROKEN):
            await it.create()
        assert it.created == 0
        assert (await it.create()).status_code == 201


async def test_refusal_is_a_reset() -> None:
    async with fault_proxy(1) as proxy:
        proxy.plan(faults.refuse_connection())
        stream = await trio.open_tcp_stream("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        async with stream:
            with pytest.raises(trio.BrokenResourceError) as caught:
                await stream.receive_some()
            assert isinstance(caught.value.__cause__, ConnectionResetError)


@pytest.mark.parametrize("after", [0, 1, 200, 30_000])
async def test_cut_request_has_no_effect(after: int) -> None:
    async with rig() as it:
        it.proxy.plan(faults.cut_request(after))
        with pytest.raises(BROKEN):
            await it.create()
        await it.closed()
        assert it.created == 0
        assert (await it.create()).status_code == 201


@pytest.mark.parametrize(("ending", "error"), [("close", httpx.RemoteProtocolError), ("reset", httpx.ReadError)])
async def test_dropped_answer_has_its_effect(ending: faults.Ending, error: type[httpx.TransportError]) -> None:
    async with rig() as it:
        it.proxy.plan(faults.drop_answer(ending))
        with pytest.raises(error):
            await it.create()
        assert it.created == 1


@pytest.mark.parametrize("after", [1, 50, 5_000])
async def test_cut_answer(after: int) -> None:
    async with rig() as it:
        it.proxy.plan(faults.cut_answer(after))
        with pytest.raises(httpx.RemoteProtocolError):
            await it.create()
        assert it.created == 1


async def test_drip_arrives_whole_in_pieces() -> None:
    async with rig() as it:
        it.proxy.plan(faults.drip(400, 0.001))
        began = trio.current_time()
        answer = await it.http.get("/user")
        pieces = len(answer.content) // 400
        assert answer.json()["login"] == "forge-author"
        assert trio.current_time() - began >= pieces * 0.001


async def test_drip_outlasts_each_read_but_not_a_total_deadline() -> None:
    async with rig() as it:
        it.proxy.plan(faults.drip(1, 0.02))
        with trio.move_on_after(0.3) as scope:
            await it.http.get("/user", timeout=0.2)
        assert scope.cancelled_caught


async def test_blackhole_holds_the_connection_open() -> None:
    async with rig() as it:
        it.proxy.plan(faults.blackhole())
        with trio.move_on_after(0.1) as scope:
            await it.create()
        assert scope.cancelled_caught
        assert it.created == 0
        await it.closed()


@pytest.mark.parametrize("answer", [faults.BAD_CHUNKING, faults.GARBLED_HEAD, faults.header_bomb(200_000)])
async def test_answers_that_are_no_http(answer: bytes) -> None:
    async with rig() as it:
        it.proxy.plan(faults.replace_answer(answer))
        with pytest.raises(httpx.RemoteProtocolError):
            await it.create()
        assert it.created == 1


async def test_pooled_connection_that_closes_under_the_next_request() -> None:
    async with rig(keepalive=1) as it:
        assert (await it.create()).status_code == 201
        assert (await it.create()).status_code == 201
        assert it.proxy.connections == 1
        it.proxy.plan_open(faults.cut_request(0, "close"))
        with pytest.raises(BROKEN):
            await it.create()
        assert it.created == 2
        assert (await it.create()).status_code == 201
        assert it.proxy.connections == 2


async def test_pooled_connection_whose_next_answer_is_lost() -> None:
    async with rig(keepalive=1) as it:
        assert (await it.create()).status_code == 201
        it.proxy.plan_open(faults.drop_answer())
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            await it.create()
        assert it.created == 2


async def test_plans_are_taken_in_order_and_can_be_cleared() -> None:
    async with rig() as it:
        it.proxy.plan(Plan(), faults.refuse_connection(), faults.refuse_connection())
        assert (await it.create()).status_code == 201
        with pytest.raises(BROKEN):
            await it.create()
        it.proxy.clear()
        assert (await it.create()).status_code == 201
        assert (it.proxy.connections, it.proxy.planned) == (3, 2)


def test_number_of_plans_is_bounded() -> None:
    proxy = FaultProxy("http://127.0.0.1:1", 1)
    with pytest.raises(ValueError, match="at most"):
        proxy.plan(*[Plan()] * (faults.PLANS_MAX + 1))


async def test_forge_that_is_down_closes_the_client() -> None:
    async with fault_proxy(1) as proxy, httpx.AsyncClient(base_url=proxy.url, timeout=5) as http:
        with pytest.raises(BROKEN):
            await http.get("/user")


async def test_forge_that_hangs_up_is_passed_on() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.send_all(b"bye")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hang_up, 0)
        async with fault_proxy(listeners[0].socket.getsockname()[1]) as proxy:
            stream = await trio.open_tcp_stream("127.0.0.1", int(proxy.url.rpartition(":")[2]))
            async with stream:
                assert b"".join([bytes(part) async for part in stream]) == b"bye"
        nursery.cancel_scope.cancel()


async def test_block_ends_with_connections_open() -> None:
    async with rig(keepalive=1) as it:
        assert (await it.create()).status_code == 201
        assert it.proxy.open == 1
