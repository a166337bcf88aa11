"""What one HTTP exchange with a forge costs the daemon, beside a bare httpx client on trio, in the same run.

    .venv/bin/python bench/bench_forge_call.py [--json] [--quick] [--repetitions N]

A POST of 2 KB over loopback to a server that answers at once, 2 KB back; CPU time of the client's process. *httpx* is
``httpx.AsyncClient.post``; *transport* is the daemon's one door to HTTP; *forge call* is all that stands below a
provider: credential, budget gate, transport, judging the answer. One call at a time, and 64 callers at once. All cells
of a repetition run one after the other, in turning order.
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

from bench.support.cells import PATIENCE_SECONDS
from bench.support.goals import Measured, measured, ratios
from bench.support.load_http import Client, HttpCell, HttpSample
from bench.support.outcome import report
from bench.support.processes import child
from bench.support.setup import parser, progress

_CALLERS: Final = 64
_OURS: Final[dict[Client, str]] = {"transport": "transport", "call": "forge call"}
_NOTES: Final = (
    "A ratio is taken within a repetition. CPU: user and system time of the client's process, in which the server has\n"
    "no part."
)


@dataclass(frozen=True, slots=True)
class _Cells:
    """One client under one number of callers, and what has come of it."""

    client: Client
    callers: int
    calls: int
    samples: list[HttpSample] = field(default_factory=list)

    def cpu(self) -> list[float]:
        """By repetition, in microseconds a call."""
        return [sample.cpu_us for sample in self.samples]


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    server = stack.enter_context(child("bench.support.serve_http", scratch=scratch))
    port = server.line(PATIENCE_SECONDS).decode()
    load = stack.enter_context(child("bench.support.load_http", port, scratch=scratch))
    calls = 64 if quick else 640
    clients: tuple[Client, ...] = ("httpx", *_OURS)
    cells = {(client, callers): _Cells(client, callers, calls) for client in clients for callers in (1, _CALLERS)}
    for repetition in range(repetitions):
        progress(f"repetition {repetition + 1} of {repetitions}")
        for cell in cells.values() if repetition % 2 == 0 else reversed(cells.values()):
            asked = msgspec.json.encode(HttpCell(cell.client, cell.callers, cell.calls))
            cell.samples.append(msgspec.json.decode(load.ask(asked, PATIENCE_SECONDS), type=HttpSample))
    bare, crowd = cells["httpx", 1].cpu(), cells["httpx", _CALLERS].cpu()
    lines = [
        measured("httpx_cpu", "httpx, one at a time: CPU", "µs", bare),
        measured("httpx_crowd", f"httpx: CPU, {_CALLERS} callers / one", "x", ratios(crowd, bare)),
    ]
    for client, title in _OURS.items():
        one, many = cells[client, 1].cpu(), cells[client, _CALLERS].cpu()
        lines += [
            measured(f"{client}_cpu", f"{title}, one at a time: CPU", "µs", one),
            measured(
                f"{client}_httpx", f"{title}, one at a time: CPU / httpx", "x", ratios(one, bare), ("at most", 1.3)
            ),
            measured(
                f"{client}_crowd", f"{title}: CPU, {_CALLERS} callers / one", "x", ratios(many, one), ("at most", 1.5)
            ),
        ]
    return lines


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser("What a call to a forge costs.", repetitions="9 by default, 3 with --quick").parse_args()
    repetitions = arguments.repetitions or (3 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("forge_call", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
