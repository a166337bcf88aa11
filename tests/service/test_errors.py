"""The error table, row by row through the service: code, outcome and words, for a write and for a read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged import observability
from compass_forged.errors import (
    BadAnswer,
    BadArgument,
    BadCredentials,
    BadCursor,
    BadRepo,
    BadRequest,
    BadReview,
    CallError,
    Fault,
    ForeignAnswer,
    ForgeError,
    ForgePrecondition,
    ForgeStatus,
    ForgeUnavailable,
    IsPullRequest,
    PullRequestExists,
    RateLimited,
    StoreUnavailable,
    SubscriptionsExhausted,
    Unsupported,
    ValueRefused,
    WritesPaused,
)
from compass_forged.policy import MESSAGE_MAX_CHARS, NOT_FOUND_MESSAGE, error_result, to_call_error
from compass_forged.providers.fake import Step
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import READ_ARMS, Arm, CreateIssue, ForgeRef, PullRequest, ResultFrame, arm_name
from tests.support.core import Logged
from tests.support.service import (
    COMMENT,
    CREATE,
    FORGE_ARMS,
    LISTING,
    PULL_READ,
    READ,
    STAMPED,
    Guard,
    World,
    error_of,
    new_world,
    raising,
    refusal_of,
)

TOKEN = "ghp_" + "a1" * 18


async def failing(arm: Arm, error: Exception) -> World:
    """A world with an issue and a pull request, whose next call of ``arm`` fails before anything is sent."""
    world = await new_world(furnished=True)
    world.client_of(arm).script(arm_name(arm), Step(error=error))
    return world


def found_pull(number: int) -> PullRequest:
    return PullRequest(forge=ForgeRef("github", "github.com"), repo="Acme/site", number=number, body="By hand.")


TABLE: list[tuple[ForgeError, str, str, str]] = [
    (WritesPaused(60.0), "unavailable", "not_sent",
     "writes are paused: the forge answered one about another repository, number or author; reads go on"),
    (ForgeStatus(404, "Not Found"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (ForgeStatus(403, "Resource not accessible"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (BadCredentials("author", "401"), "failed_precondition", "rejected",
     "the forge does not accept the daemon's author credential; an operator must renew it"),
    (BadCredentials("author", "file is gone", outcome="not_sent"), "failed_precondition", "not_sent",
     "the forge does not accept the daemon's author credential; an operator must renew it"),
    (ForgeStatus(410, "Issues are disabled for this repo"), "failed_precondition", "rejected",
     "the forge says: Issues are disabled for this repo"),
    (ForgeStatus(410, "This issue was deleted"), "not_found", "rejected", NOT_FOUND_MESSAGE),
    (ForgeStatus(422, "Validation Failed: title is too long"), "invalid_argument", "rejected",
     "the forge refused: Validation Failed: title is too long"),
    (ForgeStatus(400, "Problems parsing JSON"), "invalid_argument", "rejected",
     "the forge refused: Problems parsing JSON"),
    (ForgeStatus(301, "moved", moved_to="acme/new"), "not_found", "rejected",
     "the repository or artifact has moved to acme/new"),
    (ForgeStatus(307, "moved"), "not_found", "rejected", "the repository or artifact has moved"),
    (RateLimited(12.5, "the reserve is reached", outcome="not_sent"), "resource_exhausted", "not_sent",
     "the reserve is reached"),
    (RateLimited(60, "a secondary limit", outcome="rejected"), "resource_exhausted", "rejected", "a secondary limit"),
    (Unsupported("linear", "comment"), "unimplemented", "not_sent", "linear does not implement comment"),
    (ForgeUnavailable("connection refused", outcome="not_sent"), "unavailable", "not_sent", "connection refused"),
    (ForgeUnavailable("the forge answered 502", outcome="unknown"), "unavailable", "unknown", "the forge answered 502"),
    (BadAnswer(201, "no URL"), "internal", "unknown", "the forge answered 201 and its answer cannot be used"),
    (BadRepo("repo: must be owner/name"), "invalid_argument", "not_sent", "repo: must be owner/name"),
    (BadCursor("cursor: none of ours"), "invalid_argument", "not_sent", "cursor: none of ours"),
    (IsPullRequest(7), "invalid_argument", "rejected", "that number is a pull request; read it with get_pull_request"),
    (BadCredentials("reviewer", "401"), "failed_precondition", "rejected",
     "the forge does not accept the daemon's reviewer credential; an operator must renew it"),
    (BadReview("comments[0]: no such file"), "invalid_argument", "not_sent", "comments[0]: no such file"),
    (BadArgument("labels: no such label"), "invalid_argument", "not_sent", "labels: no such label"),
    (BadRequest(400, "unknown field"), "internal", "rejected",
     "the forge does not take the daemon's request: unknown field"),
    (ForgePrecondition("a pending review stands in the way"), "failed_precondition", "rejected",
     "a pending review stands in the way"),
    (PullRequestExists(found_pull(7)), "already_exists", "rejected",
     "a pull request for that head and base exists: 7"),
    (PullRequestExists(None), "already_exists", "unknown",
     "a pull request for that head and base exists, and the forge does not show which"),
    (ForeignAnswer(201, "another repository"), "internal", "unknown",
     "the forge answered 201 and its answer cannot be used"),
    (ForgeUnavailable("the reviewer is not verified yet", outcome="not_sent", retry_after_seconds=2.5), "unavailable",
     "not_sent", "the reviewer is not verified yet"),
    (ForgeError("a kind of its own"), "internal", "not_sent", "the provider failed in a way it does not describe"),
]  # fmt: skip


def kinds_below(kind: type[ForgeError]) -> set[type[ForgeError]]:
    found = set(kind.__subclasses__())
    return found.union(*(kinds_below(each) for each in found)) if found else found


def test_the_table_has_a_row_for_every_kind_of_error() -> None:
    ours = {kind for kind in kinds_below(ForgeError) if kind.__module__ == "compass_forged.errors"}
    assert ours <= {type(raised) for raised, *_ in TABLE}


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
@pytest.mark.parametrize(("raised", "code", "outcome", "message"), TABLE)
async def test_each_row_of_the_table(arm: Arm, raised: ForgeError, code: str, outcome: str, message: str) -> None:
    world = await failing(arm, raised)
    error = error_of(await world.run(arm, "k-1"))
    assert (error.code, error.message) == (code, message)
    assert error.outcome == ("" if isinstance(arm, READ_ARMS) else outcome)
    assert error.retry_after_ms == getattr(raised, "retry_after_seconds", 0) * 1000
    assert world.store.recorded == []


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_403_and_404_are_the_same_bytes(arm: Arm) -> None:
    replies: set[bytes] = set()
    for status, detail in ((403, "Resource not accessible by integration"), (404, "Not Found"), (410, "was deleted")):
        world = await failing(arm, ForgeStatus(status, detail))
        replies.add(encode_reply(ResultFrame(call_id="1", result=await world.run(arm, "k-1"))))
    assert len(replies) == 1


async def test_403_and_404_are_the_same_bytes_over_all_arms_but_for_what_a_write_says_of_itself() -> None:
    for arms, outcome in ((STAMPED, "rejected"), ((READ, LISTING, PULL_READ), "")):
        replies: set[bytes] = set()
        for arm in arms:
            for status in (403, 404):
                for repo in ("Acme/site", "acme/secret"):
                    world = await failing(arm, ForgeStatus(status, f"{repo} {status}"))
                    result = await world.run(msgspec.structs.replace(arm, repo=repo))
                    assert refusal_of(result) == ("not_found", outcome)
                    replies.add(encode_reply(ResultFrame(call_id="1", result=result)))
        assert len(replies) == 1


# --- words ----------------------------------------------------------------------------------------------------------

NASTY = [
    "x" * 5000,
    "first\nsecond\r\nthird\x85fourth\u2028fifth",
    "\x1b[2J\x00\x07 bell",
    f"the token {TOKEN} is bad",
    "see https://api.github.com/x?access_token=abc&b=c",
    "open /etc/compass/token: denied",
    " ",
    "",
    "\ud800",
]


@pytest.mark.parametrize("words", NASTY, ids=ascii)
@pytest.mark.parametrize(
    "kind",
    [
        lambda words: ForgeStatus(422, words),
        BadReview,
        ForgePrecondition,
        BadCursor,
        lambda words: ForgeStatus(410, words),
        lambda words: ForgeStatus(301, "moved", moved_to=words),
        lambda words: RateLimited(1, words, outcome="rejected"),
        lambda words: ForgeUnavailable(words, outcome="unknown"),
        BadRepo,
        lambda words: Unsupported(words, words),
        lambda words: BadCredentials(words, words),
        lambda words: BadAnswer(201, words),
    ],
    ids=[
        "422",
        "review",
        "precondition",
        "cursor",
        "410",
        "301",
        "limit",
        "unavailable",
        "repo",
        "unsupported",
        "credentials",
        "answer",
    ],
)
@pytest.mark.parametrize("arm", [COMMENT, READ], ids=["write", "read"])
async def test_a_message_is_one_short_clean_line(arm: Arm, kind: type[ForgeError], words: str) -> None:
    world = await failing(arm, kind(words))
    result = await world.run(arm)
    message = error_of(result).message
    assert len(message) <= MESSAGE_MAX_CHARS
    assert len(message.splitlines()) <= 1
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in message)
    for secret in (TOKEN, "access_token", "/etc/compass"):
        assert secret not in message
    encode_reply(ResultFrame(call_id="1", result=result))


SECRETS = (TOKEN, "github_pat_" + "a1" * 30, "lin_api_" + "a1" * 20, "Bearer " + "a1" * 20)
parts = st.text(max_size=120) | st.sampled_from(
    [
        *SECRETS,
        "https://api.example/x?token=hunter2",
        " /run/secrets/forge-author ",
        "\n",
        "\x1b[31m",
        "\u2029",
        "\ud800",
    ]
)


@given(st.lists(parts, max_size=12).map(" ".join), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_whatever_a_forge_or_a_store_says_is_told_short_clean_and_truly(
    words: str, number: int, write: bool, sent: bool
) -> None:
    outcomes = {"not_sent", "rejected", "unknown"}
    for error in (
        ForgeStatus(422, words),
        ForgeStatus(410, words),
        ForgeStatus(308, words, moved_to=words),
        ForgeStatus(404, words),
        RateLimited(number, words, outcome="not_sent"),
        ForgeUnavailable(words, outcome="not_sent", retry_after_seconds=number),
        BadCredentials(words, words),
        BadAnswer(number, words),
        BadRepo(words),
        BadReview(words),
        BadCursor(words),
        ForgePrecondition(words),
        PullRequestExists(found_pull(number)),
        Unsupported(words, words),
        SubscriptionsExhausted(words),
        StoreUnavailable(words),
        ValueRefused(words),
        CallError("unavailable", words, outcome="not_sent"),
    ):
        told = error_result(to_call_error(error, write=write, sent=sent))
        assert len(told.message) <= MESSAGE_MAX_CHARS
        assert len(told.message.splitlines()) <= 1
        assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in told.message)
        assert not any(secret in told.message for secret in (*SECRETS, "hunter2", "/run/secrets"))
        assert told.outcome in (outcomes - ({"not_sent"} if sent else set()) if write else {""})
        assert told.retry_after_ms >= 0
        encode_reply(ResultFrame(call_id="1", result=told))


async def test_a_loaded_secret_is_cut_out_by_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "_secrets", set())
    observability.register_secret("correct horse")
    world = await failing(READ, ForgeStatus(422, "correct horse is no title"))
    assert error_of(await world.run(READ)).message == "the forge refused: [secret] is no title"


async def test_what_the_agent_wrote_is_shown_bounded_and_clean() -> None:
    world = await new_world()
    error = error_of(await world.run(CreateIssue(repo="a" * 500, title="t")))
    assert len(error.message) <= MESSAGE_MAX_CHARS


# --- what is logged -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
@pytest.mark.parametrize(
    ("error", "status"),
    [(BadAnswer(201, "no URL"), 201), (BadRequest(400, "a field"), 400), (ForgeError("a new kind"), 0)],
)
async def test_an_internal_error_is_logged_with_its_status_and_place(
    events: Logged, arm: Arm, error: ForgeError, status: int
) -> None:
    world = await failing(arm, error)
    await world.run(arm)
    (event,) = [event for event in events if event["event"] == "call failed"]
    assert event["log_level"] == "error"
    assert (event["arm"], event["coordinate"]) == (arm_name(arm), "github:github.com/acme/site")
    assert (event["status"], event["error"]) == (status, f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_an_ordinary_refusal_is_not_logged_as_an_error(events: Logged, arm: Arm) -> None:
    world = await failing(arm, ForgeStatus(422, "no"))
    await world.run(arm)
    assert events == []


# --- bugs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bug", [RuntimeError("secret things"), KeyError("x"), RecursionError(), ExceptionGroup("g", [OSError()])], ids=repr
)
@pytest.mark.parametrize("sent", [False, True], ids=["unsent", "sent"])
@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_a_bug_is_internal_with_its_true_outcome_and_is_logged(
    events: Logged, arm: Arm, bug: Exception, *, sent: bool
) -> None:
    world = await new_world(furnished=True)
    world.client_of(arm).script(arm_name(arm), Step(lost=bug) if sent else Step(error=bug))
    guard = Guard()
    error = error_of(await world.run(arm, "k-1", guard=guard))
    write = not isinstance(arm, READ_ARMS)
    assert guard.sent == (write and sent)
    assert error.code == "internal"
    assert error.outcome == (("unknown" if sent else "not_sent") if write else "")
    assert error.message == "the daemon failed; its log says why"
    (event,) = events
    assert (event["log_level"], event["arm"], event["exc_info"]) == ("error", arm_name(arm), bug)
    assert event["coordinate"] == "github:github.com/acme/site"
    assert world.counters.total("internal_errors", where="service") == 1


async def test_a_bug_in_the_memo_sends_nothing(events: Logged) -> None:
    world = await new_world()
    world.store.hooks["memo"].append(raising(RuntimeError("a bug")))
    assert refusal_of(await world.run(CREATE, "k-1")) == ("internal", "not_sent")
    assert world.forge_calls == 0
    assert len(events) == 1


async def test_a_bug_in_the_index_is_told_as_one(events: Logged) -> None:
    world = await new_world()
    await world.run(CREATE)
    world.store.hooks["attribution"].append(raising(RuntimeError("a bug")))
    assert refusal_of(await world.run(READ)) == ("internal", "")
    assert len(events) == 1


async def test_a_fault_under_the_service_stays_a_fault() -> None:
    world = await failing(READ, Fault("unavailable", "going down"))
    with pytest.raises(Fault) as caught:
        await world.run(READ)
    assert caught.value.code == "unavailable"
