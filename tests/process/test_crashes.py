"""A daemon whose parts keep crashing ends with exit status 70 instead of limping."""

import subprocess
import sys
import textwrap
from collections.abc import Generator

import pytest

from tests.support.world import ROOT, Place, place

pytestmark = pytest.mark.process

DRIVER = """
    import sys
    import trio
    from compass_forged.__main__ import main
    from compass_forged.control.server import ControlServer
    from compass_forged.hub import Hub
    from compass_forged import containers

    async def up_and_down(self, *, task_status):
        task_status.started()
        await trio.sleep(0.01)
        raise RuntimeError("injected")

    async def listens_and_crashes(listener, handler, *, connections):
        await trio.sleep(0.01)
        raise RuntimeError("injected")

    match sys.argv.pop(1):
        case "hub":
            Hub.run = up_and_down
        case "control":
            ControlServer.run = up_and_down
        case "listener":
            containers.serve_listener = listens_and_crashes
            load = containers.Containers.run

            async def with_one(self, specs, *, task_status):
                await load(self, [containers.ContainerSpec("one")], task_status=task_status)

            containers.Containers.run = with_one
    sys.exit(main())
"""


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        found.configure("http://127.0.0.1:9", store='"memory"')
        yield found


@pytest.mark.parametrize(("part", "task"), [("hub", "hub"), ("control", "control"), ("listener", "listener:one")])
def test_a_part_that_keeps_crashing_ends_the_daemon_with_status_70(where: Place, part: str, task: str) -> None:
    with where.log.open("ab") as log:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DRIVER), part, "serve", "--config", str(where.config)],
            cwd=ROOT, env={**where.environ, "PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, timeout=60, check=False,
        )  # fmt: skip
    said = where.log.read_text()
    assert ended.returncode == 70, said
    crashes = [line for line in where.logged() if line["event"] == "task crashed"]
    assert [line["task"] for line in crashes] == [task] * 6  # five restarts within the window, and one crash too many
    assert [line["crashes_in_window"] for line in crashes] == [1, 2, 3, 4, 5, 6]
    assert said.splitlines()[-1] == f"compass-forged: {task} crashed 6 times within 60 s"
    assert not where.socket("one").exists()
    assert not (where.run_dir / "control.sock").exists()
