"""Load by gRPC's own asyncio client. A process of its own, without trio; see ``run_cells``."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import grpc.aio  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.cells import Cell, Sample, UnexpectedReply, Window, run_cells, spread_over
from bench.support.messages import FrameTemplate, arm_of
from bench.support.protobufs import METHOD, SERVICE, TIMEOUT_SECONDS, Calls, ForgeCall, ForgeReply
from bench.support.serve_grpc import BYTES_METHOD
from compass_forged.wire.frames import HEADER_BYTES

_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Without it the channels of one process share a connection."""

_Call: TypeAlias = Callable[[int], Awaitable[None]]
_Opener: TypeAlias = Callable[[Any], _Call]


def _with_messages(cell: Cell) -> _Opener:
    """Each call makes its message, encodes it, sends a deadline, and decodes the reply."""
    calls = Calls(arm_of(cell.operation, cell.body_bytes))

    def open_on(channel: Any) -> _Call:
        method = channel.unary_unary(
            f"/{SERVICE}/{METHOD}",
            request_serializer=ForgeCall.SerializeToString,
            response_deserializer=ForgeReply.FromString,
        )

        async def call(number: int) -> None:
            request = calls.call(number)
            reply = await method(request, timeout=TIMEOUT_SECONDS)
            if reply.call_id != request.call_id or reply.WhichOneof("arm") is None:
                raise UnexpectedReply(f"gRPC answered {reply}")

        return call

    return open_on


def _with_bytes(cell: Cell) -> _Opener:
    """Bytes made beforehand, and no deadline."""
    template = FrameTemplate(arm_of(cell.operation, cell.body_bytes))

    def open_on(channel: Any) -> _Call:
        method = channel.unary_unary(f"/{SERVICE}/{BYTES_METHOD}")

        async def call(number: int) -> None:
            reply = await method(template.payload(number))
            if len(reply) + HEADER_BYTES != cell.reply_bytes:
                raise UnexpectedReply(f"gRPC answered {len(reply)} bytes")

        return call

    return open_on


async def _work(call: _Call, cell: Cell, numbers: "itertools.count[int]", window: Window) -> None:
    timed = cell.pattern == "serial"
    while True:
        number = next(numbers)
        began = time.perf_counter_ns()
        await call(number)
        if not window.count(1, time.perf_counter_ns() - began if timed else None):
            return


async def _run(cell: Cell) -> Sample:
    open_on = _with_messages(cell) if cell.contender == "grpc" else _with_bytes(cell)
    numbers = itertools.count(cell.first_number)
    fleet = cell.pattern == "fleet"
    async with asyncio.timeout(cell.seconds_at_most), AsyncExitStack() as stack:
        calls = []
        for path in spread_over(cell.sockets, cell.concurrency if fleet else 1):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(f"unix:{path}", options=_OWN_CONNECTION)
            )
            await channel.channel_ready()
            calls.append(open_on(channel))
        window = Window(cell)
        async with asyncio.TaskGroup() as tasks:
            for index in range(cell.concurrency):
                tasks.create_task(_work(calls[index % len(calls)], cell, numbers, window))
        return window.sample()


def run(cell: Cell) -> Sample:
    """Make the load of one cell."""
    return asyncio.run(_run(cell))


if __name__ == "__main__":
    run_cells(run)
