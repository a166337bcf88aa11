"""The daemon's socket as a path: one attempt to connect, and what to tell when it fails."""

import errno
import random
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compass_forged.agent.errors import DaemonUnreachable

_BACKOFF_FIRST_SECONDS = 0.02
_BACKOFF_MAX_SECONDS = 1.0

_TRANSIENT: Final = {
    errno.ENOENT: "nothing is there; is the daemon running and the container's directory mounted?",
    errno.ECONNREFUSED: "nobody listens; is the daemon running? (mount the container's directory, not the socket file)",
    errno.EAGAIN: "too many connections wait to be accepted; try again",
}
_PERMANENT: Final = {
    errno.EACCES: "permission denied; this process must be in the socket's group",
    errno.EPERM: "permission denied; this process must be in the socket's group",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.ENOTSOCK: "not a socket; give the path of the container's forge.sock",
    errno.EPROTOTYPE: "not a stream socket; give the path of the container's forge.sock",
}


def open_socket(path: str) -> socket.socket:
    """A connected, non-blocking socket. Connecting to a Unix socket never waits: it succeeds or fails at once.

    Raises:
        DaemonUnreachable: with ``transient`` set where the daemon may come back by itself.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise _unreachable(path, error) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _unreachable(path: str, error: OSError) -> DaemonUnreachable:
    if error.errno == errno.ECONNREFUSED and not _is_socket(path):
        # Linux refuses a connection to a regular file in the same words as one to a socket that nobody listens on.
        return DaemonUnreachable(path, _PERMANENT[errno.ENOTSOCK], transient=False)
    if error.errno in _TRANSIENT:
        return DaemonUnreachable(path, _TRANSIENT[error.errno], transient=True)
    # A path over the platform's limit is an OSError without a number.
    why = _PERMANENT.get(error.errno or 0) or error.strerror or str(error)
    return DaemonUnreachable(path, why, transient=False)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return True  # gone meanwhile: then the refusal came from a socket


def backoff() -> Iterator[float]:
    """Pauses between attempts in seconds: doubling from 20 ms up to 1 s, each with up to half of it taken off."""
    pause = _BACKOFF_FIRST_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311 -- spreads clients in time; nothing secret depends on it
        pause = min(pause * 2, _BACKOFF_MAX_SECONDS)
