"""Whole processes for end-to-end tests: a daemon with its own run directory, killed or stopped by its pid alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from compass_forged.control.client import ControlClient, DaemonUnreachable

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
STOP_SECONDS = 30.0
AUTHOR_TOKEN = "ghp_authorauthorauthorauthorauthor0001"
REVIEWER_TOKEN = "ghp_reviewerreviewerreviewerreviewer02"


@dataclass
class Place:
    """Where a daemon lives. Short, since socket paths are."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def log(self) -> Path:
        return self.root / "daemon.log"

    def socket(self, container: str) -> Path:
        return self.run_dir / "containers" / container / "forge.sock"

    def control(self) -> ControlClient:
        return ControlClient(self.run_dir / "control.sock")

    def logged(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def configure(
        self, forge_url: str, *, store: str, extra: str = "", environ: Mapping[str, str] = {}, host_id: str = "host-1"
    ) -> None:
        """Write a configuration for one forge. ``store`` is TOML: '"memory"', '{ env = "DSN" }'."""
        for name, token in (("author", AUTHOR_TOKEN), ("reviewer", REVIEWER_TOKEN)):
            (self.root / name).write_text(token + "\n")
            (self.root / name).chmod(0o600)
        self.environ = dict(environ)
        self.config.write_text(
            f"""
run_dir = "{self.run_dir}"
state_dir = "{self.root / "state"}"
host_id = "{host_id}"
store = {store}

[[forge]]
provider = "github"
default = true
host = "forge.test"
base_url = "{forge_url}"
author = {{ file = "{self.root / "author"}" }}
reviewer = {{ file = "{self.root / "reviewer"}" }}

[log]
format = "json"
{extra}
"""
        )


@contextmanager
def place() -> Generator[Place, None, None]:
    """A fresh place; its directory is removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="forged-"))
    try:
        yield Place(root)
    finally:
        shutil.rmtree(root)


class DaemonProcess:
    """A daemon in a process of its own."""

    def __init__(self, where: Place) -> None:
        self._where = where
        self._log: IO[bytes] = where.log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "compass_forged", "serve", "--config", str(where.config)],
            cwd=ROOT,
            env={**os.environ, **where.environ},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def wait_ready(self) -> "DaemonProcess":
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self.process.poll() is None, self._where.log.read_text()
            try:
                with self._where.control() as control:
                    control.status()
            except DaemonUnreachable:
                time.sleep(0.02)
            else:
                return self
        raise AssertionError("the daemon was not ready in time:\n" + self._where.log.read_text())

    def kill(self) -> None:
        """SIGKILL: nothing of it gets to run any more."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM and wait; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()


@contextmanager
def daemon(where: Place) -> Generator[DaemonProcess, None, None]:
    """A ready daemon, ended with the block."""
    process = DaemonProcess(where)
    try:
        yield process.wait_ready()
    finally:
        process.close()


def run_cli(*arguments: str, environ: Mapping[str, str] = {}, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run one command of the command line to its end. Nothing translates line ends."""
    done = subprocess.run(
        [sys.executable, "-m", "compass_forged", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        input=stdin.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
