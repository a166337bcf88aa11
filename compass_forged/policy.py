"""What the service refuses and how it words it: the shape of a call, and the one table from errors to codes. Pure."""

import re
from collections.abc import Callable
from typing import Any, Final

from compass_forged import errors, owner
from compass_forged.errors import CallError, Fault, ForgeError, StoreError
from compass_forged.observability import redact, remembered
from compass_forged.wire.schema import (
    ARTIFACT_NUMBER_MAX,
    READ_ARMS,
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ErrorResult,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    InlineComment,
    ListIssues,
    Outcome,
    SubmitReview,
    Subscribe,
    Unsubscribe,
)

MESSAGE_MAX_CHARS: Final = 500
NOT_FOUND_MESSAGE: Final = "no such artifact, or this forge account may not touch it"
"""One constant for 404 and for 403, so that nobody can probe for what exists: it names neither repo nor number."""
OUTSIDE_SCOPE_MESSAGE: Final = "the session's scope does not include this repository"
"""One constant for whatever lies there: a call, a subscription's row, or what an earlier create of the agent made."""

VERDICTS: Final = ("approve", "request_changes", "comment")
SIDES: Final = ("LEFT", "RIGHT")
STATES: Final = ("open", "closed", "all")
KINDS: Final = ("issue", "pull_request")

# C0, DEL and C1, and the two Unicode line separators: what would start a second line or drive a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN_LINE = re.compile(r"[!-~][ -~]*\Z")  # what nearly all names and titles are, known at a glance
_LOOKED_AT: Final = 8  # of a far longer text, this many times what may be shown: the patterns' time is bounded
_SHORT_CHARS: Final = 160  # most refusals are these, and the same ones again and again
_UNSENDABLE = re.compile(r"[\ud800-\udfff]")  # lone surrogates, which JSON can hold and UTF-8 cannot
_LOCAL_PATH = re.compile(r"(?:\bfile:/{0,2}|(?<![\w/.]))/(?:[\w.@+-]+/)+[\w.@+-]*", re.IGNORECASE)
# Of whatever scheme, and of none where it is one to the letter.
_QUERY = re.compile(r"(?<!\S)(?=\S*?://)([^\s?]*+)\?\S*|(?<=[\w/])\?[\w.%~-]++=\S*")
_LOGIN = re.compile(r"(?<=://)[^\s/@]++@")
_DIRECTION = re.compile(r"[\u202a-\u202e\u2066-\u2069]")  # turn on the screen what stands around them


# --- shape ----------------------------------------------------------------------------------------------------------


def invalid(message: str) -> CallError:
    """``invalid_argument``: nothing was touched."""
    return CallError("invalid_argument", message, outcome="not_sent")


def outside_scope(outcome: Outcome = "not_sent") -> CallError:
    """``permission_denied``: what was asked for, or found, lies outside the session's scope."""
    return CallError("permission_denied", OUTSIDE_SCOPE_MESSAGE, outcome=outcome)


def check_shape(call: ForgeCall) -> None:
    """Refuse a call whose values make no sense, before anything is touched.

    Raises:
        CallError: ``invalid_argument`` naming the field.
        Fault: the arm is none of ours. No frame can say such a thing; whoever calls from within could.
    """
    arm = call.arm
    check = _CHECKS.get(type(arm))
    if check is None:
        raise Fault("invalid_argument", "call: unset, or an arm that is not known")
    try:
        if call.client_request_id and isinstance(arm, _CREATES):  # elsewhere it is ignored
            _request_id(call.client_request_id)
        if not isinstance(arm, Unsubscribe):
            _line("repo", arm.repo)
        check(arm)
    except CallError as error:
        error.outcome = true_outcome(error.outcome, write=not isinstance(arm, READ_ARMS), sent=False)
        raise


def is_about_pull_requests(arm: Arm) -> bool:
    """Whether a forge without pull requests has nothing to answer this with."""
    if isinstance(arm, Subscribe):
        return arm.kind == "pull_request"
    return isinstance(arm, CreatePullRequest | CommentOnPullRequest | SubmitReview | GetPullRequest)


def _check_create_issue(arm: CreateIssue) -> None:
    _line("title", arm.title)
    _labels(arm.labels)
    _text("body", arm.body)


def _check_create_pull_request(arm: CreatePullRequest) -> None:
    _line("title", arm.title)
    _line("head_ref", arm.head_ref)
    _no_control("base_ref", arm.base_ref)
    _text("body", arm.body)


def _check_comment_on_issue(arm: CommentOnIssue) -> None:
    _number("issue_number", arm.issue_number)
    _words("body", arm.body)


def _check_comment_on_pull_request(arm: CommentOnPullRequest) -> None:
    _number("pull_number", arm.pull_number)
    _words("body", arm.body)


def _check_get_issue(arm: GetIssue) -> None:
    _number("issue_number", arm.issue_number)


def _check_get_pull_request(arm: GetPullRequest) -> None:
    _number("pull_number", arm.pull_number)


def _check_list_issues(arm: ListIssues) -> None:
    _one_of("state", arm.state or "open", STATES)
    _labels(arm.labels)
    if arm.limit < 0:
        raise invalid("limit: must not be negative; leave it out for the default")


def _check_subscribe(arm: Subscribe) -> None:
    _one_of("kind", arm.kind, KINDS)
    _number("number", arm.number)


def _check_unsubscribe(arm: Unsubscribe) -> None:
    _line("subscription_id", arm.subscription_id)


def _check_review(arm: SubmitReview) -> None:
    _number("pull_number", arm.pull_number)
    _one_of("verdict", arm.verdict, VERDICTS)
    if arm.verdict == "approve":
        _text("body", arm.body)
    else:
        _words("body", arm.body)
    # What no forge takes is not read: it is too large whatever it says, which is judged once the forge is known.
    readable = review_chars(arm) <= owner.BLANK_MAX_CHARS
    for index, comment in enumerate(arm.comments):
        _check_inline(f"comments[{index}]", comment, readable=readable)


_CREATES: Final = (CreateIssue, CreatePullRequest)
_CHECKS: Final[dict[type[Arm], Callable[[Any], None]]] = {
    CreateIssue: _check_create_issue,
    CommentOnIssue: _check_comment_on_issue,
    CreatePullRequest: _check_create_pull_request,
    CommentOnPullRequest: _check_comment_on_pull_request,
    SubmitReview: _check_review,
    GetIssue: _check_get_issue,
    ListIssues: _check_list_issues,
    GetPullRequest: _check_get_pull_request,
    Subscribe: _check_subscribe,
    Unsubscribe: _check_unsubscribe,
}
"""What is asked of an arm beyond its schema. One look-up, where a chain of cases would take a microsecond."""


def review_chars(arm: SubmitReview) -> int:
    """How many characters a review has, which may all have to stand in its summary."""
    return len(arm.body) + sum(len(comment.path) + len(comment.body) for comment in arm.comments)


def _check_inline(place: str, comment: InlineComment, *, readable: bool) -> None:
    _line(f"{place}.path", comment.path)
    _number(f"{place}.line", comment.line)
    if comment.start_line:
        _number(f"{place}.start_line", comment.start_line)
    for name, side in (("side", comment.side), ("start_side", comment.start_side)):
        _one_of(f"{place}.{name}", side or "RIGHT", SIDES)
    side = comment.side or "RIGHT"
    if comment.start_line > comment.line and (comment.start_side or side) == side:
        raise invalid(f"{place}.start_line: must not be behind line, which is the last line of the range")
    if readable:
        _words(f"{place}.body", comment.body)
    else:
        _text(f"{place}.body", comment.body)


def _request_id(value: str) -> None:
    if not (value.isascii() and value.isprintable()):
        raise invalid("client_request_id: must be printable ASCII")


def _line(field: str, value: str) -> None:
    if _PLAIN_LINE.match(value):
        return
    if not owner.shows_anything(value):
        raise invalid(f"{field}: must not be blank")
    _no_control(field, value)


def _no_control(field: str, value: str) -> None:
    if _CONTROL.search(value):
        raise invalid(f"{field}: must be one line without control characters")


def _text(field: str, value: str) -> None:
    if "\0" in value:
        raise invalid(f"{field}: must not hold a NUL character")


def _words(field: str, value: str) -> None:
    _text(field, value)
    if owner.is_blank(value):
        raise invalid(f"{field}: must not be blank (an owner header alone counts as blank)")


def _labels(labels: list[str]) -> None:
    for index, label in enumerate(labels):
        _line(f"labels[{index}]", label)


def _number(field: str, value: int) -> None:
    if not 1 <= value <= ARTIFACT_NUMBER_MAX:
        raise invalid(f"{field}: must be from 1 to 2^63-1")


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise invalid(f"{field}: must be one of {', '.join(allowed)}")


# --- the error table ------------------------------------------------------------------------------------------------


def to_call_error(error: CallError | ForgeError | StoreError, *, write: bool, sent: bool = False) -> CallError:
    """The in-band answer for what a provider or a store raised: the one place where codes are chosen.

    Args:
        error: what was raised; a ``CallError`` has its code already. It stays as it is: others may hold it too.
        write: whether a write failed. The outcome of a read is "".
        sent: whether a byte of the write may have gone out. Then nothing is ``not_sent``, whoever says so.
    """
    if isinstance(error, CallError):
        found = CallError(error.code, error.message, outcome=error.outcome, retry_after_ms=error.retry_after_ms)
    else:
        found = _from_store(error, sent=sent) if isinstance(error, StoreError) else _from_forge(error)
    found.outcome = true_outcome(found.outcome, write=write, sent=sent)
    return found


def true_outcome(said: Outcome, *, write: bool, sent: bool) -> Outcome:
    """The outcome of a failed call: "" of a read, and of a write that may have gone out never ``not_sent``."""
    if not write:
        return ""
    return said if said in {"rejected", "unknown"} else ("unknown" if sent else "not_sent")


def _from_store(error: StoreError, *, sent: bool) -> CallError:
    """Of a write to the store alone, ``sent`` means that its statement went out."""
    match error:
        case errors.StoreUnavailable() if sent:
            unclear = "the daemon's store did not answer, so it is not known whether this was kept; ask again"
            return CallError("unavailable", unclear, outcome="unknown", retry_after_ms=1000)
        case errors.StoreUnavailable():
            away = "the daemon's store is out of reach, so nothing was sent; try again"
            return CallError("unavailable", away, outcome="not_sent", retry_after_ms=1000)
        case errors.SubscriptionsExhausted():
            return CallError("resource_exhausted", str(error), outcome="rejected")
        case _:
            nothing = "nothing was changed" if sent else "nothing was sent"
            refused = f"the daemon's store refused this record; {nothing}"
            return CallError("internal", refused, outcome="rejected" if sent else "not_sent")


def _from_forge(error: ForgeError) -> CallError:  # noqa: C901, PLR0911 -- a table: one return per row
    match error:
        case errors.Unsupported():
            return CallError(
                "unimplemented", f"{error.provider} does not implement {error.operation}", outcome="not_sent"
            )
        case errors.ForgeStatus():
            return _from_status(error)
        case errors.BadCredentials():
            return CallError(
                "failed_precondition",
                f"the forge does not accept the daemon's {error.role} credential; an operator must renew it",
                outcome=error.outcome,
            )
        case errors.RateLimited():
            return CallError(
                "resource_exhausted",
                str(error),
                outcome=error.outcome,
                retry_after_ms=max(1, round(error.retry_after_seconds * 1000)),
            )
        case errors.ForgeUnavailable() | errors.WritesPaused():
            return CallError(
                "unavailable",
                str(error),
                outcome=error.outcome,
                retry_after_ms=round(error.retry_after_seconds * 1000),
            )
        case errors.BadAnswer():
            return CallError(
                "internal", f"the forge answered {error.status} and its answer cannot be used", outcome=error.outcome
            )
        case errors.BadRequest():
            return CallError(
                "internal", f"the forge does not take the daemon's request: {error}", outcome=error.outcome
            )
        case errors.BadRepo() | errors.BadCursor() | errors.BadReview() | errors.BadArgument():
            return invalid(str(error))
        case errors.PullRequestExists():
            shown = f": {error.number}" if error.number else ", and the forge does not show which"
            return CallError(
                "already_exists", f"a pull request for that head and base exists{shown}", outcome=error.outcome
            )
        case errors.ForgePrecondition():
            return CallError("failed_precondition", str(error), outcome=error.outcome)
        case errors.IsPullRequest():
            return CallError(
                "invalid_argument", "that number is a pull request; read it with get_pull_request", outcome="rejected"
            )
        case _:
            return CallError("internal", "the provider failed in a way it does not describe", outcome=error.outcome)


_GONE_DELETED = re.compile(r"deleted", re.IGNORECASE)


def _from_status(error: errors.ForgeStatus) -> CallError:
    status = error.status
    if status in {403, 404}:
        return CallError("not_found", NOT_FOUND_MESSAGE, outcome="rejected")
    if 300 <= status < 400:  # noqa: PLR2004 -- the 3xx class
        place = f" to {error.moved_to}" if error.moved_to else ""
        return CallError("not_found", f"the repository or artifact has moved{place}", outcome="rejected")
    if status == 410:  # noqa: PLR2004 -- Gone: issues switched off, or a deleted issue
        if _GONE_DELETED.search(error.detail):
            return CallError("not_found", NOT_FOUND_MESSAGE, outcome="rejected")
        return CallError("failed_precondition", f"the forge says: {error.detail}", outcome="rejected")
    return CallError("invalid_argument", f"the forge refused: {error.detail}", outcome="rejected")


def error_result(error: CallError, outcome: Outcome | None = None) -> ErrorResult:
    """The result arm of a domain failure, its message made safe to hand out; ``outcome`` in place of its own."""
    return ErrorResult(
        code=error.code,
        message=clean_message(error.message),
        retry_after_ms=error.retry_after_ms,
        outcome=error.outcome if outcome is None else outcome,
    )


def clean_message(text: str, limit: int = MESSAGE_MAX_CHARS) -> str:
    """One line of at most ``limit`` characters, without control characters, tokens, URL queries or local paths."""
    return _clean_short(text) if limit == MESSAGE_MAX_CHARS and len(text) <= _SHORT_CHARS else _clean(text, limit)


def _clean(text: str, limit: int) -> str:
    if len(text) > limit * _LOOKED_AT:
        words = text[: limit * _LOOKED_AT].rsplit(None, 1)  # not in the middle of a word, which may be a token
        text = words[0] if words else ""
    flat = " ".join(_CONTROL.sub(" ", _UNSENDABLE.sub("\ufffd", _DIRECTION.sub("", text))).split())
    flat = _LOCAL_PATH.sub("[path]", _LOGIN.sub("", _QUERY.sub(r"\1", redact(flat))))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


@remembered(1024)
def _clean_short(text: str) -> str:
    return _clean(text, MESSAGE_MAX_CHARS)
