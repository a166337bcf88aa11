"""Tokens of a GitHub App: a signed claim of being the App buys an installation token, which lives an hour.

Source: GitHub's "Generating a JSON Web Token (JWT) for a GitHub App" and "Create an installation access token for an
app". The library that signs is imported when a token is first needed: only hosts that use an App must have it.
"""

import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import trio

from compass_forged.budget import served_at
from compass_forged.errors import BadAnswer, BadCredentials, ConfigError, ForgeError, ForgeUnavailable, RateLimited
from compass_forged.observability import get_logger
from compass_forged.ports import Role
from compass_forged.providers.caller import Dialect
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport, TransportFailure
from compass_forged.providers.tokens import RecentTokens, Secret, SecretFile

EARLY_SECONDS: Final = 300.0
"""How long before its end a token is renewed."""
_ISSUED_AGO_SECONDS: Final = 60
_EXPIRES_IN_SECONDS: Final = 540
"""GitHub takes ten minutes at most; less, as its clock and ours may differ."""
_ASK_SECONDS: Final = 10.0
_LIFE_MIN_SECONDS: Final = 60.0
_LIFE_MAX_SECONDS: Final = 3600.0
_BACK_OFF_FIRST_SECONDS: Final = 1.0
_BACK_OFF_MAX_SECONDS: Final = 60.0
_SKEW_SECONDS: Final = 5.0
"""How far the clocks must be apart for a second try by the forge's."""
_CREATED: Final = 201

log = get_logger(__name__)


class _InstallationToken(msgspec.Struct):
    token: str
    expires_at: str
    permissions: dict[str, str] = {}


class App(msgspec.Struct, frozen=True):
    """What ``GET /app`` says of an App: its id, the word in its login, the permissions that it asks for."""

    id: int
    slug: str
    permissions: dict[str, str] = {}


_token_decoder = msgspec.json.Decoder(_InstallationToken)
_app_decoder = msgspec.json.Decoder(App)


class AppToken:
    """The installation token of an App, renewed before it ends, by one caller at a time.

    A renewal that fails backs off, and meanwhile whoever asks gets the old token while it lives, or the failure.
    """

    def __init__(
        self,
        issuer: str,
        installation_id: int,
        key_file: str,
        *,
        role: Role,
        transport: HttpTransport,
        dialect: Dialect,
        wall_clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Read nothing yet; see ``check``.

        Args:
            issuer: the App's id or client id, as the claim names it.
            installation_id: whose token is asked for.
            key_file: the private key, PEM as GitHub hands it out; read again when it changes.
            role: for errors.
            transport: to the forge.
            dialect: how the forge speaks.
            wall_clock: epoch seconds, for the claim's times.
            jitter: draws from [0, 1) and spreads what is tried again; tests fix it.
        """
        self._issuer = issuer
        self._path = ("app", "installations", str(installation_id), "access_tokens")
        self._key_file = SecretFile(key_file, what="private key")
        self._key: Any = None
        self._role: Role = role
        self._transport = transport
        self._dialect = dialect
        self._wall_clock = wall_clock
        self._jitter = jitter
        self._skew = 0.0
        self._lock = trio.Lock()
        self._recent = RecentTokens()
        self._secret: Secret | None = None
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._failures = 0
        self._failure: ForgeError | None = None
        self._failed_until = 0.0
        self.permissions: Mapping[str, str] = {}
        """What the installation grants, as the last token's answer told."""

    async def token(self) -> str:
        """The current installation token; a checkpoint only where one is asked for.

        Raises:
            ConfigError: the key cannot be used.
            BadCredentials: the forge refuses the App, or knows no such installation.
            RateLimited, ForgeUnavailable: no token could be had now. The call that needs it was not sent.
        """
        now = trio.current_time()
        # While one caller renews a token that still lives, the others do not wait for that.
        if self._secret is not None and (now < self._renew_at or (now < self._ends_at and self._lock.locked())):
            return self._secret.reveal()
        async with self._lock:
            now = trio.current_time()
            if now >= self._renew_at or self._secret is None:
                await self._renew(now)
            if self._secret is None:  # or a call would go out with nothing
                raise ForgeUnavailable("no installation token could be had", outcome="not_sent")
            return self._secret.reveal()

    def invalidate(self) -> None:
        """The token was refused: the next use asks for another one."""
        self._secret = None

    def check(self) -> None:
        """Find now what would stand in the way of every call: the key, or the library that signs.

        Raises:
            ConfigError: as ``token``.
        """
        self._claim()

    async def app(self) -> App:
        """The App itself, by ``GET /app``.

        Raises:
            ForgeError: as ``token``.
        """
        answer = await self._ask(HttpRequest("GET", ("app",)))
        if answer.status != 200:  # noqa: PLR2004 -- OK
            raise self._refusal(answer)
        try:
            return _app_decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(answer.status, "the forge's word on the App cannot be read") from error

    # --- renewing -----------------------------------------------------------------------------------------------

    async def _renew(self, now: float) -> None:
        alive = self._secret is not None and now < self._ends_at
        if now >= self._failed_until:
            try:
                await self._renew_once()
            except ForgeError as error:
                self._back_off(error)
            except trio.Cancelled:
                if alive:  # or the next caller would spend its time on a forge that does not answer, and the next
                    self._failed_until = trio.current_time() + _BACK_OFF_FIRST_SECONDS
                raise
            except ConfigError as error:
                if not alive:
                    raise
                self._failed_until = now + _BACK_OFF_MAX_SECONDS
                log.warning("an App's key cannot be used; its token is, while it lives", why=str(error))
        if self._failure is not None and not alive:
            raise _again(self._failure)

    async def _renew_once(self) -> None:
        answer = await self._ask(HttpRequest("POST", self._path))
        if answer.status != _CREATED:
            raise self._refusal(answer)
        try:
            told = _token_decoder.decode(answer.body)
            ends = datetime.fromisoformat(told.expires_at).timestamp()
            secret = self._recent.accept(told.token, "the forge's answer")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError, ConfigError):
            # Without its cause, whose text may hold the token.
            raise ForgeUnavailable(
                "the forge gave no installation token that can be used", outcome="not_sent"
            ) from None
        # By the forge's own clock, so that a wrong one here does no harm.
        life = ends - served_at(answer.headers.get("date"), self._wall_clock())
        life = min(_LIFE_MAX_SECONDS, max(_LIFE_MIN_SECONDS, life))
        now = trio.current_time()
        self._secret = secret
        self._ends_at = now + life
        self._renew_at = now + max(life - EARLY_SECONDS, life / 2)
        self._failures = 0
        self._failure = None
        self.permissions = told.permissions

    def _back_off(self, error: ForgeError) -> None:
        delay = min(_BACK_OFF_MAX_SECONDS, _BACK_OFF_FIRST_SECONDS * 2.0**self._failures) * (0.5 + self._jitter())
        if isinstance(error, RateLimited):
            delay = max(delay, error.retry_after_seconds)
        self._failures = min(self._failures + 1, 16)
        self._failure = _again(error)  # the error itself would keep what its call held
        self._failed_until = trio.current_time() + delay
        log.warning("no installation token could be had", role=self._role, why=str(error), again_in=round(delay, 1))

    # --- asking as the App --------------------------------------------------------------------------------------

    async def _ask(self, request: HttpRequest) -> HttpAnswer:
        """One exchange under a claim. Refused for a claim by a clock that is wrong, once more by the forge's."""
        answer = await self._exchange(request)
        if answer.status == 401:  # noqa: PLR2004 -- Unauthorized
            skew = served_at(answer.headers.get("date"), self._wall_clock()) - self._wall_clock()
            if abs(skew - self._skew) > _SKEW_SECONDS:
                self._skew = skew
                log.warning("the clock of this host differs from the forge's", seconds=round(skew))
                answer = await self._exchange(request)
        return answer

    async def _exchange(self, request: HttpRequest) -> HttpAnswer:
        authorization = self._dialect.authorization(self._claim())
        try:
            with trio.fail_after(_ASK_SECONDS):
                return await self._transport.exchange(
                    request, headers=self._dialect.headers, authorization=authorization
                )
        except TransportFailure as error:
            raise ForgeUnavailable(error.why, outcome="not_sent") from error
        except trio.TooSlowError as error:
            raise ForgeUnavailable(
                f"the forge gave no token within {_ASK_SECONDS:.0f} s", outcome="not_sent"
            ) from error

    def _refusal(self, answer: HttpAnswer) -> ForgeError:
        limit = self._dialect.limit(answer)
        if limit is not None:
            return RateLimited(
                limit.delay or _BACK_OFF_MAX_SECONDS, "the forge's rate limit is reached", outcome="not_sent"
            )
        match answer.status:
            case 401:
                why = "the forge refuses the App's key; check app_id or client_id, and key_file"
            case 403:
                why = "the forge refuses a token for the installation, which may be suspended"
            case 404:
                why = "the forge knows no such installation of the App; check installation_id"
            case 422:
                why = "the installation cannot have what was asked for"
            case status:
                return ForgeUnavailable(f"the forge answered {status} when asked as the App", outcome="not_sent")
        return BadCredentials(self._role, why, outcome="not_sent")

    def _claim(self) -> str:
        """A JSON Web Token that says: we are the App."""
        try:
            import jwt  # noqa: PLC0415 -- see the module's docstring
        except ImportError as error:
            raise ConfigError(
                f"private key: {error.name or 'PyJWT'} is not installed; pip install 'compass-forged[github-app]'"
            ) from error
        key = self._current_key(jwt.get_algorithm_by_name("RS256").prepare_key)
        now = int(self._wall_clock() + self._skew)
        claim = {"iss": self._issuer, "iat": now - _ISSUED_AGO_SECONDS, "exp": now + _EXPIRES_IN_SECONDS}
        return jwt.encode(claim, key, algorithm="RS256")

    def _current_key(self, prepare: Callable[[str], Any]) -> Any:  # the signing library's own kind of key
        """The key, ready to sign: checking one takes a tenth of a second, so that is done once for each key."""
        content = self._key_file.changed()
        if content is not None:
            try:
                key = prepare(content)
                key.sign  # noqa: B018 -- a public key is a key too, and has none
            except Exception:  # noqa: BLE001 -- whatever it is: without its text, which may hold the key's
                self._key_file.forget()
                raise ConfigError(
                    f"private key: {self._key_file.place} holds no RSA key to sign with; put the App's PEM file there"
                ) from None
            self._key = key
        return self._key


def _again(error: ForgeError) -> ForgeError:
    """The same failure for another caller: an exception that is raised twice gathers the callers' tracebacks."""
    match error:
        case BadCredentials():
            return BadCredentials(error.role, error.why, outcome="not_sent")
        case RateLimited():
            return RateLimited(error.retry_after_seconds, str(error), outcome="not_sent")
        case _:
            return ForgeUnavailable(str(error), outcome="not_sent")
