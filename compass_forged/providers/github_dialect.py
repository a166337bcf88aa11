"""How GitHub speaks over HTTP: headers, limits, refusals, and how a moved repository is found. Pure.

Sources: GitHub's "Rate limits for the REST API", "Troubleshooting the REST API" and "Getting started with the REST
API"; the error shapes besides those documented are as reported against public clients.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from compass_forged import __version__
from compass_forged.budget import Reading, parse_count, reset_delay, retry_delay, served_at
from compass_forged.errors import ForgeError, ForgeStatus, ForgeUnavailable
from compass_forged.observability import redact
from compass_forged.providers.dialect import Limit
from compass_forged.providers.http import HttpAnswer, HttpRequest

API_VERSION: Final = "2022-11-28"
"""The one version that github.com and every supported enterprise release know."""
DETAIL_MAX_CHARS: Final = 400

OWNER: Final = r"[A-Za-z0-9][A-Za-z0-9-]{0,38}"
NAME: Final = r"(?!\.{1,2}(?:/|\Z))(?![^/]*\.[Gg][Ii][Tt](?:/|\Z))[A-Za-z0-9._-]{1,100}"
"""Of a repository, "without the ``.git`` extension", as GitHub documents: none ends with it, and what asks for one may
be answered by the repository without it."""
REPO: Final = re.compile(f"{OWNER}/{NAME}", re.ASCII)

_FORBIDDEN = 403
_LIMIT_STATUSES = frozenset({403, 429})
_THROTTLED_CREATION = 422
# Wordings of throttles; the last one is what too many refused tokens lead to, valid ones included.
_SECONDARY = re.compile(
    r"secondary rate|abuse detection|submitted too quickly|maximum number of login attempts", re.IGNORECASE
)
_PRIMARY = re.compile(r"api rate limit exceeded", re.IGNORECASE)
_SECONDARY_PAGE = re.compile(r"secondary-rate-limits|abuse-rate-limits", re.IGNORECASE)
_BAD_CREDENTIALS = re.compile(r"bad credentials", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class _ErrorBody(msgspec.Struct):
    """The body of a refusal. ``errors`` comes as a list of objects, a list of strings, a bare string, or not at all."""

    message: object = ""
    documentation_url: object = ""
    errors: object = None


class _Repository(msgspec.Struct):
    full_name: str = ""


_error_decoder = msgspec.json.Decoder(_ErrorBody)
_repository_decoder = msgspec.json.Decoder(_Repository)


class GitHubDialect:
    """Implements ``Dialect`` for github.com and GitHub Enterprise Server."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        """``wall_clock`` stands in for the server's where an answer carries no Date; epoch seconds."""
        self._wall_clock = wall_clock

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with every request; GitHub answers 403 to one without a User-Agent."""
        return {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": API_VERSION,
            "User-Agent": f"compass-forged/{__version__}",
        }

    def authorization(self, token: str) -> str:
        """Bearer works for every kind of token."""
        return f"Bearer {token}"

    def reading(self, answer: HttpAnswer) -> Reading | None:
        """What the rate headers say; None where they are absent, as on an enterprise server without limits."""
        remaining = parse_count(answer.headers.get("x-ratelimit-remaining"))
        if remaining is None:
            return None
        return Reading(
            resource=_resource(answer),
            limit=parse_count(answer.headers.get("x-ratelimit-limit")),
            remaining=remaining,
            resets_in=reset_delay(answer.headers.get("x-ratelimit-reset"), self._served_at(answer)),
        )

    def limit(self, answer: HttpAnswer) -> Limit | None:  # noqa: PLR0911 -- a table: one return for each form
        """Whether this is a rate limit, tested in the order that GitHub documents. Any other 403 is a permission."""
        if answer.status not in _LIMIT_STATUSES and answer.status != _THROTTLED_CREATION:
            return None
        body = _error_body(answer)
        secondary = _SECONDARY.search(" ".join((str(body.message), *_complaints(body.errors)))) is not None
        if answer.status == _THROTTLED_CREATION:
            return Limit("secondary", _resource(answer), self._retry_after(answer)) if secondary else None
        delay = self._retry_after(answer)
        if delay is not None:
            return Limit("secondary", _resource(answer), delay)
        reading = self.reading(answer)
        if reading is not None and (reading.remaining == 0 or _PRIMARY.search(str(body.message))):
            return Limit("primary", reading.resource, reading.resets_in)
        if "retry-after" in answer.headers:
            return Limit("secondary", _resource(answer), None)  # meant, and unreadable
        if (
            secondary
            or _PRIMARY.search(str(body.message))
            or _SECONDARY_PAGE.search(str(body.documentation_url))
            or answer.status != _FORBIDDEN
        ):
            return Limit("secondary", _resource(answer), None)
        return None

    def refuses_credential(self, answer: HttpAnswer) -> bool:
        """401, and the 403 that says the same."""
        if answer.status == 401:  # noqa: PLR2004 -- Unauthorized
            return True
        return answer.status == _FORBIDDEN and bool(_BAD_CREDENTIALS.search(str(_error_body(answer).message)))

    def refusal(self, answer: HttpAnswer) -> ForgeError | None:
        """What any other answer amounts to: 2xx nothing yet, 4xx a definite no, all else a forge that failed."""
        status = answer.status
        if 200 <= status < 300:  # noqa: PLR2004 -- the 2xx class
            return None
        # 408 comes from whatever stands before the forge, and says nothing of what the forge did.
        if 400 <= status < 500 and status != 408:  # noqa: PLR2004 -- the 4xx class, Request Timeout
            return ForgeStatus(status, detail_of(answer))
        return ForgeUnavailable(f"the forge answered {status}", outcome="unknown")

    def wanted(self, answer: HttpAnswer) -> Mapping[str, str]:
        """The permissions any of which would do, and whether an organisation wants the token authorised for it."""
        found = {}
        if permissions := answer.headers.get("x-accepted-github-permissions", ""):
            found["permissions"] = permissions
        if answer.headers.get("x-github-sso", ""):
            found["organisation"] = "wants the token authorised for its single sign-on"
        return found

    def place_request(self, path: tuple[str, ...]) -> HttpRequest | None:
        """``/repositories/ID/...``, the form of GitHub's redirects, or ``/repos/OWNER/NAME/...``."""
        match path:
            case ("repositories", number, *_) if parse_count(number) is not None:
                return HttpRequest("GET", ("repositories", number))
            case ("repos", owner, name, *_) if REPO.fullmatch(f"{owner}/{name}"):
                return HttpRequest("GET", ("repos", owner, name))
            case _:
                return None

    def place_name(self, answer: HttpAnswer) -> str:
        """The repository's ``full_name``, if it has the grammar of one."""
        try:
            name = _repository_decoder.decode(answer.body).full_name
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        return name if REPO.fullmatch(name) else ""

    def leads_to_same(self, request: HttpRequest, path: tuple[str, ...]) -> bool:
        """What stands below the repository is the same: an issue that was transferred has another number there."""
        match path:
            case ("repositories", _, *below) | ("repos", _, _, *below):
                return tuple(below) == request.path[3:]
            case _:
                return False

    def moved(self, request: HttpRequest, repo: str) -> HttpRequest:
        """The same request below ``/repos/OWNER/NAME`` of another repository."""
        owner, _, name = repo.partition("/")
        return HttpRequest(request.method, ("repos", owner, name, *request.path[3:]), request.query, request.json)

    def _served_at(self, answer: HttpAnswer) -> float:
        return served_at(answer.headers.get("date"), self._wall_clock())

    def _retry_after(self, answer: HttpAnswer) -> float | None:
        return retry_delay(answer.headers.get("retry-after"), self._served_at(answer))


def detail_of(answer: HttpAnswer) -> str:
    """The forge's own words in one line: its message, then each complaint once; "" if it gave none."""
    body = _error_body(answer)
    complaints = list(dict.fromkeys(_complaints(body.errors)))
    message = body.message if isinstance(body.message, str) else ""
    text = ": ".join(part for part in (message, "; ".join(complaints)) if part)
    flat = " ".join(_UNPRINTABLE.sub(" ", redact(text)).split())
    return flat if len(flat) <= DETAIL_MAX_CHARS else flat[: DETAIL_MAX_CHARS - 1] + "…"


def _resource(answer: HttpAnswer) -> str:
    word = answer.headers.get("x-ratelimit-resource", "")
    return word if re.fullmatch(r"[a-z0-9_]{1,40}", word) else "core"


def _error_body(answer: HttpAnswer) -> _ErrorBody:
    """The body of a refusal; empty where it is none, such as a proxy's HTML page."""
    try:
        return _error_decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ErrorBody()


def _complaints(errors: object) -> Iterator[str]:
    for item in errors if isinstance(errors, list) else [errors]:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield _complaint(item)


def _complaint(item: Mapping[object, object]) -> str:
    """One object of ``errors``: its message, or else what is wrong with which field of what, and the value if told."""
    message = item.get("message")
    if isinstance(message, str) and message:
        return message
    place = ".".join(str(item[key]) for key in ("resource", "field") if item.get(key))
    value = item.get("value")
    shown = f" ({value})" if isinstance(value, str | int) and value != "" else ""
    return f"{place or 'request'}: {item.get('code') or 'refused'}{shown}"
