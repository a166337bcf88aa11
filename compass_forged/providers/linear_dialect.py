"""How Linear speaks over HTTP: one path for everything, two limits, refusals in the body. Pure.

Source: Linear's "Rate limiting". All its ``Reset`` headers are in milliseconds. A refusal for a limit comes with 400,
or with 429 from what stands before it; requests and complexity points are two limits, and every request takes of both.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from compass_forged import __version__
from compass_forged.budget import Reading, parse_count, reset_delay, retry_delay, served_at
from compass_forged.errors import ForgeError, ForgeStatus, ForgeUnavailable
from compass_forged.providers.answers import decode_mended
from compass_forged.providers.dialect import Limit
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.providers.linear_documents import DEAREST_POINTS
from compass_forged.providers.linear_errors import GraphError, errors_of

API_KEY_PREFIX: Final = "lin_api_"
OAUTH_PREFIX: Final = "lin_oauth_"

_LIMITS: Final = (("requests", 1), ("complexity", DEAREST_POINTS))
"""The limits' names in headers, and the most that one request takes of each."""
_ENDPOINT: Final = "endpoint-requests"
_MILLISECOND_DIGITS: Final = 3
_TOO_MANY: Final = 429
_TOO_LARGE: Final = 413
_REQUEST_TIMEOUT: Final = 408


class _Data(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


_data_decoder = msgspec.json.Decoder(_Data)


class LinearDialect:
    """Implements ``Dialect`` for Linear."""

    def __init__(self, *, bearer: bool = False, wall_clock: Callable[[], float] = time.time) -> None:
        """Speak for one credential.

        Args:
            bearer: whether the token is an OAuth one, as far as its own prefix does not tell.
            wall_clock: stands in for the server's where an answer carries no Date; epoch seconds.
        """
        self._bearer = bearer
        self._wall_clock = wall_clock

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with every request."""
        return {"Accept": "application/json", "User-Agent": f"compass-forged/{__version__}"}

    def authorization(self, token: str) -> str:
        """An API key as it is, an OAuth token behind ``Bearer``. The prefix of either outweighs the configuration."""
        if token.startswith(API_KEY_PREFIX):
            return token
        return f"Bearer {token}" if self._bearer or token.startswith(OAUTH_PREFIX) else token

    def reading(self, answer: HttpAnswer) -> Reading | None:
        """What the headers of both limits say; None where there are none."""
        found = [reading for name, cost in _LIMITS if (reading := self._reading(answer, name, cost)) is not None]
        return replace(found[0], also=tuple(found[1:])) if found else None

    def limit(self, answer: HttpAnswer) -> Limit | None:
        """Whether this is a rate limit: by the body whatever the status, or by 429 whatever the body."""
        if answer.status != _TOO_MANY and not _refused(answer, lambda error: error.is_rate_limit):
            return None
        delay = retry_delay(answer.headers.get("retry-after"), self._served_at(answer))
        if delay is not None:
            return Limit("secondary", "requests", delay)
        used_up = [
            reading
            for name, cost in (*_LIMITS, (_ENDPOINT, 1))
            if (reading := self._reading(answer, name, cost)) is not None and reading.remaining == 0
        ]
        if not used_up:
            return Limit("secondary", "requests", None)
        last = max(used_up, key=lambda reading: reading.resets_in)
        if last.resource == _ENDPOINT:  # of one kind of request alone; the throttle is what keeps away from it
            return Limit("secondary", last.resource, last.resets_in)
        return Limit("primary", last.resource, last.resets_in)

    def refuses_credential(self, answer: HttpAnswer) -> bool:
        """401, and the errors that say the same with another status."""
        if answer.status == 401:  # noqa: PLR2004 -- Unauthorized
            return True
        return _refused(answer, lambda error: error.is_bad_credential)

    def refusal(self, answer: HttpAnswer) -> ForgeError | None:
        """What an answer without data amounts to; None where there is data, or none is to be had from the errors."""
        status = answer.status
        errors = errors_of(answer)
        if errors:
            return None if _has_data(answer) else errors[0].as_error(status)
        if 200 <= status < 300:  # noqa: PLR2004 -- the 2xx class
            return None
        if status == _TOO_LARGE:
            return ForgeStatus(status, "the request is too large for the forge")
        if 400 <= status < 500 and status not in {404, _REQUEST_TIMEOUT}:  # noqa: PLR2004 -- the 4xx class
            return ForgeStatus(status, "no reason given")
        # The one path of the API is always there: 404 without a word of Linear's is from something before it.
        return ForgeUnavailable(f"the forge answered {status}", outcome="unknown")

    def wanted(self, answer: HttpAnswer) -> Mapping[str, str]:  # noqa: ARG002 -- the port's shape
        """No header says what a credential lacks; the refusal's own words do."""
        return {}

    def place_request(self, path: tuple[str, ...]) -> HttpRequest | None:  # noqa: ARG002 -- the port's shape
        """Linear redirects nothing."""
        return None

    def place_name(self, answer: HttpAnswer) -> str:  # noqa: ARG002 -- the port's shape
        """Never asked, as ``place_request`` has nothing to ask."""
        return ""

    def leads_to_same(self, request: HttpRequest, path: tuple[str, ...]) -> bool:  # noqa: ARG002 -- the port's shape
        """Linear redirects nothing."""
        return False

    def moved(self, request: HttpRequest, repo: str) -> HttpRequest:  # noqa: ARG002 -- the port's shape
        """Never asked, as no new place is ever found."""
        return request

    def _reading(self, answer: HttpAnswer, name: str, cost: int) -> Reading | None:
        remaining = parse_count(_whole(answer, f"x-ratelimit-{name}-remaining"))
        if remaining is None:
            return None
        milliseconds = _whole(answer, f"x-ratelimit-{name}-reset")
        return Reading(
            resource=name,
            limit=parse_count(_whole(answer, f"x-ratelimit-{name}-limit")),
            remaining=remaining,
            resets_in=reset_delay(milliseconds[:-_MILLISECOND_DIGITS], self._served_at(answer)),
            cost=cost,
            shared=True,
        )

    def _served_at(self, answer: HttpAnswer) -> float:
        return served_at(answer.headers.get("date"), self._wall_clock())


def _whole(answer: HttpAnswer, name: str) -> str:
    """A header's number without its fraction: a property costs a tenth of a point. "" where there is none."""
    return answer.headers.get(name, "").strip().partition(".")[0]


def _refused(answer: HttpAnswer, for_it: Callable[[GraphError], bool]) -> bool:
    """Whether the request as a whole was refused, and for this.

    Of one that was carried out a part may be missing: a write that is done must not pass for one that was not.
    """
    found = [error for error in errors_of(answer) if for_it(error)]
    return any(not error.within for error in found) and not _has_data(answer)


def _has_data(answer: HttpAnswer) -> bool:
    """Whether a field of the root has come: then what is there must be looked at, errors or not."""
    try:
        data = decode_mended(_data_decoder, answer.body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return any(bytes(value) != b"null" for value in (data or {}).values())
