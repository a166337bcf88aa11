"""Many deadlines, kept by one task.

A cancel scope's deadline costs 5 microseconds each time it is moved (trio 0.35), three times a call; an entry in a heap
costs half a one. Most calls have ended long before their deadlines, so entries are dropped lazily: what has ended is
skipped when its time comes, and swept when too much of it has piled up.
"""

import heapq
import math
from typing import Final, Protocol

import trio

SWEEP_AT: Final = 1024
"""So many entries of what has ended may stay in the heap before it is swept."""


class Timed(Protocol):
    """What has a deadline."""

    def due(self) -> None:
        """The deadline has passed; must not raise, and is no checkpoint."""
        ...


class Deadlines:
    """Calls ``due`` of what is kept once its time has come, while ``run`` runs."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[float, Timed]] = {}
        self._heap: list[tuple[float, int]] = []
        self._numbers = 0
        self._sooner = trio.Event()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, timed: Timed, when: float) -> int:
        """Keep a deadline on trio's clock; the number by which it is dropped."""
        self._numbers += 1
        self.move(self._numbers, timed, when)
        return self._numbers

    def move(self, number: int, timed: Timed, when: float) -> None:
        """Give what is kept under ``number`` another deadline."""
        self._kept[number] = (when, timed)
        heap = self._heap
        if len(heap) > SWEEP_AT + 2 * len(self._kept):
            self._heap = heap = [entry for entry in heap if entry[1] in self._kept]
            heapq.heapify(heap)
        heapq.heappush(heap, (when, number))
        if heap[0][1] == number:
            self._sooner.set()

    def drop(self, number: int) -> None:
        """It has ended; what is not kept is no error."""
        self._kept.pop(number, None)

    async def run(self) -> None:
        """Watch the clock until cancelled."""
        while True:
            self._sooner = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                await self._sooner.wait()
            self._look(trio.current_time())

    def _look(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            when, number = heapq.heappop(self._heap)
            kept = self._kept.get(number)
            if kept is not None and kept[0] == when:  # else it has ended, or was moved
                del self._kept[number]
                kept[1].due()
