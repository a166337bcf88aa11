"""Rate limits as GitHub counts them: a primary limit per account and hour, and a throttle on creating content.

Sans-IO: the forge's time comes in as an aware datetime. Requests without a valid token share one account, as
requests from one address do on GitHub. An hour begins with the first request that counts.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

from compass_forged.emulator.refusals import RATE_DOCS, JsonObject, Refused, refusal

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

_SECONDARY = (
    "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. "
    "Please retry your request again later."
)


@dataclass(slots=True)
class LimitSettings:
    """What is allowed.

    Attributes:
        per_hour: requests an hour for each account; None switches primary limits off, as on a GHES by default.
        anonymous_per_hour: requests an hour without a token.
        refusal_status: 403 or 429; GitHub uses both.
        creations_per_minute: how many creations GitHub's secondary limit lets through (80 on GitHub); None: any.
        creations_per_hour: likewise (500 on GitHub).
    """

    per_hour: int | None = 5000
    anonymous_per_hour: int = 60
    refusal_status: int = 403
    creations_per_minute: int | None = None
    creations_per_hour: int | None = None


@dataclass(slots=True)
class Window:
    """One account's hour: how much of ``limit`` is used, and when the count starts anew."""

    limit: int
    used: int
    reset: datetime

    @property
    def remaining(self) -> int:
        """What is left."""
        return max(self.limit - self.used, 0)

    def as_json(self) -> JsonObject:
        """The window as ``GET /rate_limit`` shows it."""
        reset = int(self.reset.timestamp())
        return {"limit": self.limit, "used": self.used, "remaining": self.remaining, "reset": reset}

    def headers(self) -> dict[str, str]:
        """The window as the headers of every answer show it."""
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-reset": str(int(self.reset.timestamp())),
            "x-ratelimit-resource": "core",
        }


class Limits:
    """Counts requests and creations by account id; None is everybody without a token."""

    def __init__(self, settings: LimitSettings) -> None:
        self.settings = settings
        self._windows: dict[int | None, Window] = {}
        self._creations: dict[int, deque[datetime]] = {}

    def window(self, account_id: int | None, now: datetime) -> Window | None:
        """The account's window as it stands; None where limits are off."""
        per_hour = self.settings.per_hour
        if per_hour is None:
            return None
        known = self._windows.get(account_id)
        if known is not None and now < known.reset:
            return known
        limit = self.settings.anonymous_per_hour if account_id is None else per_hour
        return Window(limit, 0, now + HOUR)

    def charge(self, account_id: int | None, now: datetime) -> Window | None:
        """Count one request and return the window after it. A request beyond the limit is not counted."""
        window = self.window(account_id, now)
        if window is not None:
            window.used = min(window.used + 1, window.limit)
            self._windows[account_id] = window
        return window

    def set_remaining(self, account_id: int | None, remaining: int, now: datetime) -> None:
        """Put the account ``remaining`` requests before its limit."""
        window = self.window(account_id, now)
        if window is not None:
            window.used = max(window.limit - remaining, 0)
            self._windows[account_id] = window

    def check(self, account_id: int | None, now: datetime, request_id: str) -> None:
        """Refuse the request if the account's hour is used up."""
        window = self.window(account_id, now)
        if window is None or window.remaining:
            return
        whose = "your address" if account_id is None else f"user ID {account_id}"
        message = (
            f"API rate limit exceeded for {whose}. If you reach out to GitHub Support for help, "
            f"please include the request ID {request_id}."
        )
        raise refusal(self.settings.refusal_status, message, docs=RATE_DOCS)

    def check_creation(self, account_id: int, now: datetime) -> None:
        """Refuse a creation that comes too soon after too many others: the secondary limit."""
        past = self._creations.setdefault(account_id, deque())
        while past and past[0] <= now - HOUR:
            past.popleft()
        for allowed, span in ((self.settings.creations_per_minute, MINUTE), (self.settings.creations_per_hour, HOUR)):
            if allowed is None:
                continue
            recent = [each for each in past if each > now - span]
            if len(recent) >= allowed:
                raise _too_many(recent[-allowed] + span - now)

    def count_creation(self, account_id: int, now: datetime) -> None:
        """Remember a creation."""
        if self.settings.creations_per_minute is not None or self.settings.creations_per_hour is not None:
            self._creations.setdefault(account_id, deque()).append(now)


def _too_many(wait: timedelta) -> Refused:
    seconds = max(int(wait.total_seconds()), 1)
    return refusal(
        403,
        _SECONDARY,
        docs=f"{RATE_DOCS}#about-secondary-rate-limits",
        headers={"retry-after": str(seconds)},
    )
