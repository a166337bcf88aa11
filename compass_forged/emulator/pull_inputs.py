"""What GitHub checks in the bodies of requests about pull requests and reviews, and how it refuses."""

from collections.abc import Mapping
from typing import Any, Final

from compass_forged.emulator.inputs import BODY_MAX_CHARS, ruby
from compass_forged.emulator.pull_changes import EVENTS, NewComment
from compass_forged.emulator.records import Side
from compass_forged.emulator.refusals import JsonObject, invalid_request, review_refused

COMMENT_KEYS: Final = frozenset({"path", "position", "body", "line", "side", "start_line", "start_side"})


def text_of(body: JsonObject, name: str) -> str:
    """A string that must be there."""
    if name not in body:
        raise invalid_request(f"{ruby(name)} wasn't supplied.")
    value: Any = body[name]
    if not isinstance(value, str):
        raise invalid_request(f"For 'properties/{name}', {ruby(value)} is not a string.")
    return value


def flag_of(body: JsonObject, name: str) -> bool:
    """A boolean; false where it is not given."""
    value: Any = body.get(name, False)
    if not isinstance(value, bool):
        raise invalid_request(f"For 'properties/{name}', {ruby(value)} is not a boolean.")
    return value


def event_of(body: JsonObject) -> str | None:
    """The event of a review; None for one that stays pending."""
    event: Any = body.get("event")
    if event is None:
        return None
    if not isinstance(event, str) or event not in EVENTS:
        raise invalid_request(f"For 'properties/event', {ruby(event)} is not a member of {ruby(list(EVENTS))}.")
    return event


def summary_of(body: JsonObject, event: str | None) -> str:
    """The text of a review. What approves, or stays pending, may be without."""
    text: Any = body.get("body")
    if text is None:
        text = ""
    if not isinstance(text, str):
        raise invalid_request(f"For 'properties/body', {ruby(text)} is not a string.")
    if event in {"COMMENT", "REQUEST_CHANGES"} and not text.strip():
        raise review_refused("You need to leave a comment indicating the requested changes.")
    if len(text) > BODY_MAX_CHARS:
        raise review_refused(f"Body is too long (maximum is {BODY_MAX_CHARS} characters)")
    return text


def comments_of(body: JsonObject) -> list[NewComment]:
    """The comments of a review, by lines; their places are not yet looked for in the diff."""
    given: Any = body.get("comments", [])
    if not isinstance(given, list):
        raise invalid_request(f"For 'properties/comments', {ruby(given)} is not an array.")
    return [_comment(item) for item in given]


def _comment(given: Any) -> NewComment:
    if not isinstance(given, dict):
        raise invalid_request(f"For 'items', {ruby(given)} is not an object.")
    unknown = sorted(set(given) - COMMENT_KEYS)
    if unknown:
        raise invalid_request(f"{ruby(unknown[0])} is not a permitted key.")
    path, text = text_of(given, "path"), text_of(given, "body")
    if not text.strip():
        raise review_refused("Body can't be blank")
    if len(text) > BODY_MAX_CHARS:
        raise review_refused(f"Body is too long (maximum is {BODY_MAX_CHARS} characters)")
    side, line = _side(given, "side"), _line(given, "line")
    if line is None:
        raise review_refused("Pull request review thread line must be part of the diff")
    start = _line(given, "start_line")
    if start is None:
        return NewComment(path, text, side, line)
    start_side = _side(given, "start_side") if "start_side" in given else side
    if start_side == side and start >= line:
        raise review_refused("Pull request review thread start line must precede the end line.")
    return NewComment(path, text, side, line, (start_side, start))


def _line(given: Mapping[str, Any], name: str) -> int | None:
    value: Any = given.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise invalid_request(f"For 'properties/{name}', {ruby(value)} is not an integer.")
    return value


def _side(given: Mapping[str, Any], name: str) -> Side:
    value: Any = given.get(name, "RIGHT")
    if value == "LEFT":
        return "LEFT"
    if value != "RIGHT":
        raise review_refused("Side is not included in the list")
    return "RIGHT"
