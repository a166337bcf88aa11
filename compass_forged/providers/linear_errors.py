"""What Linear's ``errors`` amount to. Pure.

The HTTP status decides nothing here: Linear sends errors with 200 and with 400, and data beside them. Of an error its
``extensions.type`` counts first, then its ``extensions.code``, then its words.

Sources: Linear's "Rate limiting" and "Working with the GraphQL API", and ``packages/sdk/src/error.ts`` of its SDK; some
wordings are as reported against public clients.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from compass_forged.errors import BadRequest, ForgeError, ForgePrecondition, ForgeStatus, ForgeUnavailable
from compass_forged.observability import redact
from compass_forged.providers.answers import decode_mended
from compass_forged.providers.http import HttpAnswer

DETAIL_MAX_CHARS: Final = 400
_TEXT_MAX_CHARS: Final = 4000
_ERRORS_MAX: Final = 20

_RATE_LIMITED: Final = frozenset({"ratelimited"})
_AUTHENTICATION: Final = frozenset({"authentication error", "authentication_error"})
_FORBIDDEN: Final = frozenset({"forbidden"})
_OUR_FAULT: Final = frozenset({"graphql error", "graphql_validation_failed", "graphql_parse_failed"})
_PRECONDITION: Final = frozenset({"usage limit exceeded", "feature not accessible"})
_THEIR_FAULT: Final = frozenset(
    {"lock timeout", "internal error", "internal_server_error", "network error", "bootstrap error", "unknown", "other"}
)
_INVALID: Final = frozenset({"invalid input", "invalid_input", "input_error", "user error", "bad_user_input"})

_NOT_FOUND: Final = re.compile(r"entity not found|could not find referenced", re.IGNORECASE)
_EXISTS: Final = re.compile(r"\bentity\b.{0,100}\balready exists|\bwith id \S+ already exists", re.IGNORECASE)
_TOO_COMPLEX: Final = re.compile(r"query (?:is )?too complex", re.IGNORECASE)
_SCOPE: Final = re.compile(r"invalid scope", re.IGNORECASE)
_KEY_AS_BEARER: Final = re.compile(r"api key as a bearer token", re.IGNORECASE)
_ONE_OF_A_GROUP: Final = re.compile(r"not exclusive child labels|only one label in a group", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class EntityExists(ForgeStatus):
    """Something has the id under which something new was to be made: an attempt that went before made it."""

    def __init__(self, detail: str) -> None:
        super().__init__(409, detail)


class ExclusiveLabels(ForgeStatus):
    """Of the labels that were asked for, two belong to a group that gives an issue only one."""

    def __init__(self, detail: str) -> None:
        super().__init__(422, detail)


class TeamGone(ForgeStatus):
    """The team that a request named by its id is not there, or no longer to be seen."""

    def __init__(self, detail: str) -> None:
        super().__init__(404, detail)


class _Body(msgspec.Struct):
    errors: object = None


_body_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class GraphError:
    """One of an answer's errors.

    Attributes:
        kinds: its type and its code, casefolded.
        message: the forge's word to a program.
        detail: its word to people, or else the message, and what is wrong with which value; one line.
        within: whether it is about a part of a root field, which GraphQL looks at once the field itself is done.
    """

    kinds: frozenset[str]
    message: str
    detail: str
    within: bool = False

    @property
    def is_rate_limit(self) -> bool:
        """Whether a limit is reached."""
        return bool(self.kinds & _RATE_LIMITED)

    @property
    def is_bad_credential(self) -> bool:
        """Whether the token is not accepted, or came in the wrong form."""
        return bool(self.kinds & _AUTHENTICATION) or bool(_KEY_AS_BEARER.search(self.message))

    def as_error(self, status: int) -> ForgeError:
        """What it means for whoever asked, limits and credentials aside; ``status`` is the answer's."""
        error = self._as_error(status)
        if self.within:  # what was to be written is written; only the word of it did not come back whole
            error.outcome = "unknown"
        return error

    def _as_error(self, status: int) -> ForgeError:  # noqa: PLR0911 -- a table: one return for each row
        told = f"{self.message} {self.detail}"
        if _EXISTS.search(told):
            return EntityExists(self.detail)
        if _NOT_FOUND.search(told):
            return (
                TeamGone(self.detail) if re.search(r"\bteam\b", told, re.IGNORECASE) else ForgeStatus(404, self.detail)
            )
        if _TOO_COMPLEX.search(told) or self.kinds & _OUR_FAULT:
            return BadRequest(status, self.detail)
        if _SCOPE.search(self.message):
            return ForgePrecondition(f"the daemon's credential may not do this: {self.detail}")
        if self.kinds & _PRECONDITION:
            return ForgePrecondition(f"the forge says: {self.detail}")
        if self.kinds & _FORBIDDEN:
            return ForgeStatus(403, self.detail)
        if self.kinds & _THEIR_FAULT or self.is_rate_limit or self.is_bad_credential:  # of a part of what came alone
            return ForgeUnavailable(f"the forge says: {self.detail}", outcome="unknown")
        if _ONE_OF_A_GROUP.search(told):
            return ExclusiveLabels(self.detail)
        if self.kinds & _INVALID or 400 <= status < 500:  # noqa: PLR2004 -- the 4xx class
            return ForgeStatus(422, self.detail)
        return ForgeUnavailable(f"the forge says: {self.detail}", outcome="unknown")


def errors_of(answer: HttpAnswer) -> tuple[GraphError, ...]:
    """The errors in an answer; none for what is no JSON, such as a proxy's page."""
    return read_errors(answer.body)


def read_errors(body: bytes) -> tuple[GraphError, ...]:
    """As ``errors_of``, of a body."""
    if b'"errors"' not in body:  # of a text within the JSON the quotes would be escaped
        return ()
    try:
        errors = decode_mended(_body_decoder, body).errors
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    items = errors if isinstance(errors, list) else []
    return tuple(_read(item) for item in items[:_ERRORS_MAX] if isinstance(item, dict))


def one_line(text: str) -> str:
    """A forge's words made fit for a message."""
    flat = " ".join(_UNPRINTABLE.sub(" ", redact(text[:_TEXT_MAX_CHARS])).split())
    return flat if len(flat) <= DETAIL_MAX_CHARS else flat[: DETAIL_MAX_CHARS - 1] + "…"


def _read(item: Mapping[str, object]) -> GraphError:
    found = item.get("extensions")
    extensions: Mapping[str, object] = found if isinstance(found, dict) else {}
    message = _text(item, "message")
    words = [_text(extensions, "userPresentableMessage") or message or "no reason given"]
    words += dict.fromkeys(_complaints(extensions.get("validationErrors")))
    kinds = frozenset(_text(extensions, name).casefold() for name in ("type", "code"))
    path = item.get("path")
    within = isinstance(path, list) and len(path) > 1
    return GraphError(kinds, one_line(message), one_line(": ".join(words)), within)


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _complaints(found: object) -> Iterator[str]:
    for item in found if isinstance(found, list) else []:
        constraints = item.get("constraints") if isinstance(item, dict) else None
        if isinstance(constraints, dict):
            yield from (word for word in constraints.values() if isinstance(word, str))
