"""Under whose name Linear shows what is written, as far as the credential may choose.

An OAuth application that acts for itself may name who speaks (``createAsUser``); with any other credential Linear
refuses the whole write. Which it is, ``viewer`` tells. The name is the configuration's, one for everything that is
written: who wrote what, the owner header says.

Source: Linear's "OAuth actor authorization".
"""

import hashlib
import uuid
from typing import Final

import msgspec

from compass_forged.observability import get_logger
from compass_forged.providers.answers import bad
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.identity import Identity, own_context
from compass_forged.providers.linear_answers import User, decoded, plain_name, query, reply
from compass_forged.providers.linear_documents import VIEWER

DEGRADED: Final = "linear: actor attribution unavailable; degrading to stamp-only"

log = get_logger(__name__)

_user_decoder = msgspec.json.Decoder(User)


class Actor:
    """Who a credential is, and what a write says of its author besides the header."""

    def __init__(self, http: ForgeHttp, *, name: str = "", icon_url: str = "") -> None:
        """Nothing is known yet, and nothing is said until it is.

        Args:
            http: the caller.
            name: under which everything is written where that can be chosen; "" to choose nothing.
            icon_url: its picture; "" for none.
        """
        self._http = http
        self._pair = {"createAsUser": name} | ({"displayIconUrl": icon_url} if icon_url else {}) if name else {}
        self._viewer_id = ""
        self._is_app = False
        self._known_at = -1
        self._degraded = False

    @property
    def viewer_id(self) -> str:
        """The credential's own user; "" where it is not known."""
        return self._viewer_id if self._is_known else ""

    def words(self) -> dict[str, str]:
        """What the input of a write gets besides: the pair, or nothing."""
        return dict(self._pair) if self._is_known and self._is_app else {}

    def degrade(self) -> None:
        """Linear has refused a write for its pair: say nothing of the author any more."""
        self._is_app = False
        self._tell()

    async def learn(self) -> Identity:
        """Ask who the credential is.

        Raises:
            ForgeError: it cannot be learned now.
        """
        await self._http.credential.token()
        changes = self._http.credential.changes  # a token that changes meanwhile may be another's
        viewer = read_viewer(await self._http.read(query(VIEWER), own_context()))
        self._viewer_id, self._is_app = viewer.id, bool(viewer.app)
        self._known_at = changes
        if self._is_app:
            self._degraded = False
        else:
            self._tell()
        name = plain_name(viewer.displayName or viewer.name or "")
        return Identity("app" if viewer.app else "user", _number(viewer.id), name or viewer.id)

    @property
    def _is_known(self) -> bool:
        return self._known_at == self._http.credential.changes

    def _tell(self) -> None:
        if not self._degraded:
            log.warning(DEGRADED)
        self._degraded = True


def read_viewer(answer: ForgeAnswer) -> User:
    """Who the credential is.

    Raises:
        BadAnswer: the answer does not tell.
    """
    viewer = decoded(_user_decoder, reply(VIEWER, answer))
    if not viewer.id:
        bad(answer, "the forge's answer does not say who the credential is")
    return viewer


def _number(user_id: str) -> int:
    """A user's id as a number, which is how identities are compared."""
    try:
        return uuid.UUID(user_id).int
    except ValueError:
        return int.from_bytes(hashlib.sha256(user_id.encode(errors="surrogatepass")).digest()[:16])
