"""The budget gate: one per credential, passed by every request of every container on the host.

``Budget`` does the arithmetic; here is the waiting. A request that may not go yet waits its turn if that comes before
its deadline, and is refused at once if not. The rules:

* writes before reads before background reads, and within each of them one container after the other;
* of all that wait, one is the timekeeper and sleeps until the next opening; when it leaves, another takes over, so
  that no task of the gate's own is needed;
* admitting, refusing and settling are synchronous: a cancelled waiter gives back what it was given;
* writes are held back for a while after the forge has answered one with something else (``quarantine``);
* of identical reads that wait, the first to be let go takes all the others along, whatever container they are of.
"""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import trio

from compass_forged.budget import Budget, BudgetStatus, Kind, Reading
from compass_forged.errors import RateLimited, WritesPaused
from compass_forged.observability import get_logger
from compass_forged.providers.flights import Flight, Flights
from compass_forged.quarantine import Quarantine

QUEUE_PER_CONTAINER: Final = 64
CONCURRENCY: Final = 16
_RETRY_SECONDS = 1.0  # what is said where nothing better is known
_LET_GO: Final = "the budget gate let the call go"
_RANKS: Final[dict[Kind, int]] = {"write": 0, "read": 1, "background": 2}

AnyFlight: TypeAlias = Flight[Any]  # of whatever its leader lands
log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """A gate as it stands: requests in flight, requests waiting by container, and its budget.

    ``paused_for``: seconds for which no write may go; ``on_trial``: then one at a time, until one is answered rightly.
    """

    name: str
    in_flight: int
    waiting: dict[str, int]
    budget: BudgetStatus
    paused_for: float = 0.0
    on_trial: bool = False


class Admission:
    """Leave to send one request. ``settle`` it when the request has ended, however it ended."""

    __slots__ = ("_end", "flight")

    def __init__(self, end: Callable[[Reading | None, bool, bool], None], flight: AnyFlight | None = None) -> None:
        """``end`` is the gate's own, and called once; ``flight`` is what others may board."""
        self._end: Callable[[Reading | None, bool, bool], None] | None = end
        self.flight = flight

    def settle(self, *, reading: Reading | None = None, sent: bool = True, created: bool = True) -> None:
        """Tell what became of the request; a second call does nothing.

        Args:
            reading: what the answer said of its limit, if it said anything.
            sent: whether anything may have reached the forge.
            created: False if the forge definitely made nothing of a write.
        """
        end, self._end = self._end, None
        if end is not None:
            end(reading, sent, created)


@dataclass(eq=False, slots=True)
class _Waiter:
    container: str
    deadline: float
    event: trio.Event = field(default_factory=trio.Event)
    key: Hashable = None
    admission: Admission | None = None
    boarded: AnyFlight | None = None
    refusal: RateLimited | WritesPaused | None = None

    def is_decided(self) -> bool:
        return self.admission is not None or self.boarded is not None or self.refusal is not None


@dataclass(eq=False, slots=True)
class _Lane:
    """Those who wait for the same: a queue for each container, served in turns."""

    kind: Kind
    resource: str
    queues: OrderedDict[str, deque[_Waiter]] = field(default_factory=OrderedDict[str, deque[_Waiter]])
    opens_at: float = -math.inf

    def add(self, waiter: _Waiter) -> None:
        self.queues.setdefault(waiter.container, deque()).append(waiter)

    def take(self) -> _Waiter:
        """The next one; its container goes to the end of the row."""
        container, queue = self.queues.popitem(last=False)
        waiter = queue.popleft()
        if queue:
            self.queues[container] = queue
        return waiter

    def discard(self, waiter: _Waiter) -> None:
        queue = self.queues.get(waiter.container)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self.queues[waiter.container]

    def ahead_of(self, container: str) -> int:
        """How many go before a newcomer of ``container``: its own, and as many of each other container's."""
        own = len(self.queues.get(container, ()))
        return own + sum(min(len(queue), own + 1) for name, queue in self.queues.items() if name != container)

    def after(self, deadline: float) -> list[_Waiter]:
        """Those whose deadline comes before ``deadline``."""
        return [waiter for queue in self.queues.values() for waiter in queue if waiter.deadline < deadline]


class Gate:
    """What a request must pass before it may spend one credential's limits."""

    def __init__(
        self,
        budget: Budget,
        *,
        name: str = "",
        concurrency: int = CONCURRENCY,
        queue_per_container: int = QUEUE_PER_CONTAINER,
        flights: Flights[Any] | None = None,
    ) -> None:
        """Open a gate over a budget.

        Args:
            budget: the arithmetic; it belongs to this gate alone from now on.
            name: for logs and ``statistics``, such as ``github.com/author``.
            concurrency: the most requests in flight at once.
            queue_per_container: the most requests of one container that may wait.
            flights: the reads under way that may be shared; they are this gate's from now on.
        """
        self._budget = budget
        self._quarantine = Quarantine()
        self._name = name
        self._concurrency = concurrency
        self._queue_per_container = queue_per_container
        self._in_flight = 0
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._queued: Counter[str] = Counter()
        self._timekeeper: _Waiter | None = None
        self.flights: Flights[Any] = Flights() if flights is None else flights
        self._alike: dict[Hashable, set[_Waiter]] = {}
        self._wakes_at = math.inf

    async def admit(
        self, container: str, kind: Kind, resource: str = "core", *, deadline: float = math.inf
    ) -> Admission:
        """Wait for leave to send one request, until ``deadline`` or that of the cancel scopes around.

        Raises:
            RateLimited: at once, if the turn would come after the deadline or the container's queue is full. Nothing
                was sent.
            WritesPaused: likewise, a write while writes are paused.
        """
        decided = await self._decision(self._lane(kind, resource), container, None, deadline)
        if decided.admission is None:
            raise decided.refusal or RateLimited(_RETRY_SECONDS, _LET_GO, outcome="not_sent")
        return decided.admission

    async def admit_or_board(
        self, container: str, kind: Kind, key: Hashable, resource: str = "core", *, deadline: float = math.inf
    ) -> Admission | AnyFlight:
        """As ``admit``, for a read that others may share; ``key`` is the same for the same read.

        Returns:
            Leave to send it, with a ``flight`` that the caller must end and close; or the flight of another caller's.
        """
        flight = self.flights.find(key)
        if flight is not None:
            return flight
        decided = await self._decision(self._lane(kind, resource), container, key, deadline)
        if decided.boarded is not None:
            return decided.boarded
        if decided.admission is None:
            raise decided.refusal or RateLimited(_RETRY_SECONDS, _LET_GO, outcome="not_sent")
        return decided.admission

    async def _decision(self, lane: _Lane, container: str, key: Hashable, deadline: float) -> _Waiter:
        """A waiter on which has been decided; raises as ``admit``."""
        waiter = _Waiter(container, min(deadline, trio.current_effective_deadline()), key=key)
        now = trio.current_time()
        delay = self._opens_in(lane, now)
        if not lane.queues and delay <= 0:
            self._let_go(lane, waiter, now)
            return waiter
        self._refuse_hopeless(lane, waiter, now, delay)
        lane.add(waiter)
        self._queued[container] += 1
        if key is not None:
            self._alike.setdefault(key, set()).add(waiter)
        try:
            await self._wait(waiter)
        except BaseException:
            if waiter.admission is not None:
                waiter.admission.settle(sent=False)
                if waiter.admission.flight is not None:
                    self.flights.close(waiter.admission.flight)
            raise
        finally:
            self._leave(lane, waiter)
        return waiter

    def throttled(self, retry_after: float | None, why: str) -> float:
        """The forge asked to be left alone. Returns the seconds until the gate opens.

        Those who wait and cannot wait that long are refused at once.
        """
        now = trio.current_time()
        was_closed = self._budget.status(now).closed_for > 0
        delay = self._budget.throttle(retry_after, now)
        if not was_closed:
            log.warning("the forge throttles this credential", gate=self._name, seconds=round(delay), why=why)
        self._changed()
        return delay

    def exhausted(self, resource: str, resets_in: float, asked: str = "core") -> float:
        """The forge refused for want of ``resource`` what was admitted as ``asked``. Returns the seconds it takes."""
        delay = self._budget.exhaust(resource, resets_in, trio.current_time(), asked=asked)
        self._changed()
        return delay

    def mistaken(self, why: str) -> None:
        """The forge answered a write with something else: no other one goes for a while.

        Those who wait with one and cannot wait that long are refused at once.
        """
        now = trio.current_time()
        was_paused = self._quarantine.paused_for(now) > 0
        seconds = self._quarantine.pause(now)
        if not was_paused:
            log.error("writes under a credential are paused", gate=self._name, seconds=round(seconds), why=why)
        self._changed()

    def proved(self) -> None:
        """The forge answered a write with what it was about."""
        if self._quarantine.prove(trio.current_time()):
            log.info("writes under a credential are answered rightly again", gate=self._name)
            self._changed()

    def check_writes(self) -> None:
        """Right before a write's first byte: the pause may have begun since it was admitted.

        Raises:
            WritesPaused: it has. Nothing was sent.
        """
        seconds = self._quarantine.paused_for(trio.current_time())
        if seconds > 0:
            raise WritesPaused(seconds)

    def statistics(self) -> GateStatistics:
        """How the gate stands."""
        now = trio.current_time()
        return GateStatistics(
            name=self._name,
            in_flight=self._in_flight,
            waiting=dict(self._queued),
            budget=self._budget.status(now),
            paused_for=self._quarantine.paused_for(now),
            on_trial=self._quarantine.on_trial,
        )

    # --- deciding -----------------------------------------------------------------------------------------------

    def _lane(self, kind: Kind, resource: str) -> _Lane:
        key = (_RANKS[kind], resource)
        if key not in self._lanes:
            self._lanes[key] = _Lane(kind, resource)
            self._lanes = dict(sorted(self._lanes.items()))
        return self._lanes[key]

    def _opens_in(self, lane: _Lane, now: float) -> float:
        if self._in_flight >= self._concurrency:
            return math.inf
        held = self._quarantine.opens_in(now) if lane.kind == "write" else 0.0
        return max(held, self._budget.opens_in(lane.kind, lane.resource, now))

    def _let_go(self, lane: _Lane, waiter: _Waiter, now: float) -> None:
        """Admit one, and have those who wait for the same board its flight."""
        self._in_flight += 1
        self._budget.spend(lane.kind, lane.resource, now)
        if lane.kind == "write":
            self._quarantine.begin()
        waiter.admission = Admission(partial(self._settle, lane))
        if waiter.key is None:
            return
        flight: AnyFlight = Flight(waiter.key)
        waiter.admission.flight = flight
        self.flights.depart(flight)
        for other in self._alike.pop(waiter.key, ()):
            if other is not waiter and not other.is_decided():
                other.boarded = flight
                other.event.set()
                for each in self._lanes.values():
                    each.discard(other)

    def _settle(
        self,
        lane: _Lane,
        reading: Reading | None,
        sent: bool,  # noqa: FBT001 -- a callback
        created: bool,  # noqa: FBT001 -- likewise
    ) -> None:
        self._in_flight -= 1
        now = trio.current_time()
        self._budget.settle(lane.kind, lane.resource, now, reading=reading, sent=sent, created=created)
        if lane.kind == "write":
            self._quarantine.end()
        self._changed()

    def _refuse_hopeless(self, lane: _Lane, waiter: _Waiter, now: float, delay: float) -> None:
        if self._queued[waiter.container] >= self._queue_per_container:
            wait = delay if math.isfinite(delay) else _RETRY_SECONDS
            raise RateLimited(
                max(wait, _RETRY_SECONDS), "too many calls of this container wait for the forge", outcome="not_sent"
            )
        pace = self._budget.settings.creation_interval if lane.kind == "write" else 0.0
        turn = now + delay + lane.ahead_of(waiter.container) * pace
        if math.isfinite(delay) and turn > waiter.deadline:
            raise self._too_late(lane, now, turn - now)

    def _changed(self) -> None:
        """Something opened or closed: decide anew, and have the timekeeper look at its clock again."""
        self._pump()
        if self._timekeeper is not None:
            self._timekeeper.event.set()

    def _pump(self) -> float:
        """Let go whoever may. Returns the seconds until time alone lets another go, ``inf`` if it never does."""
        now = trio.current_time()
        soonest = math.inf
        for lane in self._lanes.values():
            while lane.queues:
                delay = self._opens_in(lane, now)
                if delay > 0:
                    soonest = min(soonest, delay)
                    self._refuse_late(lane, now, delay)
                    break
                waiter = lane.take()
                self._let_go(lane, waiter, now)
                waiter.event.set()
        return soonest

    def _refuse_late(self, lane: _Lane, now: float, delay: float) -> None:
        opens_at = now + delay
        if not math.isfinite(opens_at) or opens_at <= lane.opens_at:
            return
        lane.opens_at = opens_at
        for waiter in lane.after(opens_at):
            lane.discard(waiter)
            waiter.refusal = self._too_late(lane, now, delay)
            waiter.event.set()

    def _too_late(self, lane: _Lane, now: float, seconds: float) -> RateLimited | WritesPaused:
        if lane.kind == "write" and self._quarantine.paused_for(now) > 0:
            return WritesPaused(seconds)
        return RateLimited(
            seconds, "the forge's limits leave no room for this call before its deadline", outcome="not_sent"
        )

    # --- waiting ------------------------------------------------------------------------------------------------

    async def _wait(self, waiter: _Waiter) -> None:
        while True:
            if self._timekeeper is None:
                self._timekeeper = waiter
            delay = self._pump()
            if waiter.is_decided():
                return
            wakes_at = trio.current_time() + delay
            if self._timekeeper is waiter:
                self._wakes_at = wakes_at
            elif wakes_at < self._wakes_at:
                self._timekeeper.event.set()
            with trio.move_on_after(delay if self._timekeeper is waiter else math.inf):
                await waiter.event.wait()
            if waiter.is_decided():
                return
            waiter.event = trio.Event()

    def _leave(self, lane: _Lane, waiter: _Waiter) -> None:
        lane.discard(waiter)
        alike = self._alike.get(waiter.key)
        if alike is not None:
            alike.discard(waiter)
            if not alike:
                del self._alike[waiter.key]
        self._queued[waiter.container] -= 1
        if not self._queued[waiter.container]:
            del self._queued[waiter.container]
        if self._timekeeper is waiter:
            self._timekeeper = next(
                (queue[0] for other in self._lanes.values() for queue in other.queues.values()), None
            )
            self._wakes_at = math.inf
            if self._timekeeper is not None:
                self._timekeeper.event.set()
