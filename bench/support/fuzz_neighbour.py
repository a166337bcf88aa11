"""A quiet neighbour, in a process of its own: one valid cheap call after the other on one connection, each timed.

    python -m bench.support.fuzz_neighbour SOCKET DAEMON_PID

For each line on standard input it writes one JSON line: what the calls since the last one took. It ends with its
standard input, and with an error as soon as a call is not answered as it must be.

A call is slow if it takes over 100 ms besides the time in which the daemon or this process was ready to run and had no
processor, which the kernel tells: what else runs on the machine is not the daemon's fault.
"""

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.support.fuzz_measure import Histogram
from bench.support.fuzz_session import cheap_call
from compass_forged.wire.codec import decode_reply
from compass_forged.wire.frames import FrameBuffer
from compass_forged.wire.schema import ErrorResult, ResultFrame

SLOW_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.005


def _ask(connection: socket.socket, call_id: str) -> float:
    """Seconds until the call is answered."""
    buffer = FrameBuffer()
    began = time.perf_counter()
    connection.sendall(cheap_call(call_id))
    while (payload := buffer.next_frame()) is None:
        data = connection.recv(1 << 16)
        if not data:
            raise SystemExit("the daemon closed the neighbour's connection")
        buffer.feed(data)
    seconds = time.perf_counter() - began
    reply = decode_reply(payload)
    told = reply.result if isinstance(reply, ResultFrame) else None
    if reply.call_id != call_id or not isinstance(told, ErrorResult) or told.code != "invalid_argument":
        raise SystemExit(f"the neighbour's call {call_id} got {reply}")
    return seconds


def _waited_seconds(pids: tuple[int, ...]) -> float:
    """How long the processes' first threads have waited for a processor in all (proc_pid_schedstat); 0.0 if untold."""
    waited = 0
    for pid in pids:
        with suppress(OSError):  # a kernel without it: then all of the time counts
            waited += int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1])
    return waited / 1e9


def main() -> int:
    """Call until standard input closes."""
    times, slow, number = Histogram(), 0, 0
    pids = (int(sys.argv[2]), os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(sys.argv[1])
        while True:
            number += 1
            waited = _waited_seconds(pids)
            seconds = _ask(connection, f"quiet-{number}")
            times.add(int(seconds * 1e9), number)
            slow += seconds > SLOW_SECONDS and seconds - (_waited_seconds(pids) - waited) > SLOW_SECONDS
            readable, _, _ = select.select([sys.stdin], [], [], _PAUSE_SECONDS)
            if readable:
                if not sys.stdin.readline():
                    return 0
                print(json.dumps({"calls": times.count, "slow": slow, "us": times.microseconds()}), flush=True)
                times, slow = Histogram(), 0


if __name__ == "__main__":
    raise SystemExit(main())
