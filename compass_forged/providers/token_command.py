"""A token that a command prints: a password manager's, or whatever mints short-lived ones.

The command runs without a shell, with the daemon's environment and nothing on its standard input. What it writes to
standard error is thrown away, as it may hold the token.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final

import trio

from compass_forged.errors import ConfigError
from compass_forged.observability import get_logger
from compass_forged.providers.tokens import TOKEN_MAX_BYTES, RecentTokens, Secret

RUN_SECONDS: Final = 10.0
"""How long the command may take."""
REFRESH_SECONDS: Final = 600.0
"""After how long it is run again though nobody refused its token."""
_RETRY_SECONDS: Final = 30.0
"""While an old token is at hand, how long a command that failed is left alone."""
_END_SECONDS: Final = 1.0

log = get_logger(__name__)


class CommandToken:
    """The first line that a command prints; it is run again every so often, and after ``invalidate``.

    However many ask at once, it runs once at a time.
    """

    def __init__(
        self, command: Sequence[str], *, refresh_seconds: float = REFRESH_SECONDS, run_seconds: float = RUN_SECONDS
    ) -> None:
        """``command`` is the program's absolute path and its arguments."""
        self._command = tuple(command)
        self._refresh_seconds = refresh_seconds
        self._run_seconds = run_seconds
        self._place = f"command {PurePath(self._command[0]).name}"  # its arguments may say more than they should
        self._lock = trio.Lock()
        self._recent = RecentTokens()
        self._secret: Secret | None = None
        self._runs_again_at = 0.0

    async def token(self) -> str:
        """The current token; a checkpoint only where the command runs.

        Raises:
            ConfigError: it failed, took too long, or printed no token; and there is none that it printed before.
        """
        if self._secret is None or trio.current_time() >= self._runs_again_at:
            async with self._lock:
                if self._secret is None or trio.current_time() >= self._runs_again_at:
                    await self._renew()
        if self._secret is None:
            raise ConfigError(f"token: {self._place} gave none")
        return self._secret.reveal()

    def invalidate(self) -> None:
        """The token was refused: the next use runs the command, and no old token stands in for it."""
        self._secret = None

    async def _renew(self) -> None:
        try:
            secret = self._recent.accept(await self._run(), self._place)
        except ConfigError as error:
            if self._secret is None:
                raise
            self._runs_again_at = trio.current_time() + _RETRY_SECONDS
            log.warning("a token could not be renewed; the one before is used on", why=str(error))
            return
        self._secret = secret
        self._runs_again_at = trio.current_time() + self._refresh_seconds

    async def _run(self) -> str:
        try:
            process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that what it started can be ended with it
            )
        except OSError as error:
            raise ConfigError(f"token: {self._place} cannot be started ({os.strerror(error.errno or 0)})") from error
        try:
            with trio.fail_after(self._run_seconds):
                printed = await _read(process)
                status = await process.wait()
        except trio.TooSlowError as error:
            raise ConfigError(f"token: {self._place} took over {self._run_seconds:g} s") from error
        finally:
            _kill(process)  # and what it started, whether it has ended or not
            with trio.move_on_after(_END_SECONDS, shield=True):
                await process.wait()
                if process.stdout is not None:
                    await process.stdout.aclose()
        if len(printed) > TOKEN_MAX_BYTES:
            raise ConfigError(
                f"token: {self._place} printed over {TOKEN_MAX_BYTES} bytes; it must print the token alone"
            )
        if status:
            raise ConfigError(f"token: {self._place} ended with status {status}; run it by hand to see why")
        try:
            return printed.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"token: {self._place} printed no text") from error


async def _read(process: trio.Process) -> bytes:
    """What it prints, and no more than shows that it is too much."""
    printed = b""
    assert process.stdout is not None  # noqa: S101 -- asked for where it was started
    while len(printed) <= TOKEN_MAX_BYTES and (part := await process.stdout.receive_some()):
        printed += part
    if len(printed) > TOKEN_MAX_BYTES:
        _kill(process)
    return printed


def _kill(process: trio.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its session's group, which outlives it with what it started
