"""Load by a light client: blocking sockets and frames made beforehand, so that the server runs out of CPU first.

Run as a process; see ``run_cells``.
"""

import contextlib
import itertools
import select
import socket
import time
from collections.abc import Iterator
from typing import TypeAlias

from bench.support.cells import (
    Cell,
    Sample,
    UnexpectedReply,
    Window,
    bound_waits,
    check_replies,
    run_cells,
    spread_over,
)
from bench.support.connect import REPLY_HEAD, HttpTemplate
from bench.support.messages import FrameTemplate, arm_of, template_of
from bench.support.protobufs import Calls
from compass_forged.wire.frames import HEADER_BYTES

_RECEIVE_BYTES = 256 << 10
_WAIT_SECONDS = 10
_Template: TypeAlias = FrameTemplate | HttpTemplate


class _Link:
    """A connection that counts on replies of one size."""

    def __init__(self, cell: Cell, path: str) -> None:
        self._whole = cell.reply_bytes
        frame_head = (cell.reply_bytes - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
        self._head = REPLY_HEAD if cell.contender == "connect" else frame_head
        self._rest = bytearray()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound_waits(self.socket, _WAIT_SECONDS)
        self.socket.connect(path)

    def take(self) -> int:
        """Receive once; return how many replies are whole now, and drop them."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError as error:
            raise UnexpectedReply(f"no reply within {_WAIT_SECONDS} s") from error
        if not data:
            raise UnexpectedReply("the server closed the connection")
        if len(data) == self._whole and not self._rest:
            check_replies(data, self._head, self._whole)
            return 1
        self._rest += data
        check_replies(self._rest, self._head, self._whole)
        done = len(self._rest) // self._whole
        del self._rest[: done * self._whole]
        return done

    def drain(self, replies: int) -> None:
        """Wait for what is still owed, so that no cell runs into the next one."""
        while replies > 0:
            replies -= self.take()


@contextlib.contextmanager
def _links(cell: Cell, count: int) -> Iterator[list[_Link]]:
    with contextlib.ExitStack() as stack:
        links = []
        for path in spread_over(cell.sockets, count):
            link = _Link(cell, path)
            stack.callback(link.socket.close)
            links.append(link)
        yield links


def _serial(cell: Cell, template: _Template, numbers: Iterator[int]) -> Sample:
    with _links(cell, 1) as (link,):
        window = Window(cell)
        latency = 0
        while window.count(1, latency):
            frame = template.frame(next(numbers))
            began = time.perf_counter_ns()
            link.socket.sendall(frame)
            while not link.take():
                pass
            latency = time.perf_counter_ns() - began
        return window.sample()


def _pipelined(cell: Cell, template: _Template, numbers: Iterator[int]) -> Sample:
    with _links(cell, 1) as (link,):
        window = Window(cell)
        free = cell.concurrency
        while True:
            link.socket.sendall(b"".join([template.frame(next(numbers)) for _ in range(free)]))
            free = 0
            while not free:
                free = link.take()
            if not window.count(free):
                link.drain(cell.concurrency - free)
                return window.sample()


def _fleet(cell: Cell, template: _Template, numbers: Iterator[int]) -> Sample:
    with _links(cell, cell.concurrency) as links, select.epoll() as poll:
        by_fd = {link.socket.fileno(): link for link in links}
        for fd, link in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            link.socket.sendall(template.frame(next(numbers)))
        window = Window(cell)
        going = True
        busy = len(links)
        while busy:
            ready = poll.poll(_WAIT_SECONDS)
            if not ready:
                raise UnexpectedReply(f"no reply within {_WAIT_SECONDS} s")
            for fd, _events in ready:
                link = by_fd[fd]
                if not link.take():
                    continue
                going = window.count(1) and going
                if going:
                    link.socket.sendall(template.frame(next(numbers)))
                else:
                    busy -= 1
        return window.sample()


_PATTERNS = {"serial": _serial, "pipelined": _pipelined, "fleet": _fleet}


def run(cell: Cell) -> Sample:
    """Make the load of one cell."""
    template: _Template
    if cell.contender == "connect":
        template = HttpTemplate(Calls(arm_of(cell.operation, cell.body_bytes)).template())
    else:
        template = template_of(cell.operation, cell.body_bytes)
    return _PATTERNS[cell.pattern](cell, template, itertools.count(cell.first_number))


if __name__ == "__main__":
    run_cells(run)
