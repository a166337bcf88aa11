"""Any bytes on one connection: each whole frame is answered once, or the connection ends with one last fault.

    .venv/bin/python bench/fuzz_live.py [--seed N] [--count N] [--seconds S] [--connections N] [--json]

No crash, no hang over 100 ms, no other connection hurt, memory flat. The inputs of ``fuzz_wire.py`` go to a daemon of
its own process, over the Unix sockets of two containers: one is bound to a session that may touch nothing, so that
every call is answered by the service and none asks a forge, the other is bound to none. Some connections are hung up
on in the middle. A third container's quiet neighbour makes one valid cheap call after the other on one connection all
along. Checked:

* by the second implementation of the framing and the codec: every whole frame has exactly one answer under its call id,
  a frame that does not decode an ``invalid_argument``; nothing else is said, which a valid call behind them shows;
* after bytes that are no frames, one last fault, nothing behind it, and a close; within a frame, a silent close when we
  hang up;
* no answer is ``internal``, the daemon's counter ``internal_errors`` is 0, its log holds no traceback, and when all
  have hung up no call and no connection is left;
* the neighbour is answered as it must be, and at most one call in 200, or 5, took over 100 ms, the time that the daemon
  waited for a processor left out;
* the daemon's resident memory is within 32 MiB of what it was after the warm-up.

The first violation ends the run with status 1 and shows the seed and the bytes.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that is there

from bench.support.fuzz_measure import Histogram, Progress, progress, rss_bytes
from bench.support.fuzz_session import Broken, LiveConnection
from bench.support.fuzz_streams import BATCH, FuzzInput, batch, split
from bench.support.processes import Child, ChildFailed, child
from compass_forged.control.schema import StatusReply
from compass_forged.errors import ForgedError
from compass_forged.wire.frames import FRAME_MAX_BYTES
from tests.support.world import DaemonProcess, Place, daemon, place

RSS_GROWTH_BYTES: Final = 32 << 20
"""How much larger than after the warm-up the daemon may be: a frame and an outbox of 1 MiB each a connection."""
_CONTAINERS: Final = ("scoped", "unbound")
_NEIGHBOUR: Final = "neighbour"
_GROUP: Final = 8
_GROUP_BYTES: Final = 256 << 10
_RUDE: Final = 0.02
_QUIET_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 10.0
_NEIGHBOUR_SECONDS: Final = 30.0
_HEX_SHOWN: Final = 4096


class LiveViolation(Exception):
    """The invariant does not hold.

    Attributes:
        what: in one line.
        group: the inputs that went over the connection last, together; [] where none can be named.
    """

    def __init__(self, what: str, group: list[FuzzInput]) -> None:
        super().__init__(what)
        self.what = what
        self.group = group


@dataclass(slots=True)
class LiveTotals:
    """What a run has counted so far. ``exchanges`` are groups of inputs, from the first byte to the last answer."""

    inputs: int = 0
    connections: int = 0
    abandoned: int = 0
    seconds: float = 0.0
    rss_warm: int = 0
    rss_peak: int = 0
    rss_end: int = 0
    exchanges: Histogram = field(default_factory=Histogram)
    quiet: dict[str, Any] = field(default_factory=dict)
    neighbour: dict[str, Any] = field(default_factory=dict)


# --- the load -------------------------------------------------------------------------------------------------------


def groups(seed: int, worker: int, workers: int) -> Iterator[list[FuzzInput]]:
    """A worker's inputs without end, those that may share a connection's next breath together."""
    group: list[FuzzInput] = []
    size = 0
    index = worker
    while True:
        for given in batch(seed, index, limits=False):
            data = given.data
            group.append(given)
            size += len(data)
            if len(group) == _GROUP or size > _GROUP_BYTES or split(data, FRAME_MAX_BYTES).ending != "clean":
                yield group
                group, size = [], 0
        index += workers


class Load:
    """The connections that fuzz; stops at the first violation, which it keeps."""

    def __init__(self, paths: list[Path], seed: int, connections: int, totals: LiveTotals) -> None:
        """``paths``: the containers' sockets, which the connections share in turn."""
        self._paths = paths
        self._seed = seed
        self._totals = totals
        self._workers = connections
        self._groups = [groups(seed, worker, connections) for worker in range(connections)]
        self._left = 0
        self.violation: LiveViolation | None = None

    async def run(self, count: int, seconds: float, pid: int, show: Progress | None) -> None:
        """Send ``count`` inputs, or for ``seconds`` (0: no such bound).

        Raises:
            LiveViolation: at the first one.
        """
        self._left = count
        began = trio.current_time()
        with trio.move_on_after(seconds or float("inf")):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, pid, show)
                async with trio.open_nursery() as workers:
                    for worker in range(self._workers):
                        workers.start_soon(self._work, worker, workers.cancel_scope)
                nursery.cancel_scope.cancel()
        self._totals.seconds += trio.current_time() - began
        if self.violation is not None:
            raise self.violation

    async def _work(self, worker: int, everybody: trio.CancelScope) -> None:
        rng = random.Random(f"{self._seed}:{worker}")  # noqa: S311 -- reproducible on purpose
        path = self._paths[worker % len(self._paths)]
        connection: LiveConnection | None = None
        try:
            while self._left > 0:
                group = next(self._groups[worker])
                self._left -= len(group)
                try:
                    connection = await self._exchange(connection, path, group, rude=rng.random() < _RUDE)
                except (Broken, OSError) as error:
                    self.violation = LiveViolation(f"container {path.parent.name}: {error}", group)
                    everybody.cancel()
                    return
        finally:
            if connection is not None:
                with trio.CancelScope(deadline=trio.current_time() + 1, shield=True):
                    await connection.close()

    async def _exchange(
        self, connection: LiveConnection | None, path: Path, group: list[FuzzInput], *, rude: bool
    ) -> LiveConnection | None:
        """Send a group, on a new connection if need be; the connection, if it can be used on."""
        totals = self._totals
        if connection is None:
            connection = LiveConnection(await trio.open_unix_socket(str(path)))
            totals.connections += 1
        usable = False
        began = time.monotonic_ns()
        try:
            if rude:
                await connection.abandon(group)
            else:
                usable = await connection.exchange(group)
                totals.exchanges.add(time.monotonic_ns() - began, group[0].number)
        finally:
            if not usable:
                with trio.CancelScope(deadline=trio.current_time() + 1, shield=True):
                    await connection.close()
        totals.abandoned += rude
        totals.inputs += len(group)
        return connection if usable else None

    async def _watch(self, pid: int, show: Progress | None) -> None:
        while True:
            self._totals.rss_peak = max(self._totals.rss_peak, rss_bytes(pid))
            if show is not None:
                show(self._totals.inputs, f"inputs, daemon {self._totals.rss_peak >> 20} MiB at most")
            await trio.sleep(0.2)


# --- the whole ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """How long a run is. ``warm_count`` inputs go ahead before memory is looked at."""

    seed: int
    count: int
    seconds: float = 0.0
    connections: int = 6
    warm_count: int = 20_000


def run(settings: Settings, *, show: Progress | None = None) -> LiveTotals:
    """Start a daemon, fuzz it, end it.

    Raises:
        LiveViolation: at the first one.
        ChildFailed: the neighbour was not served as it must be.
    """
    totals = LiveTotals()
    with _served() as (where, process), _neighbour(where, process) as neighbour:
        time.sleep(_QUIET_SECONDS)
        totals.quiet = json.loads(neighbour.ask(b"report", _NEIGHBOUR_SECONDS))
        load = Load([where.socket(name) for name in _CONTAINERS], settings.seed, settings.connections, totals)
        pid = process.process.pid
        try:
            trio.run(load.run, min(settings.warm_count, settings.count // 5), settings.seconds / 5, pid, show)
            totals.rss_warm = totals.rss_peak = rss_bytes(pid)
            trio.run(load.run, settings.count - totals.inputs, settings.seconds * 4 / 5, pid, show)
        except LiveViolation as violation:
            if process.process.poll() is not None:
                what = f"the daemon has ended with status {process.process.returncode}"
                raise LiveViolation(what, violation.group) from violation
            raise
        totals.neighbour = json.loads(neighbour.ask(b"report", _NEIGHBOUR_SECONDS))
        _check_aftermath(where, process, totals)
    return totals


@contextmanager
def _served() -> Iterator[tuple[Place, DaemonProcess]]:
    with place() as where:
        where.configure("http://127.0.0.1:9", store='"memory"', extra='level = "warning"')
        with daemon(where) as process:
            with where.control() as control:
                for name in (*_CONTAINERS, _NEIGHBOUR):
                    control.open_container(name)
                control.bind_session("scoped", "s-scoped", agent="scout", owner="ada", scope=[])
                control.bind_session(_NEIGHBOUR, "s-neighbour", agent="quiet", owner="ada")
            yield where, process


@contextmanager
def _neighbour(where: Place, process: DaemonProcess) -> Iterator[Child]:
    path = str(where.socket(_NEIGHBOUR))
    with (
        tempfile.TemporaryDirectory(prefix="forged-fuzz-") as scratch,
        child("bench.support.fuzz_neighbour", path, str(process.process.pid), scratch=Path(scratch)) as running,
    ):
        yield running


def _check_aftermath(where: Place, process: DaemonProcess, totals: LiveTotals) -> None:
    """What must be true of the daemon once all have hung up."""
    status, connections = _settled(where)
    totals.rss_end = rss_bytes(process.process.pid)
    failed = [row for row in status.counters if row.name == "internal_errors"]
    slow, calls = totals.neighbour["slow"], totals.neighbour["calls"]
    grown = max(totals.rss_end, totals.rss_peak) - totals.rss_warm
    for wrong, what in (
        (bool(failed), f"internal errors: {failed}"),
        (status.calls_in_flight > 0, f"{status.calls_in_flight} calls are left"),
        (connections > 0, f"{connections} connections are left"),
        ("Traceback" in where.log.read_text(), "the daemon's log holds a traceback"),
        (slow > max(5, calls / 200), f"{slow} of {calls} calls of the quiet neighbour took over 100 ms"),
        (grown > RSS_GROWTH_BYTES, f"the daemon's memory grew by {grown >> 20} MiB after the warm-up"),
    ):
        if wrong:
            raise LiveViolation(what, [])


def _settled(where: Place) -> tuple[StatusReply, int]:
    """The daemon's status, and the connections of the fuzzed containers, once both are at rest or time is up."""
    until = time.monotonic() + _SETTLE_SECONDS
    with where.control() as control:
        while True:
            status = control.status()
            connections = sum(item.connections for item in control.list_containers() if item.name != _NEIGHBOUR)
            if time.monotonic() > until or not (status.calls_in_flight or connections):
                return status, connections
            time.sleep(0.02)


# --- for people -----------------------------------------------------------------------------------------------------


def reproduction(violation: LiveViolation, settings: Settings) -> str:
    """Everything that is needed to see a violation again; a group's inputs go over one connection, in this order."""
    lines = [
        f"violation: {violation.what}",
        f"again: bench/fuzz_live.py --seed {settings.seed} --connections {settings.connections}",
    ]
    for given in violation.group:
        data = given.data.hex()
        shown = data if len(data) <= _HEX_SHOWN else f"{data[:_HEX_SHOWN]}… ({len(data) // 2} bytes)"
        lines.append(f"input {given.number} ({', '.join(given.mutations)}): {shown}")
    return "\n".join(lines)


def _report(totals: LiveTotals, settings: Settings) -> dict[str, object]:
    rss = {"warm": totals.rss_warm, "peak": totals.rss_peak, "end": totals.rss_end}
    return {
        "fuzz": "live",
        "seed": settings.seed,
        "inputs": totals.inputs,
        "connections": totals.connections,
        "abandoned": totals.abandoned,
        "seconds": round(totals.seconds, 1),
        "inputs_per_second": round(totals.inputs / totals.seconds) if totals.seconds else 0,
        "exchange_us": totals.exchanges.microseconds(),
        "neighbour_quiet": totals.quiet,
        "neighbour_fuzzed": totals.neighbour,
        "daemon_rss_bytes": {**rss, "growth": totals.rss_end - totals.rss_warm},
        "violation": None,
    }


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Structured fuzzing of a living daemon's connections.")
    parser.add_argument("--seed", type=int, default=None, help="a random one by default; always printed")
    parser.add_argument("--count", type=int, default=200_000, metavar="N", help="inputs at most (200000)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="seconds at most (0: no bound)")
    parser.add_argument("--connections", type=int, default=6, metavar="N", help="at a time, at most 32 (6)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = parser.parse_args(arguments)
    if found.count < BATCH // 100 or found.seconds < 0:
        parser.error("--count: must be at least 20; --seconds: must not be negative")
    if not 1 <= found.connections <= 32:
        parser.error("--connections: must be from 1 to 32, since a container has 16")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status: 0, or 1 on a violation."""
    given = _parse(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    settings = Settings(seed, given.count, given.seconds, given.connections)
    try:
        with progress("fuzz live", None if given.seconds else given.count, shown=not given.json) as show:
            totals = run(settings, show=show)
    except (LiveViolation, ChildFailed, ForgedError) as error:
        violation = error if isinstance(error, LiveViolation) else LiveViolation(str(error), [])
        print(reproduction(violation, settings), file=sys.stderr)
        if given.json:
            print(json.dumps({"fuzz": "live", "seed": seed, "violation": {"what": violation.what}}))
        return 1
    report = _report(totals, settings)
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:18} {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
