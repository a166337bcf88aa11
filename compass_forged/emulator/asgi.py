"""What the halves of the forge share as ASGI applications: reading a request, sending an answer, or none."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from compass_forged.emulator.routing import Answer

REQUEST_MAX_BYTES = 8 << 20
SERVED = "compass_forged.emulator.served"
"""Stands in the ASGI scope where a real server carries the connection."""


class ConnectionDropped(ConnectionError):
    """A scripted drop where no server stands between: in process, the client's transport sees this exception."""


async def lifespan(receive: Receive, send: Send) -> None:
    """Answer a server that says it starts and stops."""
    """Answer the messages of a server that starts and stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


async def read_body(request: Request) -> bytes | None:
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


def raw_path(scope: Scope) -> str:
    """The path as it came, undecoded and without its query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("ascii", "replace")


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers under lower-case names."""
    return {name.lower(): value for name, value in headers.items()}
