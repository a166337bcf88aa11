"""What the connections of one container share: how many calls, how much of the loop's time, how many waiting bytes.

Each connection with limits of its own, a container would have sixteen times as much as is its own.
"""

from dataclasses import dataclass, field
from typing import Final

import trio

_TURN_MAX: Final = 32
"""So many frames of a container may be answered or started before other tasks get a turn: a receive may hold 13,000."""
_TURN_BYTES: Final = 4 << 10
"""Of large frames, each so many bytes count as one more: a body is read when its call begins."""


class CallSlots:
    """How many calls may be in flight; who finds none free waits its turn."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def free(self) -> int:
        """How many could be taken at once."""
        return self._free

    async def take(self) -> None:
        """Take a slot; a checkpoint only where none is free."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        await self._waiting.park()  # ``give`` hands its slot on

    def give(self) -> None:
        """Give a slot back."""
        if self._waiting:
            self._waiting.unpark()
        else:
            self._free += 1


class Turn:
    """How much of one container's frames was taken since the other tasks had their turn."""

    __slots__ = ("_resting", "_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = 0
        self._resting = False
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def over(self) -> bool:
        """Whether no frame may be taken before a ``rest``."""
        return self._taken >= _TURN_MAX

    def take(self, size: int) -> None:
        """A frame of ``size`` bytes is taken."""
        self._taken += 1 + size // _TURN_BYTES

    async def rest(self) -> None:
        """Let the other tasks have their turn; of several connections that wait, the first goes on after each rest."""
        if self._resting:
            await self._waiting.park()  # bounded: a rest is one pass of the loop, and each wakes the next to rest
        self._resting = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._taken = 0
            if self._waiting:
                self._waiting.unpark()
            else:
                self._resting = False


@dataclass(slots=True)
class Backlog:
    """How many bytes of replies wait to be sent to one container."""

    bytes: int = 0


@dataclass(slots=True)
class ContainerShare:
    """What one container's connections share.

    Attributes:
        calls: slots for calls in flight.
        turn: at the loop.
        backlog: replies that wait to be sent.
    """

    calls: CallSlots
    turn: Turn = field(default_factory=Turn)
    backlog: Backlog = field(default_factory=Backlog)
