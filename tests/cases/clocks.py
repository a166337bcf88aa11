"""Replays of the cases about times: of limits, tokens, items. On a clock that jumps, with a wall clock beside it."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import httpx
import trio

from compass_forged.ports import TokenSource
from compass_forged.providers.credentials import RECHECK_SECONDS
from compass_forged.providers.fake import FakeProvider
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    ForgeSelector,
    GetIssue,
    GetPullRequest,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    Subscribe,
    SubscribedResult,
)
from tests.support.cases import EPOCH, Case, Desk, refused
from tests.support.forge_http import (
    Handler,
    answer,
    comment_json,
    handler,
    issue_json,
    new_context,
    new_github,
    pull_json,
)

READ = GetIssue(repo="acme/site", issue_number=7)
COMMENT = CommentOnIssue(repo="acme/site", issue_number=7, body="hello")
CREATE = CreateIssue(repo="acme/site", title="t")
LISTING = ListIssues(repo="acme/site")
HOUR_MS = 3_600_000


def limited(status: int, body: object, headers: Mapping[str, str] | list[tuple[bytes, bytes]]) -> httpx.Response:
    """A refusal; in a list a header may come twice, and hold any bytes."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(json.dumps(body).encode()))


async def retry_ms(response: httpx.Response, arm: Arm) -> int:
    """When a call that is refused by ``response`` may be tried again; the refusal has cost one request."""
    github, forge = new_github(response)
    with trio.fail_after(0.5):  # nothing is waited out that was refused
        error = refused(await Desk(github).ask(arm))
    assert (error.code, len(forge.requests)) == ("resource_exhausted", 1), error
    assert error.outcome == ("" if isinstance(arm, GetIssue | ListIssues) else "rejected")
    assert 1000 <= error.retry_after_ms <= HOUR_MS, error
    return error.retry_after_ms


# --- limits ---------------------------------------------------------------------------------------------------------


async def linear_is_not_there(_case: Case) -> None:
    """A call to Linear is refused by name, and goes nowhere."""
    forge = FakeProvider()
    for arm in (ListIssues(repo="SEA"), GetIssue(repo="SEA", issue_number=1), CreateIssue(repo="SEA", title="t")):
        error = refused(await Desk(forge).ask(arm, forge=ForgeSelector(provider="linear")))
        assert error.code == "not_found"
        assert "linear" in error.message
    assert forge.calls == []


async def unusable_retry_times(case: Case) -> None:
    """A limit whose end is not told, or not in words that can be read, counts for a while all the same."""
    forms: dict[str, dict[str, str]] = {
        "no retry-after, no reset headers": {},
        "retry-after: ''": {"retry-after": ""},
        "retry-after: 'abc'": {"retry-after": "abc"},
        "reset header in the past": {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH - 3600)},
    }
    assert set(case.input["variants"]) == forms.keys()
    body = case.input["forge"][0]["body"]
    for headers in (*forms.values(), {"retry-after": "NaN"}, {"retry-after": "inf"}, {"retry-after": "1e9"}):
        for more in ({}, {"x-ratelimit-remaining": "0"}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "NaN"}):
            for arm in (LISTING, COMMENT):
                await retry_ms(limited(429, body, {**more, **headers}), arm)


def _date(epoch: float) -> str:
    return formatdate(epoch, usegmt=True)


def _time(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def retry_after_forms(case: Case) -> None:
    """Retry-After in every form that it takes, or that somebody gives it."""
    script = case.input["forge"][0]
    forms: dict[str, tuple[list[str], int]] = {
        "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT (past)": (["Wed, 21 Oct 2015 07:28:00 GMT"], 1_000),
        "Retry-After: <now+90 s as HTTP-date>": ([_date(EPOCH + 90)], 90_000),
        "Retry-After: -5": (["-5"], 60_000),
        "Retry-After: 1.5": (["1.5"], 60_000),
        "Retry-After: 120, 60": (["120, 60"], 60_000),
        "two Retry-After headers": (["120", "60"], 60_000),
    }
    assert set(case.input["variants"]) == forms.keys()
    more = [(["7"], 7_000), (["0"], 1_000), ([" 30 "], 30_000), (["999999"], HOUR_MS), (["9" * 400], 60_000)]
    more += [([_date(EPOCH + 10 * 86_400)], HOUR_MS), (["\N{FULLWIDTH DIGIT ONE}20"], 60_000), (["1_0"], 60_000)]
    more += [
        (["Thu, 99 Foo 2099 99:99:99 GMT"], 60_000),
        (["Fri, 31 Dec 9999 23:59:59 -9999"], 60_000),
        ([","], 60_000),
    ]
    for values, expected in (*forms.values(), *more):
        headers = [(b"retry-after", value.encode()) for value in values]
        assert await retry_ms(limited(script["status"], script["body"], headers), COMMENT) == expected, values


RESETS: dict[str, tuple[str, float]] = {
    "x-ratelimit-reset = now-30": (str(EPOCH - 30), EPOCH),
    "daemon clock 10 min fast so a good reset looks past": (str(EPOCH - 300), EPOCH - 600),
    "daemon clock 10 min slow": (str(EPOCH + 900), EPOCH + 600),
    "x-ratelimit-reset: 0": ("0", EPOCH),
    "x-ratelimit-reset: '' ": ("", EPOCH),
    "x-ratelimit-reset: 99999999999": ("99999999999", EPOCH),
}
"""The case's variants: the header, and the time by the forge's own clock. Ours says EPOCH."""


async def reset_times(case: Case) -> None:
    """Whatever the reset says, a limit ends within the hour; with a Date beside it our own clock does not matter."""
    assert set(case.input["variants"]) == RESETS.keys()
    script = case.input["forge"][0]
    for name, (reset, served) in RESETS.items():
        headers = {**script["headers"], "x-ratelimit-reset": reset}
        for arm, status in ((READ, 403), (COMMENT, 429)):
            await retry_ms(limited(status, script["body"], headers), arm)
            told = await retry_ms(limited(status, script["body"], {**headers, "date": _date(served)}), arm)
            if "daemon clock" in name:
                assert told == 301_000
    for shift in (-86_400, 86_400):
        headers = {**script["headers"], "x-ratelimit-reset": str(EPOCH + shift + 90), "date": _date(EPOCH + shift)}
        assert await retry_ms(limited(403, script["body"], headers), READ) == 91_000


async def no_hot_loop(case: Case) -> None:
    """An agent that tries again and again while it is refused costs the forge a request a second at most."""
    script = case.input["forge"][0]
    for reset, served in RESETS.values():
        headers = {**script["headers"], "x-ratelimit-reset": reset, "date": _date(served)}
        times: list[float] = []

        async def refuse(_request: httpx.Request, headers: Any = headers, times: Any = times) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            times.append(trio.current_time())
            return limited(script["status"], script["body"], headers)

        steps: list[Handler] = [refuse] * 200
        desk = Desk(new_github(*steps)[0])
        until = trio.current_time() + 60
        while trio.current_time() < until:
            with trio.move_on_after(0.1):
                assert refused(await desk.ask(READ)).code == "resource_exhausted"
            await trio.sleep(0.3)
        assert all(later - earlier > 0.999 for earlier, later in pairwise(times)), times
        assert 1 <= len(times) <= 61  # the last one may fall on the minute


# --- tokens ---------------------------------------------------------------------------------------------------------


class Renewable(TokenSource):
    """A source that holds another token each time that it is read anew, as long as there are others."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    async def token(self) -> str:
        await trio.lowlevel.checkpoint()
        return self._tokens[0]

    def invalidate(self) -> None:
        if len(self._tokens) > 1:
            del self._tokens[0]


async def refused_token(_case: Case) -> None:
    """A token that ran out on its way is a definite no: the write goes out once more with a fresh one, and once only. A
    source that has no other is left alone for a while."""

    async def too_late(_request: httpx.Request) -> httpx.Response:
        await trio.sleep(2)
        return answer(401, {"message": "Bad credentials"})

    done: tuple[tuple[Arm, httpx.Response, type], ...] = (
        (COMMENT, answer(201, comment_json(1)), IssueCommentResult),
        (CREATE, answer(201, issue_json(7)), IssueResult),
        (READ, answer(200, issue_json(7)), IssueResult),
    )
    refusals: tuple[Handler | httpx.Response, ...] = (too_late, answer(403, {"message": "Bad credentials"}))
    for arm, good, kind in done:
        for refusal in refusals:
            github, forge = new_github(refusal, good, source=Renewable("ghs_first-token-001", "ghs_other-token-002"))
            assert isinstance(await Desk(github).ask(arm), kind)
            sent = [request.headers["authorization"] for request in forge.requests]
            assert sent == ["Bearer ghs_first-token-001", "Bearer ghs_other-token-002"]

        github, forge = new_github(too_late, too_late, too_late, good, source=Renewable("ghs_only-token-001"))
        desk = Desk(github)
        for _ in range(20):
            assert refused(await desk.ask(arm)).code == "failed_precondition"
        assert len(forge.requests) == 2
        await trio.sleep(RECHECK_SECONDS)
        assert refused(await desk.ask(arm)).code == "failed_precondition"
        assert len(forge.requests) == 2  # the source holds the same one still


# --- items ----------------------------------------------------------------------------------------------------------


async def subscriptions_deliver_nothing(_case: Case) -> None:
    """No forge is asked for a subscription, now or later: it is a row, and the same one again."""
    forge = FakeProvider()
    desk = Desk(forge)
    kept = [await desk.ask(Subscribe(repo="acme/site", kind="issue", number=7)) for _ in range(3)]
    assert isinstance(kept[0], SubscribedResult)
    assert kept[1:] == [kept[0]] * 2
    linear = refused(
        await desk.ask(Subscribe(repo="SEA", kind="issue", number=7), forge=ForgeSelector(provider="linear"))
    )
    assert linear.code == "not_found"
    assert forge.calls == []


async def order_is_the_forge_s(_case: Case) -> None:
    """Page after page, each item comes once and in the forge's own order, though its times lie hours apart, are all the
    same, or in our future."""
    hours: tuple[Callable[[int], float], ...] = (
        lambda number: number * 3600,
        lambda number: -number * 3600,
        lambda _number: 90,
        lambda number: (number % 3 - 1) * 86_400 * 365,
    )
    for offset in hours:
        pages = []
        for page in range(3):
            numbers = range(90 - 30 * page, 60 - 30 * page, -1)
            times = [_time(EPOCH + offset(number)) for number in numbers]
            body = [
                issue_json(number, created_at=made, updated_at=_time(EPOCH - offset(number)))
                for number, made in zip(numbers, times, strict=True)
            ]
            link = f'<https://api.github.com/repositories/1/issues?per_page=100&page={page + 2}>; rel="next"'
            pages.append(answer(200, body, {"link": link} if page < 2 else {}))
        desk = Desk(new_github(*pages)[0])
        seen: list[int] = []
        cursor = ""
        for _ in range(3):
            result = await desk.ask(ListIssues(repo="acme/site", limit=30, cursor=cursor))
            assert isinstance(result, IssuesResult)
            seen += [issue.number for issue in result.items]
            cursor = result.next_cursor
        assert (seen, cursor) == (list(range(90, 0, -1)), "")


async def offset_dates(case: Case) -> None:
    """Times with an offset are told in UTC; what is not shown may hold what it likes."""
    pull = case.input["forge"][0]["body"]
    told = {**pull_json(9, "acme/widget"), **pull}

    @handler
    def part(request: httpx.Request) -> httpx.Response:
        return answer(200, {"check_runs": [], "statuses": []} if "/commits/" in request.url.path else [])

    github, _ = new_github(answer(200, told), *[part] * 4)
    shown = await github.get_pull_request(GetPullRequest(repo="acme/widget", pull_number=9), new_context()[0])
    assert (shown.title, shown.state, shown.created_at, shown.updated_at) == ("t", "open", "", "2025-06-01T08:00:00Z")
    for closed_at in (pull["closed_at"], "", None, 5, "never"):
        raw = issue_json(
            7, closed_at=closed_at, updated_at=pull["updated_at"], created_at="2025-06-01T10:00:00.5-03:30"
        )
        for body, arm in ((raw, READ), ([raw], LISTING)):
            found = await Desk(new_github(answer(200, body))[0]).ask(arm)
            issue = found.items[0] if isinstance(found, IssuesResult) else getattr(found, "issue", None)
            assert issue is not None, found
            assert (issue.updated_at, issue.created_at) == ("2025-06-01T08:00:00Z", "2025-06-01T13:30:00.500000Z")


async def dates_that_are_none(case: Case) -> None:
    """A time that is none does not cost the item that it stands on, nor the page; least of all a create its memo."""
    impossible = case.input["forge"][0]["body"]["created_at"]
    for time in (impossible, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "", "soon", None):
        for name in ("created_at", "updated_at"):
            raw = {**issue_json(7), name: time}
            for body, arm in ((raw, READ), ([raw, issue_json(6)], LISTING)):
                found = await Desk(new_github(answer(200, body))[0]).ask(arm)
                assert isinstance(found, IssueResult | IssuesResult), (time, name, found)
            github, forge = new_github(answer(201, raw), answer(201, issue_json(8)))
            desk = Desk(github)
            for replayed in (False, True):
                made = await desk.ask(CREATE, "k-1")
                assert isinstance(made, IssueResult), (time, name, made)
                assert (made.issue.number, made.issue.replayed) == (7, replayed), (time, name)
            assert len(forge.requests) == 1
