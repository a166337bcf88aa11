"""Linear's two limits: requests and complexity points, per user and hour. Sans-IO: the time comes in."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compass_forged.emulator.linear_refusals import rate_limited

HOUR = timedelta(hours=1)


@dataclass(slots=True)
class LinearLimitSettings:
    """What an hour holds for each user."""

    requests: int = 5000
    points: int = 2_000_000


@dataclass(slots=True)
class _Window:
    reset: datetime
    requests: int = 0
    points: float = 0.0


@dataclass(slots=True)
class LinearLimits:
    """Counts by user; all tokens of one share."""

    settings: LinearLimitSettings
    _windows: dict[str, _Window] = field(default_factory=dict[str, _Window])

    def check(self, user_id: str, now: datetime) -> None:
        """Refuse a request if the hour is used up."""
        window = self._window(user_id, now)
        if window.requests >= self.settings.requests:
            raise rate_limited(self.settings.requests, "requests")
        if window.points >= self.settings.points:
            raise rate_limited(self.settings.points, "complexity points")

    def charge(self, user_id: str, points: float, now: datetime) -> None:
        """Count one request."""
        window = self._window(user_id, now)
        window.requests += 1
        window.points += points

    def set_remaining(
        self, user_id: str, now: datetime, *, requests: int | None = None, points: int | None = None
    ) -> None:
        """Put a user so many requests or points before the limit."""
        window = self._window(user_id, now)
        if requests is not None:
            window.requests = self.settings.requests - requests
        if points is not None:
            window.points = self.settings.points - points

    def headers(self, user_id: str, now: datetime) -> dict[str, str]:
        """Both limits as every answer tells them; times are in milliseconds."""
        window = self._window(user_id, now)
        reset = str(int(window.reset.timestamp() * 1000))
        return {
            "x-ratelimit-requests-limit": str(self.settings.requests),
            "x-ratelimit-requests-remaining": str(max(0, self.settings.requests - window.requests)),
            "x-ratelimit-requests-reset": reset,
            "x-ratelimit-complexity-limit": str(self.settings.points),
            "x-ratelimit-complexity-remaining": str(max(0, int(self.settings.points - window.points))),
            "x-ratelimit-complexity-reset": reset,
        }

    def _window(self, user_id: str, now: datetime) -> _Window:
        window = self._windows.get(user_id)
        if window is None or now >= window.reset:
            window = self._windows[user_id] = _Window(now + HOUR)
        return window
