"""The blocking client against a scripted daemon."""

import math
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory

import msgspec
import pytest

from compass_forged.agent import (
    AgentError,
    CallTooLarge,
    ClientClosed,
    ConnectionLost,
    DaemonUnreachable,
    ForgeCallFailed,
    ForgeFault,
    ForgeTimeout,
    ProtocolViolation,
    SyncForgeClient,
    exchange,
    sync,
)
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES
from compass_forged.wire.schema import ErrorResult, ResultArm, SubscribedResult
from tests.support.scripted_daemon import Peer, answer_to, call_of, frame_of_answer, scripted_daemon

BIG = 900_000


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory(prefix="cf") as folder:
        yield Path(folder) / "forge.sock"


def answer_one(peer: Peer) -> None:
    peer.answer(peer.receive())


def receive_one(peer: Peer) -> None:
    peer.receive()


def receive_one_and_wait(peer: Peer) -> None:
    peer.receive()
    assert peer.receive_or_end() is None


def test_calls_one_after_the_other(path: Path) -> None:
    with scripted_daemon(path, Peer.serve), SyncForgeClient(path) as client:
        for call_id in "aab":
            assert client.forge(call_of(call_id, size=BIG)) == answer_to(call_id)


def test_faults_and_in_band_errors_are_raised_and_the_connection_lives_on(path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.fault(peer.receive(), "unavailable", "draining", 250)
        peer.result(peer.receive(), ErrorResult(code="not_found", message="no", outcome="rejected"))
        peer.answer("nobody's")
        peer.fault("nobody's", "internal", "x")
        peer.serve()

    with scripted_daemon(path, daemon), SyncForgeClient(path) as client:
        with pytest.raises(ForgeFault) as fault:
            client.forge(call_of("a"))
        assert fault.value.retry_after_ms == 250
        with pytest.raises(ForgeCallFailed) as failed:
            client.forge(call_of("b"))
        assert (failed.value.code, failed.value.outcome) == ("not_found", "rejected")
        assert client.forge(call_of("c")) == answer_to("c")


def test_a_reply_may_come_byte_by_byte_and_be_larger_than_a_request(path: Path) -> None:
    large = SubscribedResult(subscription_id="x" * (2 * FRAME_MAX_BYTES))

    def daemon(peer: Peer) -> None:
        for byte in frame_of_answer(peer.receive()):
            peer.send(bytes([byte]))
        peer.result(peer.receive(), large)

    with scripted_daemon(path, daemon), SyncForgeClient(path) as client:
        assert client.forge(call_of("a")) == answer_to("a")
        assert client.forge(call_of("b")) == large


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (b"", "the daemon closed it"),
        (frame_of_answer("a")[:-1], "the daemon closed it within a frame"),
        (pack(">I", REPLY_MAX_BYTES + 1), f"length {REPLY_MAX_BYTES + 1} is over the limit"),
    ],
)
def test_a_lost_connection_is_raised_and_the_next_call_connects_anew(path: Path, last: bytes, why: str) -> None:
    def daemon(peer: Peer) -> None:
        peer.receive()
        peer.send(last)

    with scripted_daemon(path, daemon, Peer.serve), SyncForgeClient(path) as client:
        with pytest.raises(ConnectionLost, match=why):
            client.forge(call_of("a"))
        assert client.forge(call_of("a")) == answer_to("a")


def test_a_fault_of_no_call_is_raised_with_its_message(path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.receive()
        peer.fault("", "invalid_argument", "frame: zero-length frame")

    with (
        scripted_daemon(path, daemon),
        SyncForgeClient(path) as client,
        pytest.raises(ConnectionLost, match="invalid_argument: frame: zero-length frame"),
    ):
        client.forge(call_of("a"))


def test_a_reply_that_cannot_be_read_is_raised(path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.receive()
        peer.send(b"\0\0\0\x01\xc1")

    with (
        scripted_daemon(path, daemon),
        SyncForgeClient(path) as client,
        pytest.raises(ProtocolViolation, match="not valid MessagePack"),
    ):
        client.forge(call_of("a"))


def test_a_daemon_that_restarts_between_calls_is_found_again(path: Path) -> None:
    with scripted_daemon(path, answer_one):
        client = SyncForgeClient(path).__enter__()
        assert client.forge(call_of("a")) == answer_to("a")
    again: list[ResultArm] = []
    thread = threading.Thread(target=lambda: again.append(client.forge(call_of("b"))))
    thread.start()
    with scripted_daemon(path, Peer.serve):
        thread.join()
        client.__exit__(None, None, None)
    assert again == [answer_to("b")]


def test_a_daemon_that_stays_away_is_reported_after_the_reconnect_time(path: Path) -> None:
    with scripted_daemon(path, answer_one):
        client = SyncForgeClient(path, reconnect_seconds=0.03).__enter__()
        assert client.forge(call_of("a")) == answer_to("a")
    with pytest.raises(DaemonUnreachable, match="nothing is there"):
        client.forge(call_of("b"))


def test_a_daemon_that_closes_every_new_connection_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_closed(_path: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours

    monkeypatch.setattr(sync, "open_socket", open_closed)
    with SyncForgeClient(path) as client, pytest.raises(DaemonUnreachable, match="closes every new connection"):
        client.forge(call_of("a"))


def test_a_daemon_that_closes_within_a_request(path: Path) -> None:
    began = threading.Event()

    def daemon(peer: Peer) -> None:
        began.wait(0.02)  # the client sends until the socket's buffer is full

    with (
        scripted_daemon(path, daemon),
        SyncForgeClient(path) as client,
        pytest.raises(ConnectionLost, match="the daemon closed it"),
    ):
        client.forge(call_of("a", size=BIG))


def test_a_daemon_that_resets_the_connection(path: Path) -> None:
    both = threading.Event()

    def daemon(_: Peer) -> None:
        both.wait()  # and close with the call unread

    with scripted_daemon(path, daemon), SyncForgeClient(path) as client:
        threading.Timer(0.02, both.set).start()
        with pytest.raises(ConnectionLost, match="reset"):
            client.forge(call_of("a"))


def test_no_reply_in_time_closes_the_connection_so_that_a_late_one_is_never_taken_for_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.02)
    with scripted_daemon(path, receive_one_and_wait, Peer.serve), SyncForgeClient(path) as client:
        with pytest.raises(ForgeTimeout, match=r"within 0\.03 s") as timeout:
            client.forge(call_of("a", timeout_ms=10))
        assert timeout.value.outcome == "unknown"
        assert client.forge(call_of("a")) == answer_to("a")


def test_a_daemon_that_does_not_read_is_left_in_time(path: Path) -> None:
    done = threading.Event()

    def daemon(_: Peer) -> None:
        done.wait()

    with scripted_daemon(path, daemon), SyncForgeClient(path, call_seconds=0.03) as client:
        with pytest.raises(ForgeTimeout) as timeout:
            client.forge(call_of("a", size=BIG))
        assert timeout.value.outcome == "unknown"
        done.set()


def test_replies_to_others_do_not_extend_the_wait(path: Path) -> None:
    stop = threading.Event()

    def daemon(peer: Peer) -> None:
        peer.receive()
        try:
            while not stop.is_set():
                peer.answer("nobody's")
        except OSError:
            assert stop.wait(5)

    with scripted_daemon(path, daemon), SyncForgeClient(path, call_seconds=0.03) as client:
        with pytest.raises(ForgeTimeout):
            client.forge(call_of("a"))
        stop.set()


def test_a_time_that_has_passed_before_sending_sends_nothing(path: Path) -> None:
    def daemon(peer: Peer) -> None:
        assert peer.receive_or_end() is None

    with scripted_daemon(path, daemon), SyncForgeClient(path, call_seconds=0) as client:
        with pytest.raises(ForgeTimeout) as timeout:
            client.forge(call_of("a"))
        assert timeout.value.outcome == "not_sent"


def test_calls_of_several_threads_wait_for_each_other(path: Path) -> None:
    ends: dict[str, ResultArm] = {}
    with scripted_daemon(path, Peer.serve), SyncForgeClient(path) as client:

        def call(call_id: str) -> None:
            ends[call_id] = client.forge(call_of(call_id))

        threads = [threading.Thread(target=call, args=(call_id,)) for call_id in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ends == {call_id: answer_to(call_id) for call_id in "abcdefgh"}


def test_a_call_that_waits_too_long_for_another_threads_is_not_sent(path: Path) -> None:
    received, answer = threading.Event(), threading.Event()

    def daemon(peer: Peer) -> None:
        call_id = peer.receive()
        received.set()
        answer.wait()
        peer.answer(call_id)
        assert peer.receive_or_end() is None

    with scripted_daemon(path, daemon), SyncForgeClient(path) as client:
        slow = threading.Thread(target=client.forge, args=(call_of("slow"),))
        slow.start()
        received.wait()
        impatient = SyncForgeClient(path, call_seconds=0.01)
        impatient._lock = client._lock
        with pytest.raises(ForgeTimeout) as timeout:
            impatient.forge(call_of("b"))
        assert timeout.value.outcome == "not_sent"
        answer.set()
        slow.join()


def test_a_forked_process_has_a_connection_of_its_own(path: Path) -> None:
    parents, daemons = socket.socketpair()  # stand-ins, until the connection's two ends are put in their places
    with parents, daemons:

        def keep_open(peer: Peer) -> None:
            os.dup2(peer._socket.fileno(), daemons.fileno())

        with scripted_daemon(path, keep_open, Peer.serve), SyncForgeClient(path) as client:
            inherited = client._socket
            assert inherited is not None
            os.dup2(inherited.fileno(), parents.fileno())
            client._process += 1  # as a process finds it that was forked off
            client._lock.acquire()  # by a thread that the fork left behind
            assert client.forge(call_of("b")) == answer_to("b")
            assert inherited.fileno() == -1
        parents.sendall(b"still connected")
        assert daemons.recv(64) == b"still connected"


@pytest.mark.parametrize(("call_seconds", "timeout_ms"), [(math.inf, 0), (1.0, 2**63 - 1)])
def test_a_call_may_ask_for_any_time(path: Path, call_seconds: float, timeout_ms: int) -> None:
    call = msgspec.structs.replace(call_of("a"), timeout_ms=timeout_ms)
    with scripted_daemon(path, Peer.serve), SyncForgeClient(path, call_seconds=call_seconds) as client:
        assert client.forge(call) == answer_to("a")


def test_a_call_that_is_too_large_or_outside_the_context_is_refused(path: Path) -> None:
    client = SyncForgeClient(path)
    with pytest.raises(ClientClosed):
        client.forge(call_of("a"))
    with scripted_daemon(path, Peer.serve), client:
        with pytest.raises(CallTooLarge):
            client.forge(call_of("a", size=FRAME_MAX_BYTES))
        assert client.forge(call_of("a")) == answer_to("a")
    with pytest.raises(ClientClosed):
        client.forge(call_of("a"))


def test_an_interrupt_closes_the_connection(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_payload: bytes) -> None:
        raise KeyboardInterrupt

    with scripted_daemon(path, answer_one, Peer.serve), SyncForgeClient(path) as client:
        with monkeypatch.context() as patch:
            patch.setattr(sync, "decode_reply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.forge(call_of("a"))
        assert client.forge(call_of("a")) == answer_to("a")


def test_connecting_can_wait_for_a_daemon_that_is_not_there_yet(path: Path) -> None:
    ends: list[ResultArm | AgentError] = []

    def script() -> None:
        with SyncForgeClient(path, wait_seconds=10) as client:
            ends.append(client.forge(call_of("a")))

    thread = threading.Thread(target=script)
    thread.start()
    thread.join(0.03)
    with scripted_daemon(path, Peer.serve):
        thread.join()
    assert ends == [answer_to("a")]
