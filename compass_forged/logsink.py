"""Where log lines go: a sink that never raises and never waits for whoever should read it.

A log that cannot be written must not end the daemon, and a pipe or socket that nobody empties must not stop it. A line
that the system does not take at once is dropped and counted.

Lines that come with every call may be deferred: rendering and writing each by itself, in the middle of a call, costs
several times what it does together. What is deferred never stands out of order, and is written
by whoever keeps the sink (``keep``), by the next line that is not deferred, or once there is much of it. All of that is
one thread's: the lines of other threads go out as they come, and touch nothing that was deferred.
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
import threading
from collections.abc import Callable
from typing import Final, TextIO, TypeAlias

_PIPE_BUF: Final = select.PIPE_BUF
"""So many bytes a pipe takes whole once it polls as writable (pipe(7))."""
_LINE_END: Final = ord("\n")
_DEFERRED_MAX: Final = 256
"""So many lines may wait; they are a few hundred bytes each."""
_F_GETPIPE_SZ: Final = 1032  # fcntl(2), Linux; Python names it from 3.10 on only where it was built with it

Deferred: TypeAlias = tuple[
    Callable[[tuple[str, ...], tuple[float, ...], int], str], tuple[str, ...], tuple[float, ...], int
]
"""A line's rendering, and what it renders: words, numbers, the time in nanoseconds. It must neither raise nor log."""


class LineSink:
    """Writes lines to a stream; a structlog logger.

    Attributes:
        lost: how many lines could not be written.
        wake: called when a line is deferred, by whoever then sees to ``flush``; None where nobody does, and nothing may
            be deferred.
        thread: the only one whose lines may be deferred.
    """

    def __init__(self, out: TextIO | None) -> None:
        """``out`` is written to through its descriptor where it has one; None, a closed stderr, loses every line."""
        self.lost = 0
        self.wake: Callable[[], None] | None = None
        self.thread = threading.get_ident()
        self._keeping = threading.Lock()
        self._deferred: list[Deferred] = []
        self._torn = False  # whether the last line stands there in part
        self._out = out
        self._descriptor = _descriptor_of(out)
        mode = os.fstat(self._descriptor).st_mode if self._descriptor >= 0 else 0
        self._pipe = stat.S_ISFIFO(mode)
        self._socket = _socket_on(self._descriptor) if stat.S_ISSOCK(mode) else None
        self._poll = select.poll()
        if self._pipe:
            self._poll.register(self._descriptor, select.POLLOUT)

    def msg(self, message: str) -> None:
        """Write one line, behind what its thread deferred."""
        if self._deferred and self.thread == threading.get_ident():
            self.flush()
        self._put(message + "\n", 1)

    def keep(self, wake: Callable[[], None]) -> bool:
        """See to ``flush`` from now on, for this thread's lines; False where somebody does already.

        Whoever does sets ``wake``, and at the end None.
        """
        with self._keeping:
            if self.wake is not None:
                return False
            self.thread = threading.get_ident()
            self.wake = wake
        return True

    def defer(self, line: Deferred) -> None:
        """Write a line within a moment; from ``thread`` alone."""
        self._deferred.append(line)
        if len(self._deferred) >= _DEFERRED_MAX:
            self.flush()
        elif self.wake is not None:
            self.wake()

    def flush(self) -> None:
        """Write what was deferred."""
        deferred, self._deferred = self._deferred, []
        together, count = "", 0
        for render, words, numbers, nanoseconds in deferred:
            line = render(words, numbers, nanoseconds) + "\n"
            # A datagram is a line; and more than this a pipe may take in part.
            if count and (self._socket is not None or len(together) + len(line) > _PIPE_BUF):
                self._put(together, count)
                together, count = "", 0
            together += line
            count += 1
        if count:
            self._put(together, count)

    def _put(self, text: str, lines: int) -> None:
        try:
            if self._out is None:
                raise OSError(errno.EBADF, "there is nowhere to write to")
            if self._descriptor < 0:
                self._out.write(text)
                self._out.flush()
            else:
                self._write(text.encode(errors="backslashreplace"))
        except (OSError, ValueError):  # full, closed, gone, or not taking more
            self.lost += lines

    log = debug = info = warn = warning = error = critical = fatal = exception = failure = err = msg

    def _write(self, line: bytes) -> None:
        text = b"\n" + line if self._torn else line
        if self._socket is not None:
            sent = self._socket.send(text, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            self._torn = sent < len(text)
            if self._torn:
                raise OSError(errno.EAGAIN, "the rest of the line was not taken")
        elif self._pipe and not self._has_room(len(text)):
            raise OSError(errno.EAGAIN, "the pipe is full")
        else:
            self._write_all(text)

    def _write_all(self, text: bytes) -> None:
        at = 0
        try:
            while at < len(text):
                at += os.write(self._descriptor, memoryview(text)[at:])
        except OSError:  # a disk that is full takes a part first
            self.lost -= text.count(
                b"\n", int(self._torn), at
            )  # of the lines that are counted as lost, these are whole
            raise
        finally:
            if at:
                self._torn = text[at - 1] != _LINE_END

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
