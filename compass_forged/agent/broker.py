"""The broker: what stands between tools and a transport, and gives each tool call its idempotency key."""

import hashlib
import re
import secrets
from typing import Final

from compass_forged.agent.client import ForgeTransport
from compass_forged.wire.schema import CLIENT_REQUEST_ID_MAX_CHARS, ForgeCall, ResultArm

_NONCE_BYTES = 8
_DIGEST_PREFIX: Final = "sha256-"
_PRINTABLE: Final = re.compile(r"[ -~]+", re.ASCII)


class ForgeBroker:
    """One agent run's way to the daemon.

    Tool-call ids collide across runs ("call_1"), while the daemon remembers keys for each agent for ever: the random
    nonce keeps the runs apart.
    """

    def __init__(self, transport: ForgeTransport) -> None:
        """Draws the nonce. The transport is used and not owned."""
        self._transport = transport
        self._nonce = secrets.token_hex(_NONCE_BYTES)

    async def call(self, call: ForgeCall) -> ResultArm:
        """Execute one call; see ``ForgeTransport.forge``."""
        return await self._transport.forge(call)

    def idempotency_key(self, tool_call_id: str) -> str:
        """The ``client_request_id`` of a create: ``{nonce}:{tool_call_id}``, the same for the same id.

        An id that a ``client_request_id`` may not hold (not printable ASCII, or too long) is replaced by
        ``sha256-`` and its digest; so is one that begins with that word, so that two ids never share a key.

        Raises:
            ValueError: the id is empty: all calls would share one key, and the second create would be lost.
        """
        if not tool_call_id:
            raise ValueError("tool_call_id is empty; give each tool call its own id")
        room = CLIENT_REQUEST_ID_MAX_CHARS - len(self._nonce) - 1
        if (
            len(tool_call_id) > room
            or not _PRINTABLE.fullmatch(tool_call_id)
            or tool_call_id.startswith(_DIGEST_PREFIX)
        ):
            tool_call_id = _DIGEST_PREFIX + hashlib.sha256(tool_call_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._nonce}:{tool_call_id}"
