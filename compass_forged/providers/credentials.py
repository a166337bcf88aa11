"""Where tokens come from, and what is known of them. A token is read, registered for redaction, and never shown.

Sources are re-readable without a restart: a file is read again when it changes or when the forge refused what it held.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from compass_forged.errors import BadCredentials, ConfigError
from compass_forged.observability import get_logger, register_secret
from compass_forged.ports import Role, TokenSource

TOKEN_MAX_BYTES: Final = 16 << 10
"""The longest token accepted; GitHub's installation tokens have about 520 characters."""
RECHECK_SECONDS: Final = 30.0
"""How often a refused credential's source is read again."""

log = get_logger(__name__)


class Secret:
    """A value that no repr, str, format, comparison or pickle gives away; ``reveal`` is the only way to it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself: for the one request header that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def check_token(text: str, place: str) -> Secret:
    """A token as a source holds it, without its one line end.

    Args:
        text: what was read.
        place: how errors name the source, such as ``file /run/secrets/github``.

    Raises:
        ConfigError: the operator's to mend; it names the place and what is wrong, never the value.
    """
    token = text.removesuffix("\n").removesuffix("\r")
    if not token.strip():
        raise ConfigError(f"token: {place} is empty; put the token there")
    if "\n" in token or "\r" in token:
        raise ConfigError(f"token: {place} holds more than one line; it must hold the token and nothing else")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"token: {place} holds spaces, control or non-ASCII characters; it must hold only the token")
    register_secret(token)
    return Secret(token)


class StaticToken:
    """A token that was given by value: for tests and the bundled forge."""

    def __init__(self, token: str) -> None:
        self._secret = check_token(token, "the given value")

    async def token(self) -> str:
        """The token; not a checkpoint."""
        return self._secret.reveal()

    def invalidate(self) -> None:
        """Nothing to read anew."""


class EnvToken:
    """A token in an environment variable, read at every use: the daemon's own tests and embedders may change it."""

    def __init__(self, variable: str) -> None:
        self._variable = variable

    async def token(self) -> str:
        """The current token; not a checkpoint.

        Raises:
            ConfigError: the variable is not set, or holds no token.
        """
        place = f"environment variable {self._variable}"
        value = os.environ.get(self._variable)
        if value is None:
            raise ConfigError(f"token: {place} is not set; set it to the token")
        return check_token(value, place).reveal()

    def invalidate(self) -> None:
        """Nothing is kept, so there is nothing to forget."""


class FileToken:
    """A token in a file, read again when the file is another one or has changed, or after ``invalidate``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = Path(path)
        self._secret: Secret | None = None
        self._version: tuple[int, int, int] | None = None
        self._warned = False

    async def token(self) -> str:
        """The current token; not a checkpoint: one ``stat`` on a local file, and a read when it changed.

        Raises:
            ConfigError: the file cannot be read, or holds no token.
        """
        return self._current().reveal()

    def invalidate(self) -> None:
        """Forget what was read: the next use reads the file even if it looks the same."""
        self._version = None

    def _current(self) -> Secret:
        place = f"file {self._path}"
        try:
            status = self._file.stat()
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if self._secret is not None and version == self._version:
                return self._secret
            text = self._read(status, place)
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not a text file"
            raise ConfigError(f"token: {place} cannot be read ({reason})") from error
        self._secret = check_token(text, place)
        self._version = version
        return self._secret

    def _read(self, status: os.stat_result, place: str) -> str:
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"token: {place} is no regular file")
        if status.st_mode & (stat.S_IROTH | stat.S_IWOTH) and not self._warned:
            self._warned = True
            log.warning("a token file is open to every user of this host; chmod o-rwx it", path=self._path)
        with self._file.open("rb") as file:
            content = file.read(TOKEN_MAX_BYTES + 1)
        if len(content) > TOKEN_MAX_BYTES:
            raise ConfigError(
                f"token: {place} is over {TOKEN_MAX_BYTES} bytes; it must hold the token and nothing else"
            )
        return content.decode("utf-8")


@dataclass(slots=True)
class Credential:
    """One credential role at one forge: its token, and whether the forge still accepts it.

    Once a token was refused twice in a row the role is broken: calls fail at once, without a request, until the source
    yields another token. It is asked at most every ``RECHECK_SECONDS``.

    Attributes:
        role: ``author`` or ``reviewer``.
        source: where the token comes from.
    """

    role: Role
    source: TokenSource
    _refused: Secret | None = None
    _recheck_at: float = 0.0

    @property
    def broken(self) -> bool:
        """Whether the forge refused the last token and no other has been seen since."""
        return self._refused is not None

    async def token(self) -> str:
        """The token to send.

        Raises:
            BadCredentials: nothing was sent: the role is broken, or its source cannot be read.
        """
        refused = self._refused
        if refused is None:
            return await self._read()
        if trio.current_time() < self._recheck_at:
            raise self._still_refused()
        self._recheck_at = trio.current_time() + RECHECK_SECONDS
        token = await self.renewed()
        if token == refused.reveal():
            raise self._still_refused()
        self._refused = None
        log.info("a credential has been renewed", role=self.role)
        return token

    async def renewed(self) -> str:
        """The token read anew from its source, after the forge refused the last one."""
        self.source.invalidate()
        return await self._read()

    def refuse(self, token: str) -> None:
        """The forge refused ``token`` twice: fail fast from now on."""
        if self._refused is None:
            log.error("the forge refuses a credential; an operator must renew it", role=self.role)
        self._refused = Secret(token)
        self._recheck_at = trio.current_time() + RECHECK_SECONDS

    def _still_refused(self) -> BadCredentials:
        return BadCredentials(self.role, "the forge refused it; an operator must renew it", outcome="not_sent")

    async def _read(self) -> str:
        try:
            return await self.source.token()
        except ConfigError as error:
            log.error("a credential cannot be read", role=self.role, why=str(error))  # noqa: TRY400 -- one line says it all
            raise BadCredentials(self.role, "its source cannot be read", outcome="not_sent") from error
