"""Writes held back after a forge said yes about something else. Sans-IO: every method is told the time.

A forge that answers one write with what another one made, or something before it that does, may do so with the next.
So from such an answer on:

* no write goes out for ``first`` seconds, and for twice as long each time, up to ``longest``;
* then writes go one at a time, until one's answer is about what was asked for;
* after ``longest`` seconds without such an answer the doubling begins anew.
"""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Quarantine:
    """Whether one credential's writes are held back.

    Attributes:
        first: seconds of the first pause.
        longest: seconds of the longest one.
        on_trial: whether no answer since the last pause began has shown that writes are answered rightly.
    """

    first: float = 60.0
    longest: float = 900.0
    on_trial: bool = False
    _paused_until: float = -math.inf
    _pauses: int = 0
    _in_flight: int = 0

    def begin(self) -> None:
        """A write goes out."""
        self._in_flight += 1

    def end(self) -> None:
        """A write that began has ended."""
        self._in_flight -= 1

    def opens_in(self, now: float) -> float:
        """Seconds until a write may go: 0 now; ``inf`` if the one that is under way must end first."""
        if not self.on_trial:
            return 0.0
        return self.paused_for(now) or (math.inf if self._in_flight else 0.0)

    def paused_for(self, now: float) -> float:
        """Seconds that the pause has left; 0 where there is none."""
        return max(0.0, self._paused_until - now)

    def pause(self, now: float) -> float:
        """A write was answered with something else. Returns the seconds that the pause has left.

        Those that went out before it began do not lengthen it.
        """
        if now < self._paused_until:
            return self._paused_until - now
        if now - self._paused_until >= self.longest:
            self._pauses = 0
        seconds = min(self.longest, self.first * 2.0**self._pauses)
        self._pauses = min(self._pauses + 1, 32)
        self._paused_until = now + seconds
        self.on_trial = True
        return seconds

    def prove(self, now: float) -> bool:
        """A write was answered rightly. Returns whether that ends the trial; within the pause it proves nothing."""
        proven = self.on_trial and now >= self._paused_until
        self.on_trial = self.on_trial and not proven
        return proven
