"""A daemon that does what a script says, over a real Unix socket, in a thread: for clients of any kind."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from compass_forged.wire.codec import decode_call, encode_reply
from compass_forged.wire.frames import FrameBuffer, encode_frame
from compass_forged.wire.schema import (
    CommentOnIssue,
    FaultFrame,
    ForgeCall,
    ResultArm,
    ResultFrame,
    SubscribedResult,
)

PATIENCE_SECONDS = 20.0
"""After this the test is broken: no script waits so long in a good run."""


def call_of(call_id: str, *, timeout_ms: int = 0, size: int = 1) -> ForgeCall:
    """A call with a body of ``size`` bytes."""
    arm = CommentOnIssue(repo="acme/site", issue_number=1, body="x" * size)
    return ForgeCall(call_id=call_id, arm=arm, timeout_ms=timeout_ms)


def answer_to(call_id: str) -> SubscribedResult:
    """The result that a script gives to the call of that id."""
    return SubscribedResult(subscription_id=f"answer to {call_id}")


def frame_of_answer(call_id: str) -> bytes:
    """``answer_to`` as a frame."""
    return encode_frame(encode_reply(ResultFrame(call_id=call_id, result=answer_to(call_id))))


class Peer:
    """The daemon's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = FrameBuffer()

    def receive(self) -> str:
        """The id of the next call."""
        call_id = self.receive_or_end()
        assert call_id is not None, "the client closed the connection"
        return call_id

    def receive_or_end(self) -> str | None:
        """The id of the next call; None if the client has closed."""
        while (payload := self._buffer.next_frame()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                assert not self._buffer.in_frame, "the client closed within a frame"
                return None
            self._buffer.feed(data)
        return decode_call(payload).call_id

    def answer(self, call_id: str) -> None:
        """Send ``answer_to`` the call."""
        self.send(frame_of_answer(call_id))

    def result(self, call_id: str, arm: ResultArm) -> None:
        """Send a result."""
        self.send(encode_frame(encode_reply(ResultFrame(call_id=call_id, result=arm))))

    def fault(self, call_id: str, code: str, message: str, retry_after_ms: int = 0) -> None:
        """Send a fault."""
        frame = FaultFrame(call_id=call_id, code=code, message=message, retry_after_ms=retry_after_ms)
        self.send(encode_frame(encode_reply(frame)))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def serve(self) -> None:
        """Answer every call until the client closes."""
        while (call_id := self.receive_or_end()) is not None:
            self.answer(call_id)


Script: TypeAlias = Callable[[Peer], None]


@contextmanager
def scripted_daemon(path: Path, *scripts: Script) -> Iterator[None]:
    """Listen at ``path`` and serve one connection after the other, each by the next script, then stop listening.

    Leaving the context waits for the scripts and raises what one of them raised.
    """
    failures: list[Exception] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(PATIENCE_SECONDS)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        try:
            for script in scripts:
                sock, _ = listener.accept()
                with sock:
                    sock.settimeout(PATIENCE_SECONDS)
                    script(Peer(sock))
        except Exception as error:  # noqa: BLE001 -- raised in the test's own thread below
            failures.append(error)
        finally:
            listener.close()
            path.unlink()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "a script is still waiting"
    if failures:
        raise failures[0]


def run(backend: str, main: Callable[[], Any]) -> Any:
    """Run ``main`` under trio or asyncio; a hang is a failure."""

    async def bounded() -> Any:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await main()

    return anyio.run(bounded, backend=backend)
