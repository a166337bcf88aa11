"""Tokens of a Linear OAuth application that acts for itself: its secret buys one, which lives thirty days.

Sources: Linear's "OAuth 2.0 authentication" (client credentials), RFC 6749, sections 2.3.1 and 4.4. There is no refresh
token: another one is bought, and the old one lives on. Asking for other scopes than before ends the tokens that an
application has, so these are always the same.
"""

import base64
import os
import random
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec
import trio

from compass_forged.errors import BadCredentials, ConfigError, ForgeError, ForgeUnavailable, RateLimited
from compass_forged.observability import get_logger, register_secret
from compass_forged.ports import Role
from compass_forged.providers.caller import Dialect
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport, TransportFailure
from compass_forged.providers.tokens import RecentTokens, Secret, SecretFile, check_token

SCOPES: Final = "read,write"
EARLY_SECONDS: Final = 86_400.0
"""How long before its end a token is renewed."""
_ASK_SECONDS: Final = 10.0
_LIFE_MIN_SECONDS: Final = 60.0
_LIFE_MAX_SECONDS: Final = 30 * 86_400.0
_BACK_OFF_FIRST_SECONDS: Final = 1.0
_BACK_OFF_MAX_SECONDS: Final = 60.0
_REFUSALS: Final = frozenset({400, 401, 403})

log = get_logger(__name__)


class _Token(msgspec.Struct):
    access_token: str
    expires_in: float = _LIFE_MIN_SECONDS


_token_decoder = msgspec.json.Decoder(_Token)


class ClientSecret:
    """An application's secret in a file or an environment variable, read again when it changes."""

    def __init__(self, *, file: str = "", variable: str = "") -> None:
        """Exactly one of the two."""
        self._file = SecretFile(file, what="client secret") if file else None
        self._variable = variable
        self._secret: Secret | None = None

    def read(self) -> Secret:
        """The secret.

        Raises:
            ConfigError: it cannot be read, or is no secret.
        """
        if self._file is None:
            value = os.environ.get(self._variable)
            if value is None:
                raise ConfigError(f"client secret: environment variable {self._variable} is not set; set it")
            return check_token(value, f"environment variable {self._variable}")
        text = self._file.changed()
        if text is not None or self._secret is None:
            self._file.forget()  # until it has proved good, so that a bad file does not pass for the one before it
            self._secret = check_token(text or "", self._file.place)
            self._file.changed()
        return self._secret


class ClientToken:
    """The token of an application, bought before the last one ends, by one caller at a time.

    A purchase that fails backs off; meanwhile whoever asks gets the old token while it lives, or the failure.
    """

    def __init__(
        self,
        client_id: str,
        secret: ClientSecret,
        *,
        role: Role,
        transport: HttpTransport,
        dialect: Dialect,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Ask nothing yet; see ``check``.

        Args:
            client_id: the application's.
            secret: the application's.
            role: for errors.
            transport: to the forge.
            dialect: how the forge speaks.
            jitter: draws from [0, 1) and spreads what is tried again; tests fix it.
        """
        self._client_id = client_id
        self._client_secret = secret
        self._role: Role = role
        self._transport = transport
        self._dialect = dialect
        self._jitter = jitter
        self._lock = trio.Lock()
        self._recent = RecentTokens()
        self._secret: Secret | None = None
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._failures = 0
        self._failure: ForgeError | None = None
        self._failed_until = 0.0

    async def token(self) -> str:
        """The current token; a checkpoint only where one is asked for.

        Raises:
            ConfigError: the secret cannot be used.
            BadCredentials: Linear refuses the application.
            RateLimited, ForgeUnavailable: no token could be had now. The call that needs it was not sent.
        """
        if self._secret is not None and trio.current_time() < self._renew_at:
            return self._secret.reveal()
        async with self._lock:
            now = trio.current_time()
            if self._secret is None or now >= self._renew_at:
                await self._renew(now)
            if self._secret is None:  # or a call would go out with nothing
                raise ForgeUnavailable("no token of the application could be had", outcome="not_sent")
            return self._secret.reveal()

    def invalidate(self) -> None:
        """The token was refused: the next use buys another one."""
        self._secret = None

    def check(self) -> None:
        """Find now what would stand in the way of every call: a secret that cannot be read.

        Raises:
            ConfigError: as ``token``.
        """
        self._client_secret.read()

    async def _renew(self, now: float) -> None:
        alive = self._secret is not None and now < self._ends_at
        if now >= self._failed_until:
            try:
                await self._buy()
            except ForgeError as error:
                self._back_off(error)
        if self._failure is not None and not alive:
            raise _again(self._failure)

    async def _buy(self) -> None:
        form = {"grant_type": "client_credentials", "scope": SCOPES}
        answer = await self._exchange(HttpRequest("POST", ("oauth", "token"), form=form))
        if answer.status != 200:  # noqa: PLR2004 -- OK
            raise self._refusal(answer)
        try:
            told = _token_decoder.decode(answer.body)
            secret = self._recent.accept(told.access_token, "the forge's answer")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError):
            # Without its cause, whose text may hold the token.
            raise ForgeUnavailable("the forge gave no token that can be used", outcome="not_sent") from None
        life = min(_LIFE_MAX_SECONDS, max(_LIFE_MIN_SECONDS, told.expires_in))
        now = trio.current_time()
        self._secret = secret
        self._ends_at = now + life
        self._renew_at = now + max(life - EARLY_SECONDS, life / 2)
        self._failures = 0
        self._failure = None

    async def _exchange(self, request: HttpRequest) -> HttpAnswer:
        try:
            with trio.fail_after(_ASK_SECONDS):
                return await self._transport.exchange(
                    request, headers=self._dialect.headers, authorization=self._claim()
                )
        except TransportFailure as error:
            raise ForgeUnavailable(error.why, outcome="not_sent") from error
        except trio.TooSlowError as error:
            raise ForgeUnavailable(
                f"the forge gave no token within {_ASK_SECONDS:.0f} s", outcome="not_sent"
            ) from error

    def _claim(self) -> str:
        """Id and secret as HTTP's ``Basic`` has them; the words are form-encoded first, as OAuth asks."""
        secret = self._client_secret.read().reveal()
        pair = f"{quote(self._client_id, safe='')}:{quote(secret, safe='')}"
        encoded = base64.b64encode(pair.encode("ascii")).decode("ascii")
        register_secret(encoded)
        return f"Basic {encoded}"

    def _refusal(self, answer: HttpAnswer) -> ForgeError:
        limit = self._dialect.limit(answer)
        if limit is not None:
            return RateLimited(
                limit.delay or _BACK_OFF_MAX_SECONDS, "the forge's rate limit is reached", outcome="not_sent"
            )
        if answer.status in _REFUSALS:
            why = (
                f"the forge answered {answer.status} to the application; check client_id and its secret, and that "
                "client credentials are switched on in the application's settings"
            )
            return BadCredentials(self._role, why, outcome="not_sent")
        return ForgeUnavailable(f"the forge answered {answer.status} when asked for a token", outcome="not_sent")

    def _back_off(self, error: ForgeError) -> None:
        delay = min(_BACK_OFF_MAX_SECONDS, _BACK_OFF_FIRST_SECONDS * 2.0**self._failures) * (0.5 + self._jitter())
        if isinstance(error, RateLimited):
            delay = max(delay, error.retry_after_seconds)
        self._failures = min(self._failures + 1, 16)
        self._failure = error
        self._failed_until = trio.current_time() + delay
        log.warning(
            "no token of the application could be had", role=self._role, why=str(error), again_in=round(delay, 1)
        )


def _again(error: ForgeError) -> ForgeError:
    """The same failure for another caller: an exception that is raised twice gathers the callers' tracebacks."""
    match error:
        case BadCredentials():
            return BadCredentials(error.role, error.why, outcome="not_sent")
        case RateLimited():
            return RateLimited(error.retry_after_seconds, str(error), outcome="not_sent")
        case _:
            return ForgeUnavailable(str(error), outcome="not_sent")
