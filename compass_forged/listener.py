"""Sockets on disk: the run directory and its lock, and one listener per container.

The rules, each against a race or an attack:

* A lock file per run directory (``flock``) decides who owns the paths in it. Connect-then-unlink and rename-over are
  both races; the lock goes with the process, also after SIGKILL.
* A container has a directory of its own, opened without following a link, its owner and mode checked; the socket is
  bound through that descriptor, so that swapping the path cannot redirect it.
* What is not a socket at a socket's path is an error that names it, and is never deleted. A stale socket is replaced,
  under the lock. On close only the inode that was bound is unlinked.
"""

import errno
import fcntl
import math
import os
import re
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import trio
from trio.lowlevel import checkpoint, notify_closing, wait_readable

from compass_forged.errors import StartError
from compass_forged.observability import get_logger
from compass_forged.stream import UnixStream

_log = get_logger(__name__)

CONTAINER_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}", re.ASCII)
SOCKET_NAME: Final = "forge.sock"
MCP_SOCKET_NAME: Final = "mcp.sock"
SOCKET_PATH_MAX_BYTES: Final = 107
"""What ``sun_path`` holds on Linux besides its NUL (unix(7))."""

_BACKLOG: Final = 128
_OVERLOAD: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_ACCEPTS_MAX: Final = 16
"""So many are accepted before the others, those accepted among them, get a turn."""
_OVERLOAD_PAUSE_SECONDS: Final = 0.1
_OVERLOAD_LOG_SECONDS: Final = 60.0
_PEER_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPERM, errno.EPROTO})


@dataclass(frozen=True, slots=True)
class Peer:
    """What the kernel says of a connection's other end, at connect time (``SO_PEERCRED``)."""

    pid: int
    uid: int
    gid: int


class RunDir:
    """The run directory while this process owns it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.control_socket = path / "control.sock"

    @classmethod
    @contextmanager
    def locked(cls, path: Path, *, what: str = "daemon") -> "Generator[Self, None, None]":
        """Create the directory where missing and hold its lock: the daemon's, or that of another ``what``.

        Raises:
            StartError: another one owns it, or it cannot be used.
        """
        _make_trusted(path, parents=True)
        try:
            name = "lock" if what == "daemon" else f"{what.replace(' ', '-')}.lock"
            lock = os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StartError(f"run_dir {path}: no lock file: {error.strerror}; mend it, or set run_dir") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StartError(
                    f"run_dir {path}: another {what} owns it; stop that one, or set another run_dir"
                ) from error
            _make_trusted(path / "containers")
            yield cls(path)
        finally:
            os.close(lock)

    def container_dir(self, name: str) -> Path:
        """The directory that the container mounts."""
        return self.path / "containers" / name

    def container_socket(self, name: str) -> Path:
        """The container's socket."""
        return self.container_dir(name) / SOCKET_NAME


async def at_once() -> None:
    """Any connection may be accepted."""


class UnixListener:
    """A listening Unix socket that knows the inode it bound.

    Attributes:
        path: where it is.
        allowed: returns once a connection may be accepted; waited for right before each. The owner may set another.
    """

    def __init__(self, listener: socket.socket, directory: int, name: str, path: Path) -> None:
        self._socket = listener
        self._directory = directory
        self._name = name
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        self._inode = (found.st_dev, found.st_ino)
        self._overload_logged_at = -math.inf
        self._closed = False
        self.path = path
        self.allowed: Callable[[], Awaitable[None]] = at_once

    async def accept(self) -> tuple[UnixStream, Peer]:
        """The next connection and who the kernel says it is. Overload is waited out; the peer's address is ignored.

        Raises:
            ClosedResourceError: the listener was closed.
        """
        while True:
            await self.allowed()
            if self._closed:
                raise trio.ClosedResourceError("this listener was closed")
            try:
                connection, _address = self._socket.accept()
            except BlockingIOError:
                await wait_readable(self._socket)
                continue
            except OSError as error:
                if error.errno not in _OVERLOAD | _PEER_GONE:
                    raise
                if error.errno in _OVERLOAD:
                    self._log_overload()
                    await trio.sleep(_OVERLOAD_PAUSE_SECONDS)
                else:
                    await checkpoint()  # however many there are, others get their turn
                continue
            try:
                return UnixStream(connection), _peer_of(connection)
            except OSError:
                connection.close()  # gone already
                await checkpoint()

    def _log_overload(self) -> None:
        now = trio.current_time()
        if now - self._overload_logged_at >= _OVERLOAD_LOG_SECONDS:
            self._overload_logged_at = now
            _log.error("accept paused: out of file descriptors or memory", socket=str(self.path))

    @property
    def current(self) -> bool:
        """Whether the socket's file still stands at its path, in the directory in which it was bound."""
        try:
            found = self.path.stat(follow_symlinks=False)
        except OSError:
            return False
        return not self._closed and (found.st_dev, found.st_ino) == self._inode

    def close(self) -> None:
        """Stop listening; remove the socket's file if it is still ours. A second time does nothing."""
        if self._closed:
            return
        self._closed = True
        notify_closing(self._socket)
        self._socket.close()
        try:
            with suppress(FileNotFoundError):
                found = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
                if (found.st_dev, found.st_ino) == self._inode:
                    os.unlink(self._name, dir_fd=self._directory)
        finally:
            os.close(self._directory)


def bind_control(run_dir: RunDir) -> UnixListener:
    """Bind the control socket: 0600, in the run directory itself.

    Raises:
        StartError: the path is too long, taken by something else, or the directory cannot be trusted.
    """
    _check_length(run_dir.control_socket)
    directory = _open_directory(run_dir.path, "run_dir")
    return _bind(directory, run_dir.control_socket, mode=0o600, group=None)


def bind_container(run_dir: RunDir, name: str, *, group: int | None = None) -> UnixListener:
    """Bind a container's socket: directory 0750, socket 0660, both of ``group`` where one is given.

    Raises:
        StartError: the name or path cannot be used, something else stands there, or the group may not be set.
    """
    if CONTAINER_NAME.fullmatch(name) is None:
        raise StartError(
            f"container {name[:140]!r}: a name is 1 to 128 of a-z A-Z 0-9 _ . - and starts with a letter or digit"
        )
    path = run_dir.container_dir(name)
    _check_length(path / SOCKET_NAME)
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o750)
    except OSError as error:
        raise StartError(f"container {name}: cannot create {path}: {error.strerror}; mend it there") from error
    directory = _open_directory(path, f"container {name}")
    try:
        os.fchmod(directory, 0o750)
        os.fchown(directory, -1, os.getegid() if group is None else group)
    except OSError as error:
        os.close(directory)
        raise StartError(f"container {name}: cannot set mode or group of {path}: {_why(error)}") from error
    return _bind(directory, path / SOCKET_NAME, mode=0o660, group=group)


def bind_mcp(run_dir: RunDir, name: str) -> UnixListener:
    """Bind ``mcp.sock`` beside a container's ``forge.sock``, with the mode and group of that one.

    Raises:
        StartError: the container is not open, its directory cannot be trusted, or something else stands there.
    """
    path = run_dir.container_dir(name)
    directory = _open_directory(path, f"container {name}")
    try:
        beside = os.stat(SOCKET_NAME, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        os.close(directory)
        raise StartError(f"container {name}: no {SOCKET_NAME} in {path}; is the container open?") from error
    return _bind(directory, path / MCP_SOCKET_NAME, mode=stat.S_IMODE(beside.st_mode), group=beside.st_gid)


def remove_container_dir(run_dir: RunDir, name: str) -> None:
    """Remove a closed container's directory, and an ``mcp.sock`` in it; one that holds something else stays.

    That the directory goes is how the MCP gateway learns that the container is closed.
    """
    directory = run_dir.container_dir(name)
    with suppress(OSError):
        beside = directory / MCP_SOCKET_NAME
        if beside.is_socket():
            beside.unlink()
        directory.rmdir()


def _make_trusted(path: Path, *, parents: bool = False) -> None:
    """Create a directory of the run directory where it is missing; refuse a link, or one that others may write."""
    try:
        with suppress(FileExistsError):
            path.mkdir(parents=parents, mode=0o755)
    except OSError as error:
        raise StartError(f"run_dir {path}: {error.strerror}; create it, or set run_dir") from error
    os.close(_open_directory(path, "run_dir"))


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
        raise StartError(
            f"socket path {path} is over {SOCKET_PATH_MAX_BYTES} bytes; set a shorter run_dir or container name"
        )


def _open_directory(path: Path, what: str) -> int:
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StartError(
            f"{what}: {path} is no directory of its own ({error.strerror}); remove what is there"
        ) from error
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        os.close(directory)
        raise StartError(
            f"{what}: {path} must belong to uid {os.geteuid()} and be writable by it alone; chown or chmod it"
        )
    return directory


def _bind(directory: int, path: Path, *, mode: int, group: int | None) -> UnixListener:
    """Bind ``path`` through its open directory, which the listener keeps."""
    try:
        _clear_stale(directory, path)
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound = False
        try:
            before = os.umask(0o777 & ~mode)  # umask rules the mode from the first moment on
            try:
                raw.bind(f"/proc/self/fd/{directory}/{path.name}")
                bound = True
            finally:
                os.umask(before)
            if group is not None:
                os.chown(path.name, -1, group, dir_fd=directory, follow_symlinks=False)
            raw.listen(_BACKLOG)
            raw.setblocking(False)
            return UnixListener(raw, directory, path.name, path)
        except BaseException:
            raw.close()
            if bound:
                with suppress(OSError):
                    os.unlink(path.name, dir_fd=directory)
            raise
    except OSError as error:
        os.close(directory)
        raise StartError(f"socket {path}: {_why(error)}") from error
    except BaseException:
        os.close(directory)
        raise


def _why(error: OSError) -> str:
    """The system's word. EPERM is what a user without privileges gets who gives a file to others' group: chown(2)."""
    member = "; this process's user must be in the socket's group" if error.errno == errno.EPERM else ""
    return f"{error.strerror}{member}"


def _clear_stale(directory: int, path: Path) -> None:
    """Remove a socket that an earlier daemon left; we hold the lock, so nobody listens on it."""
    try:
        found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StartError(f"socket {path}: something that is no socket is there; move it away, it is not deleted")
    os.unlink(path.name, dir_fd=directory)


def _peer_of(connection: socket.socket) -> Peer:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return Peer(*struct.unpack("3i", packed))


async def serve_listener(
    listener: UnixListener,
    handler: Callable[[UnixStream, Peer], Awaitable[None]],
    *,
    connections: int,
) -> None:
    """Accept for ever; at most ``connections`` at once, a slot being taken before the accept.

    Of a crowd a few are accepted at a time: nobody waits for his answer until all are in.

    ``handler`` must close its stream and raise nothing but Cancelled. Runs until cancelled, or until the listener is
    closed and its connections have ended; does not close the listener.
    """
    slots = trio.Semaphore(connections)

    async def handle(stream: UnixStream, peer: Peer) -> None:
        try:
            await handler(stream, peer)
        finally:
            slots.release()

    in_a_row = 0
    async with trio.open_nursery() as nursery:
        while True:
            if in_a_row == _ACCEPTS_MAX:
                in_a_row = 0
                await checkpoint()
            in_a_row += 1
            try:
                slots.acquire_nowait()  # no checkpoint: those who wait are accepted in one pass, as far as slots go
            except trio.WouldBlock:
                await slots.acquire()
            try:
                stream, peer = await listener.accept()
            except trio.ClosedResourceError:
                break  # no more are accepted; those that were are served to their end
            nursery.start_soon(handle, stream, peer)
