"""Sessions that end elsewhere: under virtual time over the store in memory, then as whole daemons over sockets."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from compass_forged.config import Config
from compass_forged.containers import Containers
from compass_forged.daemon import serve_with
from compass_forged.errors import SchemaMismatch, StartError
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.listener import RunDir
from compass_forged.observability import Counters
from compass_forged.ports import ContainerSpec, Session, SessionBinding
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.session_watch import follow_sessions
from compass_forged.sessions import SessionTable
from compass_forged.store.memory import MemoryStore
from compass_forged.supervise import supervise
from compass_forged.wire.schema import FaultFrame, ReplyFrame, ResultFrame
from tests.support.core import READ, WRITE, Logged, RawClient, ScriptedCaller, call_of, fault_of, logged, takes
from tests.support.host import HOST, until
from tests.support.stores import bind

Arrival = tuple[str, float, ReplyFrame]


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


class AskedStore(MemoryStore):
    """Counts how often it is asked what stands on a host, and can fail that question alone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.broken: list[Exception] = []

    async def load_host(self, host: str) -> tuple[list[ContainerSpec], list[Session]]:
        self.asked += 1
        found = await super().load_host(host)
        if self.broken:
            raise self.broken.pop()
        return found


class Floor:
    """A daemon's table, hub and watch without sockets, and what its calls were answered, when."""

    def __init__(
        self, store: AskedStore, table: SessionTable, containers: Containers, hub: Hub, counters: Counters
    ) -> None:
        self.store = store
        self.table = table
        self.containers = containers
        self.hub = hub
        self.counters = counters
        self.answers: list[Arrival] = []

    def ask(self, name: str, *, write: bool = False, session: str = "s-1") -> None:
        began = trio.current_time()

        def answer(reply: ReplyFrame) -> None:
            self.answers.append((name, trio.current_time() - began, reply))

        self.hub.submit(session, call_of(WRITE if write else READ, name), answer)

    def codes(self) -> dict[str, str]:
        return {name: reply.code if isinstance(reply, FaultFrame) else "ok" for name, _seconds, reply in self.answers}


@asynccontextmanager
async def floor(tmp_path: Path, caller: ScriptedCaller | None = None) -> AsyncIterator[Floor]:
    """A floor on which s-1 is live in c1 and s-2 in c2; its watch is up and has had its first look."""
    store, counters = AskedStore(), Counters()
    live = [await bind(store), await bind(store, "scribe", container="c2", session="s-2")]
    table = SessionTable(live)
    hub = Hub(table, counters=counters)
    hub.wire(caller or ScriptedCaller())
    gateway = Gateway(table, hub.submit, counters=counters)
    with RunDir.locked(tmp_path) as run_dir:
        containers = Containers(run_dir, HOST, store=store, sessions=table, hub=hub, gateway=gateway, counters=counters)
        async with store.watch_sessions(HOST) as watch, trio.open_nursery() as nursery:
            await nursery.start(hub.run)
            follow = partial(follow_sessions, watch, containers, counters=counters)
            nursery.start_soon(partial(supervise, "sessions", follow, counters=counters))
            await trio.testing.wait_all_tasks_blocked()
            store.asked = 0
            yield Floor(store, table, containers, hub, counters)
            nursery.cancel_scope.cancel()


async def test_a_session_that_another_ends_is_unbound_here(
    autojump_clock: object, tmp_path: Path, events: Logged
) -> None:
    async with floor(tmp_path) as made:
        await made.store.end_session(HOST, "c1")
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.session_of("c1") is None
        assert made.table.session_of("c2") == "s-2"
        made.ask("gone")
        made.ask("other", session="s-2")
        await trio.testing.wait_all_tasks_blocked()
        assert made.codes() == {"gone": "not_found", "other": "ok"}
        assert made.counters.total("sessions_ended_elsewhere") == 1
        told = [entry for entry in events if entry["event"] == "session ended elsewhere"]
        assert [(entry["session"], entry["container"]) for entry in told] == [("s-1", "c1")]


async def test_its_unsent_calls_are_given_up_at_once_and_sent_writes_go_on(
    autojump_clock: object, tmp_path: Path
) -> None:
    caller = ScriptedCaller(takes(10))
    async with floor(tmp_path, caller) as made:
        made.ask("read")
        made.ask("unsent", write=True)
        await trio.testing.wait_all_tasks_blocked()
        caller.script = takes(10, sends_after=1)
        made.ask("sent", write=True)
        await trio.sleep(2)
        await made.store.end_session(HOST, "c1")
        await trio.sleep(20)
        assert {name: (seconds, type(reply)) for name, seconds, reply in made.answers} == {
            "read": (2, FaultFrame),
            "unsent": (2, FaultFrame),
            "sent": (10, ResultFrame),
        }
        assert made.codes()["unsent"] == "permission_denied"
        assert caller.ended == ["cancelled", "cancelled", "ok"]


async def test_a_closed_container_ends_its_session(autojump_clock: object, tmp_path: Path) -> None:
    async with floor(tmp_path) as made:
        await made.store.close_container(HOST, "c2")
        await trio.testing.wait_all_tasks_blocked()
        assert [session.session_id for session in made.table] == ["s-1"]


async def test_nothing_is_ever_bound_by_what_is_told(autojump_clock: object, tmp_path: Path) -> None:
    """A second daemon under this host id, say: its sessions replace those that stood, and are none of ours."""
    async with floor(tmp_path) as made:
        await made.store.bind_session(HOST, SessionBinding("c1", "s-9", "scout", "ada"))
        await bind(made.store, container="c3", session="s-8")
        await trio.testing.wait_all_tasks_blocked()
        assert [session.session_id for session in made.table] == ["s-2"]
        made.store.available = False
        made.store.available = True
        await trio.testing.wait_all_tasks_blocked()
        assert [session.session_id for session in made.table] == ["s-2"]


@pytest.mark.parametrize(
    "changed",
    [
        SessionBinding("c1", "s-1", "scout", "ada", ("github/acme/*",)),
        SessionBinding("c9", "s-1", "scout", "ada"),
    ],
    ids=["another scope", "another container"],
)
async def test_a_session_that_is_not_what_it_was_is_ended(
    autojump_clock: object, tmp_path: Path, changed: SessionBinding
) -> None:
    async with floor(tmp_path) as made:
        await made.store.open_container(HOST, ContainerSpec("c9"))
        if changed.container != "c1":
            made.store._sessions["s-1"].live = False  # moved in one transaction: no moment at which it had ended
        await made.store.bind_session(HOST, changed)
        made.store._tell(HOST, "s-1")
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.resolve("s-1") is None


async def test_the_daemons_own_changes_cost_no_question_and_undo_nothing(
    autojump_clock: object, tmp_path: Path
) -> None:
    async with floor(tmp_path) as made:
        made.containers._open["c1"] = made.containers._open["c2"] = None  # type: ignore[assignment] # no listeners here
        for _ in range(3):
            await made.containers.unbind("c1")
            await trio.testing.wait_all_tasks_blocked()
        assert made.store.asked == 0
        for session in ("s-1", "s-7", "s-1"):
            await made.containers.bind(SessionBinding("c1", session, "scout", "ada"))
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.session_of("c1") == "s-1", "though it is told that s-1 had ended in between"
        assert made.store.asked <= 2
        await made.containers.bind(SessionBinding("c1", "s-1", "scout", "ada", ("github/acme/*",)))
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.session_of("c1") == "s-1"
        assert made.counters.total("sessions_ended_elsewhere") == 0
        await trio.sleep(3600)
        assert made.store.asked <= 3, "and nothing goes round"


async def test_calls_ask_the_store_nothing(autojump_clock: object, tmp_path: Path) -> None:
    async with floor(tmp_path) as made:
        for number in range(50):
            made.ask(str(number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(made.answers) == 50
        assert made.store.asked == 0


async def test_hints_that_name_nobody_here_ask_nothing(autojump_clock: object, tmp_path: Path) -> None:
    async with floor(tmp_path) as made:
        for number in range(100):
            made.store._tell(HOST, f"x-{number}")
        await trio.testing.wait_all_tasks_blocked()
        assert made.store.asked == 0
        made.store._tell(HOST, "s-1")  # not true
        await trio.testing.wait_all_tasks_blocked()
        assert made.store.asked == 1
        assert made.table.session_of("c1") == "s-1"


async def test_what_ended_while_nobody_listened_ends_once_the_store_is_back(
    autojump_clock: object, tmp_path: Path, events: Logged
) -> None:
    async with floor(tmp_path) as made:
        made.store.available = False
        made.store._end(HOST, "c1")  # by another daemon, which still reaches the store
        await trio.sleep(30)
        assert made.table.session_of("c1") == "s-1", "nobody knows yet"
        made.store.available = True
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.session_of("c1") is None
        assert made.table.session_of("c2") == "s-2"
        assert not [entry for entry in events if entry["log_level"] == "warning"]


async def test_a_store_that_cannot_be_asked_is_asked_until_it_answers(
    autojump_clock: object, tmp_path: Path, events: Logged
) -> None:
    async with floor(tmp_path) as made:
        made.store.broken = [SchemaMismatch("for now") for _ in range(8)]
        began = trio.current_time()
        await made.store.end_session(HOST, "c1")
        await until_ended(made, "c1")
        assert made.store.asked == 9
        assert 1 < trio.current_time() - began < 10, "with growing pauses"
        assert len([entry for entry in events if entry["log_level"] == "warning"]) == 1


async def test_after_a_crash_it_looks_at_everything_again(autojump_clock: object, tmp_path: Path) -> None:
    async with floor(tmp_path) as made:
        made.store.broken = [RuntimeError("a fault of ours")]
        await made.store.end_session(HOST, "c1")
        await until_ended(made, "c1")
        assert made.counters.total("supervisor_restarts", task="sessions") == 1


async def until_ended(made: Floor, container: str) -> None:
    with trio.fail_after(60):
        while made.table.session_of(container) is not None:  # noqa: ASYNC110 -- the daemon has no event for a test
            await trio.sleep(0.01)


async def test_an_operation_of_our_own_that_is_half_done_is_waited_for(autojump_clock: object, tmp_path: Path) -> None:
    """Between the store's yes and the table, a bind looks like another daemon's, and the session before as ended."""

    class Slow(AskedStore):
        async def bind_session(self, host: str, binding: SessionBinding) -> Session:
            session = await super().bind_session(host, binding)
            await trio.sleep(5)
            return session

    async with floor(tmp_path) as made:
        made.containers._open["c1"] = None  # type: ignore[assignment] # no listeners here
        made.store.__class__ = Slow
        await made.containers.bind(SessionBinding("c1", "s-7", "scout", "ada"))
        await trio.testing.wait_all_tasks_blocked()
        assert made.table.session_of("c1") == "s-7"
        assert made.counters.total("sessions_ended_elsewhere") == 0
        assert made.store.asked == 0


# --- whole daemons on one store -------------------------------------------------------------------------------------


async def test_two_daemons_on_one_store_each_keep_their_own(tmp_path: Path) -> None:
    store = MemoryStore()
    for host, session, agent in (("host-1", "s-1", "scout"), ("host-2", "s-2", "scribe")):
        await bind(store, agent, host=host, session=session)
    async with trio.open_nursery() as nursery:
        for host in ("host-1", "host-2"):
            await nursery.start(_serve, tmp_path / host, host, store)
        clients = [await _client(tmp_path / host) for host in ("host-1", "host-2")]
        await store.end_session("host-1", "c1")
        await until_refused(clients[0])
        await clients[1].send(call_of())
        reply = await clients[1].reply()
        assert isinstance(reply, ResultFrame)  # no such forge, said to somebody who is known
        for client in clients:
            await client.stream.aclose()
        nursery.cancel_scope.cancel()


async def until_refused(client: RawClient) -> None:
    while True:  # bounded by the test's own deadline
        await client.send(call_of())
        reply = await client.reply()
        if isinstance(reply, FaultFrame):
            assert fault_of(reply) == "permission_denied"
            return


async def test_a_second_daemon_under_the_same_host_id_does_not_start(tmp_path: Path) -> None:
    store = MemoryStore()
    await bind(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, tmp_path / "one", HOST, store)
        with pytest.raises(StartError, match=r"^store: host_id host-1: another daemon .* its own host_id$"):
            await _serve(tmp_path / "two", HOST, store)
        assert not (tmp_path / "two" / "containers" / "c1").exists()
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, tmp_path / "two", HOST, store)
        await until((tmp_path / "two" / "containers" / "c1" / "forge.sock").exists)
        nursery.cancel_scope.cancel()


async def _serve(
    path: Path, host: str, store: MemoryStore, *, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED
) -> None:
    await trio.Path(path).mkdir(exist_ok=True)
    config = Config(run_dir=str(path), host_id=host, store="memory")
    with RunDir.locked(path) as run_dir:
        await serve_with(config, run_dir, store, _registry(), Counters(), task_status=task_status)


async def _client(path: Path) -> RawClient:
    return RawClient(await trio.open_unix_socket(str(path / "containers" / "c1" / "forge.sock")))


def _registry() -> Registry:
    provider = FakeProvider()
    return Registry([Entry(provider.name, provider.host, provider)])
