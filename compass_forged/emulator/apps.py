"""GitHub Apps as the forge holds them: their keys, their installations, and the tokens that they buy.

Sources: GitHub's "Generating a JSON Web Token (JWT) for a GitHub App"; the wordings of refused claims are as reported
against public clients.
"""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compass_forged.emulator.refusals import DOCS, Refused, refusal

TOKEN_LIFE = timedelta(hours=1)
CLAIM_LIFE_MAX_SECONDS = 600
ALL_PERMISSIONS: Mapping[str, str] = {
    "checks": "read",
    "contents": "read",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
    "statuses": "read",
}
_NO_CLAIM = "A JSON web token could not be decoded"
_TOO_FAR = "'Expiration time' claim ('exp') is too far in the future"
_EXPIRED = (
    "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion "
    "expires"
)
_NOT_YET = "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
_UNKNOWN_ISSUER = "Integration not found"


@dataclass(slots=True)
class Installation:
    """An App on an account: whose repositories its tokens reach. ``suspended``: it gets none."""

    id: int
    account: str
    suspended: bool = False


@dataclass(slots=True)
class App:
    """A registered App. Its account's login is ``SLUG[bot]``; its id is another number than that account's."""

    id: int
    slug: str
    client_id: str
    public_key: str
    created_at: datetime
    permissions: Mapping[str, str] = field(default_factory=lambda: dict(ALL_PERMISSIONS))
    installations: dict[int, Installation] = field(default_factory=dict[int, Installation])

    @property
    def login(self) -> str:
        """Under which name it writes."""
        return f"{self.slug}[bot]"


class Apps:
    """The Apps of a forge."""

    def __init__(self) -> None:
        self._apps: dict[int, App] = {}

    def add(self, app: App) -> None:
        """Register an App.

        Raises:
            ValueError: its id is taken.
        """
        if app.id in self._apps:
            raise ValueError(f"app {app.id}: the id is taken; give each its own")
        self._apps[app.id] = app

    def all(self) -> tuple[App, ...]:
        """Every App, in the order in which they were registered."""
        return tuple(self._apps.values())

    def claimed(self, claim: str, now: datetime) -> App:
        """The App that a JSON Web Token proves to be.

        Raises:
            Refused: 401, for each of the reasons that GitHub has.
        """
        import jwt  # noqa: PLC0415 -- only a forge with Apps needs it

        try:
            issuer = str(jwt.decode(claim, options={"verify_signature": False}).get("iss", ""))
        except (jwt.InvalidTokenError, ValueError):
            raise _refused(_NO_CLAIM) from None
        app = next((app for app in self._apps.values() if issuer in {str(app.id), app.client_id}), None)
        if app is None:
            raise _refused(_UNKNOWN_ISSUER)
        try:
            payload = jwt.decode(
                claim,
                app.public_key,
                algorithms=["RS256"],
                # Its times are judged below, by the forge's own clock.
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
        except jwt.InvalidTokenError:
            raise _refused(_NO_CLAIM) from None
        issued, expires = payload.get("iat"), payload.get("exp")
        moment = now.timestamp()
        if not isinstance(issued, int) or issued > moment:
            raise _refused(_NOT_YET)
        if not isinstance(expires, int) or expires <= moment:
            raise _refused(_EXPIRED)
        if expires > moment + CLAIM_LIFE_MAX_SECONDS:
            raise _refused(_TOO_FAR)
        return app


def new_token(app: App) -> str:
    """An installation token in the form that GitHub gives out since 2026: long, with dots, dashes and underscores."""
    parts = [base64.urlsafe_b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (24, 260, 32)]
    return f"ghs_{app.id}_{'.'.join(parts)}"


def _refused(message: str) -> Refused:
    return refusal(401, message, docs=DOCS)
