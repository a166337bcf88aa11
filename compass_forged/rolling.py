"""A limit over a rolling span of time, kept on the sending side of a network. Sans-IO: every method is told the time.

Nobody knows when a request arrives, only that it is after it was sent and before its answer came. So it counts from the
moment it is sent until a whole span after it has ended: whatever the other side's clock and window, it never sees more
than the limit.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_NEGLIGIBLE_SECONDS: Final = 1e-6  # what float rounding can leave of a delay that has passed


@dataclass(slots=True)
class RollingLimit:
    """At most ``limit`` in any ``span`` seconds, in whatever unit requests weigh."""

    limit: int
    span: float
    _in_flight: int = 0
    _ended_sum: int = 0
    _ended: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def begin(self, weight: int = 1) -> None:
        """A request is sent."""
        self._in_flight += weight

    def end(self, now: float, weight: int = 1, *, counts: bool = True) -> None:
        """A request that began has ended; ``counts``: the other side has, or may have, counted it."""
        self._in_flight -= weight
        if counts:
            self._ended.append((now, weight))
            self._ended_sum += weight

    def opens_in(self, now: float, weight: int = 1) -> float:
        """Seconds until so much more fits: 0 now; ``inf`` if only the end of a request in flight can make room."""
        excess = self.used(now) + weight - self.limit
        if excess <= 0:
            return 0.0
        for ended_at, gone in self._ended:
            excess -= gone
            if excess <= 0:
                return ended_at + self.span - now
        return math.inf

    def used(self, now: float) -> int:
        """What counts now."""
        while self._ended and self._ended[0][0] + self.span - now <= _NEGLIGIBLE_SECONDS:
            self._ended_sum -= self._ended.popleft()[1]
        return self._in_flight + self._ended_sum
