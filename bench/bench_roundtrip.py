"""Round trips through the whole daemon, beside a bare trio echo, gRPC and Connect over ASGI, in the same run.

    .venv/bin/python bench/bench_roundtrip.py [--json] [--quick] [--repetitions N] [--operation comment|create]
        [--sleepy]

Client and server are separate processes on one Unix socket. The daemon is all there (gateway, hub, service, stamp, log)
over the memory store and a provider that waits once. The echo answers the same bytes with as many bytes and knows
nothing. gRPC (grpc.aio) and Connect (its own library for Python under uvicorn) take the same call as a protobuf
message with a deadline, decode it, wait once, and encode a reply with the same fields; they check, stamp, record and
log nothing. Beside them, for information, gRPC with bytes in and bytes out and no deadline, and a bare ASGI handler
that decodes nothing. Every server is spoken to by its like: the daemon, the echo and Connect by a light client of
blocking sockets, then the daemon by the agent library, the echo by the least trio client, gRPC by its own. All cells of
a repetition run one after the other, in turning order; a ratio is taken within a repetition, and its median over them
is shown.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that is there

from bench.support.cells import PATIENCE_SECONDS, Cell, Pattern, Sample
from bench.support.connect import HttpTemplate, reply_bytes
from bench.support.goals import Direction, Measured, goals_table, measured, ratios
from bench.support.messages import Operation, arm_of
from bench.support.processes import Child, ChildFailed, child
from bench.support.protobufs import Calls
from bench.support.report import Result, Row, result_of, table
from bench.support.setup import (
    BODY_BYTES,
    Cores,
    Target,
    exchange,
    let_cores_sleep,
    machine,
    machine_line,
    open_containers,
    parser,
    progress,
    run_cell,
)
from compass_forged.wire.frames import HEADER_BYTES

_NUMBERS_PER_CELL: Final = 10_000_000
_FLEET: Final = 200
_LARGE_BODY_BYTES: Final = 60 * 1024
_NOTES: Final = (
    "Medians (min..max) over the repetitions; a ratio is ours / reference within a repetition, then its median.",
    "Of calls/s more is better, of all else less. The echo has no codec and does not wait. bare: decodes, hands on,",
    "waits once, encodes, and does nothing else of what the daemon does. The handlers of gRPC and",
    "Connect wait once, and so does the daemon's provider. grpc_bytes: no messages and no deadline. asgi: a bare",
    "handler that decodes nothing. The daemon's log: JSON lines at info, one a call, to the null device.",
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
    body_bytes: int = BODY_BYTES
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
class _Match:
    """One cell of each repetition, and what has come of it so far. ``row`` and ``column`` say where it is shown."""

    row: tuple[str, str, str]
    column: str
    shape: _Shape
    target: Target
    load: Child
    samples: list[Sample] = field(default_factory=list)


class _Setup:
    """All servers and load processes of a run."""

    def __init__(self, stack: ExitStack, scratch: Path, operation: Operation, *, sleepy: bool) -> None:
        """Start them; they end with ``stack``. The daemon comes first: the others answer what its replies weigh."""
        self.cores = Cores(stack, scratch, sleepy=sleepy)
        daemon = stack.enter_context(child("bench.support.serve_ours", str(scratch / "run"), scratch=scratch))
        daemon.line(PATIENCE_SECONDS)
        sockets = open_containers(scratch / "run" / "control.sock", range(_FLEET))
        self.exchanges = {size: exchange(sockets[0], operation, size) for size in (BODY_BYTES, _LARGE_BODY_BYTES)}
        each, joined, bare, grpc, connect, asgi = (
            str(scratch / f"{name}.sock") for name in ("echo", "joined", "bare", "grpc", "connect", "asgi")
        )
        bare_server = stack.enter_context(child("bench.support.serve_bare", bare, scratch=scratch))
        echo = stack.enter_context(child("bench.support.serve_echo", each, joined, self._sizes(0), scratch=scratch))
        grpc_server = stack.enter_context(
            child("bench.support.serve_grpc", grpc, self._sizes(HEADER_BYTES), scratch=scratch)
        )
        message = Calls(arm_of(operation, BODY_BYTES))
        connect_server = stack.enter_context(child("bench.support.serve_connect", connect, scratch=scratch))
        sizes = msgspec.json.encode(message.sizes()).decode()
        asgi_server = stack.enter_context(child("bench.support.serve_asgi", asgi, sizes, scratch=scratch))
        for server in (echo, bare_server, grpc_server, connect_server, asgi_server):
            server.line(PATIENCE_SECONDS)
        self.ours = Target("ours", daemon.pid, sockets)
        self.echo = Target("echo", echo.pid, [each])
        self.joined = Target("echo", echo.pid, [joined])
        self.bare = Target("ours", bare_server.pid, [bare]) if operation == "comment" else None
        self.grpc = Target("grpc", grpc_server.pid, [grpc])
        self.grpc_bytes = Target("grpc_bytes", grpc_server.pid, [grpc])
        self.over_http = {
            "connect": Target("connect", connect_server.pid, [connect]),
            "asgi": Target("connect", asgi_server.pid, [asgi]),
        }
        request = HttpTemplate(message.template())
        self._http_reply_bytes = {path: reply_bytes(path, request, PATIENCE_SECONDS) for path in (connect, asgi)}
        self.light, self.library, self.grpc_load = (
            stack.enter_context(child(f"bench.support.load_{name}", scratch=scratch))
            for name in ("light", "library", "grpc")
        )

    def reply_bytes(self, target: Target, body_bytes: int) -> int:
        """The size of a contender's whole reply."""
        return self._http_reply_bytes.get(target.sockets[0], self.exchanges[body_bytes][1])

    def _sizes(self, off: int) -> str:
        sizes = {str(request - off): reply - off for request, reply in self.exchanges.values()}
        return msgspec.json.encode(sizes).decode()

    def matches(self) -> Iterator[_Match]:
        """What runs in each repetition."""
        for shape in _SHAPES:
            light = (shape.key, shape.title, "light")
            yield _Match(light, "echo", shape, self.echo, self.light)
            yield _Match(light, "ours", shape, self.ours, self.light)
            if self.bare is not None:
                yield _Match(light, "bare", shape, self.bare, self.light)
            if shape.joined:
                row = (f"{shape.key}_joined", f"{shape.title}; the echo joins its sends", "light")
                yield _Match(row, "echo", shape, self.joined, self.light)
                # HTTP/1.1 has no multiplexing: as many calls in flight are as many connections kept alive.
                spread = _Shape("pipelined", shape.title, "fleet", shape.concurrency)
                for name, target in self.over_http.items():
                    yield _Match(light, name, spread, target, self.light)
            library = (shape.key, shape.title, "library")
            yield _Match(library, "echo", shape, self.echo, self.library)
            yield _Match(library, "ours", shape, self.ours, self.library)
            yield _Match(library, "grpc", shape, self.grpc, self.grpc_load)
            yield _Match(library, "grpc_bytes", shape, self.grpc_bytes, self.grpc_load)


@dataclass(frozen=True, slots=True)
class _Goal:
    """Ours over a contender's in one metric, and where each of the two stands; without a bound for information."""

    key: str
    title: str
    metric: str
    ours: tuple[str, str]
    contender: str
    theirs: tuple[str, str]
    bound: tuple[Direction, float] | None


_GOALS: Final = (
    _Goal(
        "one_echo", "one in flight: p50 / echo", "p50_us", ("one", "light"), "echo", ("one", "light"), ("at most", 2.2)
    ),
    _Goal(
        "one_bare",
        "one in flight: p50 / a bare server of the same calls",
        "p50_us",
        ("one", "light"),
        "bare",
        ("one", "light"),
        None,
    ),
    _Goal(
        "pipelined_bare",
        "64 in flight, light client: CPU of the server per call / a bare server of the same calls",
        "server_us",
        ("pipelined", "light"),
        "bare",
        ("pipelined", "light"),
        None,
    ),
    _Goal(
        "one_grpc",
        "one in flight: p50 / gRPC",
        "p50_us",
        ("one", "library"),
        "grpc",
        ("one", "library"),
        ("at most", 0.28),
    ),
    _Goal(
        "one_library",
        "one in flight, agent library: p50 / echo with its client",
        "p50_us",
        ("one", "library"),
        "echo",
        ("one", "library"),
        ("at most", 1.8),
    ),
    _Goal(
        "pipelined_grpc",
        "64 in flight, each with its own client: calls/s / gRPC",
        "calls_per_second",
        ("pipelined", "library"),
        "grpc",
        ("pipelined", "library"),
        ("at least", 10),
    ),
    _Goal(
        "pipelined_grpc_light",
        "64 in flight, light client: calls/s / gRPC with its own",
        "calls_per_second",
        ("pipelined", "light"),
        "grpc",
        ("pipelined", "library"),
        ("at least", 10),
    ),
    _Goal(
        "pipelined_grpc_bytes",
        "64 in flight, each with its own client: calls/s / gRPC without messages and deadlines",
        "calls_per_second",
        ("pipelined", "library"),
        "grpc_bytes",
        ("pipelined", "library"),
        None,
    ),
    _Goal(
        "pipelined_connect",
        "64 in flight, light client: calls/s / Connect",
        "calls_per_second",
        ("pipelined", "light"),
        "connect",
        ("pipelined", "light"),
        ("at least", 4),
    ),
    _Goal(
        "pipelined_asgi",
        "64 in flight, light client: calls/s / a bare ASGI handler that decodes nothing",
        "calls_per_second",
        ("pipelined", "light"),
        "asgi",
        ("pipelined", "light"),
        None,
    ),
    _Goal(
        "fleet_grpc",
        "200 connections, each with its own client: calls/s / gRPC",
        "calls_per_second",
        ("fleet", "library"),
        "grpc",
        ("fleet", "library"),
        ("at least", 5),
    ),
    _Goal(
        "fleet_grpc_light",
        "200 connections, light client: calls/s / gRPC with its own",
        "calls_per_second",
        ("fleet", "light"),
        "grpc",
        ("fleet", "library"),
        ("at least", 5),
    ),
    _Goal(
        "pipelined_grpc_cpu",
        "64 in flight, each with its own client: CPU of both per call / gRPC",
        "cpu_us",
        ("pipelined", "library"),
        "grpc",
        ("pipelined", "library"),
        None,
    ),
    _Goal(
        "fleet_grpc_cpu",
        "200 connections, each with its own client: CPU of both per call / gRPC",
        "cpu_us",
        ("fleet", "library"),
        "grpc",
        ("fleet", "library"),
        None,
    ),
    _Goal(
        "pipelined_connect_cpu",
        "64 in flight, light client: CPU of the server per call / Connect",
        "server_us",
        ("pipelined", "light"),
        "connect",
        ("pipelined", "light"),
        None,
    ),
    _Goal(
        "large_grpc",
        "60 KB bodies: p50 / gRPC",
        "p50_us",
        ("large", "library"),
        "grpc",
        ("large", "library"),
        ("at most", 0.5),
    ),
)


def _judged(goal: _Goal, results: list[Result]) -> Measured:
    by_place = {(result.shape, result.client): result.metrics for result in results}
    ours = by_place[goal.ours]["ours"][goal.metric].repetitions
    theirs = by_place[goal.theirs][goal.contender][goal.metric].repetitions
    return measured(goal.key, goal.title, "x", ratios(ours, theirs), goal.bound)


def _measure(setup: _Setup, settings: _Settings) -> list[Result]:
    matches = list(setup.matches())
    cells = 0
    for repetition in range(settings.repetitions):
        progress(f"repetition {repetition + 1} of {settings.repetitions}")
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
                reply_bytes=setup.reply_bytes(match.target, match.shape.body_bytes),
                first_number=cells * _NUMBERS_PER_CELL,
                warm_seconds=settings.warm_seconds,
                seconds=settings.seconds,
            )
            setup.cores.keep_awake(awake=match.shape.pattern == "serial")
            match.samples.append(run_cell(match.load, cell))
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


def _settings(arguments: argparse.Namespace) -> _Settings:
    default = 3 if arguments.quick else 9
    return _Settings(
        operation=arguments.operation,
        repetitions=arguments.repetitions or default,
        warm_seconds=0.03 if arguments.quick else 0.1,
        seconds=0.15 if arguments.quick else 0.45,
    )


def _parse() -> argparse.Namespace:
    options = parser(
        "Round trips through the daemon beside a trio echo, gRPC and Connect.",
        repetitions="9 by default, 3 with --quick",
    )
    options.add_argument("--operation", choices=("comment", "create"), default="comment", help="what is called")
    return let_cores_sleep(options).parse_args()


@contextmanager
def _running(operation: Operation, *, sleepy: bool) -> Iterator[_Setup]:
    with tempfile.TemporaryDirectory(prefix="forged-bench-") as scratch, ExitStack() as stack:
        yield _Setup(stack, Path(scratch), operation, sleepy=sleepy)


def main() -> int:
    """Run and print; the exit status."""
    arguments = _parse()
    settings = _settings(arguments)
    found = machine() | {"cores_kept_awake": not arguments.sleepy}
    try:
        with _running(settings.operation, sleepy=arguments.sleepy) as setup:
            results = _measure(setup, settings)
            exchanges = {str(body): sizes for body, sizes in setup.exchanges.items()}
    except ChildFailed as error:
        print(f"bench_roundtrip: {error}", file=sys.stderr)
        return 1
    progress("")
    goals = [_judged(goal, results) for goal in _GOALS if goal.contender != "bare" or settings.operation == "comment"]
    if arguments.json:
        report = {
            "benchmark": "roundtrip",
            "machine": found,
            "settings": settings,
            "frame_bytes_by_body_bytes": exchanges,
            "notes": " ".join(_NOTES),
            "goals": goals,
            "results": results,
        }
        print(msgspec.json.encode(report).decode())
        return 0
    print(machine_line(found))
    sizes = ", ".join(f"{request} B > {reply} B" for request, reply in exchanges.values())
    print(f"{settings.operation}: frames {sizes}; {settings.repetitions} repetitions of {settings.seconds:g} s\n")
    print(table(results), end="\n\n")
    print(goals_table(goals), end="\n\n")
    print("\n".join(_NOTES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
