"""What the daemon's process denies itself, seen from a process of its own."""

import json
import os
import subprocess
import sys

import pytest
import structlog.testing

from compass_forged import hardening

pytestmark = pytest.mark.process

_SHOW = """
import ctypes, json, os, resource, subprocess, sys, tempfile
from compass_forged.hardening import keep_memory_private
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
keep_memory_private()
with tempfile.TemporaryDirectory() as place:
    directory = os.open(place, os.O_DIRECTORY)
    reachable = os.listdir(f"/proc/self/fd/{directory}")
print(json.dumps({
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "owner": os.stat("/proc/self/environ").st_uid,
    "reachable": reachable,
}))
"""


@pytest.mark.parametrize("user", ["own", "nobody"])
def test_no_core_and_no_look_into_its_memory(user: str) -> None:
    if user == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # As another user it runs in a world-readable place, since a checkout may be private to its owner.
    code = _SHOW if user == "own" else "import os; os.setgid(65534); os.setuid(65534)\n" + _SHOW
    preload = "import compass_forged.hardening, ctypes, json, resource, subprocess, tempfile\n"
    done = subprocess.run(
        [sys.executable, "-c", preload + code], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert found == {"core": [0, 0], "dumpable": 0, "owner": 0, "reachable": []}


def test_a_host_that_does_not_allow_it_is_told_of_and_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    class Library:
        def __init__(self, *_arguments: object, **_options: object) -> None: ...

        def prctl(self, *_arguments: int) -> int:
            return -1

    monkeypatch.setattr("resource.setrlimit", refuse)
    monkeypatch.setattr("ctypes.CDLL", Library)
    with structlog.testing.capture_logs() as logs:
        hardening.keep_memory_private()
    assert [line["log_level"] for line in logs] == ["warning", "warning"]
