"""Memory in stages: before the kernel ends the daemon, it takes on less.

=========  ==================================  ======================================================
stage      from                                what is different
=========  ==================================  ======================================================
normal                                         nothing
tight      85 % of the limit                   creates are refused; reads and comments go on
full       95 %                                and no connection is accepted; those that are, are served
=========  ==================================  ======================================================

A stage is left 5 points below where it begins. The numbers are looked at once a second; while the stage is above
normal, free heap is handed back every ten seconds, without which a size that was high once would stay so.
"""

import math
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import trio

from compass_forged.errors import CallError
from compass_forged.memory_use import MemoryUse, hand_back
from compass_forged.observability import Counters, get_logger

_log = get_logger(__name__)

Stage: TypeAlias = Literal["normal", "tight", "full"]
TIGHT_FROM: Final = 0.85
FULL_FROM: Final = 0.95
MARGIN: Final = 0.05
LOOK_SECONDS: Final = 1.0
RETRY_AFTER_MS: Final = 5000
_HAND_BACK_SECONDS: Final = 10.0


def next_stage(stage: Stage, part: float) -> Stage:
    """The stage after ``stage`` when ``part`` of the limit is used."""
    if part >= FULL_FROM - (MARGIN if stage == "full" else 0):
        return "full"
    if part >= TIGHT_FROM - (MARGIN if stage != "normal" else 0):
        return "tight"
    return "normal"


class MemoryWatch:
    """Knows the stage, and holds back creates and connections by it; one instance a daemon."""

    def __init__(
        self, read: Callable[[], MemoryUse], *, counters: Counters, hand_back: Callable[[], None] = hand_back
    ) -> None:
        """``read`` tells use and limit, or raises OSError; ``hand_back`` gives free heap back to the system."""
        self._read = read
        self._counters = counters
        self._hand_back = hand_back
        self._handed_back_at = -math.inf
        self._blind = False
        self._paused = trio.lowlevel.ParkingLot()
        self.stage: Stage = "normal"
        self.use = MemoryUse(0, 0)
        """As it was at the last look."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look every second, until cancelled."""
        self.look()
        task_status.started()
        while True:
            await trio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read, and change the stage where it is due. What cannot be read leaves it as it is. Not a checkpoint."""
        try:
            self.use = self._read()
        except OSError as error:
            if not self._blind:
                _log.error("memory cannot be read; its stage stays", stage=self.stage, error=str(error))
            self._blind = True
            return
        self._blind = False
        self._to(next_stage(self.stage, self.use.part))
        now = trio.current_time()
        if self.stage != "normal" and now - self._handed_back_at >= _HAND_BACK_SECONDS:
            self._handed_back_at = now
            self._hand_back()

    def _to(self, stage: Stage) -> None:
        if stage == self.stage:
            return
        before, self.stage = self.stage, stage
        self._counters.add("memory_stages", stage=stage)
        _log.warning("memory", stage=stage, before=before, used=self.use.used, limit=self.use.limit)
        if stage != "full":
            self._paused.unpark_all()

    def check_create(self) -> None:
        """Refuse a new create where memory is short.

        Raises:
            CallError: ``resource_exhausted``; nothing was sent.
        """
        if self.stage != "normal":
            self._counters.add("creates_refused_for_memory")
            raise CallError(
                "resource_exhausted",
                "the daemon is short of memory, so nothing was sent; try again later",
                outcome="not_sent",
                retry_after_ms=RETRY_AFTER_MS,
            )

    async def connections_allowed(self) -> None:
        """Return once connections may be accepted: at once, and without a checkpoint, but in the last stage."""
        while self.stage == "full":
            await self._paused.park()  # without limit: whoever accepts has nothing else to do
