"""Codec: payload bytes to typed frames and back, with one typed error.

Whatever bytes come in, a decode gives a value or raises ``DecodeError`` (a test feeds it anything). The envelope is
decoded first and the arm second, so that a bad arm still answers under its ``call_id`` and names the field.
"""

import re
from difflib import get_close_matches
from typing import Final

import msgspec
from msgspec import Struct

from compass_forged.wire.schema import (
    ARM_NAMES,
    ARMS,
    CALL_ID_MAX_BYTES,
    Arm,
    CallFrame,
    FaultFrame,
    ForgeCall,
    ForgeSelector,
    InlineComment,
    ReplyFrame,
    ResultFrame,
)

_MESSAGE_MAX_CHARS = 300


class DecodeError(ValueError):
    """The peer's payload has not the shape of a frame: a missing, unknown or wrong field, or no MessagePack at all.

    Attributes:
        call_id: the frame's call id, "" where it could not be read.
    """

    def __init__(self, message: str, call_id: str = "") -> None:
        super().__init__(message)
        self.call_id = call_id


class _EnvelopeId(Struct):
    """The lenient second look at an envelope that did not decode: only its call id."""

    call_id: str


_encoder = msgspec.msgpack.Encoder()
# A union, since msgspec takes a lone tagged Struct without its tag; in a union the tag is required.
_envelope_decoder = msgspec.msgpack.Decoder(CallFrame | FaultFrame)
_envelope_id_decoder = msgspec.msgpack.Decoder(_EnvelopeId)
_arm_decoder: msgspec.msgpack.Decoder[Arm] = msgspec.msgpack.Decoder(Arm)
_reply_decoder: msgspec.msgpack.Decoder[ReplyFrame] = msgspec.msgpack.Decoder(ReplyFrame)

# RecursionError: nesting deeper than the interpreter's limit. UnicodeDecodeError: a str that is no UTF-8.
# MemoryError and OverflowError: a length inside the payload that lies.
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, MemoryError)


def encode_call(call: ForgeCall) -> bytes:
    """The payload of a call's frame, agent side."""
    return _encoder.encode(
        CallFrame(
            call_id=call.call_id,
            call=msgspec.Raw(_encoder.encode(call.arm)),
            forge=call.forge,
            client_request_id=call.client_request_id,
            timeout_ms=call.timeout_ms,
        )
    )


def encode_reply(reply: ReplyFrame) -> bytes:
    """The payload of a reply's frame, daemon side."""
    return _encoder.encode(reply)


def decode_call(payload: bytes) -> ForgeCall:
    """A request payload as a call, daemon side.

    Raises:
        DecodeError: the peer's fault; it carries the ``call_id`` where one could be read.
    """
    try:
        frame = _envelope_decoder.decode(payload)
    except _UNDECODABLE as error:
        raise DecodeError(_explain(error, ""), _call_id_of(payload)) from error
    if not isinstance(frame, CallFrame):
        raise DecodeError("frame: expected 'call', got 'fault'", frame.call_id[:CALL_ID_MAX_BYTES])
    if not frame.call_id.isascii() and len(frame.call_id.encode(errors="replace")) > CALL_ID_MAX_BYTES:
        raise DecodeError(f"call_id: expected at most {CALL_ID_MAX_BYTES} bytes")
    try:
        arm = _arm_decoder.decode(frame.call)
    except _UNDECODABLE as error:
        raise DecodeError(_explain(error, "call"), frame.call_id) from error
    return ForgeCall(
        call_id=frame.call_id,
        arm=arm,
        forge=frame.forge,
        client_request_id=frame.client_request_id,
        timeout_ms=frame.timeout_ms,
    )


def decode_reply(payload: bytes) -> ResultFrame | FaultFrame:
    """A reply payload, agent side; unknown fields are ignored.

    Raises:
        DecodeError: the daemon's fault, or a daemon too new for this client.
    """
    try:
        return _reply_decoder.decode(payload)
    except _UNDECODABLE as error:
        raise DecodeError(_explain(error, "")) from error


def _call_id_of(payload: bytes) -> str:
    try:
        call_id = _envelope_id_decoder.decode(payload).call_id
    except _UNDECODABLE:
        return ""
    return call_id if 0 < len(call_id.encode(errors="replace")) <= CALL_ID_MAX_BYTES else ""


# msgspec names a missing or unknown field only in its text; golden tests pin these forms.
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)
_BAD_TAG = re.compile(r"^Invalid value '?(?P<value>.*?)'?$", re.DOTALL)


def _explain(error: BaseException, root: str) -> str:
    """One line: the field's path and what is wrong with it. Text that the peer chose is shown through ``ascii``."""
    if isinstance(error, RecursionError):
        return _at(root, "nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        return _at(root or "frame", "not valid MessagePack")
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "$") if match else (str(error), "$")
    place = (root + path.removeprefix("$")).lstrip(".")
    if found := _MISSING.match(what):
        return _at(_join(place, found["field"]), "required field is missing")
    if found := _UNKNOWN.match(what):
        near = get_close_matches(found["field"][:64], _FIELD_NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return _at(_join(place, _shown(found["field"])), "unknown field" + hint)
    if found := _BAD_TAG.match(what):
        allowed = "expected one of " + ", ".join(ARM_NAMES) if place == "call.arm" else "expected 'call'"
        return _at(place or "frame", f"unknown value {_shown(found['value'])}; {allowed}")
    what = what.removeprefix("Expected ").replace("`", "")
    return _at(place or "frame", f"expected {_shown(what)}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _at(place: str, what: str) -> str:
    return f"{place}: {what}"[:_MESSAGE_MAX_CHARS]


def _shown(text: str) -> str:
    """``text`` in printable ASCII and at most 64 characters."""
    cut = text[:64]
    return cut if cut.isascii() and cut.isprintable() else ascii(cut)[1:-1][:64]


_FIELD_NAMES: Final = sorted(
    {name for struct in (CallFrame, ForgeSelector, InlineComment, *ARMS) for name in struct.__struct_fields__}
)
