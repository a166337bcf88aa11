from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged import errors, observability
from compass_forged.errors import CallError, ForgeError, StoreError
from compass_forged.policy import (
    MESSAGE_MAX_CHARS,
    NOT_FOUND_MESSAGE,
    check_shape,
    clean_message,
    error_result,
    to_call_error,
    true_outcome,
)
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import (
    ARTIFACT_NUMBER_MAX,
    READ_ARMS,
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeCall,
    ForgeRef,
    GetIssue,
    GetPullRequest,
    InlineComment,
    ListIssues,
    Outcome,
    PullRequest,
    ResultFrame,
    SubmitReview,
    Subscribe,
    Unsubscribe,
    arm_name,
)
from tests.support.core import ONE_OF_EACH, call_of

HEADER = "> `compass:owner agent=scout owner=ada session=s-41`"
INLINE = InlineComment(path="src/a.py", line=3, body="look")


def shape_refusal(arm: Arm, key: str = "") -> CallError:
    with pytest.raises(CallError) as caught:
        check_shape(call_of(arm, key=key))
    return caught.value


def changed(arm: Arm, **fields: Any) -> Arm:
    return msgspec.structs.replace(arm, **fields)


ISSUE, COMMENT, PULL, PULL_COMMENT, REVIEW, READ, LISTING, PULL_READ, SUBSCRIBE, UNSUBSCRIBE = ONE_OF_EACH
WORDED = changed(REVIEW, verdict="comment", body="words")


# --- shape: nothing else refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ONE_OF_EACH, ids=arm_name)
def test_a_good_call_passes(arm: Arm) -> None:
    check_shape(call_of(arm))


@pytest.mark.parametrize(
    "arm",
    [
        changed(ISSUE, body=""),
        changed(ISSUE, body=HEADER),  # a create's body may be empty
        changed(ISSUE, body="two\nlines\tand \x1b more\r\n"),  # what the forge shows is the forge's business
        changed(ISSUE, title="ünïcode 🎉"),
        changed(ISSUE, title="<script>"),
        changed(ISSUE, labels=["good first issue", "bug"]),
        changed(ISSUE, repo="../.."),  # the grammar is the provider's
        changed(PULL, body="", base_ref="", draft=True),
        changed(PULL, head_ref="someone:feature/x", base_ref="main"),
        changed(REVIEW, verdict="approve", body=""),
        changed(REVIEW, verdict="request_changes", body="no"),
        WORDED,
        changed(REVIEW, comments=[INLINE] * 300),
        changed(REVIEW, comments=[
            InlineComment(path="a", line=9, body="b", side="LEFT", start_line=1, start_side="RIGHT"),
            InlineComment(path="a", line=3, body="b", start_line=3),
            InlineComment(path="a", line=3, body="b", side="RIGHT", start_line=4, start_side="LEFT"),
            InlineComment(path="a b/ü", line=ARTIFACT_NUMBER_MAX, body="b", side="", start_line=0, start_side=""),
        ]),
        changed(LISTING, state="open"),
        changed(LISTING, state="closed"),
        changed(LISTING, state="all", labels=["bug"], limit=0, cursor="\x00 whatever the provider makes of it"),
        changed(LISTING, limit=10**9),
        changed(READ, issue_number=1),
        changed(READ, issue_number=ARTIFACT_NUMBER_MAX),
        changed(SUBSCRIBE, kind="pull_request"),
        changed(UNSUBSCRIBE, subscription_id="0190b2f8-uuid"),
    ],
    ids=arm_name,
)  # fmt: skip
def test_what_is_unusual_and_sensible_passes(arm: Arm) -> None:
    check_shape(call_of(arm))


# --- shape: each refusal names its field ----------------------------------------------------------------------------

BLANKS = ["", " ", "\t", "\u00a0"]
BROKEN_LINES = ["a\nb", "a\rb", "a\x00b", "a\x1bb", "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b"]
BAD_NUMBERS = [0, -1, ARTIFACT_NUMBER_MAX + 1, -(2**63)]
LINE_FIELDS = [
    (ISSUE, "title"),
    (PULL, "title"),
    (PULL, "head_ref"),
    (UNSUBSCRIBE, "subscription_id"),
    *((arm, "repo") for arm in ONE_OF_EACH if not isinstance(arm, Unsubscribe)),
]
NUMBER_FIELDS = [
    (COMMENT, "issue_number"),
    (PULL_COMMENT, "pull_number"),
    (REVIEW, "pull_number"),
    (READ, "issue_number"),
    (PULL_READ, "pull_number"),
    (SUBSCRIBE, "number"),
]
WORD_FIELDS = [(COMMENT, "body"), (PULL_COMMENT, "body"), (WORDED, "body")]


@pytest.mark.parametrize("value", [*BLANKS, *BROKEN_LINES])
@pytest.mark.parametrize(("arm", "field"), LINE_FIELDS)
def test_a_line_must_be_one(arm: Arm, field: str, value: str) -> None:
    assert shape_refusal(changed(arm, **{field: value})).message.startswith(f"{field}: must")


@pytest.mark.parametrize("value", BROKEN_LINES)
def test_a_base_ref_may_be_absent_and_holds_no_control_characters(value: str) -> None:
    assert shape_refusal(changed(PULL, base_ref=value)).message.startswith("base_ref: must be one line")


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize(("arm", "field"), NUMBER_FIELDS)
def test_a_number_lies_in_its_range(arm: Arm, field: str, value: int) -> None:
    assert shape_refusal(changed(arm, **{field: value})).message == f"{field}: must be from 1 to 2^63-1"


@pytest.mark.parametrize("value", [*BLANKS, "\n\n", HEADER, f"{HEADER}\n\n", f"  {HEADER}\n{HEADER}\n"])
@pytest.mark.parametrize(("arm", "field"), [*WORD_FIELDS, (changed(WORDED, verdict="request_changes"), "body")])
def test_words_must_not_be_blank_nor_a_header_alone(arm: Arm, field: str, value: str) -> None:
    assert shape_refusal(changed(arm, **{field: value})).message.startswith(f"{field}: must not be blank")


@pytest.mark.parametrize("arm", [ISSUE, PULL, COMMENT, PULL_COMMENT, REVIEW, WORDED], ids=arm_name)
def test_no_body_holds_a_nul(arm: Arm) -> None:
    assert shape_refusal(changed(arm, body="a\0b")).message == "body: must not hold a NUL character"


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (changed(REVIEW, verdict=""), "verdict: must be one of approve, request_changes, comment"),
        (changed(REVIEW, verdict="APPROVE"), "verdict: must be one of approve, request_changes, comment"),
        (changed(LISTING, state="merged"), "state: must be one of open, closed, all"),
        (changed(SUBSCRIBE, kind="pr"), "kind: must be one of issue, pull_request"),
        (changed(SUBSCRIBE, kind=""), "kind: must be one of issue, pull_request"),
        (changed(LISTING, limit=-1), "limit: must not be negative; leave it out for the default"),
    ],
)
def test_a_word_is_one_of_those_known(arm: Arm, message: str) -> None:
    assert shape_refusal(arm).message == message


@pytest.mark.parametrize("arm", [ISSUE, LISTING], ids=arm_name)
@pytest.mark.parametrize("label", ["", " ", "a\nb"])
def test_a_label_is_named_by_its_place(arm: Arm, label: str) -> None:
    assert shape_refusal(changed(arm, labels=["good", label])).message.startswith("labels[1]: must")


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"path": ""}, "path: must not be blank"),
        ({"path": "a\nb"}, "path: must be one line"),
        ({"line": 0}, "line: must be from 1"),
        ({"line": -1}, "line: must be from 1"),
        ({"line": ARTIFACT_NUMBER_MAX + 1}, "line: must be from 1"),
        ({"start_line": -1}, "start_line: must be from 1"),
        ({"line": 3, "start_line": 4}, "start_line: must not be behind line"),
        ({"line": 3, "start_line": 4, "side": "LEFT", "start_side": "LEFT"}, "start_line: must not be behind line"),
        ({"side": "right"}, "side: must be one of LEFT, RIGHT"),
        ({"start_side": "UP"}, "start_side: must be one of LEFT, RIGHT"),
        ({"body": " "}, "body: must not be blank"),
        ({"body": HEADER}, "body: must not be blank"),
        ({"body": "\0"}, "body: must not hold a NUL"),
    ],
)
def test_an_inline_comment_is_named_by_its_place(fields: dict[str, Any], start: str) -> None:
    bad = msgspec.structs.replace(INLINE, **fields)
    assert shape_refusal(changed(REVIEW, comments=[INLINE, bad])).message.startswith(f"comments[1].{start}")


@pytest.mark.parametrize("arm", [ISSUE, PULL], ids=arm_name)
@pytest.mark.parametrize("key", ["ü", "a\nb", "\x00", "\x7f", "a\tb"])
def test_the_key_of_a_create_is_printable_ascii(arm: Arm, key: str) -> None:
    assert shape_refusal(arm, key).message == "client_request_id: must be printable ASCII"
    check_shape(call_of(arm, key="ok ~!"))


@pytest.mark.parametrize(
    "arm", [arm for arm in ONE_OF_EACH if not isinstance(arm, CreateIssue | CreatePullRequest)], ids=arm_name
)
def test_elsewhere_the_key_is_ignored(arm: Arm) -> None:
    check_shape(call_of(arm, key="ü"))


@pytest.mark.parametrize(("arm", "field"), [*LINE_FIELDS, *NUMBER_FIELDS])
def test_a_refusal_is_invalid_argument_and_says_that_nothing_was_sent(arm: Arm, field: str) -> None:
    bad = changed(arm, **{field: 0 if "number" in field else ""})
    error = shape_refusal(bad)
    assert error.code == "invalid_argument"
    assert error.outcome == ("" if isinstance(arm, READ_ARMS) else "not_sent")
    assert error.retry_after_ms == 0


# --- the error table ------------------------------------------------------------------------------------------------

TABLE: list[tuple[ForgeError | StoreError, str, str, str]] = [
    (errors.Unsupported("linear", "submit_review"), "unimplemented", "not_sent",
     "linear does not implement submit_review"),
    (errors.ForgeStatus(404, "Not Found"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (errors.ForgeStatus(403, "Resource not accessible"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (errors.ForgeStatus(410, "This issue was deleted"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (errors.ForgeStatus(410, "Issues are disabled for this repo"), "failed_precondition", "rejected",
     "the forge says: Issues are disabled for this repo"),
    (errors.ForgeStatus(422, "title is too long"), "invalid_argument", "rejected",
     "the forge refused: title is too long"),
    (errors.ForgeStatus(400, "Problems parsing JSON"), "invalid_argument", "rejected",
     "the forge refused: Problems parsing JSON"),
    (errors.ForgeStatus(301, "moved", moved_to="acme/new"), "not_found", "rejected",
     "the repository or artifact has moved to acme/new"),
    (errors.ForgeStatus(307, "moved"), "not_found", "rejected", "the repository or artifact has moved"),
    (errors.BadCredentials("reviewer", "401"), "failed_precondition", "rejected",
     "the forge does not accept the daemon's reviewer credential; an operator must renew it"),
    (errors.BadCredentials("author", "no such file /run/x", outcome="not_sent"), "failed_precondition", "not_sent",
     "the forge does not accept the daemon's author credential; an operator must renew it"),
    (errors.RateLimited(12.3456, "slow down", outcome="rejected"), "resource_exhausted", "rejected", "slow down"),
    (errors.RateLimited(1, "reserve reached", outcome="not_sent"), "resource_exhausted", "not_sent",
     "reserve reached"),
    (errors.ForgeUnavailable("refused", outcome="not_sent"), "unavailable", "not_sent", "refused"),
    (errors.ForgeUnavailable("502", outcome="unknown"), "unavailable", "unknown", "502"),
    (errors.WritesPaused(42), "unavailable", "not_sent",
     "writes are paused: the forge answered one about another repository, number or author; reads go on"),
    (errors.BadAnswer(201, "body: secret things"), "internal", "unknown",
     "the forge answered 201 and its answer cannot be used"),
    (errors.BadRepo("repo: must be owner/name"), "invalid_argument", "not_sent", "repo: must be owner/name"),
    (errors.BadReview("body: 3 bytes too large"), "invalid_argument", "not_sent", "body: 3 bytes too large"),
    (errors.PullRequestExists(PullRequest(forge=ForgeRef("github", "github.com"), repo="a/b", number=7)),
     "already_exists", "rejected", "a pull request for that head and base exists: 7"),
    (errors.PullRequestExists(None), "already_exists", "unknown",
     "a pull request for that head and base exists, and the forge does not show which"),
    (errors.ForgePrecondition("in the way"), "failed_precondition", "rejected", "in the way"),
    (errors.ForeignAnswer(201, "mixed up"), "internal", "unknown",
     "the forge answered 201 and its answer cannot be used"),
    (errors.BadCursor("cursor: none of ours"), "invalid_argument", "not_sent", "cursor: none of ours"),
    (errors.IsPullRequest(7), "invalid_argument", "rejected",
     "that number is a pull request; read it with get_pull_request"),
    (ForgeError("something new"), "internal", "not_sent", "the provider failed in a way it does not describe"),
    (errors.StoreUnavailable("no route to db.internal"), "unavailable", "not_sent",
     "the daemon's store is out of reach, so nothing was sent; try again"),
    (errors.ArtifactOwnedByAnother("row"), "internal", "not_sent",
     "the daemon's store refused this record; nothing was sent"),
]  # fmt: skip


@pytest.mark.parametrize(("raised", "code", "outcome", "message"), TABLE)
def test_each_row_of_the_table(raised: ForgeError | StoreError, code: str, outcome: str, message: str) -> None:
    found = to_call_error(raised, write=True)
    assert (found.code, found.outcome, found.message) == (code, outcome, message)
    read = to_call_error(raised, write=False)
    assert (read.code, read.outcome, read.message) == (code, "", message)


def test_403_and_404_are_the_same_bytes() -> None:
    frames = {
        encode_reply(ResultFrame(call_id="1", result=error_result(to_call_error(error, write=True))))
        for error in (
            errors.ForgeStatus(403, "Resource not accessible by integration"),
            errors.ForgeStatus(404, "Not Found"),
            errors.ForgeStatus(410, "This issue was deleted"),
        )
    }
    assert len(frames) == 1


@pytest.mark.parametrize(("seconds", "expected"), [(12.3456, 12346), (0.0001, 1), (0, 1), (3600, 3_600_000)])
def test_a_rate_limit_says_when_to_come_back(seconds: float, expected: int) -> None:
    limited = errors.RateLimited(seconds, "slow down", outcome="rejected")
    assert error_result(to_call_error(limited, write=True)).retry_after_ms == expected


def test_paused_writes_say_when_to_come_back() -> None:
    assert to_call_error(errors.WritesPaused(59.5), write=True).retry_after_ms == 59_500


def test_a_forge_that_is_not_ready_says_when_to_come_back() -> None:
    later = errors.ForgeUnavailable("still working", outcome="unknown", retry_after_seconds=2.0)
    assert to_call_error(later, write=False).retry_after_ms == 2000
    assert to_call_error(errors.ForgeUnavailable("502", outcome="unknown"), write=True).retry_after_ms == 0


def test_a_bad_answer_to_a_read_before_a_write_tells_that_nothing_was_sent() -> None:
    error = errors.BadAnswer(200, "odd")
    error.outcome = "not_sent"
    assert to_call_error(error, write=True).outcome == "not_sent"


def test_a_store_away_says_when_to_come_back() -> None:
    assert to_call_error(errors.StoreUnavailable("x"), write=True).retry_after_ms == 1000


def test_an_error_result_carries_all_of_its_error_and_a_clean_message() -> None:
    error = CallError("unavailable", "two\nlines", outcome="unknown", retry_after_ms=7)
    found = error_result(error)
    assert (found.code, found.message, found.outcome, found.retry_after_ms) == (
        "unavailable",
        "two lines",
        "unknown",
        7,
    )


@pytest.mark.parametrize("said", ["", "not_sent", "rejected", "unknown"])
def test_the_outcome_of_a_read_is_empty_and_of_a_write_true(said: Outcome) -> None:
    assert true_outcome(said, write=False, sent=False) == true_outcome(said, write=False, sent=True) == ""
    doubtful = said in {"", "not_sent"}
    assert true_outcome(said, write=True, sent=False) == ("not_sent" if doubtful else said)
    assert true_outcome(said, write=True, sent=True) == ("unknown" if doubtful else said)


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("at api.github.com/x?access_token=abc&y=1 now", "at api.github.com/x now"),
        ("GET /repos/a/b?token=abc failed", "GET [path] failed"),
        ("ws://x/y?z=1", "ws://x/y"),
        ("postgres://ada:horse@db/forged", "postgres://db/forged"),
        ("https://ada:horse@x:8080/y", "https://x:8080/y"),
        ("a \u202eb\u2066c", "a bc"),
        ("is it a? b=c, or c?d", "is it a? b=c, or c?d"),
        ("  a \t b\r\n\x0b c\x1b[2J\u2028d\x85e ", "a b c [2J d e"),
        ("see https://x.example/a?token=1&b=2 now", "see https://x.example/a now"),
        ("HTTPS://x.example/a?token=1", "HTTPS://x.example/a"),
        ("see https://x.example/a/b#c.", "see https://x.example/a/b#c."),
        ("is it?", "is it?"),
        ("open /run/secrets/github: denied", "open [path]: denied"),
        ("'/home/u/.ssh/id'", "'[path]'"),
        ("path=/etc/passwd", "path=[path]"),
        ("error:/etc/passwd", "error:[path]"),
        ("file:///etc/passwd", "[path]"),
        ("/var/lib/", "[path]"),
        ("repo acme/site and a/b/c", "repo acme/site and a/b/c"),
        ("and/or, 1/2, /", "and/or, 1/2, /"),
        ("token ghp_" + "a1" * 18 + " refused", "token [secret] refused"),
        ("half \ud800 of a pair", "half \ufffd of a pair"),
    ],
)
def test_a_message_is_one_clean_line(text: str, expected: str) -> None:
    assert clean_message(text) == expected


def test_a_registered_secret_never_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "_secrets", set())
    observability.register_secret("correct horse")
    assert clean_message("it was correct horse") == "it was [secret]"


def test_a_message_is_at_most_five_hundred_characters() -> None:
    assert clean_message("x" * MESSAGE_MAX_CHARS) == "x" * MESSAGE_MAX_CHARS
    assert clean_message("x" * (MESSAGE_MAX_CHARS + 1)) == "x" * (MESSAGE_MAX_CHARS - 1) + "…"


@given(st.text(st.characters(), max_size=700))
def test_whatever_comes_the_message_can_be_handed_out(text: str) -> None:
    found = clean_message(text)
    assert len(found) <= MESSAGE_MAX_CHARS
    assert len(found.splitlines()) <= 1
    found.encode()


def test_a_message_of_slashes_costs_no_time() -> None:
    assert len(clean_message("/a" * 200_000)) <= MESSAGE_MAX_CHARS
    assert len(clean_message("/" * 200_000)) <= MESSAGE_MAX_CHARS
    assert len(clean_message("http://" * 50_000)) <= MESSAGE_MAX_CHARS
    assert len(clean_message("://" * 50_000)) <= MESSAGE_MAX_CHARS
    assert len(clean_message("?a" * 50_000)) <= MESSAGE_MAX_CHARS


def test_a_token_at_the_end_of_what_is_looked_at_is_not_shown_in_part() -> None:
    token = "ghp_" + "a1" * 18
    blank = " " * (8 * MESSAGE_MAX_CHARS - 12)
    assert clean_message(f"x{blank}{token} and more") == "x"
    assert clean_message(blank * 2) == ""


def test_the_table_covers_every_arm() -> None:
    assert {type(arm) for arm in ONE_OF_EACH} == {
        CreateIssue, CommentOnIssue, CreatePullRequest, CommentOnPullRequest, SubmitReview,
        GetIssue, ListIssues, GetPullRequest, Subscribe, Unsubscribe,
    }  # fmt: skip
    assert all(isinstance(call_of(arm), ForgeCall) for arm in ONE_OF_EACH)
