"""Round trips through the whole daemon, beside a bare trio echo and gRPC, in the same run.

    .venv/bin/python bench/bench_roundtrip.py [--json] [--quick] [--repetitions N] [--operation comment|create]

Client and server are separate processes on one Unix socket. The daemon is all there (gateway, hub, service, stamp, log)
over the memory store and a provider that waits once. The echo answers the same bytes with as many bytes and knows
nothing; gRPC does the same through its asyncio server. Every server is spoken to by its like: the daemon and the echo
by a light client of blocking sockets, then the daemon by the agent library, the echo by the least trio client, gRPC by
its own. All cells of a repetition run one after the other, in turning order; a ratio is taken within a repetition, and
its median over them is shown.
"""

import argparse
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that is there

from bench.support.cells import PATIENCE_SECONDS, Cell, Contender, Pattern, Sample
from bench.support.messages import FrameTemplate, Operation, arm_of
from bench.support.processes import Child, ChildFailed, child
from bench.support.report import Result, Row, result_of, table
from compass_forged.control.client import ControlClient
from compass_forged.wire.codec import decode_reply
from compass_forged.wire.frames import HEADER_BYTES, FrameBuffer
from compass_forged.wire.schema import ErrorResult, ResultFrame

_NUMBERS_PER_CELL: Final = 10_000_000
_FLEET: Final = 200
_BODY_BYTES: Final = 2048
_LARGE_BODY_BYTES: Final = 60 * 1024
_NOTES: Final = (
    "Medians (min..max) over the repetitions; a ratio is ours / reference within a repetition, then its median.",
    "Of calls/s more is better, of all else less. The echo has no codec and does not wait; gRPC's handler waits once,",
    "and so does the daemon's provider. The daemon's log: JSON lines at info, one a call, to the null device.",
    "Store: memory. No budget gate.",
)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A way to lay out calls.

    Attributes:
        key: for machines.
        title: for people.
        pattern: how the load processes do it.
        concurrency: calls in flight in all.
        body_bytes: of each call's body.
        joined: whether there is a second echo that answers the frames of one receive in one send.
    """

    key: str
    title: str
    pattern: Pattern
    concurrency: int
    body_bytes: int = _BODY_BYTES
    joined: bool = False


_SHAPES: Final = (
    _Shape("one", "one in flight", "serial", 1),
    _Shape("pipelined", "64 in flight, one connection", "pipelined", 64, joined=True),
    _Shape("fleet", f"{_FLEET} connections, one in flight each", "fleet", _FLEET),
    _Shape("large", "60 KB bodies, one in flight", "serial", 1, body_bytes=_LARGE_BODY_BYTES),
)


@dataclass(frozen=True, slots=True)
class _Settings:
    operation: Operation
    repetitions: int
    warm_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Target:
    """A running server as the load is told of it."""

    contender: Contender
    pid: int
    sockets: list[str]


@dataclass(frozen=True, slots=True)
class _Match:
    """One cell of each repetition, and what has come of it so far. ``row`` and ``column`` say where it is shown."""

    row: tuple[str, str, str]
    column: str
    shape: _Shape
    target: _Target
    load: Child
    samples: list[Sample] = field(default_factory=list)


class _Setup:
    """All servers and load processes of a run."""

    def __init__(self, stack: ExitStack, scratch: Path, operation: Operation) -> None:
        """Start them; they end with ``stack``. The daemon comes first: the others answer what its replies weigh."""
        self._operation = operation
        daemon = stack.enter_context(child("bench.support.serve_ours", str(scratch / "run"), scratch=scratch))
        daemon.line(PATIENCE_SECONDS)
        sockets = _open_containers(scratch / "run" / "control.sock")
        self.exchanges = {size: self._exchange(sockets[0], size) for size in (_BODY_BYTES, _LARGE_BODY_BYTES)}
        each, joined, grpc = (str(scratch / name) for name in ("echo.sock", "joined.sock", "grpc.sock"))
        echo = stack.enter_context(child("bench.support.serve_echo", each, joined, self._sizes(0), scratch=scratch))
        grpc_server = stack.enter_context(
            child("bench.support.serve_grpc", grpc, self._sizes(HEADER_BYTES), scratch=scratch)
        )
        for server in (echo, grpc_server):
            server.line(PATIENCE_SECONDS)
        self.ours = _Target("ours", daemon.pid, sockets)
        self.echo = _Target("echo", echo.pid, [each])
        self.joined = _Target("echo", echo.pid, [joined])
        self.grpc = _Target("grpc", grpc_server.pid, [grpc])
        self.light, self.library, self.grpc_load = (
            stack.enter_context(child(f"bench.support.load_{name}", scratch=scratch))
            for name in ("light", "library", "grpc")
        )

    def _exchange(self, path: str, body_bytes: int) -> tuple[int, int]:
        """The sizes of a request's frame and of its reply's, from one call that must succeed."""
        template = FrameTemplate(arm_of(self._operation, body_bytes))
        return template.frame_bytes, _reply_bytes(path, template.frame(body_bytes))

    def _sizes(self, off: int) -> str:
        sizes = {str(request - off): reply - off for request, reply in self.exchanges.values()}
        return msgspec.json.encode(sizes).decode()

    def matches(self) -> Iterator[_Match]:
        """What runs in each repetition."""
        for shape in _SHAPES:
            light = (shape.key, shape.title, "light")
            yield _Match(light, "echo", shape, self.echo, self.light)
            yield _Match(light, "ours", shape, self.ours, self.light)
            if shape.joined:
                row = (f"{shape.key}_joined", f"{shape.title}; the echo joins its sends", "light")
                yield _Match(row, "echo", shape, self.joined, self.light)
            library = (shape.key, shape.title, "library")
            yield _Match(library, "echo", shape, self.echo, self.library)
            yield _Match(library, "ours", shape, self.ours, self.library)
            yield _Match(library, "grpc", shape, self.grpc, self.grpc_load)


def _open_containers(control_socket: Path) -> list[str]:
    """A container with a session for each connection of the fleet, as on a real host; their sockets."""
    sockets = []
    with ControlClient(control_socket) as control:
        for number in range(_FLEET):
            name = f"c{number:03d}"  # names of one length, so that all replies are of one size
            sockets.append(control.open_container(name).socket)
            control.bind_session(name, f"session-{name}", agent=f"agent-{name}", owner="ada")
    return sockets


def _reply_bytes(path: str, frame: bytes) -> int:
    """The size of the daemon's reply to ``frame``, its frame included.

    Raises:
        ChildFailed: the daemon refuses what the benchmark sends.
    """
    buffer = FrameBuffer()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(path)
        connection.sendall(frame)
        while (payload := buffer.next_frame()) is None:
            data = connection.recv(1 << 16)
            if not data:
                raise ChildFailed("the daemon closed the connection on the benchmark's first call")
            buffer.feed(data)
    reply = decode_reply(payload)
    if not isinstance(reply, ResultFrame) or isinstance(reply.result, ErrorResult):
        raise ChildFailed(f"the daemon refuses the benchmark's call: {reply}")
    return HEADER_BYTES + len(payload)


def _measure(setup: _Setup, settings: _Settings) -> list[Result]:
    matches = list(setup.matches())
    cells = 0
    for repetition in range(settings.repetitions):
        _progress(f"repetition {repetition + 1} of {settings.repetitions}")
        for match in matches if repetition % 2 == 0 else reversed(matches):
            cells += 1
            cell = Cell(
                contender=match.target.contender,
                pattern=match.shape.pattern,
                concurrency=match.shape.concurrency,
                sockets=match.target.sockets,
                server_pid=match.target.pid,
                operation=settings.operation,
                body_bytes=match.shape.body_bytes,
                reply_bytes=setup.exchanges[match.shape.body_bytes][1],
                first_number=cells * _NUMBERS_PER_CELL,
                warm_seconds=settings.warm_seconds,
                seconds=settings.seconds,
            )
            answer = match.load.ask(msgspec.json.encode(cell), cell.seconds_at_most + PATIENCE_SECONDS)
            match.samples.append(msgspec.json.decode(answer, type=Sample))
    return [result_of(row) for row in _rows(matches)]


def _rows(matches: list[_Match]) -> list[Row]:
    """The matches by row; ours is shown beside each of the two echoes."""
    rows: dict[tuple[str, str, str], dict[str, list[Sample]]] = {}
    for match in matches:
        rows.setdefault(match.row, {})[match.column] = match.samples
    for (key, _title, client), columns in rows.items():
        if "ours" not in columns:
            base = key.removesuffix("_joined")
            columns["ours"] = next(got["ours"] for (other, _, by), got in rows.items() if (other, by) == (base, client))
    return [Row(*row, columns) for row, columns in rows.items()]


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("trio", "msgspec", "grpcio")},
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _settings(arguments: argparse.Namespace) -> _Settings:
    default = 3 if arguments.quick else 9
    return _Settings(
        operation=arguments.operation,
        repetitions=arguments.repetitions or default,
        warm_seconds=0.03 if arguments.quick else 0.1,
        seconds=0.15 if arguments.quick else 0.45,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Round trips through the daemon beside a trio echo and gRPC.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="short and few cells: to see that it runs")
    parser.add_argument("--repetitions", type=int, default=0, metavar="N", help="9 by default, 3 with --quick")
    parser.add_argument("--operation", choices=("comment", "create"), default="comment", help="what is called")
    arguments = parser.parse_args()
    if arguments.repetitions < 0:
        parser.error("--repetitions: must be at least 1")
    return arguments


@contextmanager
def _running(operation: Operation) -> Iterator[_Setup]:
    with tempfile.TemporaryDirectory(prefix="forged-bench-") as scratch, ExitStack() as stack:
        yield _Setup(stack, Path(scratch), operation)


def main() -> int:
    """Run and print; the exit status."""
    arguments = _parse()
    settings = _settings(arguments)
    machine = _machine()
    try:
        with _running(settings.operation) as setup:
            results = _measure(setup, settings)
            exchanges = {str(body): sizes for body, sizes in setup.exchanges.items()}
    except ChildFailed as error:
        print(f"bench_roundtrip: {error}", file=sys.stderr)
        return 1
    _progress("")
    if arguments.json:
        report = {
            "benchmark": "roundtrip",
            "machine": machine,
            "settings": settings,
            "frame_bytes_by_body_bytes": exchanges,
            "notes": " ".join(_NOTES),
            "results": results,
        }
        print(msgspec.json.encode(report).decode())
        return 0
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    sizes = ", ".join(f"{request} B > {reply} B" for request, reply in exchanges.values())
    print(f"{settings.operation}: frames {sizes}; {settings.repetitions} repetitions of {settings.seconds:g} s\n")
    print(table(results), end="\n\n")
    print("\n".join(_NOTES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
