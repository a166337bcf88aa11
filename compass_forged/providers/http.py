"""The one door to the network: the only module that knows httpx. One request, one answer, no policy.

The shape follows a measurement: one httpx pool under 64 callers costs 13 ms of CPU a request, since it walks all its
connections for all its waiters; a stack of single-connection transports, taken and put back, stays at 1.2 ms.

* The caller's cancel scope is the only deadline over an exchange; a connect has a shorter one of its own, since what
  fails before the first byte may be tried again.
* A transport whose exchange did not end cleanly is closed and never put back.
* Redirects are not followed, proxies and the environment are not looked at, nothing is tried twice.
"""

import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlencode

import httpcore  # noqa: F401  # pyright: ignore[reportUnusedImport] -- else imported at the first call
import httpx
import msgspec
import trio

from compass_forged.providers.tls import client_context
from compass_forged.providers.urls import BaseUrl, Query

BODY_MAX_BYTES: Final = 8 << 20
"""The largest body of an answer, counted after decompression."""
CONCURRENCY_MAX: Final = 16
CONNECT_SECONDS: Final = 5.0
KEEPALIVE_SECONDS: Final = 5.0
"""How long an idle connection is reused: short, as a write on one that the server is closing has an unknown outcome.

It is counted on a clock that goes on while the host sleeps: a connection from before may look alive and be dead.
"""

_CLOSE_SECONDS = 1.0
_CONNECTED = "connection.connect_tcp.complete"
_SENDING = "http11.send_request_headers.started"
_TOO_LARGE = f"the answer is over {BODY_MAX_BYTES} bytes"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

OnSending = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a forge.

    Attributes:
        method: in upper case.
        path: decoded segments below the entry's base URL.
        query: decoded pairs.
        json: what is sent as the body; None for none.
        form: what is sent as the body in the form of HTML's forms, where there is no ``json``; None for none.
    """

    method: str
    path: tuple[str, ...]
    query: Query = ()
    json: Mapping[str, object] | None = None
    form: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back.

    Attributes:
        status: the HTTP status.
        headers: names in lower case; of a repeated header the values joined by a comma.
        body: decoded; empty if it could not be read whole.
        flaw: why the body could not be read whole, "" if it was. Status and headers hold all the same.
        too_large: whether the flaw is that the body is over ``BODY_MAX_BYTES``.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    flaw: str = ""
    too_large: bool = False


class TransportFailure(Exception):
    """No answer came: the network's fault or the forge's.

    Attributes:
        why: one line without addresses or URLs.
        sent: whether a byte of the request may have reached the forge.
    """

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent


class _Unreadable(Exception):
    """The body of an answer cannot be read whole."""

    def __init__(self, why: str, *, too_large: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.too_large = too_large


class _Content(httpx.AsyncByteStream):
    """A request's body. The library's own is an asynchronous generator, which a torn send leaves half run."""

    def __init__(self, content: bytes) -> None:
        self._rest = [content] if content else []

    def __aiter__(self) -> "_Content":
        return self

    async def __anext__(self) -> bytes:
        if not self._rest:
            raise StopAsyncIteration
        return self._rest.pop()


@dataclass(frozen=True, slots=True)
class _Idle:
    """A transport that lies ready, and since when."""

    transport: httpx.AsyncBaseTransport
    since: float


class HttpTransport(AbstractAsyncContextManager["HttpTransport"]):
    """Exchanges with one forge under one credential: at most ``CONCURRENCY_MAX`` at once, over as many connections.

    Close it with ``aclose`` or use it as an async context manager; requests in flight must have ended by then.
    """

    def __init__(
        self,
        base: BaseUrl,
        *,
        ca_file: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """Make ready; no connection is opened yet.

        Args:
            base: the only origin that this transport speaks to.
            ca_file: a PEM file with the only authorities to trust; None trusts the public ones.
            transport: stands in for the network, such as an in-process ASGI app; it is not closed here.
            boot_clock: seconds, sleep of the host included; tests put another in its place.

        Raises:
            ConfigError: the CA file cannot be used.
        """
        self.base = base
        self._in_process = transport
        self._tls = client_context(ca_file)
        self._slots = trio.Semaphore(CONCURRENCY_MAX)
        self._boot_clock = boot_clock
        self._idle: list[_Idle] = []
        self._closed = False

    @property
    def free_slots(self) -> int:
        """How many exchanges could begin now without waiting."""
        return self._slots.value

    @property
    def idle_connections(self) -> int:
        """How many transports lie ready; each holds at most one connection."""
        return len(self._idle)

    async def exchange(
        self,
        request: HttpRequest,
        *,
        headers: Mapping[str, str],
        authorization: str,
        on_sending: OnSending | None = None,
    ) -> HttpAnswer:
        """Send a request and read its whole answer.

        Args:
            request: what to send.
            headers: sent as they are, beside those of the body and the encoding.
            authorization: the value of that header; it leaves this process here and nowhere else.
            on_sending: awaited once, after connect and TLS and right before the first byte goes out.

        Raises:
            TransportFailure: no answer came.
        """
        message = self._message(request, headers, authorization)
        async with self._slots:
            transport = await self._take()
            whole = False
            try:
                answer = await self._round_trip(transport, message, on_sending)
                whole = not answer.flaw
            finally:
                if whole and not self._closed:
                    self._put_back(transport)
                else:
                    with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                        await self._discard(transport)
            return answer

    async def aclose(self) -> None:
        """Close all idle connections, and those in flight as they end."""
        self._closed = True
        while self._idle:
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._discard(self._idle.pop().transport)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _message(self, request: HttpRequest, headers: Mapping[str, str], authorization: str) -> httpx.Request:
        target = self.base.target(request.path, request.query)
        content, kind = _body(request)
        body_headers = {"Content-Type": kind} if kind else {}
        message = httpx.Request(
            request.method,
            self.base.url(target),
            headers={**headers, **body_headers, "Accept-Encoding": "gzip"},
            content=content or None,
        )
        message.stream = _Content(content)
        authorize(message, self.base, target, authorization)
        return message

    async def _take(self) -> httpx.AsyncBaseTransport:
        if self._in_process is not None:
            return self._in_process
        while self._idle:
            idle = self._idle.pop()
            if self._boot_clock() - idle.since <= KEEPALIVE_SECONDS:
                return idle.transport
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._discard(idle.transport)
        return httpx.AsyncHTTPTransport(  # opens nothing yet
            verify=self._tls,
            trust_env=False,  # a bare transport defaults to true and would read proxies from the environment
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE_SECONDS),
        )

    def _put_back(self, transport: httpx.AsyncBaseTransport) -> None:
        if transport is not self._in_process:
            self._idle.append(_Idle(transport, self._boot_clock()))

    async def _discard(self, transport: httpx.AsyncBaseTransport) -> None:
        if transport is not self._in_process:
            await transport.aclose()

    async def _round_trip(
        self, transport: httpx.AsyncBaseTransport, message: httpx.Request, on_sending: OnSending | None
    ) -> HttpAnswer:
        sent = False
        opened: trio.abc.AsyncResource | None = None

        async def sending() -> None:
            nonlocal sent
            if on_sending is not None and not sent:
                await on_sending()
            sent = True

        async def trace(event: str, info: Mapping[str, Any]) -> None:  # Any: what httpcore hands to a trace hook
            nonlocal opened
            if event == _SENDING:
                opened = None  # from here on the connection closes what it has
                await sending()
            elif event == _CONNECTED:
                opened = info["return_value"]

        message.extensions = {
            "timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None},
            "trace": trace,
        }
        if transport is self._in_process:
            await sending()
        try:
            response = await transport.handle_async_request(message)
        except (httpx.TransportError, OSError) as error:
            raise TransportFailure(_reason(error, sent=sent), sent=sent) from error
        finally:
            if opened is not None:  # cancelled in the TLS handshake, in which httpcore leaves the socket open
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await opened.aclose()
        return await self._read_answer(transport, response)

    async def _read_answer(self, transport: httpx.AsyncBaseTransport, response: httpx.Response) -> HttpAnswer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        stream = response.stream
        if not isinstance(stream, httpx.AsyncByteStream):
            raise TypeError("the transport answered with a stream that is not asynchronous")
        chunks = aiter(stream)
        try:
            body = await _read_body(chunks, headers)
        except _Unreadable as error:
            # The connection goes first, so that what still reads from it ends with an error of its own: an
            # asynchronous generator that is merely dropped is finalised by nobody.
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._discard(transport)
                await _drain(chunks)
            return HttpAnswer(response.status_code, headers, flaw=error.why, too_large=error.too_large)
        except (httpx.TransportError, OSError):
            return HttpAnswer(response.status_code, headers, flaw="the answer was cut off")
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            # The body is here: what is left is to hand the connection back, which a cancellation must not tear.
            await response.aclose()
        return HttpAnswer(response.status_code, headers, body)


def _body(request: HttpRequest) -> tuple[bytes, str]:
    """The bytes of a request's body and what they are; nothing for none."""
    if request.json is not None:
        return msgspec.json.encode(request.json), "application/json; charset=utf-8"
    if request.form is not None:
        return urlencode(request.form).encode("ascii"), "application/x-www-form-urlencoded"
    return b"", ""


def authorize(message: httpx.Request, base: BaseUrl, target: str, authorization: str) -> None:
    """Attach the credential to a request that goes exactly where it is meant to.

    The URL was built from ``base`` and ``target``; this reads it back as the HTTP library understood it, so that a
    quirk of either side cannot carry a token elsewhere.

    Raises:
        ValueError: ours to mend: the URL is not the one that was meant.
    """
    url = message.url
    origin = (url.scheme, url.host, url.port or {"https": 443, "http": 80}.get(url.scheme))
    if origin != base.origin or url.userinfo or url.raw_path != target.encode("ascii"):
        raise ValueError("the request would leave its forge; nothing was sent")
    message.headers["Authorization"] = authorization


def _reason(error: Exception, *, sent: bool) -> str:
    """What went wrong, by its kind: the library's own texts may hold addresses."""
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection to the forge within {CONNECT_SECONDS:.0f} s"
    if isinstance(error, httpx.ConnectError):
        return "cannot connect to the forge (name, network or TLS)"
    when = "after the request went out" if sent else "before the request went out"
    if isinstance(error, httpx.ProtocolError):
        return f"the forge closed the connection or broke the protocol {when}"
    return f"the connection to the forge failed {when}"


# --- answers --------------------------------------------------------------------------------------------------------


async def _read_body(chunks: AsyncIterator[bytes], headers: Mapping[str, str]) -> bytes:
    body = _Body(headers.get("content-encoding", ""))
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > BODY_MAX_BYTES:
        raise _Unreadable(_TOO_LARGE, too_large=True)
    async for chunk in chunks:
        body.feed(chunk)
    return body.end()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    with suppress(httpx.TransportError, OSError):
        async for _ in chunks:
            await trio.lowlevel.checkpoint()


@dataclass(slots=True)
class _Body:
    """Collects and decompresses a body, never holding more than the cap whatever the compressed bytes claim."""

    encoding: str
    _plain: bytearray = field(default_factory=bytearray)
    _gzip: Any = None  # zlib's decompressor has no public type
    _compressed: bool = False
    _received: int = 0

    def __post_init__(self) -> None:
        word = self.encoding.strip().lower()
        if word not in {"", "identity", "gzip", "x-gzip"}:
            raise _Unreadable("the answer has an encoding that was not asked for")
        self._compressed = word.endswith("gzip")

    def feed(self, chunk: bytes) -> None:
        """Add received bytes; what compresses to more than it is, such as members of nothing, is over the cap too."""
        self._received += len(chunk)
        if self._received > BODY_MAX_BYTES:
            raise _Unreadable(_TOO_LARGE, too_large=True)
        if self._compressed:
            self._inflate(chunk)
        else:
            self._keep(chunk)

    def end(self) -> bytes:
        """The whole body, once the stream has ended."""
        if self._gzip is not None and not self._gzip.eof:
            raise _Unreadable("the answer was cut off")
        return bytes(self._plain)

    def _inflate(self, chunk: bytes) -> None:
        rest = chunk
        while rest:
            if self._gzip is None or self._gzip.eof:
                self._gzip = zlib.decompressobj(_GZIP_WINDOW)
            try:
                self._keep(self._gzip.decompress(rest, BODY_MAX_BYTES + 1 - len(self._plain)))
            except zlib.error as error:
                raise _Unreadable("the answer is no valid gzip") from error
            rest = self._gzip.unused_data if self._gzip.eof else self._gzip.unconsumed_tail

    def _keep(self, plain: bytes) -> None:
        if len(self._plain) + len(plain) > BODY_MAX_BYTES:
            raise _Unreadable(_TOO_LARGE, too_large=True)
        self._plain += plain
