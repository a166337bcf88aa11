"""One measured stretch of load, as the load processes are told of it and answer, and the clocks that it is taken by."""

import os
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from bench.support.messages import Operation

Contender: TypeAlias = Literal["echo", "ours", "grpc", "grpc_bytes", "connect"]
"""How a server is spoken to; ``connect`` is also how the bare ASGI handler is."""
Pattern: TypeAlias = Literal["serial", "pipelined", "fleet", "paced", "first"]
"""One call in flight; many on one connection; one on each of many connections; connections that call at a steady rate
of their own; connections opened all at once, of which each makes one call."""

PATIENCE_SECONDS: Final = 30.0
"""What may be lost to connecting and to a busy machine, beyond a cell's own time, before it counts as hung."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of load.

    Attributes:
        contender: who answers, which says how it is spoken to.
        pattern: how calls are laid out.
        concurrency: calls in flight in all.
        sockets: where to connect; ``fleet`` opens ``concurrency`` connections, over these in turn.
        server_pid: whose CPU time is counted.
        operation: what is sent.
        body_bytes: and how large its body is.
        reply_bytes: the size of every reply's frame; another one is an error.
        first_number: calls are numbered from here on.
        warm_seconds: how long calls are made before any counts.
        seconds: how long they count.
        calls_per_second: of each connection, in ``paced`` alone.
        all_latencies: whether the sample holds each of them, to be pooled with those of other cells.
    """

    contender: Contender
    pattern: Pattern
    concurrency: int
    sockets: list[str]
    server_pid: int
    operation: Operation
    body_bytes: int
    reply_bytes: int
    first_number: int
    warm_seconds: float
    seconds: float
    calls_per_second: float = 0.0
    all_latencies: bool = False

    @property
    def seconds_at_most(self) -> float:
        """After this long the cell is hung."""
        return self.warm_seconds + self.seconds + PATIENCE_SECONDS


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell. Latencies are not taken in ``pipelined`` and ``fleet``: there they only restate the rate."""

    calls: int
    seconds: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    p50_us: float | None = None
    p99_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    latencies_ns: list[int] = []


class UnexpectedReply(Exception):
    """A contender answered something else than it should; what was measured counts for nothing."""


class Window:
    """Counts the calls that end within a cell's counted time, and takes both processes' CPU time over it."""

    def __init__(self, cell: Cell) -> None:
        """Warming up begins now."""
        self._cell = cell
        self._opens = time.perf_counter() + cell.warm_seconds
        self._opened_at: float | None = None
        self._closed_at: float | None = None
        self._cpu = (0.0, 0.0)
        self._calls = 0
        self._latencies_ns: list[int] = []

    def count(self, calls: int, latency_ns: int | None = None) -> bool:
        """``calls`` have just been answered.

        Returns:
            Whether to go on.
        """
        now = time.perf_counter()
        if self._closed_at is not None:
            return False
        if self._opened_at is None:
            if now >= self._opens:
                self._cpu = self._cpu_now()
                self._opened_at = now
            return True
        self._calls += calls
        if latency_ns is not None:
            self._latencies_ns.append(latency_ns)
        if now - self._opened_at < self._cell.seconds:
            return True
        self._closed_at = now
        server, client = self._cpu_now()
        self._cpu = (server - self._cpu[0], client - self._cpu[1])
        return False

    def sample(self) -> Sample:
        """What was counted, once ``count`` has said stop."""
        assert self._opened_at is not None
        assert self._closed_at is not None
        p50, p99 = percentiles_us(self._latencies_ns)
        return Sample(
            calls=self._calls,
            seconds=self._closed_at - self._opened_at,
            server_cpu_seconds=self._cpu[0],
            client_cpu_seconds=self._cpu[1],
            p50_us=p50,
            p99_us=p99,
            latencies_ns=self._latencies_ns if self._cell.all_latencies else [],
        )

    def _cpu_now(self) -> tuple[float, float]:
        return cpu_seconds(self._cell.server_pid), time.process_time()


def percentiles_us(latencies_ns: Sequence[int]) -> tuple[float | None, float | None]:
    """Median and 99th percentile, in microseconds; None where nothing was timed."""
    ordered = sorted(latencies_ns)
    if not ordered:
        return None, None
    return statistics.median(ordered) / 1000, ordered[-(-len(ordered) * 99 // 100) - 1] / 1000


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used so far, user and system, in seconds.

    The kernel's clock of another process (clock_getcpuclockid(3), whose number Linux makes of the pid so) counts
    nanoseconds; where it is not to be had, /proc counts ticks of 10 ms.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_cells(run: Callable[[Cell], Sample]) -> None:
    """The main loop of a load process: a cell a line on standard input, its sample a line on standard output."""
    decode = msgspec.json.Decoder(Cell).decode
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(run(decode(line))) + b"\n")
        sys.stdout.buffer.flush()


def check_replies(data: bytes | bytearray | memoryview, head: bytes, whole: int) -> None:
    """Check that frames of one size follow each other in ``data``, by their lengths.

    Raises:
        UnexpectedReply: a frame has another length: a fault or an error instead of the answer.
    """
    for at in range(0, len(data) - len(head) + 1, whole):
        if data[at : at + len(head)] != head:
            raise UnexpectedReply(f"a reply is no frame of {whole} bytes: {bytes(data[at : at + 200])!r}")


def bound_waits(connection: socket.socket, seconds: int) -> None:
    """Bound every connect, receive and send of a blocking socket by the kernel's own deadline.

    A timeout of Python's would cost every receive a poll, and fail where a listener's queue is full.
    """
    patience = struct.pack("ll", seconds, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)


def spread_over(sockets: Sequence[str], connections: int) -> list[str]:
    """Where each of the connections goes."""
    return [sockets[index % len(sockets)] for index in range(connections)]
