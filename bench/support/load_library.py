"""Load by Python clients under trio: the agent library against the daemon, and what is its equal for the bare echo.

The echo's client is the least that can be written with trio: no codec, no deadlines, no reconnecting. Run as a process;
see ``run_cells``.
"""

import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

import trio

from bench.support.cells import Cell, Sample, UnexpectedReply, Window, check_replies, run_cells, spread_over
from bench.support.messages import FrameTemplate, arm_of, numbered_call
from compass_forged.agent import connect
from compass_forged.wire.frames import HEADER_BYTES

_RECEIVE_BYTES = 64 << 10

_Call: TypeAlias = Callable[[int], Awaitable[None]]
_Opener: TypeAlias = Callable[[Cell, str], AbstractAsyncContextManager[_Call]]


@asynccontextmanager
async def _ours(cell: Cell, path: str) -> AsyncGenerator[_Call, None]:
    arm = arm_of(cell.operation, cell.body_bytes)
    async with connect(path) as client:

        async def call(number: int) -> None:
            await client.forge(numbered_call(arm, number))  # anything but a success raises

        yield call


@asynccontextmanager
async def _echo_alone(cell: Cell, path: str) -> AsyncGenerator[_Call, None]:
    """One call at a time: send, then receive until the reply is whole."""
    template = FrameTemplate(arm_of(cell.operation, cell.body_bytes))
    head = (cell.reply_bytes - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
    async with await trio.open_unix_socket(path) as stream:

        async def call(number: int) -> None:
            await stream.send_all(template.frame(number))
            reply = bytearray()
            while len(reply) < cell.reply_bytes:
                data = await stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    raise UnexpectedReply("the echo closed the connection")
                reply += data
            check_replies(reply, head, cell.reply_bytes)

        yield call


@asynccontextmanager
async def _echo_shared(cell: Cell, path: str) -> AsyncGenerator[_Call, None]:
    """Many calls at a time on one connection: replies come in order, a reader wakes their callers."""
    template = FrameTemplate(arm_of(cell.operation, cell.body_bytes))
    head = (cell.reply_bytes - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
    waiting: deque[trio.Event] = deque()
    sending = trio.Lock()

    async def read() -> None:
        rest = bytearray()
        while data := await stream.receive_some(_RECEIVE_BYTES):
            rest += data
            check_replies(rest, head, cell.reply_bytes)
            for _ in range(len(rest) // cell.reply_bytes):
                waiting.popleft().set()
            del rest[: len(rest) - len(rest) % cell.reply_bytes]
        raise UnexpectedReply("the echo closed the connection")

    async def call(number: int) -> None:
        done = trio.Event()
        async with sending:
            waiting.append(done)
            await stream.send_all(template.frame(number))
        await done.wait()

    async with await trio.open_unix_socket(path) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield call
        nursery.cancel_scope.cancel()


def _opener(cell: Cell) -> _Opener:
    if cell.contender == "ours":
        return _ours
    return _echo_shared if cell.pattern == "pipelined" else _echo_alone


async def _work(call: _Call, window: Window, numbers: "itertools.count[int]", *, timed: bool) -> None:
    while True:
        number = next(numbers)
        began = time.perf_counter_ns()
        await call(number)
        if not window.count(1, time.perf_counter_ns() - began if timed else None):
            return


async def _on_one(cell: Cell) -> Sample:
    numbers = itertools.count(cell.first_number)
    async with _opener(cell)(cell, cell.sockets[0]) as call:
        window = Window(cell)
        work = partial(_work, call, window, numbers, timed=cell.pattern == "serial")
        async with trio.open_nursery() as nursery:
            for _ in range(cell.concurrency):
                nursery.start_soon(work)
        return window.sample()


async def _on_many(cell: Cell) -> Sample:
    numbers = itertools.count(cell.first_number)
    window: Window | None = None
    all_connected = trio.Event()

    async def work(path: str, connected: trio.TaskStatus[None]) -> None:
        async with _opener(cell)(cell, path) as call:
            connected.started()
            await all_connected.wait()
            assert window is not None
            await _work(call, window, numbers, timed=False)

    async with trio.open_nursery() as nursery:
        for path in spread_over(cell.sockets, cell.concurrency):
            await nursery.start(lambda path, *, task_status: work(path, task_status), path)
        window = Window(cell)
        all_connected.set()
    return window.sample()


async def _run(cell: Cell) -> Sample:
    with trio.fail_after(cell.seconds_at_most):
        return await (_on_many(cell) if cell.pattern == "fleet" else _on_one(cell))


def run(cell: Cell) -> Sample:
    """Make the load of one cell."""
    return trio.run(_run, cell)


if __name__ == "__main__":
    run_cells(run)
