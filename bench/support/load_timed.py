"""Load whose calls are timed one by one on many connections at once: at a steady rate each, or the first of each.

Run as a process; see ``run_cells``.
"""

import heapq
import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from bench.support.cells import (
    Cell,
    Sample,
    UnexpectedReply,
    bound_waits,
    check_replies,
    cpu_seconds,
    percentiles_us,
    run_cells,
    spread_over,
)
from bench.support.messages import FrameTemplate, template_of
from compass_forged.wire.frames import HEADER_BYTES

_RECEIVE_BYTES: Final = 256 << 10
_WAIT_SECONDS: Final = 10
_IN_FLIGHT_AT_MOST: Final = 48
"""Below what the daemon allows a connection: a client that keeps to the limit holds a call back."""


class _Caller:
    """A connection, and when the calls that it has under way were sent.

    Answers to equal calls may overtake each other; over many calls that does not show in their percentiles.
    """

    def __init__(self, cell: Cell, path: str) -> None:
        self._whole = cell.reply_bytes
        self._head = (cell.reply_bytes - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
        self._rest = bytearray()
        self.sent: deque[int] = deque()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound_waits(self.socket, _WAIT_SECONDS)
        self.path = path

    def connect(self) -> None:
        """Returns when the kernel has queued the connection, accepted or not."""
        self.socket.connect(self.path)

    def send(self, frame: bytes, at: int) -> None:
        """Send a call whose time counts from ``at``."""
        self.sent.append(at)
        self.socket.sendall(frame)

    def take(self, now: int) -> Iterator[int]:
        """Receive once; the latencies of what is whole now."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise UnexpectedReply("the server closed the connection")
        self._rest += data
        check_replies(self._rest, self._head, self._whole)
        whole = len(self._rest) // self._whole
        del self._rest[: whole * self._whole]
        for _ in range(whole):
            yield now - self.sent.popleft()


def _callers(cell: Cell, stack: ExitStack) -> tuple[dict[int, _Caller], select.epoll]:
    poll = stack.enter_context(select.epoll())
    callers = {}
    for path in spread_over(cell.sockets, cell.concurrency):
        caller = _Caller(cell, path)
        stack.callback(caller.socket.close)
        callers[caller.socket.fileno()] = caller
    return callers, poll


def _paced(cell: Cell, template: FrameTemplate, numbers: Iterator[int]) -> Sample:
    """Each connection calls every ``1 / calls_per_second``, whether it has been answered or not."""
    with ExitStack() as stack:
        callers, poll = _callers(cell, stack)
        for fd, caller in callers.items():
            caller.connect()
            poll.register(fd, select.EPOLLIN)
        every = int(1e9 / cell.calls_per_second)
        began = time.perf_counter_ns()
        counts_from = began + int(cell.warm_seconds * 1e9)
        ends = counts_from + int(cell.seconds * 1e9)
        # Spread over the first interval, so that they do not all call at the same moment.
        due = [(began + every * index // len(callers), fd) for index, fd in enumerate(callers)]
        heapq.heapify(due)
        latencies: list[int] = []
        while True:
            now = time.perf_counter_ns()
            while due and due[0][0] <= now < ends:
                at, fd = heapq.heappop(due)
                heapq.heappush(due, (at + every, fd))
                if len(callers[fd].sent) < _IN_FLIGHT_AT_MOST:
                    callers[fd].send(template.frame(next(numbers)), time.perf_counter_ns())
            if now >= ends and not any(caller.sent for caller in callers.values()):
                break
            wait = _WAIT_SECONDS if now >= ends else (due[0][0] - time.perf_counter_ns()) / 1e9
            ready = poll.poll(max(0.0, wait))
            if not ready and now >= ends:
                raise UnexpectedReply(f"no reply within {_WAIT_SECONDS} s")
            arrived = time.perf_counter_ns()
            for fd, _events in ready:
                got = list(callers[fd].take(arrived))
                if arrived >= counts_from:
                    latencies += got
        return _sample(cell, latencies, cell.seconds)


def _first(cell: Cell, template: FrameTemplate, numbers: Iterator[int]) -> Sample:
    """All connect and call at once; a call's time counts from before its own connect."""
    with ExitStack() as stack:
        callers, poll = _callers(cell, stack)
        before = cpu_seconds(cell.server_pid)
        began = time.perf_counter_ns()
        latencies: list[int] = []

        def take(seconds: float) -> bool:
            ready = poll.poll(seconds)
            now = time.perf_counter_ns()
            for fd, _events in ready:
                latencies.extend(callers[fd].take(now))
            return bool(ready)

        for fd, caller in callers.items():
            at = time.perf_counter_ns()
            caller.connect()
            caller.send(template.frame(next(numbers)), at)
            poll.register(fd, select.EPOLLIN)
            take(0)
        while len(latencies) < len(callers):
            if not take(_WAIT_SECONDS):
                raise UnexpectedReply(f"no reply within {_WAIT_SECONDS} s")
        seconds = (time.perf_counter_ns() - began) / 1e9
        return _sample(cell, latencies, seconds, cpu_seconds(cell.server_pid) - before)


def _sample(cell: Cell, latencies: list[int], seconds: float, server_cpu: float = 0.0) -> Sample:
    p50, p99 = percentiles_us(latencies)
    return Sample(
        calls=len(latencies),
        seconds=seconds,
        server_cpu_seconds=server_cpu,
        client_cpu_seconds=0.0,
        p50_us=p50,
        p99_us=p99,
        min_us=min(latencies) / 1000,
        max_us=max(latencies) / 1000,
        latencies_ns=latencies if cell.all_latencies else [],
    )


def run(cell: Cell) -> Sample:
    """Make the load of one cell."""
    make = {"paced": _paced, "first": _first}[cell.pattern]
    return make(cell, template_of(cell.operation, cell.body_bytes), itertools.count(cell.first_number))


if __name__ == "__main__":
    run_cells(run)
