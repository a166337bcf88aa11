"""What becomes of one call whatever the forge does: retries, outcomes, redirects, refused tokens, limits."""

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx
import pytest
import structlog.testing
import trio
import trio.testing

from compass_forged.budget import BudgetSettings
from compass_forged.errors import (
    BadAnswer,
    BadCredentials,
    ConfigError,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
    RateLimited,
)
from compass_forged.ports import CallContext
from compass_forged.providers.doubt import Doubt
from compass_forged.providers.forge_answer import AnswerTooLarge
from compass_forged.providers.http import BODY_MAX_BYTES, CONCURRENCY_MAX, HttpAnswer, HttpRequest
from compass_forged.providers.urls import BaseUrl
from tests.support.forge_http import (
    TOKEN,
    Handler,
    RecordingGuard,
    ScriptedForge,
    answer,
    new_context,
    new_http,
    sample,
)

READ = HttpRequest("GET", ("repos", "acme", "site", "issues"), (("page", "2"),))
WRITE = HttpRequest("POST", ("repos", "acme", "site", "issues"), json={"title": "t"})
HTML = b"<html>Unicorn! secret-of-the-proxy</html>"


def scripted(*script: httpx.Response | Exception | Handler) -> ScriptedForge:
    return ScriptedForge(list(script))


# --- classification -------------------------------------------------------------------------------------------------

TABLE: list[tuple[str, type[ForgeError], str]] = [
    ("error-400-api-version", ForgeStatus, "not a supported version.: bad"),
    ("error-403-not-accessible-by-integration", ForgeStatus, "not accessible by integration"),
    ("error-403-primary-rate-limit", RateLimited, "primary"),
    ("error-403-secondary-no-retry-after", RateLimited, "secondary"),
    ("error-404-not-found", ForgeStatus, "Not Found"),
    ("error-410-issues-disabled", ForgeStatus, "disabled"),
    ("error-422-body-too-long", ForgeStatus, "Validation Failed: Body is too long"),
    ("error-422-label-invalid", ForgeStatus, "Validation Failed: Label.color: invalid"),
    ("error-422-pending-review", ForgeStatus, "one pending review"),
    ("error-422-self-approval", ForgeStatus, "own pull request"),
    ("error-429-secondary-retry-after", RateLimited, "secondary"),
]


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(("name", "kind", "text"), TABLE)
async def test_recorded_refusals(name: str, kind: type[ForgeError], text: str, write: bool) -> None:
    forge = scripted(sample(name))
    http = new_http(forge)
    context, guard = new_context()
    with pytest.raises(kind, match=text) as refused:
        await (http.write(WRITE, context) if write else http.read(READ, context))
    assert refused.value.outcome == "rejected"
    assert len(forge.requests) == 1
    assert context.forge_requests == 1
    assert guard.sendings == int(write)


def refusal(message: str, **more: object) -> dict[str, object]:
    return {"message": message, **more}


EPOCH = 1_760_000_000  # the wall clock of these tests, for answers without a Date


@pytest.mark.parametrize(
    ("response", "seconds"),
    [
        (answer(403, refusal("x"), {"retry-after": "45"}), 45),
        (answer(429, HTML), 60),
        (answer(403, refusal("You have triggered an abuse detection mechanism.")), 60),
        (answer(403, refusal("x", documentation_url="https://docs.github.com/rest#abuse-rate-limits")), 60),
        (answer(403, refusal("Maximum number of login attempts exceeded. Please try again later.")), 60),
        (answer(403, refusal("You have exceeded a secondary rate limit."), {"x-ratelimit-remaining": "4000"}), 60),
        (answer(403, refusal("x"), {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 99)}), 100),
        (answer(429, refusal("x"), {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH - 99)}), 1),
        (answer(429, refusal("x"), {"x-ratelimit-remaining": "0"}), 60),
        (answer(429, refusal("x"), {"x-ratelimit-remaining": "0", "x-ratelimit-resource": "X Y"}), 60),
        (answer(422, refusal("Validation Failed", errors=[{"message": "was submitted too quickly"}])), 60),
        (answer(422, refusal("was submitted too quickly"), {"retry-after": "7"}), 7),
        (answer(429, refusal("x"), {"retry-after": "Sat, 29 Oct 1994 19:43:31 GMT"}), 1),
        (answer(403, refusal("x"), {"retry-after": "soon"}), 60),
        (answer(403, refusal("x"), {"retry-after": "-5", "x-ratelimit-remaining": "4000"}), 60),
        (answer(403, HTML, {"retry-after": ""}), 60),
        (answer(429, refusal("x"), {"retry-after": "soon"}), 60),
    ],
)
async def test_limits_in_all_their_forms(
    response: httpx.Response, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    forge = scripted(response)
    http = new_http(forge)
    context, _ = new_context()
    with pytest.raises(RateLimited) as refused:
        await http.write(WRITE, context)
    assert refused.value.retry_after_seconds == pytest.approx(seconds)
    with trio.fail_after(seconds - 0.5), pytest.raises(RateLimited) as gated:
        await http.write(WRITE, context)
    assert gated.value.outcome == "not_sent"
    assert len(forge.requests) == 1


@pytest.mark.parametrize("status", [403, 429])
async def test_a_limit_by_another_name_than_the_requests_own_stops_both_until_its_end(
    status: int, autojump_clock: trio.testing.MockClock
) -> None:
    told = {
        "x-ratelimit-resource": "dependency_snapshots",
        "x-ratelimit-limit": "100",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(EPOCH + 59),
    }
    plenty = {"x-ratelimit-resource": "core", "x-ratelimit-limit": "5000", "x-ratelimit-remaining": "4000"}
    forge = scripted(answer(200, [], plenty), answer(status, refusal("x"), told), answer(200, [], plenty))
    http = new_http(forge)
    await http.read(READ, new_context()[0])
    for left in (60.0, 59.0):
        with trio.fail_after(30), pytest.raises(RateLimited) as refused:
            await http.read(READ, new_context()[0])
        assert refused.value.retry_after_seconds == pytest.approx(left)
        await trio.sleep(1)
    assert len(forge.requests) == 2
    resources = {one.resource: one.remaining for one in http.gate.statistics().budget.resources}
    assert resources == {"core": 4000, "dependency_snapshots": 0}
    await http.read(READ, new_context()[0])
    assert trio.current_time() == pytest.approx(60.0)


async def test_a_pause_is_logged_once(autojump_clock: trio.testing.MockClock) -> None:
    async def limited(_request: httpx.Request) -> httpx.Response:
        await trio.sleep(1)
        return answer(429, refusal("slow down"), {"retry-after": "30"})

    http = new_http(scripted(limited, limited, limited))

    async def call(number: int) -> None:
        with pytest.raises(RateLimited):
            await http.read(HttpRequest("GET", ("repos", "acme", "site", "issues", str(number))), new_context()[0])

    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(call, number)
    assert [log["seconds"] for log in logs] == [30]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ([{"resource": "Issue", "field": "title", "code": "missing_field"}], "m: Issue.title: missing_field"),
        ([{"message": "one"}, {"message": "one"}, "two", 3, {}], "m: one; two; request: refused"),
        ("bare", "m: bare"),
        (None, "m"),
        ({"message": "lone"}, "m: lone"),
        ([{"message": 5, "code": "invalid"}], "m: request: invalid"),
    ],
)
async def test_the_forge_s_words_are_flattened(errors: object, text: str) -> None:
    http = new_http(scripted(answer(422, refusal("m", errors=errors))))
    with pytest.raises(ForgeStatus) as refused:
        await http.write(WRITE, new_context()[0])
    assert refused.value.detail == text


async def test_the_forge_s_words_are_one_bounded_line_without_tokens() -> None:
    words = f"a\nb\x1b[31m\u2028 {TOKEN} " + "x" * 1000
    http = new_http(scripted(answer(400, refusal(words))))
    with pytest.raises(ForgeStatus) as refused:
        await http.write(WRITE, new_context()[0])
    assert refused.value.detail.startswith("a b [31m [secret] x")
    assert len(refused.value.detail) == 400


@pytest.mark.parametrize("body", [HTML, b"[]", b'{"message": 5}', b"\xff", b"[" * 100_000])
async def test_a_refusal_that_is_no_json_shows_nothing_of_it(body: bytes) -> None:
    http = new_http(scripted(answer(403, body)))
    with pytest.raises(ForgeStatus) as refused:
        await http.write(WRITE, new_context()[0])
    assert refused.value.detail == ""


# --- retries and outcomes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        answer(500, HTML),
        answer(503),
        answer(408),
        answer(200, b"x", {"content-encoding": "gzip"}),
        httpx.ReadError("reset"),
        httpx.ConnectError("refused"),
    ],
)
async def test_a_read_is_tried_three_times(
    failure: httpx.Response | Exception, autojump_clock: trio.testing.MockClock
) -> None:
    forge = scripted(failure, failure, answer(200, {"ok": True}))
    context, _ = new_context()
    found = await new_http(forge).read(READ, context)
    assert found.body == b'{"ok": true}'
    assert context.forge_requests == 3
    assert trio.current_time() == pytest.approx(0.75)


async def test_a_read_that_keeps_failing_is_unavailable(autojump_clock: trio.testing.MockClock) -> None:
    forge = scripted(*[answer(502, HTML)] * 3)
    with pytest.raises(ForgeUnavailable, match=r"^the forge answered 502$"):
        await new_http(forge).read(READ, new_context()[0])
    assert len(forge.requests) == 3


async def test_no_retry_begins_that_the_deadline_would_end(autojump_clock: trio.testing.MockClock) -> None:
    forge = scripted(answer(502), answer(502))
    with trio.fail_after(0.3), pytest.raises(ForgeUnavailable):
        await new_http(forge).read(READ, new_context()[0])
    assert len(forge.requests) == 2


async def test_a_read_that_is_too_large_is_not_tried_again() -> None:
    forge = scripted(answer(200, b"0" * (BODY_MAX_BYTES + 1)))
    with pytest.raises(AnswerTooLarge):
        await new_http(forge).read(READ, new_context()[0])


@pytest.mark.parametrize(
    ("response", "kind", "outcome"),
    [
        (answer(500, HTML), ForgeUnavailable, "unknown"),
        (answer(502), ForgeUnavailable, "unknown"),
        (answer(408), ForgeUnavailable, "unknown"),
        (answer(304), ForgeUnavailable, "unknown"),
        (httpx.ReadError("reset"), ForgeUnavailable, "unknown"),
        (answer(201, b"x", {"content-encoding": "gzip"}), BadAnswer, "unknown"),
        (answer(201, b"0" * (BODY_MAX_BYTES + 1)), BadAnswer, "unknown"),
        (answer(422, b"x", {"content-encoding": "gzip"}), ForgeStatus, "rejected"),
    ],
)
async def test_a_write_is_never_repeated_once_it_went_out(
    response: httpx.Response | Exception, kind: type[ForgeError], outcome: str
) -> None:
    forge = scripted(response)
    context, guard = new_context()
    with pytest.raises(kind) as failed:
        await new_http(forge).write(WRITE, context)
    assert failed.value.outcome == outcome
    assert len(forge.requests) == 1
    assert guard.sendings == 1


@pytest.mark.parametrize("drop_after", [1, 50, math.inf])
async def test_a_write_reaches_a_server_that_drops_it_at_most_once(drop_after: float) -> None:
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        received = b""
        while len(received) < drop_after and b'"}' not in received:
            received += await stream.receive_some()
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    context, guard = new_context()
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        http = new_http(None, base=BaseUrl.parse(f"http://127.0.0.1:{port}"))
        with pytest.raises(ForgeUnavailable) as failed:
            await http.write(WRITE, context)
        nursery.cancel_scope.cancel()
    assert failed.value.outcome == "unknown"
    assert connections == 1
    assert guard.sendings == 1


@pytest.mark.parametrize(("deadline", "tries"), [(0.35, 2), (30.0, 3)])
async def test_a_write_that_cannot_connect_is_tried_again_and_never_told_as_sent(deadline: float, tries: int) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    http = new_http(None, base=BaseUrl.parse(f"http://127.0.0.1:{port}"), jitter=0.1)  # after 0.15 s and 0.3 s more
    context, guard = new_context()
    with trio.fail_after(deadline), pytest.raises(ForgeUnavailable) as failed:
        await http.write(WRITE, context)
    assert failed.value.outcome == "not_sent"
    assert context.forge_requests == tries
    assert guard.sendings == 0
    budget = http.gate.statistics().budget
    assert budget.creations_last_hour == 0


async def test_cancelled_calls_leave_gate_and_transport_whole(autojump_clock: trio.testing.MockClock) -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    http = new_http(scripted(*[never] * 100), settings=BudgetSettings(creation_interval=0.0))
    async with trio.open_nursery() as nursery:
        for index in range(100):
            nursery.start_soon(http.write, WRITE, new_context(f"box-{index % 7}")[0])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert http.gate.statistics().in_flight == 0
    assert http.gate.statistics().waiting == {}
    assert http._transport.free_slots == CONCURRENCY_MAX


# --- credentials ----------------------------------------------------------------------------------------------------


class Source:
    """Hands out its tokens in order, the next one after each ``invalidate``; the last one stays."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def token(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.tokens[0]

    def invalidate(self) -> None:
        if len(self.tokens) > 1:
            self.tokens.pop(0)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("response", [sample("error-401-bad-credentials"), answer(403, refusal("Bad credentials"))])
async def test_a_refused_token_is_read_anew_once(response: httpx.Response, write: bool) -> None:
    forge = scripted(response, answer(200, {}))
    http = new_http(forge, source=Source("token-old", "token-new"))
    context, guard = new_context()
    await (http.write(WRITE, context) if write else http.read(READ, context))
    assert [request.headers["authorization"] for request in forge.requests] == ["Bearer token-old", "Bearer token-new"]
    assert guard.sendings == int(write)
    assert not http.credential.broken


async def test_a_token_refused_twice_breaks_the_role(autojump_clock: trio.testing.MockClock) -> None:
    forge = scripted(sample("error-401-bad-credentials"), sample("error-401-jwt-exp"), answer(200, {}))
    source = Source("token-old")
    http = new_http(forge, source=source)
    with pytest.raises(BadCredentials) as refused:
        await http.write(WRITE, new_context()[0])
    assert refused.value.outcome == "rejected"
    assert refused.value.role == "author"
    for _ in range(10):
        with pytest.raises(BadCredentials) as fast:
            await http.write(WRITE, new_context()[0])
        assert fast.value.outcome == "not_sent"
    assert len(forge.requests) == 2
    source.tokens = ["token-new"]
    await trio.sleep(30)
    await http.read(READ, new_context()[0])
    assert len(forge.requests) == 3


class Revoked(httpx.AsyncBaseTransport):
    """Takes a second for each request, and takes one token alone; tells what it was sent."""

    def __init__(self, good: str = "") -> None:
        self.good = good
        self.tokens: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["authorization"].removeprefix("Bearer ")
        self.tokens.append(token)
        await trio.sleep(1)
        return answer(201, {}) if token == self.good else answer(401, refusal("Bad credentials"))


async def test_of_those_who_wait_when_a_token_is_revoked_none_sends_it(autojump_clock: trio.testing.MockClock) -> None:
    forge = Revoked()
    http = new_http(forge, source=Source("token-old"), settings=BudgetSettings(creation_burst=100))
    outcomes: list[str] = []

    async def write() -> None:
        with pytest.raises(BadCredentials) as refused:
            await http.write(WRITE, new_context()[0])
        outcomes.append(refused.value.outcome)

    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(write)
    assert len(forge.tokens) <= 2 * 16
    assert sorted(outcomes) == ["not_sent"] * 44 + ["rejected"] * 16
    assert http.gate.statistics().in_flight == 0


async def test_a_call_that_was_let_go_too_late_for_its_role_is_not_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forge = Revoked("token-old")
    http = new_http(forge, source=Source("token-old"))
    http.gate.throttled(20.0, "status 429")
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            with pytest.raises(BadCredentials) as refused:
                await http.write(WRITE, new_context()[0])
            assert refused.value.outcome == "not_sent"

        nursery.start_soon(write)
        await trio.sleep(10)
        http.credential.refuse("token-old")
    assert trio.current_time() == 20
    assert forge.tokens == []
    assert http.gate.statistics().in_flight == 0


async def test_those_who_wait_when_a_token_is_replaced_send_the_new_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forge = Revoked("token-new")
    source = Source("token-old", "token-new")
    http = new_http(forge, source=source, settings=BudgetSettings(creation_burst=100))
    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(http.write, WRITE, new_context()[0])
    assert forge.tokens.count("token-old") == 16
    assert forge.tokens.count("token-new") == 60


async def test_whoever_finds_out_and_is_cancelled_leaves_it_to_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forge = Revoked()
    http = new_http(forge, source=Source("token-old"), settings=BudgetSettings(creation_burst=100))
    ended: list[type[BaseException]] = []

    async def write(seconds: float) -> None:
        with trio.move_on_after(seconds) as scope, suppress(BadCredentials):
            await http.write(WRITE, new_context()[0])
        ended.append(trio.Cancelled if scope.cancelled_caught else BadCredentials)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, 1.5)  # finds out from 1 on
        await trio.sleep(0.1)
        nursery.start_soon(write, 30.0)  # waits for that from 1.1 on, and is next
        nursery.start_soon(write, 30.0)
        await trio.sleep(1.1)
        nursery.start_soon(write, 30.0)  # comes while the token is in doubt
    assert trio.current_time() == 2.5
    assert ended == [trio.Cancelled, BadCredentials, BadCredentials, BadCredentials]
    assert len(forge.tokens) == 3 + 2


async def test_a_call_alone_that_is_cancelled_before_it_finds_out_keeps_nobody_waiting(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Revoked()
    http = new_http(forge, source=Source("token-old"))
    scope = trio.CancelScope()
    resolve: Callable[..., Awaitable[HttpAnswer]] = Doubt.resolve

    async def cancelled(*arguments: object) -> HttpAnswer:
        scope.cancel()
        return await resolve(*arguments)

    with monkeypatch.context() as patched, scope:
        patched.setattr(Doubt, "resolve", cancelled)
        await http.write(WRITE, new_context()[0])
    assert scope.cancelled_caught
    forge.good = "token-old"
    with trio.fail_after(5):
        await http.write(WRITE, new_context()[0])


async def test_a_token_that_is_refused_once_and_taken_again_is_tried_by_one_for_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forge = Revoked()
    http = new_http(forge, source=Source("token-old"), settings=BudgetSettings(creation_burst=100))

    async def mend() -> None:
        await trio.sleep(1.5)
        forge.good = "token-old"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mend)
        for _ in range(40):
            nursery.start_soon(http.write, WRITE, new_context()[0])
    assert len(forge.tokens) == 16 + 40
    assert trio.current_time() < 10


async def test_a_source_is_asked_once_for_all_that_one_refused_token_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Asked(Source):
        times = 0

        def invalidate(self) -> None:
            self.times += 1

    forge, source = Revoked(), Asked("token-old")
    http = new_http(forge, source=source, settings=BudgetSettings(creation_burst=100))
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(http.write, WRITE, new_context()[0])
        await trio.sleep(1.5)
        forge.good = "token-old"
    assert len(forge.tokens) == 16 + 16
    assert source.times == 1


async def test_a_token_that_takes_the_place_of_one_while_that_is_tried_again_is_not_refused_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    forge, source = Revoked("token-new"), Source("token-old")
    http = new_http(forge, source=source)

    async def revoked() -> None:
        with pytest.raises(BadCredentials):
            await http.write(WRITE, new_context()[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(revoked)
        await trio.sleep(1.5)  # it is being tried again
        source.tokens = ["token-new"]
        await http.read(READ, new_context()[0])
    assert not http.credential.broken
    await http.write(WRITE, new_context()[0])
    assert forge.tokens == ["token-old", "token-old", "token-new", "token-new"]


async def test_two_tokens_that_are_refused_one_after_the_other_are_each_read_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The second is refused while another call finds out about the first: that doubt's end says nothing of it."""
    forge, source = Revoked("token-third"), Source("token-first")
    http = new_http(forge, source=source)

    async def write() -> None:
        with suppress(BadCredentials):
            await http.write(WRITE, new_context()[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(0.5)
        source.tokens = ["token-second", "token-third"]
        nursery.start_soon(write)
    assert forge.tokens == ["token-first", "token-second", "token-second", "token-third"]
    assert not http.credential.broken


async def test_a_write_that_cannot_be_put_in_bytes_gives_back_its_leave() -> None:
    forge = scripted()
    http = new_http(forge)
    context, guard = new_context()
    with pytest.raises(UnicodeEncodeError):
        await http.write(HttpRequest("POST", ("x",), json={"title": "\ud800"}), context)
    assert http.gate.statistics().in_flight == 0
    assert (forge.requests, guard.sendings) == ([], 0)


EMPTY = {"x-ratelimit-remaining": "0", "x-ratelimit-limit": "5000", "x-ratelimit-reset": str(EPOCH + 1200)}


async def test_a_write_that_is_gated_after_a_refused_token_was_rejected(autojump_clock: trio.testing.MockClock) -> None:
    forge = scripted(answer(401, refusal("Bad credentials"), EMPTY))
    context, guard = new_context()
    with trio.fail_after(30), pytest.raises(RateLimited) as failed:
        await new_http(forge, source=Source("token-old", "token-new")).write(WRITE, context)
    assert failed.value.outcome == "rejected"
    assert len(forge.requests) == guard.sendings == 1


async def test_a_write_that_cannot_connect_again_after_a_refused_token_was_rejected_and_ends() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await listeners[0].aclose()  # nobody listens any more when the second request comes
        received = b""
        while b'"}' not in received:
            received += await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    context, guard = new_context()

    async def serve_one() -> None:
        stream = await listeners[0].accept()
        await serve(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_one)
        http = new_http(None, base=BaseUrl.parse(f"http://127.0.0.1:{port}"), source=Source("token-old", "token-new"))
        with pytest.raises(ForgeUnavailable) as failed:
            await http.write(WRITE, context)
    assert failed.value.outcome == "rejected"
    assert context.forge_requests == 2  # what was rejected is not tried a third time
    assert guard.sendings == 1
    assert http.gate.statistics().budget.creations_last_hour == 0


async def test_a_write_whose_new_token_cannot_be_read_was_rejected() -> None:
    class Lost(Source):
        def invalidate(self) -> None:
            self.tokens = []

        async def token(self) -> str:
            if not self.tokens:
                raise ConfigError("token: file gone cannot be read")
            return await super().token()

    forge = scripted(answer(401, refusal("Bad credentials")))
    with pytest.raises(BadCredentials) as failed:
        await new_http(forge, source=Lost("token-old")).write(WRITE, new_context()[0])
    assert failed.value.outcome == "rejected"
    assert len(forge.requests) == 1


async def test_the_headers_that_github_asks_for() -> None:
    forge = scripted(answer(200, {}))
    await new_http(forge).read(READ, new_context()[0])
    headers = forge.requests[0].headers
    assert headers["accept"] == "application/vnd.github+json"
    assert headers["x-github-api-version"] == "2022-11-28"
    assert headers["user-agent"].startswith("compass-forged/")
    assert headers["authorization"] == f"Bearer {TOKEN}"


# --- redirects ------------------------------------------------------------------------------------------------------


def redirect(status: int, location: str | None) -> httpx.Response:
    return answer(status, refusal("Moved"), {} if location is None else {"location": location})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_read_follows_within_its_origin(status: int) -> None:
    there = "https://api.github.com/repositories/9/issues?page=2"
    forge = scripted(redirect(status, there), answer(200, []))
    found = await new_http(forge).read(READ, new_context()[0])
    assert found.moved
    assert str(forge.requests[1].url) == there
    assert forge.requests[1].method == "GET"
    assert forge.requests[1].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/repositories/9",
        "http://api.github.com/repositories/9",
        "https://api.github.com@evil.example/",
        "https://api.github.com:8443/repositories/9",
        "//evil.example/x",
        None,
        "",
    ],
)
async def test_a_token_follows_nowhere_else(location: str | None) -> None:
    for status, write in ((301, False), (307, True)):
        forge = scripted(redirect(status, location))
        http = new_http(forge)
        context, _ = new_context()
        context.may_touch = lambda _repo: True
        with pytest.raises(ForgeStatus) as refused:
            await (http.write(WRITE, context) if write else http.read(READ, context))
        assert refused.value.status == status
        assert refused.value.moved_to == ""
        assert len(forge.requests) == 1


async def test_a_read_follows_three_hops() -> None:
    hop = redirect(302, "/x")
    forge = scripted(hop, hop, hop, answer(200, {}))
    assert (await new_http(forge).read(READ, new_context()[0])).moved
    forge = scripted(hop, hop, hop, hop)
    with pytest.raises(ForgeStatus, match="more than 3"):
        await new_http(forge).read(READ, new_context()[0])


MOVED = "https://api.github.com/repositories/9/issues"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_moved_write_names_the_new_place_and_is_not_resent(status: int) -> None:
    forge = scripted(redirect(status, MOVED), answer(200, {"full_name": "acme/New-Site"}))
    context, guard = new_context()
    context.may_touch = None if status in {307, 308} else lambda _repo: True
    with pytest.raises(ForgeStatus) as refused:
        await new_http(forge).write(WRITE, context)
    assert refused.value.moved_to == "acme/New-Site"
    assert refused.value.outcome == "rejected"
    assert [request.method for request in forge.requests] == ["POST", "GET"]
    assert forge.requests[1].url.path == "/repositories/9"
    assert guard.sendings == 1


@pytest.mark.parametrize("status", [307, 308])
async def test_a_moved_write_is_resent_whole_where_the_call_may_go(status: int) -> None:
    asked: list[str] = []

    def may_touch(repo: str) -> bool:
        asked.append(repo)
        return True

    forge = scripted(redirect(status, MOVED), answer(200, {"full_name": "acme/new"}), answer(201, {}))
    context, guard = new_context()
    context.may_touch = may_touch
    found = await new_http(forge).write(WRITE, context)
    assert found.moved_to == "acme/new"
    assert asked == ["acme/new"]
    assert (forge.requests[2].method, forge.requests[2].url.path) == ("POST", "/repos/acme/new/issues")
    assert forge.requests[2].content == forge.requests[0].content
    assert guard.sendings == 1


async def test_a_moved_write_stays_where_the_call_may_not_go() -> None:
    forge = scripted(redirect(307, MOVED), answer(200, {"full_name": "other/private"}))
    context, _ = new_context()
    context.may_touch = lambda repo: repo == "acme/new"
    with pytest.raises(ForgeStatus):
        await new_http(forge).write(WRITE, context)
    assert len(forge.requests) == 2


@pytest.mark.parametrize("below", ["issues/3/comments", "issues", "issues/7/comments/1", ""])
async def test_a_moved_write_is_not_resent_where_its_artifact_is_another(below: str) -> None:
    forge = scripted(
        redirect(307, f"https://api.github.com/repositories/9/{below}".rstrip("/")),
        answer(200, {"full_name": "acme/new"}),
    )
    context, _ = new_context()
    context.may_touch = lambda _repo: True
    comment = HttpRequest("POST", ("repos", "acme", "site", "issues", "7", "comments"), json={"body": "b"})
    with pytest.raises(ForgeStatus) as refused:
        await new_http(forge).write(comment, context)
    assert (refused.value.moved_to, refused.value.outcome) == ("acme/new", "rejected")
    assert [request.method for request in forge.requests] == ["POST", "GET"]


async def test_a_write_that_moves_twice_ends() -> None:
    forge = scripted(redirect(307, MOVED), answer(200, {"full_name": "a/b"}), redirect(307, MOVED))
    context, _ = new_context()
    context.may_touch = lambda _repo: True
    with pytest.raises(ForgeStatus, match="more than once"):
        await new_http(forge).write(WRITE, context)


async def test_a_resend_that_is_gated_was_rejected_by_the_redirect(autojump_clock: trio.testing.MockClock) -> None:
    forge = scripted(redirect(307, MOVED), answer(200, {"full_name": "acme/new"}, EMPTY))
    context, guard = new_context()
    context.may_touch = lambda _repo: True
    with trio.fail_after(30), pytest.raises(RateLimited) as failed:
        await new_http(forge).write(WRITE, context)
    assert failed.value.outcome == "rejected"
    assert [request.method for request in forge.requests] == ["POST", "GET"]
    assert guard.sendings == 1


@pytest.mark.parametrize(("failure", "outcome"), [(answer(502), "unknown"), (answer(404, refusal("x")), "rejected")])
async def test_a_resend_that_went_out_keeps_its_own_outcome(failure: httpx.Response, outcome: str) -> None:
    forge = scripted(redirect(308, MOVED), answer(200, {"full_name": "acme/new"}), failure)
    context, _ = new_context()
    context.may_touch = lambda _repo: True
    with pytest.raises(ForgeError) as failed:
        await new_http(forge).write(WRITE, context)
    assert failed.value.outcome == outcome


async def test_a_redirect_of_many_letters_is_not_followed() -> None:
    forge = scripted(redirect(301, "/x?page=" + "1" * 8192))
    with pytest.raises(ForgeStatus, match="to another host"):
        await new_http(forge).read(READ, new_context()[0])
    assert len(forge.requests) == 1


@pytest.mark.parametrize(
    ("location", "look_up"),
    [
        (MOVED, answer(404, refusal("Not Found"))),
        (MOVED, answer(200, HTML)),
        (MOVED, answer(200, {"full_name": "../evil"})),
        ("https://api.github.com/repos/acme/new/issues", answer(200, {"full_name": 5})),
        ("https://api.github.com/elsewhere", None),
    ],
)
async def test_a_new_place_that_cannot_be_learned_is_not_guessed(location: str, look_up: httpx.Response | None) -> None:
    forge = scripted(*filter(None, [redirect(307, location), look_up]))
    context, _ = new_context()
    context.may_touch = lambda _repo: True
    with pytest.raises(ForgeStatus) as refused:
        await new_http(forge).write(WRITE, context)
    assert refused.value.moved_to == ""


async def test_a_slow_look_up_of_the_new_place_ends(autojump_clock: trio.testing.MockClock) -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(ForgeStatus):
        await new_http(scripted(redirect(307, MOVED), never)).write(WRITE, new_context()[0])
    assert trio.current_time() == 5


# --- the budget -----------------------------------------------------------------------------------------------------


async def test_the_last_good_answer_is_kept_and_the_next_call_is_gated(
    autojump_clock: trio.testing.MockClock,
) -> None:
    last = {"x-ratelimit-remaining": "0", "x-ratelimit-limit": "5000", "x-ratelimit-reset": str(EPOCH + 1200)}
    forge = scripted(answer(200, {"ok": 1}, last))
    http = new_http(forge)
    assert (await http.read(READ, new_context()[0])).status == 200
    with trio.fail_after(30), pytest.raises(RateLimited) as refused:
        await http.read(READ, new_context()[0])
    assert refused.value.retry_after_seconds == pytest.approx(1201)
    assert len(forge.requests) == 1


SECONDARY = "You have exceeded a secondary rate limit"


@pytest.mark.parametrize("extra", [{}, {"retry-after": "60"}])
async def test_what_waits_behind_a_throttled_call_is_not_sent_after_it(
    extra: dict[str, str], autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[float] = []

    async def throttle(_request: httpx.Request) -> httpx.Response:
        seen.append(trio.current_time())
        await trio.sleep(1.0)
        left = {"x-ratelimit-remaining": "4000", "x-ratelimit-limit": "5000"}
        return answer(403, refusal(SECONDARY), {**left, **extra})

    http = new_http(scripted(*[throttle] * 100))

    async def ask(number: int) -> None:
        with suppress(RateLimited), trio.fail_after(30.0):
            await http.read(HttpRequest("GET", ("repos", "acme", "site", "issues", str(number))), new_context()[0])

    async with trio.open_nursery() as nursery:
        for number in range(2 * CONCURRENCY_MAX):
            nursery.start_soon(ask, number)
    assert seen == [0.0] * CONCURRENCY_MAX


async def test_absent_headers_are_no_limit() -> None:
    http = new_http(scripted(*[answer(200, {}) for _ in range(30)]))
    for _ in range(30):
        await http.read(READ, new_context()[0])
    assert http.gate.statistics().budget.resources[0].remaining is None


@pytest.mark.parametrize(
    ("script", "creations"),
    [
        ([answer(201, {})], 1),
        ([answer(422, refusal("Validation Failed"))], 0),
        ([answer(404, refusal("Not Found"))], 0),
        ([answer(403, refusal("Resource not accessible"))], 0),
        ([answer(429, refusal("slow down"), {"retry-after": "5"})], 0),
        ([answer(422, b"x", {"content-encoding": "gzip"})], 0),
        ([answer(401, refusal("Bad credentials")), answer(201, {})], 1),
        ([answer(401, refusal("Bad credentials")), answer(401, refusal("Bad credentials"))], 0),
        ([answer(408)], 1),  # of whatever stands before the forge
        ([answer(500)], 1),
        ([answer(201, b"x", {"content-encoding": "gzip"})], 1),
        ([httpx.ReadError("reset")], 1),
    ],
)
async def test_what_the_forge_definitely_refused_is_no_creation(
    script: list[httpx.Response | Exception], creations: int
) -> None:
    http = new_http(scripted(*script), source=Source("token-old", "token-new"))
    with suppress(ForgeError):
        await http.write(WRITE, new_context()[0])
    assert http.gate.statistics().budget.creations_last_hour == creations
    assert http.gate.statistics().in_flight == 0


@pytest.mark.parametrize("sent", [False, True])
async def test_a_cancelled_write_is_given_back_only_if_it_had_not_gone_out(
    sent: bool, autojump_clock: trio.testing.MockClock
) -> None:
    class Waiting(RecordingGuard):
        async def sending(self) -> None:
            if not sent:
                await trio.sleep_forever()
            await super().sending()

    async def never(_request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    settings = BudgetSettings(creations_per_hour=1)
    http = new_http(scripted(never, answer(201, {})), settings=settings)
    with trio.move_on_after(5) as scope:
        await http.write(WRITE, CallContext(container="box", guard=Waiting()))
    assert scope.cancelled_caught
    statistics = http.gate.statistics()
    assert (statistics.in_flight, statistics.budget.creations_last_hour) == (0, int(sent))


async def test_refused_writes_leave_room_for_those_that_are_not(autojump_clock: trio.testing.MockClock) -> None:
    settings = BudgetSettings(creations_per_minute=2, creations_per_hour=2, creation_interval=0.0)
    forge = scripted(*[answer(422, refusal("no")) for _ in range(10)], answer(201, {}))
    http = new_http(forge, settings=settings)
    with trio.fail_after(10):
        for _ in range(10):
            with pytest.raises(ForgeStatus):
                await http.write(WRITE, new_context()[0])
        assert (await http.write(WRITE, new_context()[0])).status == 201
    assert trio.current_time() == 0
