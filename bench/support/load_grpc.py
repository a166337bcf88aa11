"""Load by gRPC's own asyncio client. A process of its own, without trio; see ``run_cells``."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.cells import Cell, Sample, UnexpectedReply, Window, run_cells, spread_over
from bench.support.messages import FrameTemplate, arm_of
from compass_forged.wire.frames import HEADER_BYTES

METHOD = "/bench.RoundTrip/Call"
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Without it the channels of one process share a connection."""


async def _work(
    method: Any, cell: Cell, template: FrameTemplate, numbers: "itertools.count[int]", window: Window
) -> None:
    timed = cell.pattern == "serial"
    while True:
        request = template.payload(next(numbers))
        began = time.perf_counter_ns()
        reply = await method(request)
        latency = time.perf_counter_ns() - began
        if len(reply) + HEADER_BYTES != cell.reply_bytes:
            raise UnexpectedReply(f"gRPC answered {len(reply)} bytes")
        if not window.count(1, latency if timed else None):
            return


async def _run(cell: Cell) -> Sample:
    template = FrameTemplate(arm_of(cell.operation, cell.body_bytes))
    numbers = itertools.count(cell.first_number)
    fleet = cell.pattern == "fleet"
    async with asyncio.timeout(cell.seconds_at_most), AsyncExitStack() as stack:
        methods = []
        for path in spread_over(cell.sockets, cell.concurrency if fleet else 1):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(f"unix:{path}", options=_OWN_CONNECTION)
            )
            await channel.channel_ready()
            methods.append(channel.unary_unary(METHOD))
        window = Window(cell)
        async with asyncio.TaskGroup() as tasks:
            for index in range(cell.concurrency):
                tasks.create_task(_work(methods[index % len(methods)], cell, template, numbers, window))
        return window.sample()


def run(cell: Cell) -> Sample:
    """Make the load of one cell."""
    return asyncio.run(_run(cell))


if __name__ == "__main__":
    run_cells(run)
