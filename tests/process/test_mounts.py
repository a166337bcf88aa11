"""What a container sees of its read-only mount: it can call, change nothing, and outlives the daemon's restarts."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import fresh_database
from tests.support.world import ROOT, DaemonProcess, Place, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]

INSIDE = """
    import errno, json, os, socket, sys
    from compass_forged.agent import DaemonUnreachable, ForgeCall, ForgeCallFailed, ForgeFault, SyncForgeClient
    from compass_forged.wire.schema import GetIssue

    def call(path):
        try:
            with SyncForgeClient(path) as client:
                client.forge(ForgeCall(call_id="1", arm=GetIssue(repo="acme/site", issue_number=0)))
        except (ForgeCallFailed, ForgeFault) as error:
            return error.code
        except DaemonUnreachable:
            return "unreachable"

    def bind(path):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path)

    def create(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))

    CHANGES = {
        "unlink": lambda path: os.unlink(path),
        "rename": lambda path: os.rename(path, path + ".old"),
        "bind beside": lambda path: bind(path + "2"),
        "create": lambda path: create(path + "3"),
        "link": lambda path: os.link(path, path + "4"),
        "chmod": lambda path: os.chmod(path, 0o777),
    }

    def change(path):
        found = {}
        for name, do in CHANGES.items():
            try:
                do(path)
                found[name] = "done"
            except OSError as error:
                found[name] = errno.errorcode[error.errno]
        return found

    WORDS = {"call": call, "change": change, "ls": lambda path: sorted(os.listdir(path))}

    print(json.dumps(os.stat(sys.argv[1]).st_ino), flush=True)
    for line in sys.stdin:
        what, path = json.loads(line)
        print(json.dumps(WORDS[what](path)), flush=True)
"""


class Container:
    """A process in a mount namespace of its own, which sees a container's directory, and its socket as a file."""

    def __init__(self, where: Place, name: str, flags: list[str]) -> None:
        root = where.root / "inside"
        self.directory, self.file = root / "forge", root / "one.sock"
        self.directory.mkdir(parents=True)
        self.file.touch()
        outside = where.socket(name)
        mounts = " && ".join(
            f"mount --bind '{source}' '{target}' && mount -o remount,bind,ro '{target}'"
            for source, target in ((outside.parent, self.directory), (outside, self.file))
        )
        self.process = subprocess.Popen(
            ["unshare", *flags, "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c",
             textwrap.dedent(INSIDE), str(self.directory)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.inode = self._answer()

    def ask(self, what: str, path: Path) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, str(path)]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    @property
    def socket(self) -> Path:
        """The socket through the mounted directory."""
        return self.directory / "forge.sock"


def _flags() -> list[str]:
    """How this user may have a mount namespace; skips where it may not."""
    said, directory = "", tempfile.gettempdir()
    for flags in (["-m"], ["-Urm"]):
        if flags == ["-m"] and os.geteuid() != 0:
            continue
        try:
            tried = subprocess.run(
                ["unshare", *flags, "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"', directory],
                capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            pytest.skip("no unshare(1) here")
        if tried.returncode == 0:
            return flags
        said = tried.stderr.strip()
    pytest.skip(f"the kernel gives this user no mount namespace: {said}")


@contextmanager
def _inside(where: Place, name: str) -> Generator[Container, None, None]:
    container = Container(where, name, _flags())
    try:
        yield container
    finally:
        container.process.kill()
        container.process.communicate()


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


def test_a_read_only_directory_serves_for_ever_and_a_mounted_file_dies_with_the_daemon(where: Place) -> None:
    _flags()
    dsn = fresh_database()
    where.configure("http://127.0.0.1:9", store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn})
    daemon = DaemonProcess(where)
    try:
        daemon.wait_ready()
        with where.control() as control:
            control.open_container("one")
            control.bind_session("one", "s-1", agent="scout", owner="ada")
        outside = where.socket("one").parent
        with _inside(where, "one") as container:
            assert container.inode == outside.stat().st_ino
            # The daemon's own refusal of issue number 0: the call went through gateway, hub and service.
            assert container.ask("call", container.socket) == "invalid_argument"
            assert container.ask("call", container.file) == "invalid_argument"

            changes = container.ask("change", container.socket)
            assert {"unlink", "bind beside", "rename"} <= changes.keys()
            assert changes == dict.fromkeys(changes, "EROFS")
            assert container.ask("ls", container.directory) == ["forge.sock"]
            assert container.ask("call", container.socket) == "invalid_argument"

            for ending in ("kill", "stop"):
                getattr(daemon, ending)()
                assert container.ask("call", container.socket) == "unreachable"
                daemon.close()
                daemon = DaemonProcess(where).wait_ready()
                assert container.ask("call", container.socket) == "invalid_argument", ending
                assert container.ask("call", container.file) == "unreachable"  # yesterday's inode
            assert outside.stat().st_ino == container.inode
    finally:
        daemon.close()
