"""What the daemon answers without waiting, beside a bare trio echo and beside calls that wait, in the same run.

    .venv/bin/python bench/bench_unwaited.py [--json] [--quick] [--repetitions N] [--sleepy]

A replayed create (its key has been used: the answer is remembered) and a refusal (a create without a title) never
reach the provider; a fresh create waits there once. One light client, 2 KB bodies, the memory store, one Unix socket
each; the echo answers the same bytes with as many bytes. All cells of a repetition run one after the other, in turning
order.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.cells import PATIENCE_SECONDS, Pattern, Sample
from bench.support.goals import Measured, measured, ratios
from bench.support.messages import Operation
from bench.support.outcome import report
from bench.support.processes import child
from bench.support.setup import (
    Cells,
    Cores,
    Target,
    exchange,
    let_cores_sleep,
    open_containers,
    parser,
    progress,
    run_cell,
)

_IN_FLIGHT: Final = 64
_UNWAITED: Final[dict[Operation, str]] = {"replay": "replayed create", "refused": "refusal"}
_NOTES: Final = (
    "A ratio is taken within a repetition. p50: one call in flight, beside the echo. calls/s: 64 in flight on one\n"
    "connection, beside fresh creates, which wait for the provider once."
)


@dataclass(frozen=True, slots=True)
class _Match:
    """One cell of each repetition, and what has come of it."""

    target: Target
    operation: Operation
    pattern: Pattern
    samples: list[Sample] = field(default_factory=list)

    def p50s(self) -> list[float]:
        """By repetition, in microseconds."""
        return [sample.p50_us for sample in self.samples if sample.p50_us is not None]

    def rates(self) -> list[float]:
        """By repetition, in calls a second."""
        return [sample.calls / sample.seconds for sample in self.samples]


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool, sleepy: bool) -> Sequence[Measured]:
    cores = Cores(stack, scratch, sleepy=sleepy)
    daemon = stack.enter_context(child("bench.support.serve_ours", str(scratch / "run"), scratch=scratch))
    daemon.line(PATIENCE_SECONDS)
    sockets = open_containers(scratch / "run" / "control.sock", range(1))
    operations: tuple[Operation, ...] = (*_UNWAITED, "create")
    exchanges = {operation: exchange(sockets[0], operation) for operation in operations}
    replies = msgspec.json.encode({str(request): reply for request, reply in exchanges.values()}).decode()
    each, joined = str(scratch / "echo.sock"), str(scratch / "joined.sock")
    echo = stack.enter_context(child("bench.support.serve_echo", each, joined, replies, scratch=scratch))
    echo.line(PATIENCE_SECONDS)
    load = stack.enter_context(child("bench.support.load_light", scratch=scratch))
    ours, theirs = Target("ours", daemon.pid, sockets), Target("echo", echo.pid, [each])
    one = {
        operation: (_Match(theirs, operation, "serial"), _Match(ours, operation, "serial")) for operation in _UNWAITED
    }
    many = {operation: _Match(ours, operation, "pipelined") for operation in operations}
    matches = [*(match for pair in one.values() for match in pair), *many.values()]
    cells = Cells()
    for repetition in range(repetitions):
        progress(f"repetition {repetition + 1} of {repetitions}")
        for match in matches if repetition % 2 == 0 else reversed(matches):
            cell = cells.make(
                match.target,
                match.pattern,
                operation=match.operation,
                reply_bytes=exchanges[match.operation][1],
                concurrency=_IN_FLIGHT if match.pattern == "pipelined" else 1,
                warm_seconds=0.03 if quick else 0.1,
                seconds=0.1 if quick else 0.4,
            )
            cores.keep_awake(awake=match.pattern == "serial")
            match.samples.append(run_cell(load, cell))
    waiting = many["create"].rates()
    lines = []
    for operation, title in _UNWAITED.items():
        echoed, answered = one[operation]
        against_echo = ratios(answered.p50s(), echoed.p50s())
        lines.append(measured(f"{operation}_echo", f"{title}: p50 / echo", "x", against_echo, ("at most", 1.4)))
        against_waiting = ratios(many[operation].rates(), waiting)
        title_waiting = f"{title}: calls/s / fresh create"
        lines.append(measured(f"{operation}_waiting", title_waiting, "x", against_waiting, ("at least", 2.5)))
    return lines


def main() -> int:
    """Run and print; the exit status."""
    options = parser("What is answered without waiting.", repetitions="9 by default, 3 with --quick")
    arguments = let_cores_sleep(options).parse_args()
    repetitions = arguments.repetitions or (3 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick, sleepy=arguments.sleepy)
    return report("unwaited", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
