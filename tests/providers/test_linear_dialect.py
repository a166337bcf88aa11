"""How Linear's limits, refusals and credentials are read, whatever the status that they come with."""

import json

import pytest

from compass_forged.budget import DELAY_MAX_SECONDS, Budget, BudgetSettings, Kind
from compass_forged.errors import BadRequest, ForgeError, ForgePrecondition, ForgeStatus, ForgeUnavailable
from compass_forged.providers.dialect import Limit
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.providers.linear_dialect import LinearDialect
from compass_forged.providers.linear_documents import DEAREST_POINTS
from compass_forged.providers.linear_errors import EntityExists, ExclusiveLabels, TeamGone

NOW = 1_733_302_404.386
DIALECT = LinearDialect(wall_clock=lambda: NOW)
RATE_LIMITED = {"message": "Rate limit exceeded", "extensions": {"type": "ratelimited", "code": "RATELIMITED"}}


def told(*errors: object, status: int = 400, data: object = None, **headers: str) -> HttpAnswer:
    body = json.dumps({"data": data, "errors": list(errors)}).encode()
    return HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def error(message: str, **extensions: object) -> dict[str, object]:
    return {"message": message, "extensions": extensions}


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 400, 429])
@pytest.mark.parametrize(
    "extensions", [{"code": "RATELIMITED"}, {"type": "ratelimited"}, {"type": "Ratelimited", "statusCode": 429}]
)
def test_a_limit_is_known_by_the_body_whatever_the_status(status: int, extensions: dict[str, object]) -> None:
    assert DIALECT.limit(told(error("x", **extensions), status=status)) == Limit("secondary", "requests", None)


def test_a_page_with_429_is_a_limit_without_a_look_at_its_body() -> None:
    assert DIALECT.limit(HttpAnswer(429, {}, b"<!DOCTYPE html>")) == Limit("secondary", "requests", None)


def test_the_time_that_is_named_counts_first() -> None:
    answer = told(RATE_LIMITED, retry_after="17", x_ratelimit_requests_remaining="0")
    assert DIALECT.limit(answer) == Limit("secondary", "requests", 17.0)


def test_else_the_last_reset_of_what_is_used_up_in_milliseconds() -> None:
    answer = told(
        RATE_LIMITED,
        x_ratelimit_requests_remaining="0",
        x_ratelimit_requests_reset="1733302464386",
        x_ratelimit_complexity_remaining="0",
        x_ratelimit_complexity_reset="1733302524386",
        x_ratelimit_endpoint_requests_remaining="5",
        x_ratelimit_endpoint_requests_reset="1733309999999",
    )
    limit = DIALECT.limit(answer)
    assert limit is not None
    assert (limit.kind, limit.resource) == ("primary", "complexity")
    assert limit.delay == pytest.approx(120, abs=1)


def test_an_endpoints_own_limit_is_a_throttle() -> None:
    answer = told(
        RATE_LIMITED,
        x_ratelimit_endpoint_requests_remaining="0",
        x_ratelimit_endpoint_requests_reset="1733302434386",
    )
    limit = DIALECT.limit(answer)
    assert limit is not None
    assert limit.kind == "secondary"
    assert limit.delay == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"retry-after": ""},
        {"retry-after": "abc"},
        {"x-ratelimit-requests-remaining": "0", "x-ratelimit-requests-reset": "1"},
        {"x-ratelimit-requests-remaining": "0", "x-ratelimit-requests-reset": "1700000000000"},
        {"x-ratelimit-requests-remaining": "0", "x-ratelimit-requests-reset": "9" * 30},
        {"x-ratelimit-requests-remaining": "0", "x-ratelimit-requests-reset": "-5"},
        {"x-ratelimit-requests-remaining": "0"},
    ],
)
def test_a_limits_end_is_sensible_or_not_told(headers: dict[str, str]) -> None:
    limit = DIALECT.limit(HttpAnswer(400, headers, json.dumps({"errors": [RATE_LIMITED]}).encode()))
    assert limit is not None
    assert limit.delay is None or 1 <= limit.delay <= DELAY_MAX_SECONDS


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(200, {"x-ratelimit-requests-remaining": "0"}, b'{"data": {"viewer": {}}}'),
        HttpAnswer(400, {"x-ratelimit-requests-remaining": "0"}, b'{"errors": [{"message": "no"}]}'),
        HttpAnswer(200, {}, b'{"data": {"issue": {"title": "\\"errors\\": RATELIMITED"}}}'),
        HttpAnswer(503, {}, b'{"errors": "RATELIMITED"}'),
        HttpAnswer(400, {}, b'{"errors": [["RATELIMITED"]]}'),
        HttpAnswer(400, {}, b'{"errors": ' + b"[" * 100_000),
    ],
)
def test_nothing_else_is_a_limit(answer: HttpAnswer) -> None:
    assert DIALECT.limit(answer) is None


# --- two budgets ----------------------------------------------------------------------------------------------------


def headers(requests: int, points: int) -> dict[str, str]:
    return {
        "x-ratelimit-requests-limit": "5000",
        "x-ratelimit-requests-remaining": str(requests),
        "x-ratelimit-requests-reset": "1733304204386",
        "x-ratelimit-complexity-limit": "2000000",
        "x-ratelimit-complexity-remaining": str(points),
        "x-ratelimit-complexity-reset": "1733304204386",
    }


def test_an_answer_tells_both_limits() -> None:
    reading = DIALECT.reading(HttpAnswer(200, headers(4321, 1_999_000)))
    assert reading is not None
    (points,) = reading.also
    assert (reading.resource, reading.limit, reading.remaining, reading.cost) == ("requests", 5000, 4321, 1)
    assert (points.resource, points.limit, points.remaining) == ("complexity", 2_000_000, 1_999_000)
    assert points.cost == DEAREST_POINTS
    assert reading.resets_in == points.resets_in == pytest.approx(1800, abs=1.5)
    assert DIALECT.reading(HttpAnswer(200, {})) is None


@pytest.mark.parametrize(
    ("requests", "points", "opens"),
    [
        (11, 2_000_000, True),
        (10, 2_000_000, False),
        (5000, DEAREST_POINTS * 11, True),
        (5000, DEAREST_POINTS * 11 - 1, False),
    ],
)
def test_either_limit_shuts_the_gate_at_its_reserve(requests: int, points: int, opens: bool) -> None:
    budget = Budget(BudgetSettings(reserve=10))
    budget.spend("read", "core", 0.0)
    budget.settle("read", "core", 0.0, reading=DIALECT.reading(HttpAnswer(200, headers(requests, points))))
    kinds: tuple[Kind, ...] = ("read", "write")
    for kind in kinds:
        delay = budget.opens_in(kind, "core", 0.0)
        assert (delay == 0) is opens
        assert delay <= 1801.5


def test_requests_in_flight_count_as_the_dearest_that_there_are() -> None:
    budget = Budget(BudgetSettings(reserve=0))
    budget.spend("read", "core", 0.0)
    reading = DIALECT.reading(HttpAnswer(200, headers(5000, DEAREST_POINTS * 3)))
    budget.settle("read", "core", 0.0, reading=reading)
    for _ in range(3):
        assert budget.opens_in("read", "core", 0.0) == 0
        budget.spend("read", "core", 0.0)
    assert budget.opens_in("read", "core", 0.0) > 0
    budget.settle("read", "core", 0.0, sent=False)
    assert budget.opens_in("read", "core", 0.0) == 0
    assert {one.resource: one.in_flight for one in budget.status(0.0).resources} == {
        "core": 2,
        "requests": 2,
        "complexity": 2,
    }


def test_an_answer_that_tells_nothing_has_cost_as_much_as_the_dearest() -> None:
    budget = Budget()
    for reading in (DIALECT.reading(HttpAnswer(200, headers(5000, 1_000_000))), None):
        budget.spend("read", "core", 0.0)
        budget.settle("read", "core", 0.0, reading=reading)
    left = {one.resource: one.remaining for one in budget.status(0.0).resources}
    assert (left["requests"], left["complexity"]) == (4999, 1_000_000 - DEAREST_POINTS)


# --- refusals -------------------------------------------------------------------------------------------------------

REFUSALS = [
    (error("Entity not found: Issue", type="invalid input", code="INPUT_ERROR"), ForgeStatus, 404, "rejected"),
    (error("Entity Not Found"), ForgeStatus, 404, "rejected"),
    (error("Entity not found: Team", type="invalid input"), TeamGone, 404, "rejected"),
    (error("forbidden", type="forbidden", code="FORBIDDEN"), ForgeStatus, 403, "rejected"),
    (error("Invalid scope: `write` required", type="forbidden"), ForgePrecondition, None, "rejected"),
    (error("Limit of issues reached", type="usage limit exceeded"), ForgePrecondition, None, "rejected"),
    (error("Not in your plan", type="feature not accessible"), ForgePrecondition, None, "rejected"),
    (error("Argument Validation Error", code="INVALID_INPUT"), ForgeStatus, 422, "rejected"),
    (error("no such thing", code="INPUT_ERROR"), ForgeStatus, 422, "rejected"),
    (error("no", type="user error"), ForgeStatus, 422, "rejected"),
    (error("labelIds not exclusive child labels", code="INPUT_ERROR"), ExclusiveLabels, 422, "rejected"),
    (error("Entity Issue with id `7` already exists", code="INPUT_ERROR"), EntityExists, 409, "rejected"),
    (error("Query too complex", code="INPUT_ERROR"), BadRequest, 400, "rejected"),
    (error("Cannot query field x", code="GRAPHQL_VALIDATION_FAILED"), BadRequest, 400, "rejected"),
    (error("bad", type="graphql error"), BadRequest, 400, "rejected"),
    (error("busy", type="lock timeout"), ForgeUnavailable, None, "unknown"),
    (error("oops", type="internal error"), ForgeUnavailable, None, "unknown"),
    (error("oops", code="INTERNAL_SERVER_ERROR"), ForgeUnavailable, None, "unknown"),
    (error("oops", type="other"), ForgeUnavailable, None, "unknown"),
]


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(("given", "kind", "code", "outcome"), REFUSALS, ids=lambda value: str(value)[:40])
def test_an_error_means_the_same_whatever_the_status(
    given: object, kind: type[ForgeError], code: int | None, outcome: str, status: int
) -> None:
    found = DIALECT.refusal(told(given, status=status))
    assert type(found) is kind
    assert found.outcome == outcome
    if isinstance(found, ForgeStatus):
        assert found.status == code


@pytest.mark.parametrize(("status", "kind"), [(200, ForgeUnavailable), (400, ForgeStatus), (500, ForgeUnavailable)])
def test_an_error_of_bare_words_means_what_the_status_says(status: int, kind: type[ForgeError]) -> None:
    assert type(DIALECT.refusal(told(error("Something went wrong"), status=status))) is kind


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (HttpAnswer(200, {}, b'{"data": {"viewer": {}}}'), None),
        (HttpAnswer(200, {}, b"<html>"), None),
        (HttpAnswer(400, {}, b"{}"), ForgeStatus),
        (HttpAnswer(403, {}, b"<html>"), ForgeStatus),
        (HttpAnswer(404, {}, b"<html>"), ForgeUnavailable),
        (HttpAnswer(408, {}, b""), ForgeUnavailable),
        (HttpAnswer(413, {}, b"<html>"), ForgeStatus),
        (HttpAnswer(422, {}, b'{"errors": {}}'), ForgeStatus),
        (HttpAnswer(503, {}, b"<html>"), ForgeUnavailable),
    ],
)
def test_without_errors_the_status_decides(answer: HttpAnswer, kind: type[ForgeError] | None) -> None:
    found = DIALECT.refusal(answer)
    assert (None if found is None else type(found)) is kind


def test_an_answer_with_data_is_for_the_translator_errors_or_not() -> None:
    assert DIALECT.refusal(told(error("x", type="internal error"), data={"issues": {"nodes": []}})) is None
    assert DIALECT.refusal(told(error("x", type="internal error"), data={"issues": None})) is not None
    assert DIALECT.refusal(told(error("x", type="internal error"), data=[])) is not None


def test_people_are_shown_the_forges_word_for_people_and_what_is_wrong_with_which_value() -> None:
    given = error(
        "Argument Validation Error",
        type="invalid input",
        userPresentableMessage="That is no team.",
        validationErrors=[
            {"property": "teamId", "constraints": {"isUuid": "teamId must be a UUID"}},
            {"property": "x", "constraints": None},
            7,
        ],
    )
    found = DIALECT.refusal(told(given))
    assert isinstance(found, ForgeStatus)
    assert found.detail == "That is no team.: teamId must be a UUID"


def test_a_refusals_words_are_one_bounded_line_without_secrets() -> None:
    found = DIALECT.refusal(told(error("a\r\nb\x1b[31m" + "x" * 10_000, type="user error")))
    assert isinstance(found, ForgeStatus)
    assert found.detail.isprintable()
    assert len(found.detail) <= 400
    secret = DIALECT.refusal(told(error("your lin_api_abcdefghijklmnopqrstuvwxyz0123456789 is bad", type="user error")))
    assert isinstance(secret, ForgeStatus)
    assert "lin_api_abc" not in secret.detail


# --- credentials ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(401, {}, b""),
        told(error("Authentication required, not authenticated", type="authentication error"), status=200),
        told(error("x", code="AUTHENTICATION_ERROR"), status=400),
        told(error("It looks like you're trying to use an API key as a Bearer token. Remove the Bearer prefix")),
    ],
)
def test_a_refused_token_is_known_whatever_the_status(answer: HttpAnswer) -> None:
    assert DIALECT.refuses_credential(answer)


def test_a_missing_scope_is_no_refused_token() -> None:
    assert not DIALECT.refuses_credential(told(error("Invalid scope", type="forbidden"), status=403))


@pytest.mark.parametrize(
    ("token", "bearer", "sent"),
    [
        ("lin_api_x", False, "lin_api_x"),
        ("lin_api_x", True, "lin_api_x"),
        ("lin_oauth_x", False, "Bearer lin_oauth_x"),
        ("lin_oauth_x", True, "Bearer lin_oauth_x"),
        ("else", False, "else"),
        ("else", True, "Bearer else"),
    ],
)
def test_the_form_of_a_token_is_configured_and_its_prefix_guards_it(token: str, bearer: bool, sent: str) -> None:
    assert LinearDialect(bearer=bearer).authorization(token) == sent


def test_nothing_is_followed_anywhere() -> None:
    request = HttpRequest("POST", ("graphql",), json={})
    assert DIALECT.place_request(("graphql",)) is None
    assert DIALECT.place_name(HttpAnswer(200, {}, b"{}")) == ""
    assert DIALECT.moved(request, "ENG") is request


def test_half_a_character_hides_no_error() -> None:
    limited = told({"message": "cut off \ud83d", "extensions": {"code": "RATELIMITED"}})
    assert b"\\ud83d" in limited.body
    assert DIALECT.limit(limited) is not None
    partial = told(error("x"), status=200, data={"issues": {"title": "\ud83d"}})
    assert DIALECT.refusal(partial) is None


def test_points_are_counted_in_tenths_by_linear_and_whole_by_us() -> None:
    reading = DIALECT.reading(
        HttpAnswer(
            200,
            {
                "x-ratelimit-complexity-limit": "2000000.0",
                "x-ratelimit-complexity-remaining": "199.9",
                "x-ratelimit-complexity-reset": "1733302464386.5",
            },
        )
    )
    assert reading is not None
    assert (reading.limit, reading.remaining) == (2_000_000, 199)
    assert reading.resets_in == pytest.approx(60.6, abs=1.0)
