"""What the benchmarks' drivers share: containers, the size of a reply, the machine, options, progress."""

import argparse
import os
import platform
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from bench.support.cells import PATIENCE_SECONDS, Cell, Contender, Pattern, Sample
from bench.support.messages import FrameTemplate, Operation, template_of
from bench.support.processes import Child, ChildFailed, child
from compass_forged.control.client import ControlClient
from compass_forged.wire.codec import decode_reply
from compass_forged.wire.frames import HEADER_BYTES, FrameBuffer
from compass_forged.wire.schema import ErrorResult, ResultFrame

BODY_BYTES: Final = 2048
_NUMBERS_PER_CELL: Final = 10_000_000
_LAST_NUMBER: Final = 9_999_999_999
"""Calls that probe are numbered down from here, so that a create of another size is under another key."""


class Target(msgspec.Struct, frozen=True):
    """A running server as the load is told of it."""

    contender: Contender
    pid: int
    sockets: list[str]


class Cells:
    """Makes a benchmark's cells, so that no two send the same numbers, and has load processes run them."""

    def __init__(self) -> None:
        """None so far."""
        self._made = 0

    def make(
        self,
        target: Target,
        pattern: Pattern,
        *,
        operation: Operation,
        reply_bytes: int,
        concurrency: int = 1,
        seconds: float = 0.0,
        warm_seconds: float = 0.0,
        calls_per_second: float = 0.0,
        all_latencies: bool = False,
    ) -> Cell:
        """A cell of 2 KB bodies."""
        self._made += 1
        return Cell(
            contender=target.contender,
            pattern=pattern,
            concurrency=concurrency,
            sockets=target.sockets,
            server_pid=target.pid,
            operation=operation,
            body_bytes=BODY_BYTES,
            reply_bytes=reply_bytes,
            first_number=self._made * _NUMBERS_PER_CELL,
            warm_seconds=warm_seconds,
            seconds=seconds,
            calls_per_second=calls_per_second,
            all_latencies=all_latencies,
        )


def begin(load: Child, cell: Cell) -> None:
    """Have a cell run while others do; ``end`` returns its sample."""
    load.tell(msgspec.json.encode(cell))


def end(load: Child, cell: Cell) -> Sample:
    """The sample of a cell that was begun."""
    return msgspec.json.decode(load.line(cell.seconds_at_most + PATIENCE_SECONDS), type=Sample)


def run_cell(load: Child, cell: Cell) -> Sample:
    """Run a cell alone."""
    begin(load, cell)
    return end(load, cell)


def open_containers(control_socket: Path, numbers: Sequence[int]) -> list[str]:
    """A container with a session for each number, as on a real host; their sockets."""
    sockets = []
    with ControlClient(control_socket) as control:
        for number in numbers:
            name = f"c{number:04d}"  # names of one length, so that all replies are of one size
            sockets.append(control.open_container(name).socket)
            control.bind_session(name, f"session-{name}", agent=f"agent-{name}", owner="ada")
    return sockets


def exchange(path: str, operation: Operation, body_bytes: int = BODY_BYTES) -> tuple[int, int]:
    """The sizes of a request's frame and of its reply's, from the second of two calls: a replay needs a first."""
    template = template_of(operation, body_bytes)
    last = _LAST_NUMBER - 2 * body_bytes
    for number in (last - 1, last):
        size = _reply_bytes(path, template, number, refused=operation == "refused")
    return template.frame_bytes, size


def _reply_bytes(path: str, template: FrameTemplate, number: int, *, refused: bool) -> int:
    """The size of the daemon's reply to a call, its frame included.

    Raises:
        ChildFailed: the daemon answers otherwise than the benchmark expects.
    """
    buffer = FrameBuffer()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(path)
        connection.sendall(template.frame(number))
        while (payload := buffer.next_frame()) is None:
            data = connection.recv(1 << 16)
            if not data:
                raise ChildFailed("the daemon closed the connection on the benchmark's first call")
            buffer.feed(data)
    reply = decode_reply(payload)
    if not isinstance(reply, ResultFrame) or isinstance(reply.result, ErrorResult) is not refused:
        raise ChildFailed(f"the daemon does not answer the benchmark's call as it should: {reply}")
    return HEADER_BYTES + len(payload)


def machine() -> dict[str, object]:
    """What the figures of a run depend on."""
    return {
        "python": platform.python_version(),
        **{
            name: version(name)
            for name in ("trio", "msgspec", "asyncpg", "grpcio", "protobuf", "connectrpc", "uvicorn")
        },
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine_line(found: dict[str, object]) -> str:
    """The same for people."""
    return "  ".join(f"{name} {value}" for name, value in found.items())


def parser(description: str, *, repetitions: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; ``repetitions`` says what the defaults are."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    made.add_argument("--quick", action="store_true", help="short and few cells: to see that it runs")
    made.add_argument("--repetitions", type=_at_least_one, default=None, metavar="N", help=repetitions)
    return made


def let_cores_sleep(options: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option that ``Cores`` is told."""
    options.add_argument("--sleepy", action="store_true", help="let cores sleep while they have nothing to do")
    return options


class Cores:
    """The machine's cores, each kept awake while one call at a time is measured, unless they are to be ``sleepy``."""

    def __init__(self, stack: ExitStack, scratch: Path, *, sleepy: bool) -> None:
        """What keeps them awake ends with ``stack``."""
        cores = () if sleepy else sorted(os.sched_getaffinity(0))
        self._keepers = [
            stack.enter_context(child("bench.support.keep_awake", str(core), scratch=scratch)) for core in cores
        ]
        self._awake = False

    def keep_awake(self, *, awake: bool) -> None:
        """With many calls in flight no core idles, and nobody need keep it from that."""
        if awake != self._awake:
            self._awake = awake
            for keeper in self._keepers:
                keeper.ask(b"spin" if awake else b"rest", PATIENCE_SECONDS)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def progress(text: str) -> None:
    """Say how far it is, to whoever watches."""
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
