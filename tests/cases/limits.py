"""Replays of the cases about limits, in virtual time: whose turn it is, how long, and what is never lost over it."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import httpx
import structlog.testing
import trio

from compass_forged.budget import BudgetSettings
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.state import loop_clock
from compass_forged.providers.credentials import StaticToken
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.github import GitHubProvider
from compass_forged.wire.schema import (
    CommentOnIssue,
    CreateIssue,
    ErrorResult,
    GetIssue,
    IssueCommentResult,
    IssueResult,
    ListIssues,
    Subscribe,
)
from tests.emulator.inprocess import TOKENS, ForgeTransport
from tests.support.cases import EPOCH, Case, Desk, refused
from tests.support.forge_http import (
    Handler,
    answer,
    comment_json,
    issue_json,
    new_github,
    new_http,
)

READ = GetIssue(repo="acme/site", issue_number=7)
COMMENT = CommentOnIssue(repo="acme/site", issue_number=7, body="hello")
CREATE = CreateIssue(repo="acme/site", title="t")
LISTING = ListIssues(repo="acme/site")
START = datetime(2026, 5, 4, 3, 0, 0, tzinfo=UTC)


def scripted(case: Case) -> httpx.Response:
    """The case's first answer, its times filled in."""
    step = case.input["forge"][0]
    headers = {name: _time(value) for name, value in step["headers"].items()}
    return answer(step["status"], step["body"], headers)


def _time(value: str) -> str:
    return str(EPOCH + int(value[5:-1])) if value.startswith("<now+") else value


async def secondary_forms(case: Case) -> None:
    """A secondary limit is one under either status, whatever stands around the words that say so."""
    step = case.input["forge"][0]
    for status in (403, 429):
        for headers in (step["headers"], {**step["headers"], "x-ratelimit-remaining": "4200"}):
            shown = {name: _time(value) for name, value in headers.items()}
            github, forge = new_github(answer(status, step["body"], shown))
            with trio.fail_after(0.5):
                error = refused(await Desk(github).ask(COMMENT))
            assert (error.code, error.outcome, len(forge.requests)) == ("resource_exhausted", "rejected", 1)
            assert 30_000 <= error.retry_after_ms <= 60_000, error


async def primary_by_its_words(case: Case) -> None:
    """The body decides where the headers still leave something: the limit is used up until its reset."""
    script = case.input["forge"][0]
    reset = {**script["headers"], "x-ratelimit-reset": str(EPOCH + 900)}
    for status in (403, 429):
        body = {"message": script["body"]["errors"][0]["message"]}
        github, forge = new_github(answer(status, body, reset), *[answer(200, issue_json())] * 3)
        desk = Desk(github)
        for _ in range(3):
            with trio.fail_after(5):
                error = refused(await desk.ask(READ))
            assert (error.code, round(error.retry_after_ms, -4)) == ("resource_exhausted", 900_000)
        assert len(forge.requests) == 1


async def the_last_good_answer(_case: Case) -> None:
    """The answer that uses up the limit is told; the next call costs nothing."""
    last = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 1200)}
    github, forge = new_github(answer(200, issue_json(), last))
    desk = Desk(github)
    assert isinstance(await desk.ask(READ), IssueResult)
    with trio.fail_after(10):
        error = refused(await desk.ask(READ))
    assert (error.code, round(error.retry_after_ms, -4), len(forge.requests)) == ("resource_exhausted", 1_200_000, 1)


async def nothing_leaves_during_a_pause(_case: Case) -> None:
    """Ten agents, one of whom is told to wait a minute: none sends anything until then, and each then succeeds once."""
    sent: list[float] = []

    async def limited(_request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        sent.append(trio.current_time())
        if len(sent) == 1:
            return answer(403, {"message": "You have exceeded a secondary rate limit."}, {"retry-after": "60"})
        return answer(201, comment_json(len(sent)))

    steps: list[Handler] = [limited] * 40
    desk = Desk(new_github(*steps)[0])
    done: Counter[str] = Counter()

    async def agent(number: int) -> None:
        await trio.sleep(0 if number == 0 else 0.1)
        until = trio.current_time() + 300
        while trio.current_time() < until:
            with trio.fail_after(30):
                result = await desk.ask(COMMENT, container=f"box-{number}")
            if isinstance(result, IssueCommentResult):
                done[f"box-{number}"] += 1
                return
            error = refused(result)
            assert (error.code, error.retry_after_ms > 0) == ("resource_exhausted", True)
            assert error.retry_after_ms >= (60 - trio.current_time()) * 1000 - 1
            await trio.sleep(error.retry_after_ms / 1000)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(agent, number)
    assert done == {f"box-{number}": 1 for number in range(10)}
    assert sent[1] >= 60
    assert all(later - earlier > 0.999 for earlier, later in pairwise(sent[1:]))  # not all in one instant


async def a_low_count_delays_nothing(_case: Case) -> None:
    """A good answer is told at once however little it leaves; a refusal is waited out by a fresh request, or told."""
    low = {"x-ratelimit-remaining": "5", "x-ratelimit-limit": "5000", "x-ratelimit-reset": str(EPOCH + 3000)}
    desk = Desk(new_github(answer(200, issue_json(), low))[0])
    assert isinstance(await desk.ask(READ), IssueResult)
    assert trio.current_time() == 0
    gone = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 3)}
    github, forge = new_github(answer(403, {"message": "API rate limit exceeded"}, gone), answer(200, issue_json()))
    desk = Desk(github)
    with trio.fail_after(20):
        error = refused(await desk.ask(READ))
        assert (error.code, error.retry_after_ms) == ("resource_exhausted", 4000)
        assert isinstance(await desk.ask(READ), IssueResult)  # waits its turn
    assert len(forge.requests) == 2


async def a_long_wait_is_told_at_once(case: Case) -> None:
    """Who cannot wait so long is answered at once, and holds nothing meanwhile."""
    github, forge = new_github(scripted(case))
    desk = Desk(github)
    for _ in range(20):
        with trio.fail_after(30):
            error = refused(await desk.ask(COMMENT))
        assert (error.code, round(error.retry_after_ms, -4)) == ("resource_exhausted", 3_540_000)
    assert trio.current_time() == 0
    assert len(forge.requests) == 1
    statistics = github.http.gate.statistics()
    assert (statistics.in_flight, statistics.waiting) == (0, {})


async def an_hour_s_budget_is_spent_once(_case: Case) -> None:
    """A forge of a hundred requests an hour, asked three hundred times in its first: it never has to refuse one."""
    settings = ForgeSettings(limits=LimitSettings(per_hour=100))
    forge = Forge(default_seed(TOKENS), settings=settings, clock=loop_clock(START))
    transport = ForgeTransport(forge)
    http = new_http(transport, source=StaticToken(TOKENS["forge-author"]))
    desk = Desk(GitHubProvider(http))
    codes: Counter[str] = Counter()
    for number in range(300):
        await trio.sleep_until(number * 12)
        forge.state.add_comment(forge.state.issue("acme/site", 1), forge.state.account("mona"), "news")  # no free 304
        with trio.fail_after(10):
            result = await desk.ask(ListIssues(repo="acme/site", limit=30, state="all"))
        codes[result.code if isinstance(result, ErrorResult) else "ok"] += 1
        if isinstance(result, ErrorResult):
            assert result.retry_after_ms > 0
    assert codes.keys() == {"ok", "resource_exhausted"}
    assert not [request for request in forge.log.find() if request.status == 403]
    assert 80 <= codes["ok"] <= 100


async def creates_are_paced(_case: Case) -> None:
    """Forty creates of four agents against a forge that wants a second between them: each stands once in the end."""
    made: list[float] = []

    async def create(_request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if len(made) >= 20 and now - made[-1] < 1:
            return answer(403, {"message": "You have exceeded a secondary rate limit."}, {"retry-after": "5"})
        made.append(now)
        return answer(201, issue_json(len(made)))

    steps: list[Handler] = [create] * 200
    desk = Desk(new_github(*steps)[0])
    numbers: list[int] = []

    async def agent(name: int) -> None:
        for index in range(10):
            while True:
                with trio.move_on_after(30):
                    result = await desk.ask(CREATE, f"key-{name}-{index:04}", container=f"box-{name}")
                    if isinstance(result, IssueResult):
                        numbers.append(result.issue.number)
                        break
                    assert refused(result).code == "resource_exhausted"
                    await trio.sleep(refused(result).retry_after_ms / 1000)

    async with trio.open_nursery() as nursery:
        for name in range(4):
            nursery.start_soon(agent, name)
    assert sorted(numbers) == list(range(1, 41))


async def one_line_a_pause(case: Case) -> None:
    """A Retry-After is enough, whatever the words; a pause is one line of the log, and not one for each call."""
    github, forge = new_github(scripted(case))
    desk = Desk(github)
    with structlog.testing.capture_logs() as logs:
        for _ in range(10):
            with trio.fail_after(5):
                error = refused(await desk.ask(LISTING))
            assert (error.code, error.retry_after_ms) == ("resource_exhausted", 45_000)
    assert len(forge.requests) == 1
    assert [line["event"] for line in logs if "throttle" in line["event"]] == ["the forge throttles this credential"]


async def no_headers_no_limit(_case: Case) -> None:
    """An answer without a word on limits is an answer, counted on this side."""
    github, _ = new_github(*[answer(200, issue_json())] * 50)
    desk = Desk(github)
    for _ in range(50):
        assert isinstance(await desk.ask(READ), IssueResult)
    budget = github.http.gate.statistics().budget
    assert (budget.resources[0].remaining, budget.points_last_minute) == (None, 50)


async def subscribing_asks_no_forge(_case: Case) -> None:
    """A subscription is a row: no forge is asked, and nobody's budget is touched."""
    forge = FakeProvider()
    await Desk(forge).ask(Subscribe(repo="acme/site", kind="issue", number=7))
    assert forge.calls == []


async def a_flood_keeps_nobody_waiting(_case: Case) -> None:
    """One container's five hundred creates, and another's read and comment: those have their turn soon."""

    async def create(_request: httpx.Request) -> httpx.Response:
        await trio.sleep(0.3)
        return answer(201, comment_json(1)) if b"body" in _request.content else answer(200, issue_json())

    steps: list[Handler] = [create] * 900
    desk = Desk(new_github(*steps, settings=BudgetSettings())[0])
    codes: Counter[str] = Counter()

    async def flood() -> None:
        with trio.move_on_after(30):
            result = await desk.ask(COMMENT, container="loud")
            codes[result.code if isinstance(result, ErrorResult) else "ok"] += 1

    async with trio.open_nursery() as nursery:
        await desk.ask(READ, container="quiet")
        for _ in range(500):
            nursery.start_soon(flood)
        await trio.sleep(5)
        for arm, kind, seconds in ((READ, IssueResult, 2), (COMMENT, IssueCommentResult, 4)):
            with trio.fail_after(seconds):
                assert isinstance(await desk.ask(arm, container="quiet"), kind)
    assert codes["resource_exhausted"] > 400
    assert codes["ok"] >= 30
