"""Identical reads share one request, and what the forge marked is asked about: always fresh, never another's loss."""

import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.errors import BadCredentials, ForgeStatus, ForgeUnavailable, RateLimited
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.etags import ANSWER_MAX_BYTES, AnswerCache, tag_of
from compass_forged.providers.flights import Writes
from compass_forged.providers.gate import Gate
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport
from tests.support.forge_http import BASE, TOKEN, answer, new_context, new_http

ISSUE = HttpRequest("GET", ("repos", "acme", "site", "issues", "7"))
OTHER = HttpRequest("GET", ("repos", "acme", "site", "issues", "8"))
COMMENT = HttpRequest("POST", ("repos", "acme", "site", "issues", "7", "comments"), json={"body": "b"})


class Forge(httpx.AsyncBaseTransport):
    """Holds a number that writes count up; answers what it held when a request came, ``seconds`` later."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.value = 0
        self.seen: list[httpx.Request] = []
        self.fail: Callable[[httpx.Request], httpx.Response | Exception | None] = lambda _: None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if request.method == "POST":
            self.value += 1
        value = self.value
        failure = self.fail(request)
        await trio.sleep(self.seconds)
        if isinstance(failure, Exception):
            raise failure
        if failure is not None:
            return failure
        tag = f'W/"{request.headers["authorization"]}-{value}"'.replace(" ", "")
        if request.headers.get("if-none-match") == tag:
            return answer(304, None, {"etag": tag})
        return answer(200 if request.method == "GET" else 201, {"value": value}, {"etag": tag, "x-value": str(value)})


def told(answer: Any) -> bytes:
    return bytes(answer.body)


async def read(http: ForgeHttp, into: list[bytes], request: HttpRequest = ISSUE, container: str = "box") -> None:
    into.append(told(await http.read(request, new_context(container)[0])))


def one(http: ForgeHttp, request: HttpRequest = ISSUE) -> Callable[[], Awaitable[bytes]]:
    async def call() -> bytes:
        return told(await http.read(request, new_context()[0]))

    return call


# --- flights --------------------------------------------------------------------------------------------------------


async def test_identical_reads_under_way_are_one_request(autojump_clock: MockClock) -> None:
    forge, got = Forge(), list[bytes]()
    http = new_http(forge)
    contexts = [new_context(f"box-{index}")[0] for index in range(50)]

    async def call(index: int) -> None:
        got.append(told(await http.read(ISSUE, contexts[index])))

    async with trio.open_nursery() as nursery:
        for index in range(50):
            nursery.start_soon(call, index)
        nursery.start_soon(read, http, [], OTHER)
    assert got == [b'{"value": 0}'] * 50
    assert len(forge.seen) == 2
    assert sum(context.forge_requests for context in contexts) == 1
    assert len(http.gate.flights) == 0
    assert http.gate.statistics().in_flight == 0


async def test_a_cancelled_leader_does_not_fail_its_followers_and_a_follower_not_its_leader(
    autojump_clock: MockClock,
) -> None:
    forge, got = Forge(), list[bytes]()
    http = new_http(forge)

    async def cancelled(after: float) -> None:
        with trio.move_on_after(after):
            await http.read(ISSUE, new_context("hostile")[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled, 0.5)
        await wait_all_tasks_blocked()
        for container in ("a", "b"):
            nursery.start_soon(read, http, got, ISSUE, container)
        nursery.start_soon(cancelled, 0.3)  # before the leader: whoever is left may lead the next flight
    assert got == [b'{"value": 0}'] * 2
    assert len(forge.seen) == 2
    assert trio.current_time() == 1.5


async def test_each_follower_has_its_own_deadline(autojump_clock: MockClock) -> None:
    forge = Forge(seconds=60)
    http = new_http(forge)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, http, [])
        await wait_all_tasks_blocked()
        with trio.move_on_after(5) as scope:
            await http.read(ISSUE, new_context()[0])
        assert scope.cancelled_caught
        assert trio.current_time() == 5
        nursery.cancel_scope.cancel()
    assert http.gate.statistics().in_flight == 0
    assert len(http.gate.flights) == 0


@pytest.mark.parametrize("ours", ["same credential", "the other role"])
async def test_who_reads_after_a_write_sees_it_though_an_older_read_is_under_way(
    ours: str, autojump_clock: MockClock
) -> None:
    forge, before, after = Forge(seconds=10), list[bytes](), list[bytes]()
    writes = Writes()
    reader, other = (
        ForgeHttp(
            HttpTransport(BASE, transport=forge),
            Gate(Budget()),
            Credential("author", StaticToken(TOKEN)),
            GitHubDialect(),
            writes=writes,
        )
        for _ in range(2)
    )
    writer = reader if ours == "same credential" else other
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, reader, before)
        await trio.sleep(1)
        forge.seconds = 1
        await writer.write(COMMENT, new_context()[0])
        await read(reader, after)
        assert before == []
    assert (before, after) == ([b'{"value": 0}'], [b'{"value": 1}'])


async def test_a_read_that_waits_at_the_gate_goes_along_with_another_container_s(autojump_clock: MockClock) -> None:
    """It is sent after all of them have asked, so it is as fresh as their own would be."""
    forge, got = Forge(), list[bytes]()
    http = new_http(forge, settings=BudgetSettings(points_per_minute=5))
    for _ in range(5):
        await http.read(OTHER, new_context()[0])
    async with trio.open_nursery() as nursery:
        for index in range(40):
            nursery.start_soon(read, http, got, ISSUE, f"box-{index % 4}")
        await wait_all_tasks_blocked()
        assert sum(http.gate.statistics().waiting.values()) == 40
        forge.value = 3
    assert got == [b'{"value": 3}'] * 40
    assert len(forge.seen) == 6
    assert http.gate.statistics().waiting == {}
    assert http.gate._alike == {}


async def test_who_waits_long_does_not_keep_the_same_read_of_another_container_waiting(
    autojump_clock: MockClock,
) -> None:
    forge, got = Forge(seconds=10), list[bytes]()
    http = ForgeHttp(
        HttpTransport(BASE, transport=forge),
        Gate(Budget(), concurrency=1),
        Credential("author", StaticToken(TOKEN)),
        GitHubDialect(),
    )
    async with trio.open_nursery() as nursery:
        for number in range(20):  # a queue of its own making
            request = HttpRequest("GET", ("repos", "acme", "site", "issues", str(100 + number)))
            nursery.start_soon(read, http, [], request, "loud")
        await wait_all_tasks_blocked()
        nursery.start_soon(read, http, got, ISSUE, "loud")
        await wait_all_tasks_blocked()
        nursery.start_soon(read, http, got, ISSUE, "quiet")
        await trio.sleep(35)
        assert len(got) == 2  # the loud one's comes along with the quiet one's turn
        nursery.cancel_scope.cancel()


async def test_a_failure_is_shared_and_each_tries_again_by_itself(autojump_clock: MockClock) -> None:
    forge, got = Forge(), list[bytes]()
    forge.fail = lambda _: httpx.ReadError("reset") if len(forge.seen) == 1 else None
    http = new_http(forge)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(read, http, got)
    assert got == [b'{"value": 0}'] * 10
    assert len(forge.seen) == 2


async def test_a_forge_that_keeps_failing_fails_all_in_the_time_of_one(autojump_clock: MockClock) -> None:
    forge = Forge()
    forge.fail = lambda _: httpx.ReadError("reset")
    http = new_http(forge)

    async def failing() -> None:
        with pytest.raises(ForgeUnavailable) as failure:
            await http.read(ISSUE, new_context()[0])
        assert failure.value.outcome == "unknown"

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(failing)
    assert len(forge.seen) == 3
    assert trio.current_time() < 5


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_a_refusal_is_each_one_s_own(status: int, autojump_clock: MockClock) -> None:
    forge, raised = Forge(), list[ForgeStatus]()
    forge.fail = lambda _: answer(status, {"message": "no"})
    http = new_http(forge)

    async def refused() -> None:
        with pytest.raises(ForgeStatus) as failure:
            await http.read(ISSUE, new_context()[0])
        raised.append(failure.value)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(refused)
    assert len(set(map(id, raised))) == 5
    assert len(forge.seen) == 1


async def test_a_limit_is_met_by_one_request_and_told_to_all(autojump_clock: MockClock) -> None:
    forge = Forge()
    forge.fail = lambda _: answer(429, {"message": "slow down"}, {"retry-after": "120"})
    http = new_http(forge)

    async def limited() -> None:
        with trio.fail_after(30), pytest.raises(RateLimited):
            await http.read(ISSUE, new_context()[0])

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(limited)
    assert len(forge.seen) == 1


async def test_a_refused_token_costs_two_requests_for_all_who_share(autojump_clock: MockClock) -> None:
    forge = Forge()
    forge.fail = lambda _: answer(401, {"message": "Bad credentials"})
    http = new_http(forge)

    async def broken() -> None:
        with pytest.raises(BadCredentials):
            await http.read(ISSUE, new_context()[0])

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(broken)
    assert len(forge.seen) == 2


async def test_a_follower_is_held_to_its_own_scope_after_a_redirect(autojump_clock: MockClock) -> None:
    forge, got = Forge(), list[bytes]()
    forge.fail = lambda request: (
        answer(301, {}, {"location": "https://api.github.com/repositories/9/issues/7"})
        if request.url.path.startswith("/repos/")
        else None
    )
    http = new_http(forge)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read, http, got)
    assert len(got) == 3
    assert [request.url.path for request in forge.seen] == ["/repos/acme/site/issues/7", "/repositories/9/issues/7"]


async def test_an_unexpected_error_of_the_leader_is_its_own(autojump_clock: MockClock) -> None:
    forge, got = Forge(), list[bytes]()
    forge.fail = lambda _: ValueError("ours to mend") if len(forge.seen) == 1 else None
    http = new_http(forge)

    async def leader() -> None:
        with pytest.raises(ValueError, match="ours to mend"):
            await http.read(ISSUE, new_context()[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader)
        await wait_all_tasks_blocked()
        nursery.start_soon(read, http, got)
    assert got == [b'{"value": 0}']


# --- entity tags ----------------------------------------------------------------------------------------------------


async def test_what_has_not_changed_is_told_again_and_what_has_is_told_anew(autojump_clock: MockClock) -> None:
    forge = Forge()
    http = new_http(forge)
    first = await http.read(ISSUE, new_context()[0])
    again = await http.read(ISSUE, new_context()[0])
    assert (again.status, again.body, again.headers["x-value"]) == (200, first.body, "0")
    assert "if-none-match" not in forge.seen[0].headers
    assert forge.seen[1].headers["if-none-match"] == 'W/"Bearer' + TOKEN + '-0"'
    forge.value = 5
    assert told(await http.read(ISSUE, new_context()[0])) == b'{"value": 5}'
    assert told(await http.read(ISSUE, new_context()[0])) == b'{"value": 5}'
    assert "if-none-match" not in (await _sent(http, forge, OTHER)).headers


async def _sent(http: ForgeHttp, forge: Forge, request: HttpRequest) -> httpx.Request:
    await http.read(request, new_context()[0])
    return forge.seen[-1]


async def test_another_token_asks_anew(autojump_clock: MockClock) -> None:
    class Source:
        value = "token-one"

        async def token(self) -> str:
            await trio.lowlevel.checkpoint()
            return self.value

        def invalidate(self) -> None: ...

    forge, source = Forge(), Source()
    http = new_http(forge, source=source)
    await http.read(ISSUE, new_context()[0])
    source.value = "token-two"
    for expected in (None, 'W/"Bearertoken-two-0"'):
        assert (await _sent(http, forge, ISSUE)).headers.get("if-none-match") == expected


async def test_a_write_is_never_conditional(autojump_clock: MockClock) -> None:
    forge = Forge()
    http = new_http(forge)
    same = HttpRequest("POST", ISSUE.path, json={})
    await http.read(ISSUE, new_context()[0])
    await http.write(same, new_context()[0])
    assert "if-none-match" not in forge.seen[-1].headers


async def test_an_answer_that_was_not_asked_about_is_none(autojump_clock: MockClock) -> None:
    forge = Forge()
    forge.fail = lambda _: answer(304)
    with pytest.raises(ForgeUnavailable, match="304"):
        await new_http(forge).read(ISSUE, new_context()[0])


async def test_a_deleted_artifact_is_not_told_of_again(autojump_clock: MockClock) -> None:
    forge = Forge()
    http = new_http(forge)
    await http.read(ISSUE, new_context()[0])
    forge.fail = lambda _: answer(404, {"message": "Not Found"})
    with pytest.raises(ForgeStatus):
        await http.read(ISSUE, new_context()[0])
    assert len(http._answers) == 0


async def test_a_failure_does_not_forget_what_may_still_hold(autojump_clock: MockClock) -> None:
    forge = Forge()
    http = new_http(forge)
    await http.read(ISSUE, new_context()[0])
    forge.fail = lambda _: answer(502) if len(forge.seen) == 2 else None
    await http.read(ISSUE, new_context()[0])
    assert "if-none-match" in forge.seen[-1].headers


def marked(size: int = 10, tag: str = 'W/"a"', **more: Any) -> HttpAnswer:
    return HttpAnswer(**{"status": 200, "headers": {"etag": tag}, "body": b"x" * size, **more})


@pytest.mark.parametrize(
    ("tag", "kept"),
    [
        ('W/"abc+/="', True),
        ('"strong"', True),
        ('""', True),
        ("bare", False),
        ('"two" "tags"', False),
        ('"a\r\nx-evil: 1"', False),
        ('"\u00e9"', False),
        ('"' + "x" * 257 + '"', False),
        ("", False),
    ],
)
def test_only_a_tag_that_can_be_sent_back_is_one(tag: str, kept: bool) -> None:
    assert tag_of(marked(tag=tag)) == (tag if kept else "")


def test_the_least_recently_used_goes_first_at_either_bound() -> None:
    cache = AnswerCache(entries_max=3, total_max_bytes=10_000)
    cache.find("a", "t")
    for key in "abc":
        cache.keep(key, "t", marked())
    cache.find("a", "t")
    cache.keep("d", "t", marked())
    assert [key for key in "abcd" if cache.find(key, "t")] == ["a", "c", "d"]
    cache.keep("e", "t", marked(9_000))
    assert [key for key in "abcde" if cache.find(key, "t")] == ["e"]
    assert cache.total_bytes <= 10_000
    cache.keep("f", "t", marked(11_000))
    assert len(cache) == 0
    assert cache.total_bytes == 0


@pytest.mark.parametrize(
    "other",
    [
        marked(flaw="cut off", body=b""),
        marked(tag="none"),
        marked(ANSWER_MAX_BYTES),
        marked(status=404),
        marked(status=301),
    ],
)
def test_what_cannot_be_asked_about_only_takes_the_place_of_what_was_there(other: HttpAnswer) -> None:
    cache = AnswerCache()
    cache.find("a", "t")
    cache.keep("a", "t", marked())
    cache.keep("a", "t", other)
    assert (len(cache), cache.total_bytes) == (0, 0)


def test_an_answer_under_a_token_that_has_changed_meanwhile_is_not_kept() -> None:
    cache = AnswerCache()
    cache.find("a", "old")
    cache.find("b", "new")
    cache.keep("a", "old", marked())
    assert len(cache) == 0


async def test_a_tagged_answer_in_gzip_is_kept_decoded(autojump_clock: MockClock) -> None:
    forge = Forge()
    packed = gzip.compress(b'{"value": 1}')
    forge.fail = lambda request: (
        answer(304)
        if "if-none-match" in request.headers
        else answer(200, packed, {"etag": '"g"', "content-encoding": "gzip"})
    )
    http = new_http(forge)
    assert [await one(http)() for _ in range(2)] == [b'{"value": 1}'] * 2


async def test_those_who_lead_and_leave_keep_nobody_from_an_answer(autojump_clock: MockClock) -> None:
    http = new_http(Forge(1.0))
    got = list[bytes]()
    ended = trio.Event()

    async def leave() -> None:
        while not ended.is_set():
            with trio.move_on_after(0.3):
                await http.read(ISSUE, new_context("hostile")[0])

    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(leave)
        await wait_all_tasks_blocked()
        await read(http, got, ISSUE, "victim")
        ended.set()
    assert got == [b'{"value": 0}']
    assert trio.current_time() <= 2.0


async def test_a_page_that_stayed_as_it_was_tells_of_the_pages_that_came_since(autojump_clock: MockClock) -> None:
    page = HttpRequest("GET", ("repos", "acme", "site", "issues"), (("page", "1"),))
    forge = Forge()
    links = {"etag": 'W/"one"', "link": '<https://api.github.com/x?page=2>; rel="next"', "content-length": "0"}
    told_at_first: list[httpx.Response] = [
        answer(200, [1], {"etag": 'W/"one"', "date": "then"}),
        answer(304, None, links),
        answer(304, None, {"etag": 'W/"one"'}),
    ]
    forge.fail = lambda _request: told_at_first.pop(0)
    http = new_http(forge)
    first, second, third = [await http.read(page, new_context()[0]) for _ in range(3)]
    assert "link" not in first.headers
    assert (second.body, second.status) == (first.body, 200)
    assert second.headers["link"] == links["link"]
    assert "content-length" not in second.headers
    assert (second.headers["date"], third.headers["link"]) == ("then", links["link"])
