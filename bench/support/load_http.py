"""Sends POSTs of 2 KB to a port on loopback, through the daemon's own HTTP or a bare httpx client, and counts its CPU.

Argument: the port. Each line on standard input is a ``HttpCell``, answered by a ``HttpSample``. Every cell begins with
connections of its own, warmed before the clock starts.
"""

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal, TypeAlias

import httpx
import msgspec
import trio

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.ports import CallContext
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpRequest, HttpTransport
from compass_forged.providers.urls import BaseUrl

Client: TypeAlias = Literal["httpx", "transport", "call"]
"""``httpx``: a plain ``AsyncClient``. ``transport``: ours. ``call``: the whole caller, with credential and gate."""
Send: TypeAlias = Callable[[], Awaitable[None]]

_PATH: Final = ("repos", "acme", "site", "issues")
_JSON: Final = {"title": "A title", "body": "b" * 2000}
_TOKEN: Final = "ghp_" + "bench" * 7
_WARM_CALLS: Final = 4  # each caller's, before the clock starts


class HttpCell(msgspec.Struct, frozen=True):
    """What to do: ``calls`` in all by so many ``callers`` at once."""

    client: Client
    callers: int
    calls: int


class HttpSample(msgspec.Struct, frozen=True):
    """CPU and wall time for each call, in microseconds."""

    cpu_us: float
    wall_us: float


class _Guard:
    """A write that may go out at any time."""

    sent = False

    async def sending(self) -> None:
        """Nothing to tell anybody."""
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def _bare(base: str) -> AsyncIterator[Send]:
    headers: Mapping[str, str] = {**GitHubDialect().headers, "Authorization": f"Bearer {_TOKEN}"}
    async with httpx.AsyncClient() as client:

        async def send() -> None:
            answer = await client.post(f"{base}/{'/'.join(_PATH)}", json=_JSON, headers=headers)
            assert answer.status_code == 201

        yield send


@asynccontextmanager
async def _transport(base: str) -> AsyncIterator[Send]:
    request = HttpRequest("POST", _PATH, json=_JSON)
    headers = GitHubDialect().headers
    async with HttpTransport(BaseUrl.parse(base)) as transport:

        async def send() -> None:
            answer = await transport.exchange(request, headers=headers, authorization=f"Bearer {_TOKEN}")
            assert answer.status == 201

        yield send


@asynccontextmanager
async def _call(base: str) -> AsyncIterator[Send]:
    unpaced = BudgetSettings(
        points_per_minute=10_000_000,
        creations_per_minute=1_000_000,
        creations_per_hour=1_000_000,
        creation_burst=1_000_000,
        creation_interval=0.0,
    )
    request = HttpRequest("POST", _PATH, json=_JSON)
    async with HttpTransport(BaseUrl.parse(base)) as transport:
        gate = Gate(Budget(unpaced), queue_per_container=1_000)
        http = ForgeHttp(transport, gate, Credential("author", StaticToken(_TOKEN)), GitHubDialect())

        async def send() -> None:
            answer = await http.write(request, CallContext(container="bench", guard=_Guard()))
            assert answer.status == 201

        yield send


_CLIENTS: Final[Mapping[Client, Callable[[str], AbstractAsyncContextManager[Send]]]] = {
    "httpx": _bare,
    "transport": _transport,
    "call": _call,
}


async def _run(cell: HttpCell, base: str) -> HttpSample:
    async with _CLIENTS[cell.client](base) as send:
        await _send(send, cell.callers, cell.callers * _WARM_CALLS)
        cpu, wall = time.process_time(), time.perf_counter()
        await _send(send, cell.callers, cell.calls)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return HttpSample(cpu / cell.calls * 1e6, wall / cell.calls * 1e6)


async def _send(send: Send, callers: int, calls: int) -> None:
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await send()

    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(caller)


def main() -> None:
    """Answer cells until standard input closes."""
    base = f"http://127.0.0.1:{sys.argv[1]}"
    for line in sys.stdin.buffer:
        cell = msgspec.json.decode(line, type=HttpCell)
        print(msgspec.json.encode(trio.run(_run, cell, base)).decode(), flush=True)


if __name__ == "__main__":
    main()
