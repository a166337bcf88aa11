"""Runs the demo: prepares a place, starts everything in this process but Postgres, plays the scenes, cleans up.

Everything lies in one directory per user under the system's temporary directory. What a demo that was killed has left
there, a running Postgres included, is cleared by the next one: it adopts the server and stops it.
"""

import fcntl
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from compass_forged.agent import connect
from compass_forged.config import BudgetConfig, Config, ForgeConfig, TokenPlace
from compass_forged.control.client import ControlClient
from compass_forged.daemon import Daemon, serve
from compass_forged.demo.scenes import REPO, TEAM, Agent, World, play
from compass_forged.demo.show import SceneFailed, Stage
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_seed import default_linear_seed, random_linear_token
from compass_forged.emulator.seed import default_seed, random_token
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import ForgedError, StartError
from compass_forged.listener import SOCKET_NAME
from compass_forged.observability import configure_logging
from compass_forged.store.embedded import embedded_postgres

_SOCKET_ROOM: Final = 40
"""Bytes that sockets' names need below the demo's directory."""


class DemoEnded(ForgedError):
    """A signal ended the demo before its end."""


def run_demo(*, keep: bool) -> None:
    """Play the demo; exit 1 if a claim of it does not hold."""
    stage = Stage()
    with demo_directory() as place, (place / "daemon.log").open("a", encoding="utf-8") as log:
        configure_logging("json", "info", log)
        try:
            trio.run(_demo_until_signal, stage, place, keep)
        except* SceneFailed as group:
            raise SceneFailed(f"demo: this does not hold: {_first(group)}; {_last_words(place)}") from group


@contextmanager
def demo_directory() -> Generator[Path, None, None]:
    """The demo's directory, ours alone; removed at the end.

    Raises:
        StartError: another demo runs, or somebody else's directory is in the way.
    """
    base = Path(tempfile.gettempdir())
    if len(os.fsencode(base)) > _SOCKET_ROOM:
        base = Path("/tmp")  # noqa: S108 -- made below with 0700 and checked for its owner
    place = base / f"compass-forged-demo-{os.geteuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:  # noqa: PLR2004 -- a mode
            raise StartError(f"demo: {place} is not ours alone; remove it")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartError(f"demo: another demo runs in {place}; end that one first") from error
        _clear(place)
        try:
            yield place
        finally:
            shutil.rmtree(place)
    finally:
        os.close(handle)


def _clear(place: Path) -> None:
    """Remove what a demo that was killed has left, its Postgres first."""
    state = place / "state"
    if state.exists():
        with suppress(StartError):  # a cluster that cannot even be started has no server that runs
            trio.run(_adopt_and_stop, state)
    for left in place.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


async def _adopt_and_stop(state: Path) -> None:
    async with embedded_postgres(state):
        pass


def _first(group: BaseExceptionGroup[SceneFailed]) -> BaseException:
    """What went wrong, out of the nurseries it went through."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _last_words(place: Path) -> str:
    log = place / "daemon.log"
    last = log.read_text(encoding="utf-8").splitlines()[-1:] if log.exists() else []
    return f"the daemon's last words: {last[0]}" if last else "the daemon said nothing"


async def _demo_until_signal(stage: Stage, place: Path, keep: bool) -> None:  # noqa: FBT001 -- by trio.run's position
    """The demo; SIGTERM and SIGHUP end it early, and cleanly."""
    ended_by = ""
    async with trio.open_nursery() as nursery:

        async def watch(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal ended_by
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as received:
                task_status.started()
                async for number in received:
                    ended_by = signal.Signals(number).name
                    nursery.cancel_scope.cancel()

        await nursery.start(watch)
        await _demo(stage, place, keep=keep)
        nursery.cancel_scope.cancel()
    if ended_by:
        raise DemoEnded(f"demo: ended by {ended_by}; everything is stopped and removed")


async def _demo(stage: Stage, place: Path, *, keep: bool) -> None:
    stage.say(
        "This runs on this machine alone: a private Postgres, forges that stand in for GitHub and Linear, the daemon, "
        "and two containers' sockets with an agent at each."
    )
    tokens = {"forge-author": random_token(), "forge-reviewer": random_token()}
    control_token = secrets.token_urlsafe(16)
    forge = Forge(default_seed(tokens), settings=ForgeSettings(control_token=control_token))
    tokens["linear"] = random_linear_token()
    linear = LinearForge(default_linear_seed(tokens["linear"]), settings=LinearSettings(control_token=control_token))
    async with serve_forge(forge) as url, serve_forge(linear) as linear_url:
        stage.say(f"  ✓ the bundled forge listens on {url}, with the repository {REPO}")
        stage.say(f"  ✓ its Linear half listens on {linear_url}, with the team {TEAM}")
        config = _configuration(place, url, linear_url, tokens)
        async with _running(stage, config) as daemon:
            await _containers(stage, daemon)
            sockets = daemon.run_dir / "containers"
            async with (
                connect(sockets / "scout" / SOCKET_NAME) as scout,
                connect(sockets / "mole" / SOCKET_NAME) as mole,
                connect(sockets / "stray" / SOCKET_NAME) as stray,
            ):
                agents = Agent("scout", stage, scout), Agent("mole", stage, mole), Agent("stray", stage, stray)
                await play(World(stage, forge, linear, daemon, *agents))
            if keep:
                await _stay(stage, daemon, url, control_token)
    stage.say("\nStopped. Nothing is left behind.")


def _configuration(place: Path, url: str, linear_url: str, tokens: dict[str, str]) -> Config:
    files = {}
    for login, token in tokens.items():
        files[login] = place / login
        files[login].touch(mode=0o600)
        files[login].write_text(token, encoding="ascii")
    return Config(
        run_dir=str(place / "run"),
        state_dir=str(place / "state"),
        host_id="demo",
        forge=[
            ForgeConfig(
                provider="github",
                default=True,
                host="forge.demo",
                base_url=url,
                author=TokenPlace(file=str(files["forge-author"])),
                reviewer=TokenPlace(file=str(files["forge-reviewer"])),
            ),
            ForgeConfig(
                provider="linear", host="linear.app", base_url=linear_url, author=TokenPlace(file=str(files["linear"]))
            ),
        ],
        budget=BudgetConfig(write_burst=20),
    )


@asynccontextmanager
async def _running(stage: Stage, config: Config) -> AsyncGenerator[Daemon, None]:
    """The daemon in this process, drained at the end of the block."""
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[Daemon]) -> None:
            await serve(config, signals=False, task_status=task_status)

        with stage.waiting("a private Postgres starts, its schema is made, and the daemon listens"):
            daemon = await nursery.start(run)
        yield daemon
        daemon.drain()


async def _containers(stage: Stage, daemon: Daemon) -> None:
    def bind() -> None:
        with ControlClient(daemon.run_dir / "control.sock") as control:
            for name in ("scout", "mole", "stray"):
                control.open_container(name)
            control.bind_session("scout", "s-scout-1", agent="scout", owner="ada")
            control.bind_session("mole", "s-mole-1", agent="mole", owner="bob")

    with stage.waiting("the runner opens three containers and binds a session in two: scout of ada, mole of bob"):
        await trio.to_thread.run_sync(bind, abandon_on_cancel=True)  # its waits end by themselves


async def _stay(stage: Stage, daemon: Daemon, url: str, control_token: str) -> None:
    run_dir = daemon.run_dir
    me = f"{sys.executable} -m compass_forged"
    create = f"{me} call create_issue repo={REPO} title='Hello' --key k-1"
    socket = run_dir / "containers" / "scout" / SOCKET_NAME
    stage.commands(
        "Still running; talk to it from another terminal, and end it here with Ctrl-C:",
        [
            ("as scout, open an issue", f"{create} --socket {socket}"),
            ("the same again: the same issue", f"{create} --socket {socket}"),
            ("read one back", f"{me} call get_issue repo={REPO} issue_number=4 --socket {socket}"),
            ("list them", f"{me} call list_issues repo={REPO} --socket {socket}"),
            ("what is open and bound", f"{me} container list --run-dir {run_dir}"),
            ("how the daemon is", f"{me} status --run-dir {run_dir}"),
            ("what the forge has been asked", f"curl -s -H 'Authorization: Bearer {control_token}' {url}/_forge/log"),
            ("the daemon's log", f"tail -f {run_dir.parent / 'daemon.log'}"),
        ],
    )
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return
