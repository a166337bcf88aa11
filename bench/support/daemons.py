"""The daemon as an operator starts it, ``python -m compass_forged serve``, and what a process weighs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

from bench.support.processes import ROOT, ChildFailed

StoreWord: TypeAlias = Literal["memory", "embedded"]
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.005
_SHOWN_CHARS: Final = 2000
_CONFIG: Final = """
run_dir = "{place}/run"
state_dir = "{place}/state"
host_id = "bench"
store = "{store}"

[[forge]]
provider = "github"
default = true
host = "forge.test"
base_url = "https://127.0.0.1:9"
author = {{ env = "BENCH_FORGE_TOKEN" }}
reviewer = {{ env = "BENCH_FORGE_TOKEN" }}

[log]
format = "json"
"""


@contextmanager
def served(place: Path, store: StoreWord) -> Iterator[int]:
    """A daemon that is ready, for the length of the block; its pid. Its forge is a port that nobody listens on.

    Raises:
        ChildFailed: it ended or was not ready in time.
    """
    place.mkdir()
    config, log = place / "config.toml", place / "log"
    config.write_text(_CONFIG.format(place=place, store=store), encoding="utf-8")
    environ = {**os.environ, "BENCH_FORGE_TOKEN": "ghp_" + "bench" * 7, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "compass_forged", "serve", "--config", str(config)],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        _wait_until_ready(process, log)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while b'"ready"' not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN_CHARS:]
            raise ChildFailed(f"the daemon is not ready (exit status {process.poll()}); its log: {said or 'empty'}")
        time.sleep(_POLL_SECONDS)


def resident_bytes(pid: int) -> int:
    """The memory that a process has resident, its shared libraries included."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
