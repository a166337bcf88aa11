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

from compass_forged.errors import BadCredentials, ConfigError, ForgeError, ForgeUnavailable
from compass_forged.observability import register_secret
from compass_forged.ports import Role
from compass_forged.providers.bought_token import LIFE_MIN_SECONDS, BoughtToken
from compass_forged.providers.dialect import Dialect
from compass_forged.providers.http import HttpRequest, HttpTransport
from compass_forged.providers.tokens import Secret, SecretFile, check_token

SCOPES: Final = "read,write"
EARLY_SECONDS: Final = 86_400.0
"""How long before its end a token is renewed."""
_LIFE_MAX_SECONDS: Final = 30 * 86_400.0
_REFUSALS: Final = frozenset({400, 401, 403})


class _Token(msgspec.Struct):
    access_token: str
    expires_in: float = LIFE_MIN_SECONDS


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


class ClientToken(BoughtToken):
    """The token of an application, bought before the last one ends, by one caller at a time."""

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
        super().__init__(
            "token of the application",
            early_seconds=EARLY_SECONDS,
            life_max_seconds=_LIFE_MAX_SECONDS,
            role=role,
            transport=transport,
            dialect=dialect,
            jitter=jitter,
        )
        self._client_id = client_id
        self._client_secret = secret

    def check(self) -> None:
        """Find now what would stand in the way of every call: a secret that cannot be read.

        Raises:
            ConfigError: as ``token``.
        """
        self._client_secret.read()

    async def _buy(self) -> None:
        form = {"grant_type": "client_credentials", "scope": SCOPES}
        answer = await self._exchange(HttpRequest("POST", ("oauth", "token"), form=form), self._claim())
        if answer.status != 200:  # noqa: PLR2004 -- OK
            raise self._refusal(answer)
        try:
            told = _token_decoder.decode(answer.body)
            secret = self._recent.accept(told.access_token, "the forge's answer")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError):
            # Without its cause, whose text may hold the token.
            raise ForgeUnavailable("the forge gave no token that can be used", outcome="not_sent") from None
        self._keep(secret, told.expires_in)

    def _claim(self) -> str:
        """Id and secret as HTTP's ``Basic`` has them; the words are form-encoded first, as OAuth asks."""
        secret = self._client_secret.read().reveal()
        pair = f"{quote(self._client_id, safe='')}:{quote(secret, safe='')}"
        encoded = base64.b64encode(pair.encode("ascii")).decode("ascii")
        register_secret(encoded)
        return f"Basic {encoded}"

    def _refused(self, status: int) -> ForgeError:
        if status in _REFUSALS:
            why = (
                f"the forge answered {status} to the application; check client_id and its secret, and that "
                "client credentials are switched on in the application's settings"
            )
            return BadCredentials(self._role, why, outcome="not_sent")
        return ForgeUnavailable(f"the forge answered {status} when asked for a token", outcome="not_sent")
