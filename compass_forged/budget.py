"""The arithmetic of one credential's limits at a forge. Sans-IO: every method is told the time and none waits.

Times are monotonic seconds. The rules:

* what a forge never told is no limit (an enterprise server without rate headers is not one with nothing left);
* a request in flight counts as spent, since its answer may still be on its way when the next one asks;
* every closure names its own end, and opens by itself when that has come;
* nothing that a server says can close a budget for more than an hour, or for less than a second.

Sources: GitHub's "Rate limits for the REST API" and "Best practices for using the REST API".
"""

import math
import re
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

from compass_forged.rolling import RollingLimit

Kind: TypeAlias = Literal["write", "read", "background"]
"""What a request is for: writes go before reads, and background reads leave the larger reserve."""

WRITE_POINTS: Final = 5
"""What a write weighs in GitHub's limit of points a minute; a read weighs 1."""

DELAY_MIN_SECONDS: Final = 1.0
DELAY_MAX_SECONDS: Final = 3600.0
DELAY_UNKNOWN_SECONDS: Final = 60.0
"""How long a limit counts whose end the server did not tell."""

RESOURCES_MAX: Final = 32
"""How many limits are kept that no request was for: a forge that names another one each time fills no memory."""

_SAME_WINDOW_SECONDS = 5.0  # the Date header has whole seconds, and answers overtake one another
_LATE_SECONDS = 60.0  # no answer is on its way for longer
_NEGLIGIBLE_SECONDS = 1e-6  # what float rounding can leave of a delay that has passed
_INTEGER = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """The limits that we keep on our own side.

    Attributes:
        reserve: how many requests of each limit are left untouched, for others who share the credential.
        background_share: the share of a limit that background reads leave untouched.
        points_per_minute: the most points in any 60 seconds: a write weighs 5, a read 1. A third of them may go at
            once; the rest is spread over the minute, since a minute that is used up in its first seconds shuts
            everybody out for the others.
        creations_per_minute: the most writes in any 60 seconds.
        creations_per_hour: the most writes in any 3,600 seconds.
        creation_burst: how many writes may follow one another at once.
        creation_interval: seconds between writes once the burst is used up.
        throttle_first: seconds to stay away after a secondary limit that named no time; doubles each time.
        throttle_max: the end of that doubling, in seconds; after as long without one it starts anew.
    """

    reserve: int = 10
    background_share: float = 0.1
    points_per_minute: int = 900
    creations_per_minute: int = 80
    creations_per_hour: int = 500
    creation_burst: int = 10
    creation_interval: float = 1.0
    throttle_first: float = 60.0
    throttle_max: float = 900.0

    def __post_init__(self) -> None:
        """Refuse settings under which nothing could ever pass."""
        positive = (
            self.creations_per_minute,
            self.creations_per_hour,
            self.creation_burst,
            self.throttle_first,
            self.throttle_max,
        )
        if min(positive) <= 0 or min(self.reserve, self.background_share, self.creation_interval) < 0:
            raise ValueError("budget: limits must be positive, and reserve, share and interval not negative")
        if self.points_per_minute < WRITE_POINTS:
            raise ValueError(f"budget: points_per_minute must be {WRITE_POINTS} at least, the weight of one write")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer said of a limit.

    Attributes:
        resource: the limit's name.
        limit: how much a window holds; None where the answer does not tell.
        remaining: how much of it is left.
        resets_in: seconds from the answer on.
        cost: the most that one request takes of it.
        shared: whether every request takes of it, whatever resource it was admitted for.
        also: what the same answer said of further limits.
    """

    resource: str
    limit: int | None
    remaining: int
    resets_in: float
    cost: int = 1
    shared: bool = False
    also: tuple["Reading", ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One limit as it stands: None where the forge has not told."""

    resource: str
    limit: int | None
    remaining: int | None
    resets_in: float | None
    in_flight: int


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """A budget as it stands, for an operator. Times are in seconds from now."""

    closed_for: float
    creations_last_hour: int
    points_last_minute: int
    resources: tuple[ResourceStatus, ...]


@dataclass(eq=False, slots=True)
class _Bucket:
    limit: int | None = None
    remaining: int | None = None
    reset_at: float | None = None
    in_flight: int = 0
    cost: int = 1
    shared: bool = False
    asked: bool = False
    held_until: float = -math.inf

    def roll(self, now: float) -> None:
        """Past its reset a window is over: what the next one holds is the limit, until an answer tells more."""
        if self.reset_at is not None and now >= self.reset_at:
            self.remaining = self.limit
            self.reset_at = None

    def observe(self, reading: Reading, now: float) -> None:
        """Take over a reading; one that is late, or of a window that is over, never raises what remains."""
        reset_at = now + reading.resets_in
        if self.remaining is None or self.reset_at is None or reset_at > self.reset_at + _SAME_WINDOW_SECONDS:
            self.remaining = reading.remaining
            self.reset_at = reset_at
        elif reset_at >= self.reset_at - _SAME_WINDOW_SECONDS:
            self.remaining = min(self.remaining, reading.remaining)
            self.reset_at = max(self.reset_at, reset_at)
        elif reading.resets_in > _LATE_SECONDS:
            # Too far ahead for a window that is over: the end that was told first is wrong, or another account's.
            self.remaining = min(self.remaining, reading.remaining)
        self.limit = reading.limit if reading.limit is not None else self.limit
        self.cost, self.shared = reading.cost, reading.shared

    def opens_in(self, floor: int, in_flight: int, now: float) -> float:
        self.roll(now)
        return max(self.held_until - now, self._resets_in(floor, in_flight, now))

    def _resets_in(self, floor: int, in_flight: int, now: float) -> float:
        if self.remaining is None or self.remaining - in_flight * self.cost >= floor + self.cost:
            return 0.0
        if self.reset_at is not None:
            return self.reset_at - now
        # A fresh window of which nothing is known yet: one request at a time finds out.
        return math.inf if in_flight else 0.0


@dataclass(slots=True)
class Budget:
    """What one credential may still spend. The caller asks ``opens_in``, then ``spend``s, then ``settle``s."""

    settings: BudgetSettings = field(default_factory=BudgetSettings)
    _buckets: dict[str, _Bucket] = field(default_factory=dict[str, _Bucket])
    _in_flight: int = 0
    _paced_until: float = -math.inf
    _points_paced_until: float = -math.inf
    _point_seconds: float = 0.0
    _points_burst: int = 0
    _closed_until: float = -math.inf
    _strikes: int = 0
    _points: RollingLimit = field(init=False)
    _minute: RollingLimit = field(init=False)
    _hour: RollingLimit = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing spent."""
        self._points = RollingLimit(self.settings.points_per_minute, 60.0)
        self._points_burst = max(WRITE_POINTS, self.settings.points_per_minute // 3)
        rest = max(1, self.settings.points_per_minute - self._points_burst)
        self._point_seconds = 60.0 / rest
        self._minute = RollingLimit(self.settings.creations_per_minute, 60.0)
        self._hour = RollingLimit(self.settings.creations_per_hour, 3600.0)

    def opens_in(self, kind: Kind, resource: str, now: float) -> float:
        """Seconds until a request of this kind may go: 0 now; ``inf`` if only an answer in flight can tell."""
        delay = max(0.0, self._closed_until - now, self._points_open_in(kind, now))
        for bucket in self._drawn_on(resource):
            delay = max(delay, bucket.opens_in(self._floor(kind, bucket), self._spent_on(bucket), now))
        if kind == "write":
            delay = max(delay, self._creation_opens_in(now))
        return delay if delay > _NEGLIGIBLE_SECONDS else 0.0

    def spend(self, kind: Kind, resource: str, now: float) -> None:
        """Count a request as sent. Every ``spend`` needs one ``settle``."""
        bucket = self._bucket(resource)
        bucket.asked = True
        bucket.in_flight += 1
        self._in_flight += 1
        self._points.begin(_points(kind))
        self._points_paced_until = max(self._points_paced_until, now) + _points(kind) * self._point_seconds
        if kind == "write":
            self._minute.begin()
            self._hour.begin()
            self._paced_until = max(self._paced_until, now) + self.settings.creation_interval

    def settle(
        self,
        kind: Kind,
        resource: str,
        now: float,
        *,
        reading: Reading | None = None,
        sent: bool = True,
        created: bool = True,
    ) -> None:
        """End what ``spend`` began.

        Args:
            kind: as it was given to ``spend``.
            resource: as it was given to ``spend``.
            now: the time.
            reading: what the answer said of its limit; it may name another resource. None if it said nothing.
            sent: whether anything reached the forge; a request that did not is given back whole.
            created: False if the forge definitely made nothing: such a write is none of the creations that a minute
                and an hour may have, though it keeps its turn in the pace.
        """
        self._bucket(resource).in_flight -= 1
        self._in_flight -= 1
        self._points.end(now, _points(kind), counts=sent)
        if not sent:
            self._points_paced_until -= _points(kind) * self._point_seconds
        if kind == "write":
            self._minute.end(now, counts=sent and created)
            self._hour.end(now, counts=sent and created)
            if not sent:  # the forge has not been asked at all: its turn in the pace is given back
                self._paced_until -= self.settings.creation_interval
        if sent and reading is None:
            for bucket in self._drawn_on(resource):
                if bucket.remaining is not None:
                    bucket.remaining = max(0, bucket.remaining - bucket.cost)
        if reading is not None:
            for one in (reading, *reading.also):
                told = self._bucket(one.resource)
                told.roll(now)
                told.observe(one, now)

    def throttle(self, retry_after: float | None, now: float) -> float:
        """The forge wants to be left alone: close everything. Returns the seconds until it opens.

        Answers to requests that went out before the closure do not lengthen it, unless they name a later end.
        """
        if retry_after is None:
            if now < self._closed_until:
                return self._closed_until - now
            if now - self._closed_until >= self.settings.throttle_max:
                self._strikes = 0
            retry_after = min(self.settings.throttle_max, self.settings.throttle_first * 2.0**self._strikes)
            self._strikes = min(self._strikes + 1, 32)
        self._closed_until = max(self._closed_until, now + retry_after)
        # No burst when it opens: those who waited would all go in the same instant, and be throttled again.
        self._paced_until = max(self._paced_until, self._closed_until + self._burst_seconds())
        return self._closed_until - now

    def exhaust(self, resource: str, resets_in: float, now: float, *, asked: str = "") -> float:
        """The forge refused for want of ``resource``: nothing remains until then. Returns the seconds until then.

        Where the request was one for ``asked``, another resource that takes nothing of the refused one, what is alike
        would meet the same refusal at once: it is held as long, whatever remains of ``asked`` itself.
        """
        if asked and self._buckets.get(resource) not in self._drawn_on(asked):
            held = self._bucket(asked)
            held.held_until = max(held.held_until, now + resets_in)
        bucket = self._bucket(resource)
        bucket.remaining = 0
        bucket.reset_at = now + resets_in
        return resets_in

    def status(self, now: float) -> BudgetStatus:
        """How the budget stands."""
        for bucket in self._buckets.values():
            bucket.roll(now)
        return BudgetStatus(
            closed_for=max(0.0, self._closed_until - now),
            creations_last_hour=self._hour.used(now),
            points_last_minute=self._points.used(now),
            resources=tuple(
                ResourceStatus(
                    resource=name,
                    limit=bucket.limit,
                    remaining=bucket.remaining,
                    resets_in=None if bucket.reset_at is None else bucket.reset_at - now,
                    in_flight=self._spent_on(bucket),
                )
                for name, bucket in sorted(self._buckets.items())
            ),
        )

    def _bucket(self, resource: str) -> _Bucket:
        """A limit by its name; a new one takes the place of the one told first, where there are too many."""
        if resource not in self._buckets:
            told = [name for name, bucket in self._buckets.items() if not (bucket.asked or bucket.shared)]
            if len(told) >= RESOURCES_MAX:
                del self._buckets[told[0]]
            self._buckets[resource] = _Bucket()
        return self._buckets[resource]

    def _drawn_on(self, resource: str) -> list[_Bucket]:
        """The limits that a request for ``resource`` takes of, as far as they are known."""
        return [bucket for name, bucket in self._buckets.items() if name == resource or bucket.shared]

    def _spent_on(self, bucket: _Bucket) -> int:
        """How many requests in flight take of a limit."""
        return self._in_flight if bucket.shared else bucket.in_flight

    def _floor(self, kind: Kind, bucket: _Bucket) -> int:
        reserve = self.settings.reserve * bucket.cost
        if kind != "background" or bucket.limit is None:
            return reserve
        return max(reserve, math.ceil(bucket.limit * self.settings.background_share))

    def _burst_seconds(self) -> float:
        return (self.settings.creation_burst - 1) * self.settings.creation_interval

    def _points_open_in(self, kind: Kind, now: float) -> float:
        pace = self._points_paced_until - (self._points_burst - 1) * self._point_seconds - now
        return max(pace, self._points.opens_in(now, _points(kind)))

    def _creation_opens_in(self, now: float) -> float:
        pace = self._paced_until - self._burst_seconds() - now
        return max(pace, self._minute.opens_in(now), self._hour.opens_in(now))


def _points(kind: Kind) -> int:
    return WRITE_POINTS if kind == "write" else 1


def served_at(date_header: str | None, wall_now: float) -> float:
    """When an answer was made, as epoch seconds by the server's own clock; ``wall_now`` where it does not say."""
    moment = _http_date(date_header)
    return wall_now if moment is None else moment


def reset_delay(reset: str | None, served: float) -> float:
    """Seconds until a limit resets that is given in epoch seconds.

    A missing or unreadable time is ``DELAY_UNKNOWN_SECONDS``; one in the past or absurdly far is drawn into
    [``DELAY_MIN_SECONDS``, ``DELAY_MAX_SECONDS``]. One second is added, as the server counts in whole ones.
    """
    seconds = parse_count(reset)
    if seconds is None:
        return DELAY_UNKNOWN_SECONDS
    return _clamp(seconds - served + 1.0)


def retry_delay(retry_after: str | None, served: float) -> float | None:
    """Seconds that a ``Retry-After`` names, as a number or a date, within the same bounds; None if it names none."""
    if retry_after is None:
        return None
    seconds = parse_count(retry_after)
    if seconds is not None:
        return _clamp(float(seconds))
    moment = _http_date(retry_after)
    return None if moment is None else _clamp(moment - served)


def parse_count(text: str | None) -> int | None:
    """A header's non-negative integer in ASCII digits; None for anything else."""
    trimmed = "" if text is None else text.strip()
    return int(trimmed) if _INTEGER.fullmatch(trimmed) else None


def _clamp(delay: float) -> float:
    return min(DELAY_MAX_SECONDS, max(DELAY_MIN_SECONDS, delay))


def _http_date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return aware.timestamp()
    except (ValueError, OverflowError):
        return None
