"""One measured stretch of load on a store, as the load processes are told of it; its rows, the same for everybody."""

import time
from typing import Final, Literal, TypeAlias

import msgspec

from bench.support.cells import percentiles_us

StoreOperation: TypeAlias = Literal["lookup", "record"]

PLACE: Final = ("bench", "c1", "s-bench", "bencher", "ada")
"""Host, container, session, agent and owner that the rows stand under."""
KEPT_NUMBER: Final = 1
"""The artifact that is looked up."""
CREATED_AT: Final = "2026-08-17T10:00:00Z"
FINGERPRINT: Final = bytes(32)


class StoreCell(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of load.

    Attributes:
        operation: a memo looked up by its key, or an artifact recorded under a key.
        callers: how many ask at once, each one thing after the other.
        joined: whether the store may send what waits together together; of no meaning for the driver alone.
        first_number: artifacts are numbered from here on.
        warm_seconds: how long is asked before anything counts.
        seconds: how long it counts.
    """

    operation: StoreOperation
    callers: int
    joined: bool
    first_number: int
    warm_seconds: float
    seconds: float


class StoreSample(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell."""

    calls: int
    seconds: float
    p50_us: float


class Stretch:
    """Counts the calls of a cell that end within its counted time. One for all its callers."""

    def __init__(self, cell: StoreCell) -> None:
        """Warming up begins now."""
        self._opens = time.perf_counter_ns() + round(cell.warm_seconds * 1e9)
        self._closes = self._opens + round(cell.seconds * 1e9)
        self._latencies_ns: list[int] = []
        self._last = self._opens

    def count(self, began_ns: int) -> bool:
        """A call that began then has just ended; says whether to go on."""
        now = time.perf_counter_ns()
        if self._opens <= began_ns and now < self._closes:
            self._latencies_ns.append(now - began_ns)
            self._last = now
        return now < self._closes

    def sample(self) -> StoreSample:
        """What was counted."""
        p50, _p99 = percentiles_us(self._latencies_ns)
        assert p50 is not None
        return StoreSample(calls=len(self._latencies_ns), seconds=(self._last - self._opens) / 1e9, p50_us=p50)
