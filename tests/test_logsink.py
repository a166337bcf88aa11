import fcntl
import io
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest

from compass_forged.logsink import LineSink
from compass_forged.observability import configure_logging, get_logger

F_GETPIPE_SZ = 1032  # fcntl(2)
PIPE_BYTES = 64 << 10
PAGE_BYTES = 4 << 10

on_common_pipes = pytest.mark.skipif(
    os.sysconf("SC_PAGE_SIZE") != PAGE_BYTES, reason="the sizes are those of pipes with pages of 4 KiB"
)


@pytest.fixture(autouse=True)
def _never_blocks() -> Iterator[None]:
    """A write that waits for a reader fails the test instead of hanging it."""

    def waited(*_: object) -> None:
        raise AssertionError("a log line waited for its reader")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Pipe:
    """A pipe with a sink at its end, and whatever its reader takes."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.out: TextIO = os.fdopen(writer, "w")
        self.sink = LineSink(self.out)
        os.set_blocking(self.reader, False)
        assert fcntl.fcntl(self.reader, F_GETPIPE_SZ) == PIPE_BYTES

    def read(self) -> bytes:
        """All that waits in the pipe."""
        data = b""
        with suppress(BlockingIOError):
            while more := os.read(self.reader, 1 << 20):
                data += more
        return data

    def fill(self, line: str) -> None:
        """Write the same line until one is lost."""
        while not self.sink.lost:
            self.sink.msg(line)


@contextmanager
def a_pipe() -> Iterator[Pipe]:
    made = Pipe()
    try:
        yield made
    finally:
        with suppress(OSError):  # one that a test has closed
            os.close(made.reader)
        made.out.close()


# --- deferred lines -------------------------------------------------------------------------------------------------


def rendered(words: tuple[str, ...], numbers: tuple[float, ...], nanoseconds: int) -> str:
    return f"{','.join(words)} {sum(numbers)} {nanoseconds}"


def test_deferred_lines_wait_for_a_flush_and_stand_before_what_comes_later() -> None:
    out = io.StringIO()
    sink = LineSink(out)
    woken: list[str] = []
    sink.wake = lambda: woken.append(out.getvalue())
    sink.defer((rendered, ("a", "b"), (1, 2), 3))
    sink.defer((rendered, ("c",), (), 4))
    assert (out.getvalue(), woken[0]) == ("", "")
    sink.msg("now")
    sink.defer((rendered, ("d",), (), 5))
    sink.flush()
    sink.flush()
    assert out.getvalue() == "a,b 3 3\nc 0 4\nnow\nd 0 5\n"


def test_so_many_deferred_lines_and_no_more_wait() -> None:
    out = io.StringIO()
    sink = LineSink(out)
    for number in range(255):
        sink.defer((rendered, (str(number),), (), 0))
    assert out.getvalue() == ""
    sink.defer((rendered, ("last",), (), 0))
    assert out.getvalue().splitlines()[-1] == "last 0 0"
    assert len(out.getvalue().splitlines()) == 256


def test_deferred_lines_go_into_a_pipe_whole_and_those_that_do_not_are_counted() -> None:
    with a_pipe() as pipe:
        for number in range(100):
            pipe.sink.defer((rendered, (f"{number:0100}",), (), 0))
        pipe.sink.flush()
        lines = pipe.read().decode().splitlines()
        assert [int(line.split()[0]) for line in lines] == list(range(100))
        pipe.fill("x" * 1000)
        lost = pipe.sink.lost
        for _ in range(100):
            pipe.sink.defer((rendered, ("y" * 100,), (), 0))
        pipe.sink.flush()
        written = pipe.read().count(b"y" * 100)
        assert written + pipe.sink.lost - lost == 100
        assert pipe.sink.lost > lost


def test_of_lines_that_a_full_disk_takes_in_part_those_that_are_whole_count_and_no_other_is_torn(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "log").open("a") as out:
        sink = LineSink(out)
        for number in range(10):
            sink.defer((rendered, (f"{number:0100}",), (), 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (450, hard))  # Python ignores its signal
        try:
            sink.flush()
            sink.msg("never")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sink.msg("there is room again")
        sink.msg("and more")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines[:4]] == [0, 1, 2, 3]
    assert lines[4] == "0" * 30, "cut where the disk was full"
    assert lines[5:] == ["there is room again", "and more"]
    assert sink.lost == 10 - 4 + 1


# --- streams and files ----------------------------------------------------------------------------------------------


def test_a_stream_without_a_descriptor_gets_its_lines() -> None:
    out = io.StringIO()
    sink = LineSink(out)
    sink.msg("one")
    sink.warning("two")
    assert (out.getvalue(), sink.lost) == ("one\ntwo\n", 0)


def test_every_level_writes() -> None:
    out = io.StringIO()
    sink = LineSink(out)
    levels = (
        sink.log, sink.debug, sink.info, sink.warn, sink.warning, sink.error, sink.critical, sink.fatal,
        sink.exception, sink.failure, sink.err,
    )  # fmt: skip
    for level in levels:
        level("line")
    assert out.getvalue() == "line\n" * len(levels)


@pytest.mark.parametrize("form", ["memory", "file"])
def test_a_stream_that_is_closed_later_raises_nothing_and_counts(form: str, tmp_path: Path) -> None:
    out: TextIO = io.StringIO() if form == "memory" else (tmp_path / "log").open("w")
    sink = LineSink(out)
    out.close()
    sink.msg("one")
    sink.msg("two")
    assert sink.lost == 2


def test_a_stream_that_was_closed_before_raises_nothing_and_counts(tmp_path: Path) -> None:
    out = (tmp_path / "log").open("w")
    out.close()
    sink = LineSink(out)
    sink.msg("line")
    assert sink.lost == 1


def test_a_file_gets_every_line_at_once_and_after_what_the_stream_held(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as out:
        out.write("before\n")  # still in the stream's own buffer
        sink = LineSink(out)
        sink.msg("ä")
        sink.msg("x" * 1_000_000)
        assert path.read_text(encoding="utf-8") == "before\nä\n" + "x" * 1_000_000 + "\n"
    assert sink.lost == 0


def test_what_is_no_text_is_written_escaped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as out:
        sink = LineSink(out)
        sink.msg("a\udcffb")
    assert (path.read_bytes(), sink.lost) == (b"a\\udcffb\n", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_loses_lines_and_raises_nothing() -> None:
    with Path("/dev/full").open("w") as out:
        sink = LineSink(out)
        for _ in range(3):
            sink.msg("line")
    assert sink.lost == 3


# --- pipes ----------------------------------------------------------------------------------------------------------


def test_a_pipe_gets_its_lines() -> None:
    with a_pipe() as pipe:
        pipe.sink.msg("one")
        pipe.sink.msg("y" * (PAGE_BYTES * 4))
        assert pipe.read() == b"one\n" + b"y" * (PAGE_BYTES * 4) + b"\n"
        assert pipe.sink.lost == 0


def test_a_pipe_nobody_reads_loses_what_does_not_fit_and_goes_on_once_it_is_read() -> None:
    with a_pipe() as pipe:
        for number in range(2000):
            pipe.sink.msg(f"{number:099}")
        kept = pipe.read().splitlines()
        assert [int(line) for line in kept] == list(range(len(kept))), "the first lines, whole and in order"
        assert len(kept) * 100 > PIPE_BYTES - 2 * PAGE_BYTES
        assert pipe.sink.lost == 2000 - len(kept)
        pipe.sink.msg("back")
        assert pipe.read() == b"back\n"
        assert pipe.sink.lost == 2000 - len(kept)


@on_common_pipes
@pytest.mark.parametrize("length", [99, 2099, 3999, PAGE_BYTES - 1, PAGE_BYTES, 5000])
def test_a_long_line_never_waits_for_room_however_the_pipe_was_filled(length: int) -> None:
    """Lines begin a page of their own where they do not fit the last, so that a pipe is full before its bytes are."""
    for lines in range(PIPE_BYTES // (length + 1) + 2):
        with a_pipe() as pipe:
            for _ in range(lines):
                pipe.sink.msg("x" * length)
            for size in (2 * PAGE_BYTES, 20_000):
                pipe.sink.msg("y" * size)
            whole = {"x" * length, "y" * 2 * PAGE_BYTES, "y" * 20_000}
            arrived = pipe.read().decode().splitlines()
            assert whole.issuperset(arrived)
            assert len(arrived) + pipe.sink.lost == lines + 2


@on_common_pipes
def test_a_long_line_without_room_is_lost_whole_and_short_ones_still_fit() -> None:
    with a_pipe() as pipe:
        for _ in range(30):
            pipe.sink.msg("x" * 1023)
        pipe.sink.msg("y" * 40_000)
        assert pipe.sink.lost == 1
        pipe.sink.msg("short")
        assert pipe.sink.lost == 1
        assert pipe.read().endswith(b"x\nshort\n")
        pipe.sink.msg("y" * 40_000)
        assert pipe.read() == b"y" * 40_000 + b"\n"
        assert pipe.sink.lost == 1


def test_a_line_that_no_pipe_could_hold_is_lost() -> None:
    with a_pipe() as pipe:
        pipe.sink.msg("y" * (2 * PIPE_BYTES))
        assert (pipe.sink.lost, pipe.read()) == (1, b"")


@pytest.mark.parametrize("length", [10, 2 * PAGE_BYTES], ids=["short", "long"])
@pytest.mark.parametrize("full", [False, True])
def test_a_pipe_whose_reader_went_raises_nothing_and_counts(length: int, full: bool) -> None:
    with a_pipe() as pipe:
        if full:
            pipe.fill("x" * 99)
        lost = pipe.sink.lost
        os.close(pipe.reader)
        pipe.sink.msg("y" * length)
        assert pipe.sink.lost == lost + 1


# --- sockets --------------------------------------------------------------------------------------------------------


@contextmanager
def a_socket() -> Iterator[tuple[LineSink, socket.socket]]:
    """A sink on a stream socket, as where a service manager takes the log, and its reader."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, os.fdopen(os.dup(theirs.fileno()), "w") as out:
        sink = LineSink(out)
        assert sink._socket is not None
        with sink._socket:
            yield sink, ours


def test_a_socket_gets_its_lines() -> None:
    with a_socket() as (sink, reader):
        sink.msg("one")
        sink.msg("two")
        assert (reader.recv(100), sink.lost) == (b"one\ntwo\n", 0)


def test_a_line_that_a_socket_takes_in_part_tears_no_other() -> None:
    with a_socket() as (sink, reader):
        while not sink.lost:
            sink.msg("x" * 150_000)
        reader.setblocking(False)
        data = b""
        with suppress(BlockingIOError):
            while True:
                data += reader.recv(1 << 20)
        assert not data.endswith(b"\n"), "the last line was cut"
        sink.msg("one")
        sink.msg("two")
        assert reader.recv(100) == b"\none\ntwo\n"


@pytest.mark.parametrize("length", [99, 50_000])
def test_a_socket_nobody_reads_loses_lines_and_goes_on_once_it_is_read(length: int) -> None:
    with a_socket() as (sink, reader):
        while not sink.lost:
            sink.msg("x" * length)
        sink.msg("x" * length)
        assert sink.lost == 2
        reader.setblocking(False)
        with suppress(BlockingIOError):
            while reader.recv(1 << 20):
                pass
        sink.msg("back")
        # Behind a line of which the socket took a part, it begins on a line of its own.
        assert (reader.recv(100).lstrip(b"\n"), sink.lost) == (b"back\n", 2)


def test_a_socket_that_takes_half_a_line_counts_it_as_lost() -> None:
    with a_socket() as (sink, reader):
        reader.setblocking(False)
        sink.msg("x" * (8 << 20))
        assert sink.lost == 1
        assert reader.recv(10) == b"x" * 10


def test_a_socket_whose_reader_went_raises_nothing_and_counts() -> None:
    with a_socket() as (sink, reader):
        reader.close()
        sink.msg("line")  # and no SIGPIPE
        assert sink.lost == 1


# --- as the daemon's log --------------------------------------------------------------------------------------------


@pytest.fixture
def _log_as_before() -> Iterator[None]:
    import structlog

    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("_log_as_before")
def test_what_cannot_be_logged_reaches_nobody_who_logs() -> None:
    with a_pipe() as pipe:
        sink = configure_logging("json", "info", pipe.out)
        log: Callable[..., object] = get_logger("t").info
        log("kept")
        os.close(pipe.reader)
        log("lost")
        assert sink.lost == 1


def test_a_process_without_a_stderr_loses_its_lines_and_nothing_else() -> None:
    sink = LineSink(None)
    sink.msg("nobody reads this")
    assert sink.lost == 1
