"""What a token is and how it is kept: never shown, cut out of every log, and forgotten there once it is long gone."""

import os
import stat
from collections import deque
from pathlib import Path
from typing import Final

from compass_forged.errors import ConfigError
from compass_forged.observability import forget_secret, get_logger, register_secret

TOKEN_MAX_BYTES: Final = 16 << 10
"""The longest token accepted; GitHub's installation tokens have about 520 characters."""
_REMEMBERED: Final = 8
"""How many tokens of one source stay registered for redaction: those before have long expired."""

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


class RecentTokens:
    """The tokens that one source has given of late. An older one is no longer looked for in logs."""

    def __init__(self) -> None:
        self._tokens: deque[Secret] = deque()

    def accept(self, text: str, place: str) -> Secret:
        """As ``check_token``, and remembered."""
        secret = check_token(text, place)
        if not self._tokens or self._tokens[-1].reveal() != secret.reveal():
            self._tokens.append(secret)
        if len(self._tokens) > _REMEMBERED:
            old = self._tokens.popleft().reveal()
            if all(old != token.reveal() for token in self._tokens):
                forget_secret(old)
        return secret


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


class SecretFile:
    """A file that holds a secret, read again when it is another one or has changed, or after ``forget``."""

    def __init__(self, path: str, *, what: str) -> None:
        """``what`` it holds, for errors and logs, such as ``token``."""
        self._path = path
        self._what = what
        self._version: tuple[int, int, int] | None = None
        self._warned = False

    @property
    def place(self) -> str:
        """How errors name it."""
        return f"file {self._path}"

    def forget(self) -> None:
        """Have the next ``changed`` read the file even if it looks the same."""
        self._version = None

    def changed(self) -> str | None:
        """The content, or None if the file is as it was at the last time. One ``stat``, and a read when it changed.

        Raises:
            ConfigError: the operator's to mend: it cannot be read, or is no text of a sensible size.
        """
        try:
            status = Path(self._path).stat()
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version == self._version:
                return None
            content = self._read(status)
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not a text file"
            raise ConfigError(f"{self._what}: {self.place} cannot be read ({reason})") from error
        self._version = version
        return content

    def _read(self, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{self._what}: {self.place} is no regular file")
        if status.st_mode & (stat.S_IROTH | stat.S_IWOTH) and not self._warned:
            self._warned = True
            log.warning(
                "a file with a secret is open to every user of this host; chmod o-rwx it",
                path=self._path,
                holds=self._what,
            )
        with Path(self._path).open("rb") as file:
            content = file.read(TOKEN_MAX_BYTES + 1)
        if len(content) > TOKEN_MAX_BYTES:
            raise ConfigError(
                f"{self._what}: {self.place} is over {TOKEN_MAX_BYTES} bytes; it must hold the {self._what} alone"
            )
        return content.decode("utf-8")
