"""What GitHub checks in a request's body and query before it does anything, and how it refuses.

Pure functions from untyped JSON to typed values. Limits and words: an issue's title 256 and its body 65,536
characters (``Issue``, ``custom``), a comment's body 65,536 (``IssueComment``, ``unprocessable``, ``data``), a label's
name 50 (``custom`` where labels are created, ``invalid`` where an issue names them).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from compass_forged.emulator.records import IssueState
from compass_forged.emulator.refusals import JsonObject, invalid_request, refusal, validation_failed

TITLE_MAX_CHARS = 256
BODY_MAX_CHARS = 65_536
LABEL_MAX_CHARS = 50
LABEL_DESCRIPTION_MAX_CHARS = 100
PER_PAGE_DEFAULT = 30
PER_PAGE_MAX = 100

_HEX = frozenset("0123456789abcdefABCDEF")


def parse_object(raw: bytes) -> JsonObject:
    """A request's body as a JSON object.

    Raises:
        Refused: 400 for what is no JSON or no object, 422 for no body at all.
    """
    if not raw:
        raise invalid_request("For 'links/0/schema', nil is not an object.")
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):  # ValueError holds JSONDecodeError and UnicodeDecodeError
        raise refusal(400, "Problems parsing JSON") from None
    if not isinstance(value, dict):
        raise refusal(400, "Body should be a JSON object")
    return value


def ruby(value: Any) -> str:
    """The value as GitHub's complaint prints it."""
    return "nil" if value is None else json.dumps(value)


def title_of(body: JsonObject) -> str:
    """The title of a new issue; a number is taken as text, as GitHub's schema allows."""
    title: Any = body.get("title")
    if title is None:
        raise validation_failed("Issue", "title", "missing_field")
    if isinstance(title, bool) or not isinstance(title, str | int):
        raise invalid_request(f"For 'properties/title', {ruby(title)} is not a string or integer.")
    text = str(title)
    if not text.strip():
        raise validation_failed("Issue", "title", "missing_field")
    if len(text) > TITLE_MAX_CHARS:
        raise validation_failed(
            "Issue", "title", "custom", f"title is too long (maximum is {TITLE_MAX_CHARS} characters)"
        )
    if "\n" in text or "\r" in text:
        raise validation_failed("Issue", "title", "custom", "title can't contain line breaks")
    return text


def issue_body_of(body: JsonObject) -> str | None:
    """The body of an issue; an empty one is kept as null, as on GitHub."""
    text: Any = body.get("body")
    if text is None:
        return None
    if not isinstance(text, str):
        raise invalid_request(f"For 'properties/body', {ruby(text)} is not a string or null.")
    if len(text) > BODY_MAX_CHARS:
        raise validation_failed("Issue", "body", "custom", f"body is too long (maximum is {BODY_MAX_CHARS} characters)")
    return text or None


def comment_body_of(body: JsonObject) -> str:
    """The body of a comment, which must say something."""
    if "body" not in body:
        raise invalid_request(f"{ruby('body')} wasn't supplied.")
    text: Any = body["body"]
    if not isinstance(text, str):
        raise invalid_request(f"For 'properties/body', {ruby(text)} is not a string.")
    if not text.strip():
        raise validation_failed("IssueComment", "data", "unprocessable", "Body cannot be blank")
    if len(text) > BODY_MAX_CHARS:
        raise validation_failed(
            "IssueComment", "data", "unprocessable", f"Body is too long (maximum is {BODY_MAX_CHARS} characters)"
        )
    return text


def _list_of(body: JsonObject, name: str) -> Sequence[Any]:
    value: Any = body.get(name)
    if value is None and name not in body:
        return ()
    if not isinstance(value, list):
        raise invalid_request(f"For 'properties/{name}', {ruby(value)} is not an array.")
    return value


def label_names_of(body: JsonObject) -> list[str]:
    """The labels' names that a body gives, as text or as objects with a name; not yet checked as names."""
    names: list[str] = []
    for item in _list_of(body, "labels"):
        name: Any = item.get("name") if isinstance(item, dict) else item
        if not isinstance(name, str):
            raise invalid_request(f"For 'properties/labels', {ruby(item)} is not a string or object.")
        names.append(name)
    return names


def check_named_labels(names: Sequence[str]) -> None:
    """Refuse names that no label can have: blank, with stray spaces, with a comma, or too long."""
    for name in names:
        if not name.strip() or name != name.strip() or "," in name or len(name) > LABEL_MAX_CHARS:
            raise validation_failed("Label", "name", "invalid", value=name)


@dataclass(frozen=True, slots=True)
class NewLabel:
    """A label to create."""

    name: str
    color: str | None
    description: str | None


def new_label_of(body: JsonObject) -> NewLabel:
    """The label that ``POST labels`` asks for."""
    name: Any = body.get("name")
    if not isinstance(name, str) or not name.strip():
        raise validation_failed("Label", "name", "missing_field")
    if len(name) > LABEL_MAX_CHARS:
        raise validation_failed(
            "Label", "name", "custom", f"name is too long (maximum is {LABEL_MAX_CHARS} characters)"
        )
    check_named_labels([name])
    color: Any = body.get("color")
    if color is not None and not (isinstance(color, str) and len(color) in {3, 6} and _HEX.issuperset(color)):
        raise validation_failed("Label", "color", "invalid")
    description: Any = body.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid_request(f"For 'properties/description', {ruby(description)} is not a string.")
    if description is not None and len(description) > LABEL_DESCRIPTION_MAX_CHARS:
        raise validation_failed(
            "Label",
            "description",
            "custom",
            f"description is too long (maximum is {LABEL_DESCRIPTION_MAX_CHARS} characters)",
        )
    return NewLabel(name, color, description)


def logins_of(body: JsonObject) -> list[str]:
    """The assignees that a body names."""
    logins = _list_of(body, "assignees")
    for login in logins:
        if not isinstance(login, str):
            raise invalid_request(f"For 'properties/assignees', {ruby(login)} is not a string.")
    return list(logins)


def choice_of(values: Mapping[str, Any], name: str, allowed: Sequence[str], resource: str = "Issue") -> str | None:
    """One of ``allowed``, or None where it is not given."""
    value: Any = values.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or value not in allowed:
        raise validation_failed(resource, name, "invalid", value=str(value))
    return value


def issue_state_of(body: JsonObject) -> IssueState | None:
    """The state that a change asks for; None where it is not named."""
    match choice_of(body, "state", ("open", "closed")):
        case None:
            return None
        case "open":
            return "open"
        case _:
            return "closed"


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for: pages are counted from 1."""

    number: int
    size: int


def page_of(query: Mapping[str, str]) -> Page:
    """The page asked for. GitHub takes the default for a number it cannot read, and 100 for more than 100."""
    return Page(_positive(query.get("page"), 1), min(_positive(query.get("per_page"), PER_PAGE_DEFAULT), PER_PAGE_MAX))


def _positive(text: str | None, default: int) -> int:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 9:  # noqa: PLR2004 -- no page is that far
        return default
    return int(text) or default


def since_of(query: Mapping[str, str]) -> datetime | None:
    """The ``since`` of a list: ISO 8601, UTC where no offset is given."""
    text = query.get("since")
    if not text:
        return None
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        raise validation_failed("Issue", "since", "invalid", value=text) from None
    return since if since.tzinfo else since.replace(tzinfo=UTC)
