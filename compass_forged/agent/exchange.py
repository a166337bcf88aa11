"""What both clients share: a call to the bytes of a frame, a reply to a result or an error. Pure, no I/O."""

from compass_forged.agent.errors import CallRefused, CallTooLarge, ForgeCallFailed, ForgeFault
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import FRAME_MAX_BYTES, FramingError, encode_frame
from compass_forged.wire.schema import (
    CALL_ID_MAX_BYTES,
    ErrorResult,
    FaultFrame,
    ForgeCall,
    ReplyFrame,
    ResultArm,
)

CALL_SECONDS = 60.0
"""How long a call without a ``timeout_ms`` waits for its reply, unless the client was told otherwise."""
RECONNECT_SECONDS = 10.0
"""How long a call tries to connect anew, unless the client was told otherwise."""
REPLY_GRACE_SECONDS = 5.0
"""How much longer than a call's own ``timeout_ms`` a client waits: the daemon's answer says more than a timeout."""
_LONGEST_SECONDS = 86_400.0
"""No call waits longer, whatever it asks for: locks and sockets take no time of centuries."""


def frame_of(call: ForgeCall) -> bytes:
    """The frame of a call.

    A bad ``call_id`` is refused here, since the daemon could only answer it with a fault that belongs to no call.

    Raises:
        CallRefused: the call id is empty or too long, or a field holds what MessagePack cannot (a lone surrogate, an
            integer of more than 64 bits).
        CallTooLarge: the frame would be over the limit.
    """
    try:
        call_id = call.call_id
        size = len(call_id) if call_id.isascii() else len(call_id.encode())
        if not 0 < size <= CALL_ID_MAX_BYTES:
            raise CallRefused(f"call_id: expected 1 to {CALL_ID_MAX_BYTES} bytes")
        payload = encode_call(call)
    except (UnicodeEncodeError, OverflowError) as error:
        raise CallRefused(f"call {call.call_id!a}: a field cannot be encoded: {str(error)!a}") from error
    try:
        return encode_frame(payload, FRAME_MAX_BYTES)
    except FramingError as error:
        raise CallTooLarge(f"call {call.call_id!r}: {error}") from error


def arm_of(reply: ReplyFrame) -> ResultArm:
    """The result arm of a reply; never an ``ErrorResult``.

    Raises:
        ForgeFault: the reply is a fault.
        ForgeCallFailed: the reply is an in-band error.
    """
    if isinstance(reply, FaultFrame):
        raise ForgeFault(reply.code, reply.message, reply.retry_after_ms)
    result = reply.result
    if isinstance(result, ErrorResult):
        raise ForgeCallFailed(result.code, result.message, result.retry_after_ms, result.outcome)
    return result


def patience(call: ForgeCall, default_seconds: float) -> float:
    """How long to wait for the reply to ``call``, in seconds; a day at most."""
    asked = call.timeout_ms / 1000 + REPLY_GRACE_SECONDS if call.timeout_ms else default_seconds
    return min(asked, _LONGEST_SECONDS)
