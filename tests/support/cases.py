"""What the replays of known bugs share: the cases, a whole daemon in process, a forge of raw bytes, a bare service."""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import trio

from compass_forged.agent.errors import AgentError
from compass_forged.budget import Budget, BudgetSettings
from compass_forged.config import Config, Limits
from compass_forged.control.client import ControlClient
from compass_forged.control.schema import StatusReply
from compass_forged.daemon import serve_with
from compass_forged.listener import RunDir
from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Caller, ContainerSpec, Provider, SessionBinding, TokenSource
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.registry import Entry as ForgeEntry
from compass_forged.providers.registry import Registry
from compass_forged.providers.urls import BaseUrl
from compass_forged.service import ForgeService, ServiceLimits
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import Arm, ErrorResult, ForgeCall, ForgeSelector, ReplyFrame, ResultArm, ResultFrame
from tests.support.core import RawClient
from tests.support.forge_http import TOKEN, RecordingGuard
from tests.support.host import until

HOST = "host-1"
EPOCH = 1_760_000_000
"""The wall clock of replays that fake one."""

# --- the cases ------------------------------------------------------------------------------------------------------

KINDS = frozenset(
    {"framing", "timeout/cancel", "clock", "review-422", "null-field", "pagination", "size", "encoding", "injection"}
)
FIELDS = ("id", "kind", "symptom", "input", "expect")


@dataclass(frozen=True)
class Case:
    """A known bug of another tool: what its reporter met, what goes in, and what is expected of us."""

    id: str
    kind: str
    symptom: str
    input: dict[str, Any]
    expect: dict[str, Any]


Replay: TypeAlias = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True)
class Entry:
    """How a case is replayed.

    Attributes:
        real: replays over real sockets, on the real clock.
        virtual: replays in which every wait is trio's, on a clock that jumps.
        process: replays that start a daemon in a process of its own.
        otherwise: where this daemon does not do what the case expects, or not with the operation that it names: what
            it does instead, which the replays assert, and why.
    """

    real: tuple[Replay, ...] = ()
    virtual: tuple[Replay, ...] = ()
    process: tuple[Replay, ...] = ()
    otherwise: str = ""


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of our kinds in a file, cut to the fields that a replay needs."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: row[name] for name in FIELDS} for row in rows if row["kind"] in KINDS]


# --- a whole daemon -------------------------------------------------------------------------------------------------


@contextmanager
def short_directory() -> Iterator[Path]:
    """A fresh directory with a short name, since socket paths are short."""
    root = Path(tempfile.mkdtemp(prefix="cases-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


@dataclass
class Running:
    """A whole daemon in this process, over real sockets; the containers ``c1`` and ``c2`` are bound."""

    path: Path
    counters: Counters
    drain: Callable[[], None]

    def socket(self, container: str = "c1") -> Path:
        """A container's socket."""
        return self.path / "containers" / container / "forge.sock"

    async def connect(self, container: str = "c1") -> RawClient:
        """An agent's connection."""
        return RawClient(await trio.open_unix_socket(str(self.socket(container))))

    async def control(self, ask: Callable[[ControlClient], object]) -> None:
        """Do something over the control socket."""

        def asked() -> None:
            with ControlClient(self.path / "control.sock", timeout_seconds=20) as client:
                ask(client)

        await trio.to_thread.run_sync(asked)

    async def status(self) -> StatusReply:
        """What the daemon says of itself."""
        said: list[StatusReply] = []
        await self.control(lambda client: said.append(client.status()))
        return said[0]

    async def idle(self) -> StatusReply:
        """The status once no call is under way."""
        while (status := await self.status()).calls_in_flight:  # noqa: ASYNC110 -- the daemon has no event for a test
            await trio.sleep(0.005)
        return status


def _bind_both(client: ControlClient) -> None:
    for container, agent, owner in (("c1", "scout", "ada"), ("c2", "pilot", "bob")):
        client.open_container(container)
        client.bind_session(container, f"s-{agent}", agent=agent, owner=owner)


@asynccontextmanager
async def running(
    provider: Provider, *, path: Path | None = None, store: MemoryStore | None = None, limits: Limits | None = None
) -> AsyncIterator[Running]:
    """A daemon over ``provider``; it is drained, and has ended whole, when the block ends."""
    with short_directory() as own:
        config = Config(run_dir=str(path or own), host_id=HOST, store="memory", limits=limits or Limits())
        registry = Registry([ForgeEntry(provider.name, provider.host, provider)])
        counters = Counters()
        with RunDir.locked(Path(config.run_dir)) as run_dir:
            async with trio.open_nursery() as nursery:
                daemon = await nursery.start(serve_with, config, run_dir, store or MemoryStore(), registry, counters)
                made = Running(run_dir.path, counters, daemon.drain)
                await made.control(_bind_both)
                yield made
                daemon.drain()


# --- a forge of raw bytes -------------------------------------------------------------------------------------------

Answer: TypeAlias = Callable[[trio.SocketStream, str, str], Awaitable[None]]
"""(stream, method, path) to whatever bytes it sends; when it returns, the connection is served on or closed by it."""


@dataclass
class RawForge:
    """A TCP server on loopback that answers as it is told.

    Attributes:
        seen: method and path of every request, in order.
        open: connections that are open now.
    """

    answer: Answer
    port: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)
    open: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, until either side closes it."""
        self.open += 1
        try:
            async with stream:
                while head := await _receive_request(stream):
                    method, path = head
                    self.seen.append(head)
                    await self.answer(stream, method, path)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the daemon went, as some cases have it; or the answer closed
        finally:
            self.open -= 1

    async def deserted(self) -> None:
        """Wait until no connection is open."""
        await until(lambda: not self.open)


async def _receive_request(stream: trio.SocketStream) -> tuple[str, str] | None:
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some()
        if not part:
            return None
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        body += await stream.receive_some()
    method, path, _ = lines[0].split(" ")
    return method, path


@asynccontextmanager
async def raw_forge(answer: Answer) -> AsyncIterator[RawForge]:
    """A ``RawForge`` that listens."""
    forge = RawForge(answer)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    forge.port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, forge.serve, listeners)
        yield forge
        nursery.cancel_scope.cancel()


async def never(stream: trio.SocketStream, _method: str, _path: str) -> None:
    """Answer nothing until the other side hangs up."""
    async for _ in stream:
        pass


def http_answer(body: object, status: int = 200) -> bytes:
    """A whole answer as it goes over the network."""
    content = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)


@asynccontextmanager
async def github_at(
    port: int, *, scheme: str = "http", source: TokenSource | None = None, settings: BudgetSettings | None = None
) -> AsyncIterator[tuple[GitHubProvider, HttpTransport]]:
    """GitHub at a port of this machine. Its retries do not pause."""
    async with HttpTransport(BaseUrl.parse(f"{scheme}://127.0.0.1:{port}")) as transport:
        http = ForgeHttp(
            transport,
            Gate(
                Budget(
                    settings or BudgetSettings(creation_burst=500, creations_per_minute=500, points_per_minute=50_000)
                ),
                name="test",
            ),
            Credential("author", source or StaticToken(TOKEN)),
            GitHubDialect(wall_clock=lambda: float(EPOCH)),
            jitter=lambda: -0.5,  # cancels the pause
        )
        yield GitHubProvider(http), transport


# --- a bare service -------------------------------------------------------------------------------------------------


class Desk:
    """A service without sockets, for virtual time: its store, and calls as the bound agent ``scout``."""

    def __init__(
        self,
        provider: Provider,
        store: MemoryStore | None = None,
        *,
        limits: ServiceLimits | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.counters = Counters()
        registry = registry or Registry([ForgeEntry(provider.name, provider.host, provider)])
        self.service = ForgeService(self.store, registry, ref_secret=b"k" * 32, counters=self.counters, limits=limits)
        self.caller = Caller(None, "", "")

    async def ask(
        self,
        arm: Arm,
        key: str = "",
        *,
        forge: ForgeSelector | None = None,
        guard: RecordingGuard | None = None,
        container: str = "c1",
    ) -> ResultArm:
        """One call; ``container`` is whose turn it takes."""
        if self.caller.account is None:
            await self.store.open_container(HOST, ContainerSpec("c1"))
            bound = await self.store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada"))
            self.caller = Caller(bound.account, "s-1", "c1")
        call = ForgeCall(call_id="1", arm=arm, forge=forge, client_request_id=key)
        return await self.service.execute(self.caller, call, CallContext(container, guard or RecordingGuard()))


def refused(result: ResultArm | ReplyFrame | None) -> ErrorResult:
    """The in-band error of a result, bare or in its frame."""
    arm = result.result if isinstance(result, ResultFrame) else result
    assert isinstance(arm, ErrorResult), result
    return arm


def code_of(error: AgentError) -> tuple[str, str]:
    """(code, outcome) of what the agent library raises."""
    return error.code, error.outcome
