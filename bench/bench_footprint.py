"""What the daemon costs while nothing happens, and whether idle containers make calls dearer.

    .venv/bin/python bench/bench_footprint.py [--json] [--quick] [--repetitions N]

- *start*: CPU time of ``python -m compass_forged serve`` until it is ready, and its resident memory then, with the
  memory store and with all adapters loaded (embedded Postgres, a GitHub forge over TLS with two roles; Postgres' own
  processes do not count). Beside it a Python process that has imported trio and waits.
- *containers*: how much the resident memory of a fresh daemon grows by 1,000 containers, each with a session and an
  idle connection; for each of them.
- *idle*: the daemon's CPU time per call (2 KB comments, null provider, memory store) with 100 and with 1,000 idle
  connected containers, over the same with one: one call in flight, and 64 on one connection. Three daemons at once,
  their cells in turning order.

With ``--quick`` there are 10 and 100 containers instead of 100 and 1,000.
"""

import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.cells import PATIENCE_SECONDS, Pattern, bound_waits, cpu_seconds
from bench.support.daemons import StoreWord, resident_bytes, served
from bench.support.goals import Measured, measured, ratios
from bench.support.outcome import report
from bench.support.processes import child, raise_descriptor_limit
from bench.support.setup import Cells, Target, exchange, open_containers, parser, progress, run_cell

_MB: Final = 1_000_000
_KB: Final = 1_000
_IN_FLIGHT: Final = 64
_SETTLE_SECONDS: Final = 0.3
_PATTERNS: Final[dict[Pattern, str]] = {"serial": "one in flight", "pipelined": "64 in flight"}
_NOTES: Final = (
    "CPU time is user and system, of the daemon's process alone; MB and KB are 10^6 and 10^3 bytes. A ratio is taken\n"
    "within a repetition."
)


def _start(scratch: Path, repetitions: int) -> list[Measured]:
    cpu: dict[str, list[float]] = {}
    resident: dict[str, list[float]] = {}
    stores: tuple[StoreWord, ...] = ("memory", "embedded")
    for repetition in range(repetitions):
        progress(f"start: repetition {repetition + 1} of {repetitions}")
        with child("bench.support.idle_trio", scratch=scratch) as idle:
            idle.line(PATIENCE_SECONDS)
            _weigh("trio", idle.pid, cpu, resident)
        for store in stores:
            with served(scratch / f"{store}{repetition}", store) as pid:
                _weigh(store, pid, cpu, resident)
    return [
        measured("ready_cpu", "memory store: CPU until ready", "s", cpu["memory"], ("at most", 1)),
        measured(
            "ready_cpu_trio", "memory store: CPU until ready / trio alone", "x", ratios(cpu["memory"], cpu["trio"])
        ),
        measured("resident_memory", "memory store: resident when idle", "MB", resident["memory"]),
        measured(
            "resident_all", "all adapters loaded: resident when idle", "MB", resident["embedded"], ("at most", 60)
        ),
        measured(
            "resident_trio",
            "all adapters loaded: resident when idle / trio alone",
            "x",
            ratios(resident["embedded"], resident["trio"]),
        ),
    ]


def _weigh(name: str, pid: int, cpu: dict[str, list[float]], resident: dict[str, list[float]]) -> None:
    cpu.setdefault(name, []).append(cpu_seconds(pid))
    time.sleep(_SETTLE_SECONDS)
    resident.setdefault(name, []).append(resident_bytes(pid) / _MB)


def _daemon(stack: ExitStack, place: Path) -> tuple[int, Path]:
    """A fresh daemon with the null provider; its pid and its control socket."""
    place.mkdir()
    daemon = stack.enter_context(child("bench.support.serve_ours", str(place / "run"), scratch=place))
    daemon.line(PATIENCE_SECONDS)
    return daemon.pid, place / "run" / "control.sock"


def _stay_connected(stack: ExitStack, sockets: Sequence[str]) -> None:
    for path in sockets:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        bound_waits(connection, int(PATIENCE_SECONDS))
        connection.connect(path)


def _containers(scratch: Path, repetitions: int, count: int) -> list[Measured]:
    each = []
    for repetition in range(repetitions):
        progress(f"containers: repetition {repetition + 1} of {repetitions}")
        with ExitStack() as stack:
            pid, control = _daemon(stack, scratch / f"containers{repetition}")
            exchange(open_containers(control, range(1))[0], "comment")  # what the first of all loads, loads now
            before = resident_bytes(pid)
            _stay_connected(stack, open_containers(control, range(1, count + 1)))
            time.sleep(_SETTLE_SECONDS)
            each.append((resident_bytes(pid) - before) / count / _KB)
    title = f"{count:,} idle connected containers: resident, each"
    return [measured("container", title, "KB", each, ("at most", 20))]


def _idle(stack: ExitStack, scratch: Path, repetitions: int, counts: Sequence[int], *, quick: bool) -> list[Measured]:
    load = stack.enter_context(child("bench.support.load_light", scratch=scratch))
    targets = {}
    for count in counts:
        pid, control = _daemon(stack, scratch / f"idle{count}")
        sockets = open_containers(control, range(count + 1))
        reply_bytes = exchange(sockets[0], "comment")[1]
        _stay_connected(stack, sockets[1:])
        targets[count] = Target("ours", pid, sockets[:1])
    cells = Cells()
    cost: dict[tuple[Pattern, int], list[float]] = {}
    places = [(pattern, count) for pattern in _PATTERNS for count in counts]
    for repetition in range(repetitions):
        progress(f"idle: repetition {repetition + 1} of {repetitions}")
        for pattern, count in places if repetition % 2 == 0 else reversed(places):
            cell = cells.make(
                targets[count],
                pattern,
                operation="comment",
                reply_bytes=reply_bytes,
                concurrency=1 if pattern == "serial" else _IN_FLIGHT,
                warm_seconds=0.05,
                seconds=0.1 if quick else 0.4,
            )
            sample = run_cell(load, cell)
            cost.setdefault((pattern, count), []).append(sample.server_cpu_seconds / sample.calls)
    least = counts[0]
    return [
        measured(
            f"idle_{pattern}_{count}",
            f"CPU per call, {title}: {count:,} idle containers / {least}",
            "x",
            ratios(cost[pattern, count], cost[pattern, least]),
            ("at most", 1.15),
        )
        for pattern, title in _PATTERNS.items()
        for count in counts[1:]
    ]


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    counts = (1, 10, 100) if quick else (1, 100, 1000)
    starts = 1 if quick else min(repetitions, 3)  # they hardly spread, and each start of Postgres takes its time
    return [
        *_start(scratch, starts),
        *_containers(scratch, starts, counts[-1]),
        *_idle(stack, scratch, repetitions, counts, quick=quick),
    ]


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser(
        "What the daemon costs while idle.", repetitions="9 by default, 2 with --quick; 3 starts at most"
    ).parse_args()
    raise_descriptor_limit()
    repetitions = arguments.repetitions or (2 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("footprint", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
