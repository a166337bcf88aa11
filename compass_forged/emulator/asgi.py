"""What the halves of the forge share as ASGI applications: reading a request, scripts, sending an answer or none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from compass_forged.emulator.control_path import ControlPath
from compass_forged.emulator.routing import Answer
from compass_forged.emulator.script import Rule

REQUEST_MAX_BYTES = 8 << 20
SERVED = "compass_forged.emulator.served"
"""Stands in the ASGI scope where a real server carries the connection."""


class ConnectionDropped(ConnectionError):
    """A scripted drop where no server stands between: in process, the client's transport sees this exception."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request for the forge itself, read to its end.

    Attributes:
        path: as it came, undecoded and without its query.
        raw_body: None for one over the limit, of which nothing beyond it is kept.
    """

    request: Request
    path: str
    raw_body: bytes | None


async def receive_request(scope: Scope, receive: Receive, send: Send, control: ControlPath) -> Received | None:
    """Read what came in; None where nothing is left to do.

    That is so of the messages of a server and of requests to the control path, which are answered here, and of a client
    that went within its request.
    """
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return None
    request = Request(scope, receive)
    try:
        raw_body = await _read_body(request)
    except ClientDisconnect:
        return None  # within its request: nothing comes of it
    path = _raw_path(scope)
    if path.startswith("/_forge/"):
        await send_answer(send, control.answer(request, path, raw_body or b""))
        return None
    return Received(request, path, raw_body)


async def play(rule: Rule, usual: Callable[[], Answer], bare_headers: Callable[[], dict[str, str]]) -> Answer:
    """Carry out a rule but for its drop and its truncation.

    Args:
        rule: what the script has for this request.
        usual: carries the request out and answers it as ever.
        bare_headers: those that even an answer of the script's own has, asked for after its delays.
    """
    await anyio.sleep(rule.delay)
    own = usual() if rule.carries_out else None
    await anyio.sleep(rule.delay_after)
    if own is not None and rule.status is None:
        own.headers |= _lower(rule.headers)
        return own
    headers = bare_headers()
    if not isinstance(rule.body, str | bytes):
        headers["content-type"] = "application/json; charset=utf-8"
    return Answer(rule.status or 200, headers | _lower(rule.headers), rule.body_bytes())


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer the messages of a server that starts and stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _read_body(request: Request) -> bytes | None:
    """The request's body; None for one over the limit, of which nothing beyond it is kept."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= REQUEST_MAX_BYTES:
            chunks.append(chunk)
    return b"".join(chunks) if size <= REQUEST_MAX_BYTES else None


async def send_answer(send: Send, answer: Answer, *, head: bool = False, truncate: int | None = None) -> None:
    """Send an answer; a truncated one leaves the body open, and the server then closes the connection."""
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    if answer.status == HTTPStatus.NOT_MODIFIED:
        del headers["content-length"]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    body: Message = {"type": "http.response.body", "body": b"" if head else answer.body}
    if truncate is not None and truncate < len(answer.body):
        body = {**body, "body": answer.body[:truncate], "more_body": True}
    await send(body)


async def drop(scope: Scope, send: Send) -> None:
    """Leave the request without an answer.

    A server would answer 500 for an application that sends nothing. An interim answer (which every client reads over)
    and then nothing makes it close the connection: the client sees it end without a response.
    """
    if SERVED not in scope:
        raise ConnectionDropped("the script closes this connection without an answer")
    await send({"type": "http.response.start", "status": HTTPStatus.EARLY_HINTS, "headers": []})


def _raw_path(scope: Scope) -> str:
    """The path as it came, undecoded and without its query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("ascii", "replace")


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers under lower-case names."""
    return {name.lower(): value for name, value in headers.items()}
