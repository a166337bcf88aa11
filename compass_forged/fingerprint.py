"""What identifies a create: the fingerprint of its request, the ``ref`` that its header carries, and its id. Pure."""

import hashlib
import hmac
from base64 import b32encode
from typing import Final

import msgspec

from compass_forged.ports import Coordinate
from compass_forged.wire.schema import Arm

REF_CHARS: Final = 16
ID_BYTES: Final = 16
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def request_fingerprint(provider: str, host: str, repo: str, arm: Arm) -> bytes:
    """SHA-256 over what a create asks for: 32 bytes. ``repo`` is the canonical name, so that its case is no change."""
    arm = msgspec.structs.replace(arm, repo=repo)
    return hashlib.sha256(_encoder.encode((provider, host, arm))).digest()


def create_ref(secret: bytes, *, agent_id: int, client_request_id: str, where: tuple[str, str, str]) -> str:
    """The ``ref`` of a keyed create: HMAC-SHA256 over agent, key and (provider, host, repo), cut to 80 bits in base32.

    It binds all three, so that a ref pasted into another repository or by another agent proves nothing.
    """
    message = _encoder.encode(("ref-v1", agent_id, client_request_id, *where))
    return b32encode(hmac.digest(secret, message, "sha256"))[:REF_CHARS].decode().lower()


def create_id(secret: bytes, *, agent_id: int, client_request_id: str) -> bytes:
    """What a keyed create is called at a forge that takes an id from the client: 16 bytes of HMAC-SHA256 over both.

    The place is not part of it: a key that is reused for another one must find what it stands for.
    """
    message = _encoder.encode(("id-v1", agent_id, client_request_id))
    return hmac.digest(secret, message, "sha256")[:ID_BYTES]


def coordinate_text(coordinate: Coordinate) -> str:
    """A coordinate as one word for logs: ``github:github.com/acme/site#7``."""
    return f"{coordinate.provider}:{coordinate.host}/{coordinate.repo}#{coordinate.number}"
