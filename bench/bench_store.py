"""What the bridge to Postgres costs, beside plain asyncpg under asyncio, in the same run.

    .venv/bin/python bench/bench_store.py [--json] [--quick] [--repetitions N]

One Postgres on a Unix socket, durable in nothing, so that the disk does not count. Plain asyncpg: one connection for
each caller, the same statements. The store: four connections behind a queue. Looked up is a memo by its key; recorded
is an artifact under a key of its own. All cells of a repetition run one after the other, in turning order; the store
and the plain driver are processes of their own.
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
from bench.support.outcome import report
from bench.support.processes import Child, child
from bench.support.setup import parser, progress
from bench.support.store_cells import StoreCell, StoreOperation, StoreSample

_MANY: Final = 64
_REFERENCE_CALLERS: Final = 8
_NUMBERS_PER_CELL: Final = 10_000_000
_NOTES: Final = (
    "A ratio is taken within a repetition. p50: one caller, one thing after the other. records/s: 64 callers of the\n"
    "store, joined (what waits together is sent together) or each by itself, beside 8 callers of plain asyncpg."
)


@dataclass(slots=True)
class _Match:
    """One cell of each repetition, and what has come of it."""

    load: Child
    operation: StoreOperation
    callers: int
    joined: bool = True
    samples: list[StoreSample] = field(default_factory=list)

    def run(self, *, first_number: int, warm_seconds: float, seconds: float) -> None:
        """One repetition."""
        cell = StoreCell(
            operation=self.operation,
            callers=self.callers,
            joined=self.joined,
            first_number=first_number,
            warm_seconds=warm_seconds,
            seconds=seconds,
        )
        answer = self.load.ask(msgspec.json.encode(cell), warm_seconds + seconds + PATIENCE_SECONDS)
        self.samples.append(msgspec.json.decode(answer, type=StoreSample))

    def p50s(self) -> list[float]:
        """By repetition, in microseconds."""
        return [sample.p50_us for sample in self.samples]

    def rates(self) -> list[float]:
        """By repetition, in calls a second."""
        return [sample.calls / sample.seconds for sample in self.samples]


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    postgres = stack.enter_context(child("bench.support.serve_postgres", str(scratch / "pg"), scratch=scratch))
    dsn = postgres.line(PATIENCE_SECONDS).decode()
    store = stack.enter_context(child("bench.support.load_store", dsn, scratch=scratch))
    store.line(PATIENCE_SECONDS)  # it has bound the agent whose rows both write
    plain = stack.enter_context(child("bench.support.load_asyncpg", dsn, scratch=scratch))
    plain.line(PATIENCE_SECONDS)
    lookups = _Match(plain, "lookup", 1), _Match(store, "lookup", 1)
    records = _Match(plain, "record", 1), _Match(store, "record", 1)
    reference = _Match(plain, "record", _REFERENCE_CALLERS)
    joined = _Match(store, "record", _MANY)
    unjoined = _Match(store, "record", _MANY, joined=False)
    matches = [*lookups, *records, reference, joined, unjoined]
    numbers = iter(range(_NUMBERS_PER_CELL, 1 << 62, _NUMBERS_PER_CELL))
    for repetition in range(repetitions):
        progress(f"repetition {repetition + 1} of {repetitions}")
        for match in matches if repetition % 2 == 0 else reversed(matches):
            match.run(first_number=next(numbers), warm_seconds=0.05 if quick else 0.2, seconds=0.1 if quick else 0.5)
    lines = []
    for key, title, (theirs, ours) in (("lookup", "one lookup", lookups), ("record", "one record", records)):
        against = ratios(ours.p50s(), theirs.p50s())
        lines.append(measured(f"{key}_asyncpg", f"{title} at a time: p50 / asyncpg", "x", against, ("at most", 6)))
    many = f"{_MANY} callers, joined: records/s"
    against = ratios(joined.rates(), reference.rates())
    title = f"{many} / asyncpg with {_REFERENCE_CALLERS}"
    lines.append(measured("joined_asyncpg", title, "x", against, ("at least", 1)))
    against = ratios(joined.rates(), unjoined.rates())
    lines.append(measured("joined_unjoined", f"{many} / unjoined", "x", against, ("at least", 2.5)))
    for key, title, (theirs, ours) in (("lookup", "one lookup", lookups), ("record", "one record", records)):
        lines.append(measured(f"{key}_us", f"{title} at a time: p50", "µs", ours.p50s()))
        lines.append(measured(f"{key}_asyncpg_us", f"{title} at a time, asyncpg: p50", "µs", theirs.p50s()))
    lines.append(measured("joined_rate", many, "/s", joined.rates()))
    lines.append(measured("unjoined_rate", f"{_MANY} callers, unjoined: records/s", "/s", unjoined.rates()))
    title = f"{_REFERENCE_CALLERS} callers, asyncpg: records/s"
    lines.append(measured("asyncpg_rate", title, "/s", reference.rates()))
    return lines


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser("What the bridge to Postgres costs.", repetitions="9 by default, 3 with --quick").parse_args()
    repetitions = arguments.repetitions or (3 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("store", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
