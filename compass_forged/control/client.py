"""A small synchronous client of the control socket, for runners and for the command line."""

import socket
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from compass_forged.control import schema
from compass_forged.errors import ForgedError
from compass_forged.wire.frames import REPLY_MAX_BYTES, FrameBuffer, FramingError, encode_frame

_Reply = TypeVar("_Reply", bound=schema.ControlReply)
_RECEIVE_BYTES = 64 << 10


class DaemonUnreachable(ForgedError):
    """No daemon answers on the control socket: start it, or name the right run_dir."""


class ControlRefused(ForgedError):
    """The daemon refused an operation.

    Attributes:
        code: invalid_argument, conflict, not_found, unavailable or internal.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ControlClient:
    """One connection to ``control.sock``; a context manager. Not for use from several threads at once.

    Every operation is idempotent: after ``DaemonUnreachable`` the same call may be made again.
    """

    def __init__(self, path: Path | str, *, timeout_seconds: float = 30.0) -> None:
        """``timeout_seconds`` bounds each operation's waits.

        Raises:
            DaemonUnreachable: nobody listens at ``path``, or it is another user's.
        """
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            if isinstance(error, PermissionError):
                raise DaemonUnreachable(
                    f"{self._path} is for the daemon's own user and root; run this as one"
                ) from error
            raise DaemonUnreachable(
                f"no daemon at {self._path} ({error.strerror or error}); start it with `compass-forged serve`, "
                "or name its --run-dir"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def open_container(
        self, name: str, *, allowed_uids: tuple[int, ...] = (), socket_group: int | None = None
    ) -> schema.ContainerState:
        """Open a container's socket; ``socket`` of the answer is its path."""
        request = schema.OpenContainer(name=name, allowed_uids=list(allowed_uids), socket_group=socket_group)
        return self._ask(request, schema.ContainerReply).container

    def close_container(self, name: str) -> None:
        """Close a container's socket and end its session."""
        self._ask(schema.CloseContainer(name=name), schema.ClosedReply)

    def bind_session(
        self, container: str, session_id: str, *, agent: str, owner: str, scope: list[str] | None = None
    ) -> schema.ContainerState:
        """Bind a session to an open container."""
        request = schema.BindSession(container=container, session_id=session_id, agent=agent, owner=owner, scope=scope)
        return self._ask(request, schema.ContainerReply).container

    def unbind_session(self, container: str) -> schema.ContainerState:
        """End the container's session; unsent calls are given up."""
        return self._ask(schema.UnbindSession(container=container), schema.ContainerReply).container

    def list_containers(self) -> list[schema.ContainerState]:
        """What is open and bound."""
        return self._ask(schema.ListContainers(), schema.ContainersReply).containers

    def status(self) -> schema.StatusReply:
        """How the daemon is."""
        return self._ask(schema.GetStatus(), schema.StatusReply)

    def drain(self) -> None:
        """Have the daemon stop as on SIGTERM."""
        self._ask(schema.Drain(), schema.DrainingReply)

    def _ask(self, request: schema.ControlRequest, expected: type[_Reply]) -> _Reply:
        try:
            self._socket.sendall(encode_frame(schema.encode(request)))
            reply = schema.decode_reply(self._receive())
        except (OSError, FramingError, msgspec.DecodeError, EOFError) as error:
            raise DaemonUnreachable(f"the daemon at {self._path} gave no usable answer ({error})") from error
        if isinstance(reply, schema.ErrorReply):
            raise ControlRefused(reply.code, reply.message)
        if not isinstance(reply, expected):
            raise DaemonUnreachable(f"the daemon at {self._path} answered {type(reply).__name__} to another question")
        return reply

    def _receive(self) -> bytes:
        buffer = FrameBuffer(REPLY_MAX_BYTES)
        while (payload := buffer.next_frame()) is None:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError("it closed the connection")
            buffer.feed(data)
        return payload
