"""Child processes of a benchmark: started by module name, spoken to in lines, ended by closing their standard input."""

import gc
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_STOP_SECONDS: Final = 10.0
_SHOWN_CHARS: Final = 2000


class ChildFailed(Exception):
    """A child ended or said nothing in time; the message holds the end of what it wrote to standard error."""


class Child:
    """A running child."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", errors: Path) -> None:
        """Made by ``child``."""
        self.name = name
        self.pid = process.pid
        self._process = process
        self._errors = errors
        self._received = b""

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Send a line and return the line that answers it.

        Raises:
            ChildFailed: it ended, or did not answer within ``seconds``.
        """
        self.tell(line)
        return self.line(seconds)

    def tell(self, line: bytes) -> None:
        """Send a line, whose answer ``line`` returns later; raises as ``ask``."""
        try:
            _pipe(self._process.stdin).write(line + b"\n")
        except BrokenPipeError as error:
            raise self._failed("closed its standard input") from error

    def line(self, seconds: float) -> bytes:
        """The next line that it writes; raises as ``ask``."""
        out = _pipe(self._process.stdout).fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            readable, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise self._failed(f"said nothing for {seconds:g} s")
            data = os.read(out, 1 << 16)
            if not data:
                raise self._failed("ended")
            self._received += data
        found, _, self._received = self._received.partition(b"\n")
        return found

    def _failed(self, what: str) -> ChildFailed:
        try:
            status = f" with exit status {self._process.wait(1)}"
        except subprocess.TimeoutExpired:
            status = ""
        said = self._errors.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN_CHARS:]
        return ChildFailed(f"child {self.name!r} {what}{status}; standard error: {said or 'empty'}")

    def stop(self) -> None:
        """Have it end; a child that does not within 10 s is killed."""
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()


@contextmanager
def child(module: str, *arguments: str, scratch: Path) -> Iterator[Child]:
    """Run ``python -m module`` for the length of the block; its standard error goes to a file in ``scratch``."""
    name = module.rpartition(".")[2]
    errors = scratch / f"{name}.stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
        )
    running = Child(name, process, errors)
    try:
        yield running
    finally:
        running.stop()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


# --- inside a child -------------------------------------------------------------------------------------------------


def raise_descriptor_limit() -> None:
    """Take as many descriptors as the kernel lets us have: 200 connections need more than some shells give."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle_collector() -> None:
    """Give the garbage collector the settings that the daemon gives its own, so that they make no difference."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def stdin_closed() -> None:
    """Wait until standard input closes: the parent has asked for the end, or has gone."""
    import trio  # noqa: PLC0415 -- the gRPC children run without it

    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
