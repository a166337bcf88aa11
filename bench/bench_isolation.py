"""What some calls cost others: a slow forge, a loud container, a crowd that connects at once.

    .venv/bin/python bench/bench_isolation.py [--json] [--quick] [--repetitions N]

- *slow*: the p99 of calls that are answered at once (refusals, one in flight), while 64 calls on another container wait
  for a forge that takes 100 ms, against the same on the idle daemon.
- *fairness*: the p99 of nine containers that call 50 times a second each, while a tenth calls 1,000 times a second,
  against the same nine alone.
- *first*: 200 clients connect and call at once, while another container keeps 64 calls in flight; all come to one
  socket. Were all of them accepted before any is answered, the earliest first answer would come about as late as the
  last; how far apart the two are is the goal. Beside it, for information, what the median and the last client wait
  against a bare trio echo under the same load, whose calls cost next to nothing.

Load comes from light clients in processes of their own, 2 KB bodies, the memory store, Unix sockets. The two sides of
a ratio are measured in turns within each repetition. Of *slow* and *fairness* there are four turns, whose latencies are
pooled before their p99 is taken: a p99 hangs on few calls, and what else the machine does comes in bursts. The loud
container's client needs CPU as well, of which the machine has no more with it than without.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.cells import PATIENCE_SECONDS, Cell, Sample, percentiles_us
from bench.support.goals import Measured, measured, ratios
from bench.support.messages import Operation
from bench.support.outcome import report
from bench.support.processes import Child, child
from bench.support.setup import Cells, Target, begin, end, exchange, open_containers, parser, progress, run_cell

_QUIET: Final = 9
_QUIET_RATE: Final = 50.0
_LOUD_RATE: Final = 1000.0
_IN_FLIGHT: Final = 64
_CROWD: Final = 200
_PER_CONTAINER: Final = 300
"""The crowd is one container's, which by default may have 16 connections; their first calls are in flight together."""
_TURNS: Final = 4
"""So often a repetition measures the two sides of a p99, one after the other."""
_HEAD_START_SECONDS: Final = 0.2
"""How long a load runs before what it is to disturb begins."""
_OPERATIONS: Final[tuple[Operation, ...]] = ("comment", "refused", "slow")
_NOTES: Final = (
    "A ratio is taken within a repetition. slow: refusals one in flight, with and without 64 slow calls. fairness:\n"
    "nine containers at 50 calls/s each, with and without a tenth at 1,000. first: 200 clients connecting at once to\n"
    "one socket of a server that has 64 calls in flight already; the echo's calls cost next to nothing."
)


class _Bench:
    """The servers, the load processes and the cells of a run."""

    def __init__(self, stack: ExitStack, scratch: Path, *, quick: bool) -> None:
        """Start them; they end with ``stack``."""
        self._quick = quick
        self._cells = Cells()
        options = msgspec.json.encode({"per_container": _PER_CONTAINER}).decode()
        run_dir = scratch / "run"
        daemon = stack.enter_context(child("bench.support.serve_ours", str(run_dir), options, scratch=scratch))
        daemon.line(PATIENCE_SECONDS)
        self._sockets = open_containers(run_dir / "control.sock", range(_QUIET + 1))
        exchanges = {operation: exchange(self._sockets[0], operation) for operation in _OPERATIONS}
        self._replies = {operation: reply for operation, (_, reply) in exchanges.items()}
        sizes = msgspec.json.encode({str(request): reply for request, reply in exchanges.values()}).decode()
        self._echo_socket = str(scratch / "echo.sock")
        echo = stack.enter_context(
            child("bench.support.serve_echo", self._echo_socket, str(scratch / "joined.sock"), sizes, scratch=scratch)
        )
        echo.line(PATIENCE_SECONDS)
        self._pids = {"ours": daemon.pid, "echo": echo.pid}
        self._light, self._disturber = (
            stack.enter_context(child("bench.support.load_light", scratch=scratch)) for _ in range(2)
        )
        self._timed, self._loud = (
            stack.enter_context(child("bench.support.load_timed", scratch=scratch)) for _ in range(2)
        )

    def fast(self, *, disturbed: bool) -> Sample:
        """Refusals one at a time, perhaps beside slow calls."""
        seconds = 0.1 if self._quick else 0.5
        probe = self._cells.make(
            self._ours(0),
            "serial",
            operation="refused",
            reply_bytes=self._replies["refused"],
            warm_seconds=0.05,
            seconds=seconds,
            all_latencies=True,
        )
        if not disturbed:
            return run_cell(self._light, probe)
        slow = self._cells.make(
            self._ours(1),
            "pipelined",
            operation="slow",
            reply_bytes=self._replies["slow"],
            concurrency=_IN_FLIGHT,
            seconds=seconds + 2 * _HEAD_START_SECONDS,
        )
        with _beside(self._disturber, slow):
            return run_cell(self._light, probe)

    def quiet(self, *, disturbed: bool) -> Sample:
        """Nine containers at their rate, perhaps beside a loud one."""
        seconds = 0.2 if self._quick else 1.5
        quiet = self._paced(self._sockets[1:], _QUIET, _QUIET_RATE, seconds)
        if not disturbed:
            return run_cell(self._timed, quiet)
        loud = self._paced(self._sockets[:1], 1, _LOUD_RATE, seconds + 2 * _HEAD_START_SECONDS)
        with _beside(self._loud, loud):
            return run_cell(self._timed, quiet)

    def crowd(self, *, echo: bool) -> tuple[float, float, float]:
        """First answers of a crowd at a busy server, in microseconds: the median client's, the last, the earliest."""
        busy = self._target_of_crowd(echo=echo, container=1)
        load = self._cells.make(
            busy,
            "pipelined",
            operation="comment",
            reply_bytes=self._replies["comment"],
            concurrency=_IN_FLIGHT,
            seconds=0.5 if self._quick else 1.0,
        )
        first = self._cells.make(
            self._target_of_crowd(echo=echo, container=0),
            "first",
            operation="comment",
            reply_bytes=self._replies["comment"],
            concurrency=_CROWD,
        )
        with _beside(self._disturber, load):
            sample = run_cell(self._timed, first)
        assert sample.p50_us is not None
        assert sample.max_us is not None
        assert sample.min_us is not None
        return sample.p50_us, sample.max_us, sample.min_us

    def _target_of_crowd(self, *, echo: bool, container: int) -> Target:
        return Target("echo", self._pids["echo"], [self._echo_socket]) if echo else self._ours(container)

    def _paced(self, sockets: list[str], connections: int, rate: float, seconds: float) -> Cell:
        return self._cells.make(
            Target("ours", self._pids["ours"], sockets),
            "paced",
            operation="comment",
            reply_bytes=self._replies["comment"],
            concurrency=connections,
            warm_seconds=0.1,
            seconds=seconds,
            calls_per_second=rate,
            all_latencies=True,
        )

    def _ours(self, container: int) -> Target:
        return Target("ours", self._pids["ours"], [self._sockets[container]])


@contextmanager
def _beside(load: Child, cell: Cell) -> Iterator[None]:
    """Run the block while a load is under way, and wait for the load's end."""
    begin(load, cell)
    time.sleep(_HEAD_START_SECONDS)
    yield
    end(load, cell)


def _in_turn(measures: Sequence[Callable[[], None]], repetition: int) -> None:
    for measure in measures if repetition % 2 == 0 else reversed(measures):
        measure()


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    bench = _Bench(stack, scratch, quick=quick)
    p99s: dict[tuple[str, bool], list[float]] = {}
    firsts: dict[bool, list[tuple[float, float, float]]] = {}

    def keep(name: str, made: Callable[..., Sample]) -> None:
        pooled: dict[bool, list[int]] = {False: [], True: []}
        for turn in range(_TURNS):
            for disturbed in (False, True) if turn % 2 == 0 else (True, False):
                pooled[disturbed] += made(disturbed=disturbed).latencies_ns
        for disturbed, latencies in pooled.items():
            p99 = percentiles_us(latencies)[1]
            assert p99 is not None
            p99s.setdefault((name, disturbed), []).append(p99)

    def keep_first(*, echo: bool) -> None:
        firsts.setdefault(echo, []).append(bench.crowd(echo=echo))

    measures = [
        partial(keep, "slow", bench.fast),
        partial(keep, "fairness", bench.quiet),
        *(partial(keep_first, echo=echo) for echo in (False, True)),
    ]
    for repetition in range(repetitions):
        progress(f"repetition {repetition + 1} of {repetitions}")
        _in_turn(measures, repetition)
    slow, fairness = (ratios(p99s[name, True], p99s[name, False]) for name in ("slow", "fairness"))
    medians, lasts = (ratios([got[i] for got in firsts[False]], [got[i] for got in firsts[True]]) for i in (0, 1))
    apart = [earliest / last for _median, last, earliest in firsts[False]]
    return [
        measured("slow", "answered at once, beside 64 slow calls: p99 / on an idle daemon", "x", slow, ("at most", 5)),
        measured("fairness", "nine quiet containers beside a loud one: p99 / alone", "x", fairness, ("at most", 2)),
        measured("first_apart", "200 connect at once: earliest first answer / last", "x", apart, ("at most", 0.5)),
        measured("first_median", "200 connect at once: median first answer / echo", "x", medians),
        measured("first_last", "200 connect at once: last first answer / echo", "x", lasts),
        measured("first_median_ms", "200 connect at once: median first answer", "ms", _ms(firsts[False], 0)),
        measured("first_last_ms", "200 connect at once: last first answer", "ms", _ms(firsts[False], 1)),
    ]


def _ms(got: Sequence[tuple[float, float, float]], index: int) -> list[float]:
    return [times[index] / 1000 for times in got]


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser("What some calls cost others.", repetitions="9 by default, 2 with --quick").parse_args()
    repetitions = arguments.repetitions or (2 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("isolation", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
