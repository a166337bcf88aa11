"""Where log lines go: a sink that never raises and never waits for whoever should read it.

A log that cannot be written must not end the daemon, and a pipe or socket that nobody empties must not stop it. A line
that does not go out at once is dropped and counted.
"""

import array
import errno
import fcntl
import mmap
import os
import select
import socket
import stat
import termios
from typing import Final, TextIO

_PIPE_BUF: Final = select.PIPE_BUF
"""So many bytes a pipe takes whole once it polls as writable (pipe(7))."""
_F_GETPIPE_SZ: Final = 1032  # fcntl(2), Linux; Python names it from 3.10 on only where it was built with it


class LineSink:
    """Writes lines to a stream; a structlog logger.

    Attributes:
        lost: how many lines could not be written.
    """

    def __init__(self, out: TextIO | None) -> None:
        """``out`` is written to through its descriptor where it has one; None, a closed stderr, loses every line."""
        self.lost = 0
        self._out = out
        self._descriptor = _descriptor_of(out)
        mode = os.fstat(self._descriptor).st_mode if self._descriptor >= 0 else 0
        self._pipe = stat.S_ISFIFO(mode)
        self._socket = _socket_on(self._descriptor) if stat.S_ISSOCK(mode) else None
        self._poll = select.poll()
        if self._pipe:
            self._poll.register(self._descriptor, select.POLLOUT)

    def msg(self, message: str) -> None:
        """Write one line."""
        try:
            if self._out is None:
                raise OSError(errno.EBADF, "there is nowhere to write to")
            if self._descriptor < 0:
                self._out.write(message + "\n")
                self._out.flush()
            else:
                self._write((message + "\n").encode(errors="backslashreplace"))
        except (OSError, ValueError):  # full, closed, gone, or not taking more
            self.lost += 1

    log = debug = info = warn = warning = error = critical = fatal = exception = failure = err = msg

    def _write(self, line: bytes) -> None:
        if self._socket is not None:
            if self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) < len(line):
                raise OSError(errno.EAGAIN, "the rest of the line was not taken")
            return
        if self._pipe and not self._has_room(len(line)):
            raise OSError(errno.EAGAIN, "the pipe is full")
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _has_room(self, size: int) -> bool:
        if not self._poll.poll(0):
            return False
        if size <= _PIPE_BUF:
            return True
        waiting = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, waiting)
        # A line that does not fit into the last page begins another, so that pages may be little more than half full.
        return fcntl.fcntl(self._descriptor, _F_GETPIPE_SZ) - 2 * (waiting[0] + mmap.PAGESIZE) >= size


def _descriptor_of(out: TextIO | None) -> int:
    if out is None:
        return -1
    try:
        out.flush()
        return out.fileno()
    except (OSError, ValueError, AttributeError):
        return -1


def _socket_on(descriptor: int) -> socket.socket:
    return socket.socket(fileno=os.dup(descriptor))
