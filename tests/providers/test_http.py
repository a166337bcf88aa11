import gc
import gzip
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest
import trio

from compass_forged.providers.http import (
    BODY_MAX_BYTES,
    CONCURRENCY_MAX,
    HttpAnswer,
    HttpRequest,
    HttpTransport,
    TransportFailure,
    authorize,
)
from compass_forged.providers.urls import BaseUrl
from tests.support.forge_http import ScriptedForge, answer
from tests.support.raw_http import OK, WRITE, exchange, receive_request, server


def in_process(*script: httpx.Response | Exception) -> tuple[HttpTransport, ScriptedForge]:
    forge = ScriptedForge(list(script))
    return HttpTransport(BaseUrl.parse("https://api.github.com"), transport=forge), forge


async def test_a_write_goes_out_as_json_with_the_token_and_keeps_its_connection() -> None:
    seen: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        while request := await receive_request(stream):
            seen.append(request)
            await stream.send_all(OK)

    async with server(serve) as transport:
        for _ in range(3):
            got = await exchange(transport, WRITE)
            assert (got.status, got.body, got.flaw) == (200, b"{}", "")
        assert transport.idle_connections == 1
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /repos/acme/site/issues HTTP/1.1\r\n")
    assert b"authorization: bearer canary" in head.lower()
    assert b"accept-encoding: gzip\r\n" in head.lower() + b"\r\n"
    assert json.loads(body) == {"title": "é"}
    assert len(seen) == 3


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await stream.send_all(OK)

    async with server(serve) as transport:
        assert (await exchange(transport)).status == 200


async def test_sending_is_told_after_connect_and_before_the_first_byte() -> None:
    order: list[str] = []

    async def serve(stream: trio.SocketStream) -> None:
        order.append("connected")
        await receive_request(stream)
        order.append("received")
        await stream.send_all(OK)

    async def sending() -> None:
        await trio.sleep(0.02)
        order.append("sending")

    async with server(serve) as transport:
        await exchange(transport, WRITE, on_sending=sending)
    assert order == ["connected", "sending", "received"]


async def test_a_refused_connection_sent_nothing() -> None:
    told: list[str] = []

    async def sending() -> None:
        await trio.lowlevel.checkpoint()
        told.append("sending")

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    async with HttpTransport(BaseUrl.parse(f"http://127.0.0.1:{port}")) as transport:
        with pytest.raises(TransportFailure) as failure:
            await exchange(transport, WRITE, on_sending=sending)
        assert transport.free_slots == CONCURRENCY_MAX
    assert not failure.value.sent
    assert told == []
    assert str(port) not in failure.value.why


async def test_a_tls_failure_sent_nothing() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"this is no TLS\r\n")

    async with server(serve) as plain:
        base = BaseUrl("https", "127.0.0.1", plain.base.port)
        async with HttpTransport(base) as transport:
            with pytest.raises(TransportFailure) as failure:
                await exchange(transport, WRITE)
    assert not failure.value.sent


@pytest.mark.parametrize("after", [1, 60, 10_000])
async def test_a_connection_dropped_under_a_write_may_have_sent_it(after: int) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        received = 0
        while received < after:
            part = await stream.receive_some(max_bytes=after)
            if not part:
                return
            received += len(part)
            if b'"}' in part:
                return

    async with server(serve) as transport:
        with pytest.raises(TransportFailure) as failure:
            await exchange(transport, WRITE)
        assert transport.idle_connections == 0
    assert failure.value.sent


async def test_a_connection_that_went_stale_is_replaced_before_a_write() -> None:
    connections = 0
    dropped = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await receive_request(stream)
        await stream.send_all(OK)
        await stream.aclose()
        dropped.set()

    async with server(serve) as transport:
        await exchange(transport)
        await dropped.wait()
        await trio.sleep(0.01)
        assert (await exchange(transport, WRITE)).status == 200
    assert connections == 2


@pytest.mark.parametrize(
    ("raw", "flaw"),
    [
        (b"HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\n{", "cut off"),
        (b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "cut off"),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 99999999\r\n\r\n{", "over"),
        (b"HTTP/1.1 201 Created\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\n{}", "encoding"),
        (b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", "gzip"),
    ],
)
async def test_an_answer_that_cannot_be_read_keeps_its_status(raw: bytes, flaw: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await stream.send_all(raw)

    async with server(serve) as transport:
        got = await exchange(transport, WRITE)
        assert got.status == 201
        assert got.body == b""
        assert flaw in got.flaw
        assert transport.idle_connections == 0
        assert transport.free_slots == CONCURRENCY_MAX


async def test_a_broken_head_is_a_failure_after_sending() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000)

    async with server(serve) as transport:
        with pytest.raises(TransportFailure, match="protocol after"):
            await exchange(transport)


@pytest.mark.parametrize("over", [0, 1])
async def test_the_cap_counts_what_comes_out_of_gzip(over: int) -> None:
    bomb = gzip.compress(b"0" * (BODY_MAX_BYTES + over))
    transport, _ = in_process(answer(200, bomb, {"content-encoding": "gzip"}))
    got = await exchange(transport)
    assert got.too_large == bool(over)
    assert len(got.body) == (0 if over else BODY_MAX_BYTES)


async def test_the_cap_counts_what_comes_in_where_nothing_comes_out() -> None:
    nothing = gzip.compress(b"")
    transport, _ = in_process(answer(200, nothing * (BODY_MAX_BYTES // len(nothing) + 1), {"content-encoding": "gzip"}))
    assert (await exchange(transport)).too_large


async def test_a_gzip_bomb_over_the_network_is_dropped_early() -> None:
    bomb = gzip.compress(b"0" * (4 * BODY_MAX_BYTES)) * 4
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n".encode()

    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await stream.send_all(head + bomb)

    async with server(serve) as transport:
        assert (await exchange(transport)).too_large
        assert transport.idle_connections == 0


@pytest.mark.parametrize(
    ("body", "plain"),
    [
        (gzip.compress(b"{}"), b"{}"),
        (gzip.compress(b"{") + gzip.compress(b"}"), b"{}"),
        (b"", b""),
        (gzip.compress(b"{}")[:-4], None),
    ],
    ids=["whole", "two members", "empty", "cut"],
)
async def test_gzip_is_decoded(body: bytes, plain: bytes | None) -> None:
    transport, _ = in_process(answer(200, body, {"content-encoding": "GZIP"}))
    got = await exchange(transport)
    assert (None if got.flaw else got.body) == plain


async def test_gzip_that_comes_in_pieces_is_decoded() -> None:
    body = gzip.compress(json.dumps(list(range(1000))).encode())

    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n" + body[:20])
        await trio.sleep(0.01)
        await stream.send_all(body[20:])
        await stream.aclose()

    async with server(serve) as transport:
        assert json.loads((await exchange(transport)).body) == list(range(1000))


async def test_a_plain_body_over_the_cap_is_too_large() -> None:
    transport, _ = in_process(answer(200, b"0" * (BODY_MAX_BYTES + 1)))
    assert (await exchange(transport)).too_large


async def test_an_asgi_application_can_stand_in_for_the_network() -> None:
    async def application(
        scope: MutableMapping[str, Any],
        _receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        assert scope["raw_path"] == b"/repos/acme/site"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1"), (b"x-a", b"2")]})
        await send({"type": "http.response.body", "body": b"[]"})

    told: list[str] = []

    async def sending() -> None:
        await trio.lowlevel.checkpoint()
        told.append("sending")

    transport = HttpTransport(BaseUrl.parse("https://api.github.com"), transport=httpx.ASGITransport(app=application))
    got = await exchange(transport, on_sending=sending)
    assert got == HttpAnswer(200, {"x-a": "1, 2"}, b"[]")
    assert told == ["sending"]


@pytest.mark.parametrize("moment", ["connect", "sending", "answer", "body"])
async def test_the_pool_is_whole_after_a_hundred_cancellations(moment: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        if moment == "body":
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        await trio.sleep_forever()

    async def sending() -> None:
        if moment == "sending":
            await trio.sleep_forever()

    async with server(serve) as transport, trio.open_nursery() as nursery:

        async def cancelled(seconds: float) -> None:
            with trio.move_on_after(seconds):
                await exchange(transport, WRITE, on_sending=sending)

        for index in range(100):
            nursery.start_soon(cancelled, index * 0.0002 if moment == "connect" else 0.03 + index * 0.0002)
    assert transport.free_slots == CONCURRENCY_MAX
    assert transport.idle_connections == 0


async def test_a_call_cancelled_in_the_tls_handshake_closes_its_socket() -> None:
    closed = trio.Event()
    greeted = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        while await stream.receive_some():  # the client's greeting, which nobody answers
            greeted.set()
        closed.set()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    told: list[str] = []

    async def sending() -> None:
        await trio.lowlevel.checkpoint()
        told.append("sending")

    gc.disable()  # or a collection may close what was left open
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, serve, listeners)
            async with HttpTransport(BaseUrl.parse(f"https://127.0.0.1:{port}")) as transport:
                async with trio.open_nursery() as calls:

                    async def call() -> None:
                        await exchange(transport, WRITE, on_sending=sending)

                    calls.start_soon(call)
                    await greeted.wait()
                    calls.cancel_scope.cancel()
                with trio.fail_after(2):
                    await closed.wait()
                assert transport.free_slots == CONCURRENCY_MAX
                assert transport.idle_connections == 0
            nursery.cancel_scope.cancel()
    finally:
        gc.enable()
    assert told == []


async def test_it_works_after_a_storm_of_cancellations() -> None:
    slow = True

    async def serve(stream: trio.SocketStream) -> None:
        while await receive_request(stream):
            if slow:
                await trio.sleep_forever()
            await stream.send_all(OK)

    async with server(serve) as transport:
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(exchange, transport)
            await trio.sleep(0.03)
            nursery.cancel_scope.cancel()
        slow = False
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(exchange, transport)
        assert transport.free_slots == CONCURRENCY_MAX
        assert 1 <= transport.idle_connections <= CONCURRENCY_MAX


async def test_a_transport_that_is_closed_keeps_nothing() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await receive_request(stream)
        await trio.sleep(0.03)
        await stream.send_all(OK)

    async with server(serve) as transport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange, transport)
            await trio.sleep(0.01)
            await transport.aclose()
        assert transport.idle_connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://api.github.com.evil.example/repos/a",
        "http://api.github.com/repos/a",
        "https://api.github.com:444/repos/a",
        "https://api.github.com/repos/b",
        "https://api.github.com/repos/a?x=1",
        "https://user@api.github.com/repos/a",
    ],
)
def test_the_token_is_attached_for_the_exact_place_only(url: str) -> None:
    message = httpx.Request("GET", url)
    with pytest.raises(ValueError, match="nothing was sent"):
        authorize(message, BaseUrl.parse("https://api.github.com"), "/repos/a", "Bearer canary")
    assert "canary" not in str(message.headers.raw)


async def test_what_the_http_library_reads_is_what_was_meant() -> None:
    transport, forge = in_process(answer(200, b"{}"))
    await exchange(transport, HttpRequest("GET", ("repos", "ä/ö", "a b~%41"), (("q", "ü&=+ /?"),)))
    assert forge.requests[0].url.raw_path == (b"/repos/%C3%A4%2F%C3%B6/a%20b~%2541?q=%C3%BC%26%3D%2B%20%2F%3F")


async def test_a_stream_of_another_kind_is_a_fault_of_ours() -> None:
    class Sync(httpx.SyncByteStream):
        pass

    transport, _ = in_process(httpx.Response(200, stream=Sync()))
    with pytest.raises(TypeError):
        await exchange(transport)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (httpx.ConnectTimeout("10.0.0.1"), "within 5 s"),
        (httpx.ReadError("10.0.0.1"), "failed after"),
        (OSError("10.0.0.1"), "failed after"),
    ],
)
async def test_failures_are_told_by_kind_and_without_addresses(error: Exception, why: str) -> None:
    transport, _ = in_process(error)
    with pytest.raises(TransportFailure, match=why) as failure:
        await exchange(transport)
    assert "10.0.0.1" not in str(failure.value)
