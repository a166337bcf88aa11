import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio

from compass_forged import __version__
from compass_forged.control import schema
from compass_forged.control.client import ControlClient, ControlRefused, DaemonUnreachable
from compass_forged.errors import StartError
from compass_forged.listener import Peer
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.frames import FrameBuffer, FramingError, encode_frame
from compass_forged.wire.schema import ResultFrame
from tests.support.core import READ, Logged, call_of, fault_of, logged
from tests.support.host import Host, away, host


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


async def refusal(made: Host, question: Callable[[ControlClient], object]) -> tuple[str, str]:
    """(code, message) with which the daemon refuses."""
    with pytest.raises(ControlRefused) as caught:
        await made.ask(question)
    assert str(caught.value).isprintable()
    return caught.value.code, str(caught.value)


def bind(container: str = "c1", session: str = "s-1", agent: str = "scout", owner: str = "ada",
         scope: list[str] | None = None) -> Callable[[ControlClient], schema.ContainerState]:  # fmt: skip
    return lambda client: client.bind_session(container, session, agent=agent, owner=owner, scope=scope)


async def reply_on(stream: trio.SocketStream) -> schema.ControlReply | None:
    """The next reply on a bare connection; None where the daemon closed."""
    buffer = FrameBuffer()
    while (payload := buffer.next_frame()) is None:
        data = await stream.receive_some()
        if not data:
            return None
        buffer.feed(data)
    return schema.decode_reply(payload)


async def sends_until_refused(stream: trio.SocketStream, data: bytes, *, every: float) -> None:
    """Send ``data`` again and again until the daemon has closed; a test's own deadline ends it where it never does."""
    with suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(data)
            await trio.sleep(every)


# --- operations -----------------------------------------------------------------------------------------------------


async def test_open_says_where_the_socket_is_and_again_says_the_same(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for _ in range(2):
            state = await made.ask(lambda client: client.open_container("c1", allowed_uids=(os.getuid(), 12)))
            assert state == schema.ContainerState(
                name="c1",
                socket=f"{tmp_path}/containers/c1/forge.sock",
                listening=True,
                allowed_uids=[os.getuid(), 12],
            )
        await (await trio.open_unix_socket(state.socket)).aclose()


async def test_bind_and_unbind_answer_what_is_now_true(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.ask(lambda client: client.open_container("c1"))
        for scope in (None, [], ["github/acme/*", "linear/SEA"]):
            state = await made.ask(bind(scope=scope))
            assert state.session == schema.SessionState(session_id="s-1", agent="scout", owner="ada", scope=scope)
        for _ in range(2):
            assert (await made.ask(lambda client: client.unbind_session("c1"))).session is None


async def test_a_runner_opens_binds_and_its_agent_calls(tmp_path: Path) -> None:
    async with host(tmp_path) as made:

        def runner(client: ControlClient) -> None:
            client.open_container("c1")
            client.bind_session("c1", "s-1", agent="scout", owner="ada")

        await made.ask(runner)
        agent = await made.connect()
        await agent.send(call_of(READ))
        assert isinstance(await agent.reply(), ResultFrame)
        (state,) = await made.ask(lambda client: client.list_containers())
        assert state.connections == 1
        await made.ask(lambda client: client.unbind_session("c1"))
        await agent.send(call_of(READ))
        assert fault_of(await agent.reply()) == "permission_denied"
        await agent.stream.aclose()


async def test_close_drops_the_connections_and_again_is_fine(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.ask(lambda client: client.open_container("c1"))
        agent = await made.connect()
        for _ in range(2):
            await made.ask(lambda client: client.close_container("c1"))
        assert await agent.reply_or_end() is None
        assert await made.ask(lambda client: client.list_containers()) == []
        await agent.stream.aclose()


async def test_the_list_is_by_name(tmp_path: Path) -> None:
    async with host(tmp_path) as made:

        def runner(client: ControlClient) -> list[schema.ContainerState]:
            for name in ("b", "a", "c"):
                client.open_container(name)
            client.bind_session("a", "s-1", agent="scout", owner="ada")
            return client.list_containers()

        states = await made.ask(runner)
        assert [(state.name, state.session is not None) for state in states] == [
            ("a", True),
            ("b", False),
            ("c", False),
        ]


async def test_status_says_how_the_daemon_is(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.ask(lambda client: client.open_container("c1"))
        await made.ask(bind())
        agent = await made.connect()
        await agent.send(call_of(READ))
        await agent.reply()
        status = await made.ask(lambda client: client.status())
        assert (status.version, status.pid, status.host_id) == (__version__, os.getpid(), "host-1")
        assert (status.store, status.store_available, status.draining) == ("memory", True, False)
        assert (status.containers, status.sessions, status.calls_in_flight) == (1, 1, 0)
        assert status.forges == ["github:github.com"]
        assert schema.CounterRow(name="calls", labels={"arm": "get_issue", "code": "ok"}, count=1) in status.counters
        with away(made.store):
            assert (await made.ask(lambda client: client.status())).store_available is False
        await agent.stream.aclose()


async def test_drain_begins_the_stop(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for _ in range(2):
            await made.ask(lambda client: client.drain())
            assert made.drained.is_set()


async def test_many_operations_may_go_over_one_connection(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        requests: list[schema.ControlRequest] = [
            schema.OpenContainer(name="c1"),
            schema.ListContainers(),
            schema.CloseContainer(name="c1"),
        ]
        await stream.send_all(b"".join(encode_frame(schema.encode(request)) for request in requests))
        buffer = FrameBuffer()
        replies: list[type[schema.ControlReply]] = []
        while len(replies) < 3:
            buffer.feed(await stream.receive_some())
            while payload := buffer.next_frame():
                replies.append(type(schema.decode_reply(payload)))
        assert replies == [schema.ContainerReply, schema.ContainersReply, schema.ClosedReply]
        await stream.aclose()


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\n", "x" * 200])
async def test_a_bad_name_is_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    async with host(tmp_path) as made:
        code, message = await refusal(made, lambda client: client.open_container(name))
        assert code == "invalid_argument"
        assert "a name is 1 to 128 of a-z A-Z 0-9 _ . -" in message
        assert (await refusal(made, lambda client: client.close_container(name)))[0] == "invalid_argument"
        assert (await refusal(made, lambda client: client.unbind_session(name)))[0] == "not_found"
        assert (await refusal(made, bind(name)))[0] == "not_found"


async def test_a_bad_handle_session_scope_uid_or_group_is_refused_by_name(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.ask(lambda client: client.open_container("c1"))
        for question, start in (
            (bind(agent="Scout"), "agent 'Scout'"),
            (bind(owner=""), "owner ''"),
            (bind(session="s_1"), "session 's_1'"),
            (bind(scope=["nonsense"]), "scope: 'nonsense'"),
            (lambda client: client.open_container("c1", allowed_uids=(-1,)), "container c1: -1 is no uid or gid"),
            (lambda client: client.open_container("c1", socket_group=2**40), "container c1: 1099511627776 is no"),
        ):
            code, message = await refusal(made, question)
            assert code == "invalid_argument"
            assert message.startswith(start)


async def test_what_contradicts_the_store_is_a_conflict(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        for name in ("c1", "c2"):
            await made.ask(lambda client, name=name: client.open_container(name))  # type: ignore[misc]  # bound now
        await made.ask(bind())
        assert (await refusal(made, bind("c2")))[0] == "conflict"  # live elsewhere
        assert (await refusal(made, bind("c2", "s-2", owner="eve")))[0] == "conflict"  # never re-owned
        assert (await refusal(made, bind("c1", "s-1", agent="pilot")))[0] == "conflict"  # another agent's
        (one, two) = await made.ask(lambda client: client.list_containers())
        assert one.session is not None
        assert (one.session.session_id, one.session.agent, two.session) == ("s-1", "scout", None)


async def test_a_container_that_is_not_open_is_not_found(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        code, message = await refusal(made, bind("c9"))
        assert (code, message) == ("not_found", "container 'c9' is not open; open it first")
        assert (await refusal(made, lambda client: client.unbind_session("c9")))[0] == "not_found"


async def test_a_store_out_of_reach_is_unavailable_and_nothing_was_changed(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        await made.ask(lambda client: client.open_container("c1"))
        await made.ask(bind())
        before = await made.ask(lambda client: client.list_containers())
        with away(made.store):
            for question in (
                bind(session="s-2"),
                lambda client: client.unbind_session("c1"),
                lambda client: client.close_container("c1"),
                lambda client: client.open_container("c2"),
            ):
                code, message = await refusal(made, question)
                assert code == "unavailable"
                assert message.endswith("nothing was changed, try again")
            assert await made.ask(lambda client: client.list_containers()) == before


async def test_a_socket_that_cannot_be_bound_is_told_in_words(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        made.run_dir.container_dir("c1").write_text("precious")
        code, message = await refusal(made, lambda client: client.open_container("c1"))
        assert code == "unavailable"
        assert "remove what is there" in message


async def test_an_unexpected_error_is_internal_and_the_server_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Logged
) -> None:
    async with host(tmp_path) as made:

        def broken() -> None:
            raise RuntimeError("secret")

        with monkeypatch.context() as patch:
            patch.setattr(made.containers, "items", broken)
            code, message = await refusal(made, lambda client: client.list_containers())
        assert (code, message) == ("internal", "the daemon failed; its log says why")
        assert [event["log_level"] for event in events] == ["error"]
        assert made.counters.total("internal_errors", where="control") == 1
        assert await made.ask(lambda client: client.list_containers()) == []


async def test_an_answer_that_cannot_be_sent_costs_its_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Logged
) -> None:
    def too_large(_payload: bytes) -> bytes:
        raise FramingError("over the limit")

    async with host(tmp_path) as made:
        with monkeypatch.context() as patch:
            patch.setattr("compass_forged.control.server.encode_frame", too_large)
            stream = await made.control_stream()
            await stream.send_all(encode_frame(schema.encode(schema.ListContainers())))
            assert await reply_on(stream) is None
            await stream.aclose()
        assert [event["log_level"] for event in events] == ["error"]
        assert await made.ask(lambda client: client.list_containers()) == []


# --- what is no request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"\xc1", ""),
        (b"\x91" * 5000, ""),
        (msgspec.msgpack.encode({}), "op"),
        (msgspec.msgpack.encode({"op": "reboot"}), "reboot"),
        (msgspec.msgpack.encode({"op": "open_container"}), "name"),
        (msgspec.msgpack.encode({"op": "open_container", "name": 7}), "$.name"),
        (msgspec.msgpack.encode({"op": "open_container", "name": "c1", "uid": 1}), "uid"),
        (msgspec.msgpack.encode({"op": "open_container", "name": "x" * 257}), "$.name"),
        (msgspec.msgpack.encode({"op": "open_container", "name": "c1", "allowed_uids": [1] * 65}), "$.allowed_uids"),
    ],
)
async def test_garbage_is_answered_and_the_connection_goes_on(tmp_path: Path, payload: bytes, named: str) -> None:
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        await stream.send_all(encode_frame(payload))
        reply = await reply_on(stream)
        assert isinstance(reply, schema.ErrorReply)
        assert reply.code == "invalid_argument"
        assert named in reply.message
        assert reply.message.isprintable()
        await stream.send_all(encode_frame(schema.encode(schema.ListContainers())))
        assert await reply_on(stream) == schema.ContainersReply(containers=[])
        await stream.aclose()


@pytest.mark.parametrize("header", [b"\0\0\0\0", b"\xff\xff\xff\xff"])
async def test_bytes_that_are_no_frames_get_one_last_answer_and_a_close(tmp_path: Path, header: bytes) -> None:
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        await stream.send_all(header)
        reply = await reply_on(stream)
        assert isinstance(reply, schema.ErrorReply)
        assert reply.code == "invalid_argument"
        assert await reply_on(stream) is None
        await stream.aclose()
        assert made.counters.total("internal_errors") == 0
        assert await made.ask(lambda client: client.list_containers()) == []


async def test_half_a_frame_has_its_time_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compass_forged.control.server._FRAME_SECONDS", 0.05)
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        await stream.send_all(b"\0\x0f\0\0")
        await sends_until_refused(stream, b"\0", every=0.01)  # it drips, each byte within the time
        await stream.aclose()
        assert await made.ask(lambda client: client.list_containers()) == []


async def test_a_peer_that_goes_in_the_middle_costs_nothing(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        frame = encode_frame(schema.encode(schema.OpenContainer(name="c1")))
        for cut in range(len(frame)):
            stream = await made.control_stream()
            await stream.send_all(frame[:cut])
            await stream.aclose()
        assert await made.ask(lambda client: client.list_containers()) == []
        assert made.counters.total("internal_errors") == 0


# --- who may -------------------------------------------------------------------------------------------------------


async def test_only_the_daemons_own_user_and_root_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Logged
) -> None:
    async with host(tmp_path) as made:
        with monkeypatch.context() as patch:
            for own, allowed in ((4242, os.getuid() == 0), (os.getuid(), True)):
                patch.setattr("compass_forged.control.server.os.geteuid", lambda own=own: own)
                stream = await made.control_stream()
                await stream.send_all(encode_frame(schema.encode(schema.ListContainers())))
                assert (await reply_on(stream) is not None) is allowed
                await stream.aclose()


async def test_another_user_is_turned_away_unheard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Logged
) -> None:
    monkeypatch.setattr("compass_forged.listener._peer_of", lambda _connection: Peer(77, 4242, 4242))
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        await sends_until_refused(stream, encode_frame(schema.encode(schema.OpenContainer(name="c1"))), every=0.001)
        await stream.aclose()
        assert made.containers.items() == []
        (line,) = [event for event in events if event["log_level"] == "warning"]
        assert (line["uid"], line["pid"]) == (4242, 77)


# --- restart, and the client ----------------------------------------------------------------------------------------


async def test_a_restarted_daemon_knows_its_containers_and_sessions(tmp_path: Path) -> None:
    store = MemoryStore()
    async with host(tmp_path, store) as made:
        await made.ask(lambda client: client.open_container("c1", allowed_uids=(os.getuid(),)))
        await made.ask(bind(scope=["github/acme/*"]))
        before = await made.ask(lambda client: client.list_containers())
    async with host(tmp_path, store) as made:
        assert await made.ask(lambda client: client.list_containers()) == before
        assert await made.ask(bind(scope=["github/acme/*"])) == before[0]


async def test_a_daemon_that_ended_leaves_no_control_socket(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        path = made.run_dir.control_socket
    assert not path.exists()
    with pytest.raises(DaemonUnreachable, match=r"no daemon at .*control.sock .*start it with `compass-forged serve`"):
        ControlClient(path)


def test_a_control_socket_of_another_user_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_sock: socket.socket, _path: str) -> None:  # root, as whom the tests may run, is denied nothing
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "connect", denied)
    with pytest.raises(
        DaemonUnreachable, match=r"control\.sock is for the daemon's own user and root; run this as one"
    ):
        ControlClient(tmp_path / "control.sock")


async def test_a_control_socket_that_cannot_be_bound_is_told(tmp_path: Path) -> None:
    (tmp_path / "control.sock").mkdir()
    refused = pytest.RaisesExc(StartError, match="something that is no socket is there")
    with pytest.RaisesGroup(refused, flatten_subgroups=True):
        async with host(tmp_path):
            raise AssertionError("it must not start")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "gave no usable answer"),
        (encode_frame(b"\xc1"), "gave no usable answer"),
        (b"\0\0\0\0", "gave no usable answer"),
        (encode_frame(schema.encode(schema.DrainingReply())), "answered DrainingReply to another question"),
    ],
)
def test_a_client_calls_a_useless_answer_unreachable(tmp_path: Path, answer: bytes, expected: str) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        with ControlClient(path, timeout_seconds=10) as client, pytest.raises(DaemonUnreachable, match=expected):
            client.list_containers()
        server.join()


def test_a_client_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with ControlClient(path, timeout_seconds=0.02) as client, pytest.raises(DaemonUnreachable, match="timed out"):
            client.status()


async def test_a_lost_peer_during_an_answer_ends_its_connection_alone(tmp_path: Path) -> None:
    async with host(tmp_path) as made:
        stream = await made.control_stream()
        await stream.send_all(encode_frame(schema.encode(schema.GetStatus())) * 50)
        await stream.aclose()
        assert (await made.ask(lambda client: client.status())).containers == 0
        assert made.counters.total("internal_errors") == 0
