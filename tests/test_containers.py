import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from compass_forged.containers import BadRequest
from compass_forged.errors import ContainerUnknown, SessionTaken, StartError, StoreUnavailable
from compass_forged.listener import Peer, UnixListener
from compass_forged.ports import Account, Caller, ContainerSpec, SessionBinding
from compass_forged.store.memory import MemoryStore
from compass_forged.stream import UnixStream
from compass_forged.wire.schema import FaultFrame, ResultFrame
from tests.support.core import READ, WRITE, Logged, call_of, fault_of, logged, takes
from tests.support.host import HOST, Host, away, host, until

NOBODY = 65534


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


def binding(container: str = "c1", session: str = "s-1", agent: str = "scout", owner: str = "ada") -> SessionBinding:
    return SessionBinding(container, session, agent, owner)


async def answer(made: Host, container: str = "c1") -> ResultFrame | FaultFrame:
    client = await made.connect(container)
    await client.send(call_of(READ))
    reply = await client.reply()
    await client.stream.aclose()
    return reply


# --- opening and closing --------------------------------------------------------------------------------------------


async def test_an_open_container_takes_connections_and_is_unbound(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        opened = await made.containers.open(ContainerSpec("c1"))
        assert opened.listening
        assert fault_of(await answer(made)) == "permission_denied"


async def test_opening_again_changes_settings_and_keeps_the_socket(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        inode = made.run_dir.container_socket("c1").lstat().st_ino
        client = await made.connect()
        opened = await made.containers.open(ContainerSpec("c1", allowed_uids=(os.getuid(), 12)))
        assert opened.spec.allowed_uids == (os.getuid(), 12)
        assert made.run_dir.container_socket("c1").lstat().st_ino == inode
        assert len(made.containers.items()) == 1
        await client.send(call_of())
        assert fault_of(await client.reply()) == "permission_denied"  # the connection is still there
        await client.stream.aclose()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
async def test_opening_with_another_group_binds_anew(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        client = await made.connect()
        opened = await made.containers.open(ContainerSpec("c1", socket_group=4242))
        assert opened.listening
        assert made.run_dir.container_socket("c1").lstat().st_gid == 4242
        assert await client.reply_or_end() is None
        assert fault_of(await answer(made)) == "permission_denied"
        await client.stream.aclose()


async def test_closing_ends_session_connections_and_leaves_nothing(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        await made.containers.open(ContainerSpec("c2"))
        await made.containers.bind(binding())
        client, other = await made.connect("c1"), await made.connect("c2")
        await client.send(call_of())
        assert isinstance(await client.reply(), ResultFrame)
        await made.containers.close("c1")
        assert await client.reply_or_end() is None
        assert not made.run_dir.container_dir("c1").exists()
        assert made.sessions.session_of("c1") is None
        assert await made.store.load_host(HOST) == ([ContainerSpec("c2")], [])
        await other.send(call_of())
        assert fault_of(await other.reply()) == "permission_denied"
        await made.containers.close("c1")  # again is fine
        for one in (client, other):
            await one.stream.aclose()


async def test_a_closed_container_can_be_opened_again(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for _ in range(2):
            await made.containers.open(ContainerSpec("c1"))
            assert fault_of(await answer(made)) == "permission_denied"
            await made.containers.close("c1")


async def test_many_operations_at_once_end_in_one_truth(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(made.containers.open, ContainerSpec("c1"))
                nursery.start_soon(made.containers.close, "c1")
            nursery.start_soon(made.containers.open, ContainerSpec("c1"))
        kept, _ = await made.store.load_host(HOST)
        assert [item.spec for item in made.containers.items()] == kept
        assert made.run_dir.container_socket("c1").exists() is bool(kept)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\n", "a" * 129])
async def test_a_bad_name_is_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    async with host(tmp_path) as made:
        with pytest.raises(BadRequest, match=r"^container .*: a name is 1 to 128"):
            await made.containers.open(ContainerSpec(name))
        with pytest.raises(BadRequest, match=r"^container .*: a name is 1 to 128"):
            await made.containers.close(name)
        assert await made.store.load_host(HOST) == ([], [])


@pytest.mark.parametrize("spec", [
    ContainerSpec("c1", allowed_uids=(-1,)),
    ContainerSpec("c1", allowed_uids=(0, 2**32 - 1)),
    ContainerSpec("c1", socket_group=-1),
    ContainerSpec("c1", socket_group=2**32 - 1),
])  # fmt: skip
async def test_a_number_that_is_no_uid_is_refused(tmp_path: Path, spec: ContainerSpec) -> None:
    async with host(tmp_path) as made:
        with pytest.raises(BadRequest, match="is no uid or gid"):
            await made.containers.open(spec)


async def test_a_container_whose_socket_cannot_be_bound_is_not_kept(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        made.run_dir.container_dir("c1").write_text("precious")
        with pytest.raises(StartError, match="is no directory of its own"):
            await made.containers.open(ContainerSpec("c1"))
        assert made.containers.items() == []
        assert await made.store.load_host(HOST) == ([], [])


async def test_a_container_that_the_store_cannot_keep_is_not_opened(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        with away(made.store), pytest.raises(StoreUnavailable):
            await made.containers.open(ContainerSpec("c1"))
        assert made.containers.items() == []
        assert not made.run_dir.container_dir("c1").exists()
        await made.containers.open(ContainerSpec("c1"))


async def test_with_the_store_away_nothing_changes(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        await made.containers.bind(binding())
        with away(made.store):
            for operation in (
                lambda: made.containers.close("c1"),
                lambda: made.containers.unbind("c1"),
                lambda: made.containers.bind(binding(session="s-2")),
                lambda: made.containers.open(ContainerSpec("c1", socket_group=1)),
            ):
                with pytest.raises(StoreUnavailable):
                    await operation()
            assert isinstance(await answer(made), ResultFrame)  # and who speaks is known without it
        assert made.sessions.session_of("c1") == "s-1"


async def test_before_it_runs_nothing_can_be_opened(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        made.containers._nursery = None
        with pytest.raises(StartError, match="not listening"):
            await made.containers.open(ContainerSpec("c1"))


# --- binding --------------------------------------------------------------------------------------------------------


async def test_a_bound_session_speaks_as_its_account(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        session = await made.containers.bind(SessionBinding("c1", "s-1", "scout", "ada", ("github/acme/*",)))
        assert session == await made.containers.bind(SessionBinding("c1", "s-1", "scout", "ada", ("github/acme/*",)))
        assert isinstance(await answer(made), ResultFrame)
        account = Account(1, "scout", 1, "ada")
        assert made.caller.calls[0][0] == Caller(account, "s-1", "c1", ("github/acme/*",))


async def test_rebinding_gives_up_the_calls_of_the_session_before(tmp_path: Path) -> None:
    async with host(tmp_path, script=takes(1000)) as made:
        await made.containers.open(ContainerSpec("c1"))
        await made.containers.bind(binding())
        client = await made.connect()
        await client.send(call_of(READ, "r"), call_of(WRITE, "w"))
        await until(lambda: len(made.caller.calls) == 2)
        await made.containers.bind(binding(session="s-2"))
        replies = await client.replies(2)
        assert {fault_of(reply) for reply in replies.values()} == {"permission_denied"}
        await client.stream.aclose()


async def test_binding_the_same_session_again_gives_up_nothing(tmp_path: Path) -> None:
    async with host(tmp_path, script=takes(0.02)) as made:
        await made.containers.open(ContainerSpec("c1"))
        await made.containers.bind(binding())
        client = await made.connect()
        await client.send(call_of(READ))
        await until(lambda: len(made.caller.calls) == 1)
        await made.containers.bind(binding())
        assert isinstance(await client.reply(), ResultFrame)
        await client.stream.aclose()


async def test_unbinding_denies_the_next_call(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        await made.containers.bind(binding())
        client = await made.connect()
        for _ in range(2):  # again is fine
            await made.containers.unbind("c1")
            await client.send(call_of())
            assert fault_of(await client.reply()) == "permission_denied"
        await client.stream.aclose()


async def test_binding_and_unbinding_need_an_open_container(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        with pytest.raises(ContainerUnknown, match="container 'c1' is not open; open it first"):
            await made.containers.bind(binding())
        with pytest.raises(ContainerUnknown, match="is not open"):
            await made.containers.unbind("c1")


async def test_a_session_that_is_live_elsewhere_is_refused_and_stays_there(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for name in ("c1", "c2"):
            await made.containers.open(ContainerSpec(name))
        await made.containers.bind(binding("c1"))
        with pytest.raises(SessionTaken):
            await made.containers.bind(binding("c2"))
        assert (made.sessions.session_of("c1"), made.sessions.session_of("c2")) == ("s-1", None)


@pytest.mark.parametrize("field", ["session_id", "agent", "owner"])
@pytest.mark.parametrize("word", ["", "Scout", "-a", "a b", "a\n", "a" * 40, "ä", "a_b", "a`b"])
async def test_a_word_that_cannot_stand_in_a_header_is_refused(tmp_path: Path, field: str, word: str) -> None:
    words = {"session_id": "s-1", "agent": "scout", "owner": "ada"} | {field: word}
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        name = "session" if field == "session_id" else field
        with pytest.raises(BadRequest, match=f"^{name} .*: must be 1 to 39 of a-z 0-9 -"):
            await made.containers.bind(SessionBinding("c1", words["session_id"], words["agent"], words["owner"]))
        assert len(made.sessions) == 0


async def test_a_scope_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        with pytest.raises(BadRequest, match="scope: 'nonsense' is no pattern"):
            await made.containers.bind(SessionBinding("c1", "s-1", "scout", "ada", ("github/a/b", "nonsense")))


# --- who may connect ------------------------------------------------------------------------------------------------


async def test_a_uid_that_is_not_allowed_is_refused(tmp_path: Path, events: Logged) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1", allowed_uids=(NOBODY,)))
        await made.containers.bind(binding())
        client = await made.connect()
        assert await client.reply_or_end() is None
        assert made.counters.total("connections_refused") == 1
        assert made.caller.calls == []
        (line,) = [event for event in events if event["log_level"] == "warning"]
        assert (line["container"], line["uid"], line["pid"]) == ("c1", os.getuid(), os.getpid())
        await client.stream.aclose()


async def test_a_uid_that_is_allowed_later_may_connect_then(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1", allowed_uids=(NOBODY,)))
        await made.containers.open(ContainerSpec("c1", allowed_uids=(os.getuid(), NOBODY)))
        assert fault_of(await answer(made)) == "permission_denied"


async def test_who_connects_is_logged_once(tmp_path: Path, events: Logged) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        await answer(made)
        (line,) = [event for event in events if event["event"] == "connected"]
        assert (line["uid"], line["gid"], line["pid"]) == (os.getuid(), os.getgid(), os.getpid())


# --- restarts -------------------------------------------------------------------------------------------------------


async def test_what_was_open_and_bound_is_restored(tmp_path: Path) -> None:
    store = MemoryStore()
    async with host(tmp_path, store) as made:
        await made.containers.open(ContainerSpec("c1", allowed_uids=(os.getuid(),)))
        await made.containers.bind(SessionBinding("c1", "s-1", "scout", "ada", ("github/acme/*",)))
    assert not (tmp_path / "containers" / "c1" / "forge.sock").exists()
    assert (tmp_path / "containers" / "c1").is_dir()  # what a container has mounted stays
    async with host(tmp_path, store) as made:
        assert isinstance(await answer(made), ResultFrame)
        assert made.caller.calls[0][0].scope == ("github/acme/*",)
        assert [item.spec for item in made.containers.items()] == [ContainerSpec("c1", allowed_uids=(os.getuid(),))]


async def test_a_restart_serves_the_directory_that_was_mounted_before(tmp_path: Path) -> None:
    store = MemoryStore()
    async with host(tmp_path, store) as made:
        await made.containers.open(ContainerSpec("c1"))
        mounted = os.open(made.run_dir.container_dir("c1"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        async with host(tmp_path, store):
            stream = await trio.open_unix_socket(f"/proc/self/fd/{mounted}/forge.sock")
            await stream.aclose()
    finally:
        os.close(mounted)


async def test_one_container_that_cannot_be_restored_keeps_no_other_away(tmp_path: Path, events: Logged) -> None:
    store = MemoryStore()
    async with host(tmp_path, store) as made:
        for name in ("c1", "c2"):
            await made.containers.open(ContainerSpec(name))
    directory = tmp_path / "containers" / "c1"
    directory.rmdir()
    directory.write_text("precious")
    async with host(tmp_path, store) as made:
        assert [(item.spec.name, item.listening) for item in made.containers.items()] == [("c1", False), ("c2", True)]
        assert fault_of(await answer(made, "c2")) == "permission_denied"
        assert [event["container"] for event in events if event["log_level"] == "error"] == ["c1"]
        directory.unlink()
        assert (await made.containers.open(ContainerSpec("c1"))).listening  # mended, and opened again
        assert fault_of(await answer(made, "c1")) == "permission_denied"


async def test_one_listener_that_crashes_is_bound_anew_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(tmp_path) as made:
        for name in ("c1", "c2"):
            await made.containers.open(ContainerSpec(name))
        other = await made.connect("c2")
        accept, crashes = UnixListener.accept, ["c1"]

        async def accept_or_crash(listener: UnixListener) -> tuple[UnixStream, Peer]:
            found = await accept(listener)
            if listener.path.parent.name in crashes:
                crashes.clear()
                await found[0].aclose()
                raise OSError(5, "injected")
            return found

        monkeypatch.setattr(UnixListener, "accept", accept_or_crash)
        # c1's listener is within an accept of before: the first connection is served, the second crashes it.
        await answer(made, "c1")
        path = made.run_dir.container_socket("c1")
        dead = await made.connect("c1")
        await until(lambda: not path.exists())  # until the backoff is over
        await until(path.exists)
        assert fault_of(await answer(made, "c1")) == "permission_denied"
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        await other.send(call_of())
        assert fault_of(await other.reply()) == "permission_denied"
        assert made.counters.total("supervisor_restarts") == 1
        assert made.counters.total("supervisor_restarts", task="listener:c1") == 1
        for one in (dead, other):
            await one.stream.aclose()


async def test_connections_over_the_limit_wait_their_turn(tmp_path: Path) -> None:
    async with host(tmp_path) as made:  # it takes four at once
        await made.containers.open(ContainerSpec("c1"))
        clients = [await made.connect() for _ in range(5)]
        for client in clients:
            await client.send(call_of())
        for client in clients[:4]:
            await client.reply()
        assert made.gateway.connections_of("c1") == 4
        with trio.move_on_after(0.02) as scope:
            await clients[4].reply()
        assert scope.cancelled_caught
        await clients[0].stream.aclose()
        assert fault_of(await clients[4].reply()) == "permission_denied"
        for client in clients[1:]:
            await client.stream.aclose()


# --- when the daemon stops ------------------------------------------------------------------------------------------


async def test_a_host_that_stops_accepting_serves_those_who_are_there_and_nobody_new(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for name in ("c1", "c2"):
            await made.containers.open(ContainerSpec(name))
            await made.containers.bind(binding(name, f"s-{name}"))
        client = await made.connect("c1")
        await client.send(call_of(call_id="before"))
        assert (await client.reply()).call_id == "before"
        sockets = [made.run_dir.container_socket(name) for name in ("c1", "c2")]
        linked = tmp_path / "linked"
        os.link(sockets[0], linked)  # the same socket under a name that stays
        made.containers.stop_accepting()
        assert [item.listening for item in made.containers.items()] == [False, False]
        assert [path.exists() for path in sockets] == [False, False]
        with pytest.raises(OSError, match=r"refused"):
            await trio.open_unix_socket(str(linked))
        for name in ("c1", "c2"):
            with pytest.raises(FileNotFoundError):
                await made.connect(name)
        await client.send(call_of(call_id="after"))
        assert isinstance(await client.reply(), ResultFrame)
        made.containers.stop_accepting()  # again is fine
        await client.stream.aclose()
        assert made.counters.total("supervisor_restarts") == 0


async def test_a_container_that_could_not_be_restored_does_not_keep_the_host_from_stopping(tmp_path: Path) -> None:
    store = MemoryStore()
    async with host(tmp_path, store) as made:
        await made.containers.open(ContainerSpec("c1"))
    directory = tmp_path / "containers" / "c1"
    directory.rmdir()
    directory.write_text("precious")
    async with host(tmp_path, store) as made:
        made.containers.stop_accepting()
        assert [item.listening for item in made.containers.items()] == [False]


async def test_a_container_can_be_closed_after_the_host_stopped_accepting(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        client = await made.connect()
        await client.send(call_of())
        await client.reply()
        made.containers.stop_accepting()
        await made.containers.close("c1")
        assert await client.reply_or_end() is None
        assert not made.run_dir.container_dir("c1").exists()
        await client.stream.aclose()


# --- a drain --------------------------------------------------------------------------------------------------------


async def test_a_drain_is_not_undone_by_opening_a_container(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.containers.open(ContainerSpec("c1"))
        client = await made.connect()
        await until(lambda: made.gateway.connections_of("c1") == 1)  # out of the backlog, which a drain drops
        made.containers.stop_accepting()
        for name in ("c1", "c2"):
            with pytest.raises(StartError, match="stopping"):
                await made.containers.open(ContainerSpec(name))
            assert not made.run_dir.container_socket(name).exists()
        await client.send(call_of())
        assert (await client.reply()).call_id == "1"
        await client.stream.aclose()


async def test_a_listener_that_waits_to_be_restarted_stays_away_in_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = UnixListener.accept

    async def broken(self: UnixListener) -> tuple[UnixStream, Peer]:
        if self.path.name == "control.sock":
            return await accept(self)
        await trio.lowlevel.checkpoint()
        raise OSError(5, "injected")

    async with host(tmp_path) as made:
        monkeypatch.setattr(UnixListener, "accept", broken)
        container = await made.containers.open(ContainerSpec("c1"))
        await until(lambda: not made.run_dir.container_socket("c1").exists())
        made.containers.stop_accepting()
        monkeypatch.setattr(UnixListener, "accept", accept)
        await container.stopped.wait()
        assert not made.run_dir.container_socket("c1").exists()
