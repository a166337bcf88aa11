"""Which account a GitHub credential is: ``GET /user`` for a token, ``GET /app`` for an App.

Sources: GitHub's "Get the authenticated user" and "Get the authenticated app". An installation token is told 403 by the
former; an App's account is named after its slug.
"""

import msgspec

from compass_forged.errors import BadAnswer, ForgeStatus
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.github_app import AppToken
from compass_forged.providers.github_dialect import detail_of
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.providers.identity import Identity, own_context

USER_REQUEST = HttpRequest("GET", ("user",))
_BY_INTEGRATION = "resource not accessible by integration"
"""What an installation token is told; any other 403 says nothing of whose the token is."""


class _User(msgspec.Struct):
    id: int
    login: str


_user_decoder = msgspec.json.Decoder(_User)


async def learn_identity(http: ForgeHttp) -> Identity:
    """Ask GitHub whose credential this is.

    Raises:
        ForgeError, ConfigError: it cannot be learned now.
    """
    source = http.credential.source
    if isinstance(source, AppToken):
        app = await source.app()
        return Identity("app", app.id, f"{app.slug}[bot]")
    try:
        answer = await http.read(USER_REQUEST, own_context())
    except ForgeStatus as error:
        if _is_by_integration(error.status, error.detail):
            return Identity("installation", 0, "")
        raise
    return read_user(answer.status, answer.body)


def is_installation(answer: HttpAnswer) -> bool:
    """Whether an answer to ``USER_REQUEST`` is what an App's installation token gets."""
    return _is_by_integration(answer.status, detail_of(answer))


def _is_by_integration(status: int, detail: str) -> bool:
    return status == 403 and _BY_INTEGRATION in detail.casefold()  # noqa: PLR2004 -- Forbidden


def read_user(status: int, body: bytes) -> Identity:
    """The account in an answer to ``USER_REQUEST``.

    Raises:
        BadAnswer: it holds none.
    """
    try:
        user = _user_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(status, "the forge's word on the account cannot be read") from error
    return Identity("user", user.id, user.login)
