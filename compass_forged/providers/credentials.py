"""Where tokens come from, and what is known of them. A token is read, registered for redaction, and never shown.

Sources are re-readable without a restart: a file is read again when it changes or when the forge refused what it held.
Those that take more than a look have modules of their own: ``token_command``, ``github_app``.
"""

import os
from dataclasses import dataclass
from typing import Final

import trio

from compass_forged.errors import BadCredentials, ConfigError
from compass_forged.observability import get_logger
from compass_forged.ports import Role, TokenSource
from compass_forged.providers.tokens import RecentTokens, Secret, SecretFile, check_token

RECHECK_SECONDS: Final = 30.0
"""How often a refused credential's source is read again."""

log = get_logger(__name__)


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
        self._recent = RecentTokens()

    async def token(self) -> str:
        """The current token; not a checkpoint.

        Raises:
            ConfigError: the variable is not set, or holds no token.
        """
        place = f"environment variable {self._variable}"
        value = os.environ.get(self._variable)
        if value is None:
            raise ConfigError(f"token: {place} is not set; set it to the token")
        return self._recent.accept(value, place).reveal()

    def invalidate(self) -> None:
        """Nothing is kept, so there is nothing to forget."""


class FileToken:
    """A token in a file, read again when the file is another one or has changed, or after ``invalidate``."""

    def __init__(self, path: str) -> None:
        self._file = SecretFile(path, what="token")
        self._recent = RecentTokens()
        self._secret: Secret | None = None

    async def token(self) -> str:
        """The current token; not a checkpoint: one ``stat`` on a local file, and a read when it changed.

        Raises:
            ConfigError: the file cannot be read, or holds no token.
        """
        return self._current().reveal()

    def invalidate(self) -> None:
        """Forget what was read: the next use reads the file even if it looks the same."""
        self._file.forget()

    def _current(self) -> Secret:
        text = self._file.changed()
        if text is None and self._secret is not None:
            return self._secret
        try:
            self._secret = self._recent.accept(text or "", self._file.place)
        except ConfigError:
            self._file.forget()  # or an unchanged bad file would pass for the good one before it
            raise
        return self._secret


@dataclass(slots=True)
class Credential:
    """One credential role at one forge: its token, and whether the forge still accepts it.

    Once a token was refused twice in a row the role is broken: calls fail at once, without a request, until the source
    yields another token. It is asked at most every ``RECHECK_SECONDS``.

    Attributes:
        role: ``author`` or ``reviewer``.
        source: where the token comes from.
        changes: how many times the source has yielded another token than before.
    """

    role: Role
    source: TokenSource
    changes: int = 0
    _last: Secret | None = None
    _refused: Secret | None = None
    _recheck_at: float = 0.0
    _complaint: str = ""

    @property
    def broken(self) -> bool:
        """Whether the forge refused the last token and no other has been seen since."""
        return self._refused is not None

    async def token(self) -> str:
        """The token to send.

        Raises:
            BadCredentials: nothing was sent: the role is broken, or its source cannot be read.
            ForgeError: a source that asks the forge for tokens could not; the call itself was not sent.
        """
        refused = self._refused
        if refused is None:
            return await self._read()
        if trio.current_time() < self._recheck_at:
            raise self._still_refused()
        self._recheck_at = trio.current_time() + RECHECK_SECONDS
        token = await self.renewed(refused.reveal())
        if token == refused.reveal():
            raise self._still_refused()
        self._refused = None
        log.info("a credential has been renewed", role=self.role)
        return token

    def current(self, token: str) -> str:
        """What a call is to send that was to send ``token`` and had to wait.

        Raises:
            BadCredentials: the role has been broken meanwhile. Nothing was sent.
        """
        if self._refused is not None:
            raise self._still_refused()
        return token if self._last is None else self._last.reveal()

    async def renewed(self, refused: str) -> str:
        """The token read anew from its source, after the forge refused ``refused``; raises as ``token``.

        Of the many calls that one revoked token ends, the first has the source read anew; the others take what it got.
        """
        if self._last is None or self._last.reveal() == refused:
            self.source.invalidate()
        return await self._read()

    def refuse(self, token: str) -> None:
        """The forge refused ``token`` twice: fail fast from now on, unless another has taken its place meanwhile."""
        if self._last is not None and self._last.reveal() != token:
            return
        if self._refused is None:
            log.error("the forge refuses a credential; an operator must renew it", role=self.role)
        self._refused = Secret(token)
        self._recheck_at = trio.current_time() + RECHECK_SECONDS

    def _still_refused(self) -> BadCredentials:
        return BadCredentials(self.role, "the forge refused it; an operator must renew it", outcome="not_sent")

    async def _read(self) -> str:
        try:
            token = await self.source.token()
        except ConfigError as error:
            if str(error) != self._complaint:  # once, and not for every call that it ends
                self._complaint = str(error)
                log.error("a credential cannot be read", role=self.role, why=str(error))  # noqa: TRY400 -- one line says it all
            raise BadCredentials(self.role, "its source cannot be read", outcome="not_sent") from error
        self._complaint = ""
        if self._last is None or self._last.reveal() != token:
            self._last = Secret(token)
            self.changes += 1
        return token
