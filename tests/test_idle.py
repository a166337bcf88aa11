"""Connections over which nothing happens, where a limit on that is configured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from compass_forged.connection import GatewayLimits
from compass_forged.gateway import Gateway
from compass_forged.observability import Counters
from compass_forged.wire.schema import ForgeCall, ReplyFrame
from tests.support.core import RawClient, call_of, frame_of, in_tasks, reply_to, session_of, table_of


@asynccontextmanager
async def connection(idle: float, *, takes: float = 0) -> AsyncIterator[tuple[RawClient, Counters]]:
    async def relay(_session: str, call: ForgeCall) -> ReplyFrame:
        await trio.sleep(takes)
        return reply_to(call)

    counters = Counters()
    async with trio.open_nursery() as nursery:
        gateway = Gateway(
            table_of(session_of("c1")),
            in_tasks(nursery, relay),
            counters=counters,
            limits=GatewayLimits(idle_seconds=idle),
        )
        ours, theirs = memory_stream_pair()
        nursery.start_soon(gateway.serve_connection, theirs, "c1")
        await wait_all_tasks_blocked()
        yield RawClient(ours), counters
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("call_at", [None, 299.0])
async def test_a_connection_is_closed_after_so_long_without_anything(
    call_at: float | None, autojump_clock: MockClock
) -> None:
    async with connection(300) as (client, counters):
        if call_at is not None:
            await trio.sleep(call_at)
            await client.send(call_of())
            await client.reply()
        assert await client.reply_or_end() is None
        assert trio.current_time() == pytest.approx((call_at or 0) + 300)
        assert counters.total("connections_idle_closed") == 1


async def test_one_that_is_heard_of_in_time_stays(autojump_clock: MockClock) -> None:
    async with connection(300) as (client, counters):
        for number in range(20):
            await trio.sleep(299)
            await client.send(call_of(call_id=str(number)))
            assert (await client.reply()).call_id == str(number)
        assert counters.total("connections_idle_closed") == 0


async def test_what_a_call_takes_is_not_idle_time(autojump_clock: MockClock) -> None:
    async with connection(10, takes=25) as (client, _):
        await client.send(call_of())
        await client.reply()
        assert trio.current_time() == pytest.approx(25)
        assert await client.reply_or_end() is None
        assert trio.current_time() == pytest.approx(35)


async def test_the_clock_of_a_frame_that_has_begun_is_another(autojump_clock: MockClock) -> None:
    async with connection(2) as (client, _):
        frame = frame_of(call_of())
        await client.stream.send_all(frame[:9])
        await trio.sleep(9)
        await client.stream.send_all(frame[9:])
        await client.reply()
        assert await client.reply_or_end() is None
        assert trio.current_time() == pytest.approx(11)
