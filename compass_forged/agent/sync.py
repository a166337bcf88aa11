"""A blocking client for scripts: a plain socket, one call at a time, the same errors as the asynchronous client."""

import os
import socket
import threading
import time
from os import PathLike, fsdecode
from types import TracebackType
from typing import Self

from compass_forged.agent.endpoint import backoff, open_socket
from compass_forged.agent.errors import (
    ClientClosed,
    ConnectionLost,
    DaemonUnreachable,
    ForgeTimeout,
    ProtocolViolation,
)
from compass_forged.agent.exchange import CALL_SECONDS, RECONNECT_SECONDS, arm_of, frame_of, patience
from compass_forged.wire.codec import DecodeError, decode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES, FrameBuffer, FramingError
from compass_forged.wire.schema import FaultFrame, ForgeCall, ReplyFrame, ResultArm

_RECEIVE_BYTES = 64 << 10
_SEND_ATTEMPTS = 2


class SyncForgeClient:
    """``with SyncForgeClient(path) as client: client.forge(call)``.

    Calls from several threads wait for each other. A call that ends in any way but with its reply closes the
    connection, so that no late reply can be taken for the next one's; the next call connects anew. In a process that
    was forked off, the client has a connection of its own, from its first call on: two processes that read from one
    would take each other's replies.
    """

    def __init__(
        self,
        socket_path: str | PathLike[str],
        *,
        call_seconds: float = CALL_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
        wait_seconds: float = 0,
    ) -> None:
        """As ``connect`` of the asynchronous client; connects on entering the context."""
        self._path = fsdecode(socket_path)
        self._call_seconds = call_seconds
        self._reconnect_seconds = reconnect_seconds
        self._wait_seconds = wait_seconds
        self._socket: socket.socket | None = None
        self._buffer = FrameBuffer(REPLY_MAX_BYTES)
        self._lock = threading.Lock()
        self._closed = True
        self._process = os.getpid()

    def __enter__(self) -> Self:
        self._leave_to_parent()
        with self._lock:
            self._open(time.monotonic() + self._wait_seconds)
            self._closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave_to_parent()
        with self._lock:
            self._closed = True
            self._drop()

    def forge(self, call: ForgeCall) -> ResultArm:
        """Execute one call and return its result arm; blocks. Raises as the asynchronous client's ``forge`` does."""
        frame = frame_of(call)
        seconds = patience(call, self._call_seconds)
        deadline = time.monotonic() + seconds
        self._leave_to_parent()
        if not self._lock.acquire(timeout=seconds):
            raise ForgeTimeout(seconds, "not_sent")
        try:
            if self._closed:
                raise ClientClosed
            try:
                sock = self._send(frame, seconds, deadline)
                reply = self._reply_to(call.call_id, sock, deadline)
            except TimeoutError:
                self._drop()
                raise ForgeTimeout(seconds, "unknown") from None
            except BaseException:
                self._drop()
                raise
        finally:
            self._lock.release()
        return arm_of(reply)

    def _open(self, give_up_at: float) -> socket.socket:
        pauses = backoff()
        while self._socket is None:
            try:
                self._socket = open_socket(self._path)
            except DaemonUnreachable as error:
                pause = next(pauses)
                if not error.transient or time.monotonic() + pause > give_up_at:
                    raise
                time.sleep(pause)
        self._buffer = FrameBuffer(REPLY_MAX_BYTES)
        return self._socket

    def _leave_to_parent(self) -> None:
        """In a forked process, let go of the parent's connection, and of a lock that a thread of the parent held.

        That only closes a descriptor: the parent's goes on.
        """
        if self._process != (process := os.getpid()):
            self._drop()
            self._lock = threading.Lock()
            self._process = process

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, frame: bytes, seconds: float, deadline: float) -> socket.socket:
        """Send the frame, on a new connection if the old one turns out to be closed before a byte went out."""
        for _ in range(_SEND_ATTEMPTS):
            sock = self._socket or self._open(min(deadline, time.monotonic() + self._reconnect_seconds))
            try:
                _wait_until(sock, deadline)
                sent = sock.send(frame)
            except TimeoutError:
                self._drop()
                raise ForgeTimeout(seconds, "not_sent") from None
            except OSError:
                self._drop()
                continue
            try:
                # An empty send would find out that the daemon has closed, though its reply may be there already.
                if sent < len(frame):
                    sock.sendall(memoryview(frame)[sent:])
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionLost(f"the daemon closed it ({error.strerror})") from error
            return sock
        raise DaemonUnreachable(self._path, "it closes every new connection; see its log", transient=True)

    def _reply_to(self, call_id: str, sock: socket.socket, deadline: float) -> ReplyFrame:
        while True:
            payload = self._next_payload(sock, deadline)
            try:
                reply = decode_reply(payload)
            except DecodeError as error:
                raise ProtocolViolation(str(error)) from error
            if reply.call_id == call_id:
                return reply
            if not reply.call_id and isinstance(reply, FaultFrame):
                raise ConnectionLost(f"{reply.code}: {reply.message}")

    def _next_payload(self, sock: socket.socket, deadline: float) -> bytes:
        try:
            while (payload := self._buffer.next_frame()) is None:
                _wait_until(sock, deadline)
                data = sock.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionLost("the daemon closed it" + (" within a frame" if self._buffer.in_frame else ""))
                self._buffer.feed(data)
        except FramingError as error:
            raise ConnectionLost(f"the daemon's bytes are no frames: {error}") from error
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from error
        return payload


def _wait_until(sock: socket.socket, deadline: float) -> None:
    """Let the socket's next operation wait until ``deadline``.

    Raises:
        TimeoutError: it has passed.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    sock.settimeout(seconds)
