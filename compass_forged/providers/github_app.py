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

from compass_forged.budget import served_at
from compass_forged.errors import BadAnswer, BadCredentials, ConfigError, ForgeError, ForgeUnavailable
from compass_forged.observability import get_logger
from compass_forged.ports import Role
from compass_forged.providers.bought_token import BoughtToken
from compass_forged.providers.dialect import Dialect
from compass_forged.providers.http import HttpAnswer, HttpRequest, HttpTransport
from compass_forged.providers.tokens import SecretFile

EARLY_SECONDS: Final = 300.0
"""How long before its end a token is renewed."""
_ISSUED_AGO_SECONDS: Final = 60
_EXPIRES_IN_SECONDS: Final = 540
"""GitHub takes ten minutes at most; less, as its clock and ours may differ."""
_LIFE_MAX_SECONDS: Final = 3600.0
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


class AppToken(BoughtToken):
    """The installation token of an App, renewed before it ends, by one caller at a time."""

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
        super().__init__(
            "installation token",
            early_seconds=EARLY_SECONDS,
            life_max_seconds=_LIFE_MAX_SECONDS,
            role=role,
            transport=transport,
            dialect=dialect,
            jitter=jitter,
        )
        self._issuer = issuer
        self._path = ("app", "installations", str(installation_id), "access_tokens")
        self._key_file = SecretFile(key_file, what="private key")
        self._key: Any = None
        self._wall_clock = wall_clock
        self._skew = 0.0
        self.permissions: Mapping[str, str] = {}
        """What the installation grants, as the last token's answer told."""

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

    async def _buy(self) -> None:
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
        self._keep(secret, life)
        self.permissions = told.permissions

    # --- asking as the App --------------------------------------------------------------------------------------

    async def _ask(self, request: HttpRequest) -> HttpAnswer:
        """One exchange under a claim. Refused for a claim by a clock that is wrong, once more by the forge's."""
        answer = await self._exchange_claimed(request)
        if answer.status == 401:  # noqa: PLR2004 -- Unauthorized
            skew = served_at(answer.headers.get("date"), self._wall_clock()) - self._wall_clock()
            if abs(skew - self._skew) > _SKEW_SECONDS:
                self._skew = skew
                log.warning("the clock of this host differs from the forge's", seconds=round(skew))
                answer = await self._exchange_claimed(request)
        return answer

    async def _exchange_claimed(self, request: HttpRequest) -> HttpAnswer:
        return await self._exchange(request, self._dialect.authorization(self._claim()))

    def _refused(self, status: int) -> ForgeError:
        match status:
            case 401:
                why = "the forge refuses the App's key; check app_id or client_id, and key_file"
            case 403:
                why = "the forge refuses a token for the installation, which may be suspended"
            case 404:
                why = "the forge knows no such installation of the App; check installation_id"
            case 422:
                why = "the installation cannot have what was asked for"
            case _:
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
