"""Descriptors as a stream of bytes: pipes, sockets, files; nobody's mode is changed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import trio

from compass_forged.agent.mcp.stdio import Stdio
from tests.support.world import ROOT


async def test_more_than_a_pipe_takes_is_sent_as_it_is_read() -> None:
    reading, writing = os.pipe()
    data = os.urandom(1 << 20)
    received = bytearray()
    stdio = Stdio(reading, writing)

    async def receive() -> None:
        while len(received) < len(data):
            received.extend(await stdio.receive())

    try:
        assert 0 < stdio.send_nowait(data) < len(data)
        received.extend(os.read(reading, 1 << 20))
        sent = len(received)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await stdio.send(data[sent:])
        assert bytes(received) == data
        assert os.get_blocking(reading)
        assert os.get_blocking(writing)
        while stdio.send_nowait(data):
            continue
        assert stdio.send_nowait(data) == 0, "a full pipe takes nothing, and does not block"
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_reader_that_has_gone_is_told() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(anyio.BrokenResourceError):
            await Stdio(writing, writing).send(b"x")
    finally:
        os.close(writing)


async def test_the_end_and_a_reset_are_the_end() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    ours, theirs = socket.socketpair()
    try:
        assert await Stdio(reading, 1).receive() == b""
        ours.sendall(b"unread")
        theirs.close()  # with something unread: a reset
        assert await Stdio(ours.fileno(), 1).receive() == b""
    finally:
        os.close(reading)
        ours.close()


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    with path.open("rb") as file:
        stdio = Stdio(file.fileno(), 1)
        assert await stdio.receive() == b"one\n"
        assert await stdio.receive() == b""


_PRINTING = """
import os, subprocess, sys
from compass_forged.agent.mcp.stdio import standard_io
with standard_io() as peer:
    print("a stray print", flush=True)
    subprocess.run([sys.executable, "-c", "print(repr(input()) if False else 'a child', flush=True)"], check=True)
    assert sys.stdin.read() == ""
    peer.send_nowait(b"the protocol\\n")
print("afterwards", flush=True)
"""


def test_a_stray_print_breaks_no_line_of_the_protocol() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINTING],
        cwd=ROOT,
        input="hello",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "the protocol\nafterwards\n"
    assert done.stderr == "a stray print\na child\n"
