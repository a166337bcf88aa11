"""A crash of the hub or of the control server costs nobody else a connection, and is counted."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from compass_forged.listener import Peer, RunDir, UnixListener
from compass_forged.ports import ContainerSpec, SessionBinding
from compass_forged.sessions import SessionTable
from compass_forged.store.memory import MemoryStore
from compass_forged.stream import UnixStream
from compass_forged.supervise import RestartPolicy, supervise
from tests.support.core import WRITE, Logged, Script, call_of, fault_of, logged, reply_to, takes
from tests.support.host import Host, until

POLICY = RestartPolicy(restarts=5, first_seconds=0.2, last_seconds=0.2)
"""A backoff that is long enough to be met by a call."""


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


@asynccontextmanager
async def supervised(path: Path, script: Script | None = None) -> AsyncIterator[Host]:
    """A host whose hub and control server are supervised as the daemon's are; two containers, both bound."""
    with RunDir.locked(path) as run_dir:
        made = Host(run_dir, MemoryStore(), SessionTable([]), script)
        parts: dict[str, Callable[[], Awaitable[None]]] = {"hub": made.hub.run, "control": made.control.run}
        async with trio.open_nursery() as nursery:
            await nursery.start(made.containers.run, [])
            for name, body in parts.items():
                nursery.start_soon(partial(supervise, name, body, counters=made.counters, policy=POLICY))
            await until(run_dir.control_socket.exists)
            for number in (1, 2):
                await made.containers.open(ContainerSpec(f"c{number}"))
                await made.containers.bind(SessionBinding(f"c{number}", f"s-{number}", f"agent-{number}", "ada"))
            yield made
            nursery.cancel_scope.cancel()


async def _crash() -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("injected")


async def test_a_hub_that_crashes_answers_everybody_and_every_connection_stays(tmp_path: Path) -> None:
    async with supervised(tmp_path, takes(0.1)) as made:
        clients = [await made.connect(name) for name in ("c1", "c1", "c2")]
        for client in clients:
            await client.send(call_of(WRITE, "1"))
        await until(lambda: len(made.caller.calls) == 3)
        assert made.hub._workers._nursery is not None
        made.hub._workers._nursery.start_soon(_crash)
        for client in clients:
            assert fault_of(await client.reply()) == "unavailable"
        for client in clients:  # while it is away
            await client.send(call_of(WRITE, "2"))
            assert fault_of(await client.reply()) == "unavailable"
        await until(lambda: made.hub._workers.running)
        for client in clients:  # over the same connections
            await client.send(call_of(WRITE, "3"))
            assert await client.reply() == reply_to(call_of(WRITE, "3"))
            await client.stream.aclose()
        assert made.counters.total("supervisor_restarts") == 1
        assert made.counters.total("supervisor_restarts", task="hub") == 1
        assert made.counters.total("calls", code="fault:unavailable") == 6


async def test_a_control_server_that_crashes_is_back_and_no_agent_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(tmp_path, takes(0.05)) as made:
        agent = await made.connect("c1")
        steering = await made.control_stream()
        await agent.send(call_of(WRITE, "1"))
        accept = UnixListener.accept

        async def crash_once(listener: UnixListener) -> tuple[UnixStream, Peer]:
            found = await accept(listener)
            if listener.path == made.run_dir.control_socket:
                monkeypatch.setattr(UnixListener, "accept", accept)
                await found[0].aclose()
                raise RuntimeError("injected")
            return found

        monkeypatch.setattr(UnixListener, "accept", crash_once)
        for _ in range(2):  # the accept of before takes the first
            await (await made.control_stream()).aclose()
        await until(lambda: made.counters.total("supervisor_restarts", task="control") == 1)
        assert (await agent.reply()).call_id == "1"
        assert await steering.receive_some(1) == b""  # its connections went with it
        await until(made.run_dir.control_socket.exists)
        assert len(await made.ask(lambda client: client.list_containers())) == 2
        await agent.send(call_of(WRITE, "2"))
        assert (await agent.reply()).call_id == "2"
        assert made.counters.total("supervisor_restarts") == 1
        for stream in (agent.stream, steering):
            await stream.aclose()
