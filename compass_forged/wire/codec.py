"""Codec: payload bytes to typed frames and back, with one typed error.

Whatever bytes come in, a decode gives a value or raises ``DecodeError`` (a test feeds it anything). The envelope is
decoded first and the arm second, so that a bad arm still answers under its ``call_id`` and names the field.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, cast

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
_NAME_MAX_CHARS = 64


class DecodeError(ValueError):
    """The peer's payload has not the shape of a frame: a missing, unknown or wrong field, or no MessagePack at all.

    The peer is at fault. The message is one line of printable ASCII, at most 300 characters, and names the field.

    Attributes:
        call_id: the frame's call id, "" where it could not be read.
    """

    def __init__(self, message: str, call_id: str = "") -> None:
        super().__init__(message)
        self.call_id = call_id


class _EnvelopeId(Struct):
    """The lenient second look at an envelope that did not decode: only its call id."""

    call_id: str


class _NoFrame(Struct, tag_field="frame", tag=""):
    """Stands beside ``CallFrame`` in a union: msgspec takes a lone tagged Struct without its tag, a union never."""


_encoder = msgspec.msgpack.Encoder()
_envelope_decoder: msgspec.msgpack.Decoder[CallFrame | _NoFrame] = msgspec.msgpack.Decoder(CallFrame | _NoFrame)
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
            # The arm itself, encoded in its place: as Raw it would be encoded first and copied then.
            call=cast("msgspec.Raw", call.arm),
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
        raise DecodeError(_explain(error, "", _REQUEST_WORDS), _call_id_of(payload)) from error
    if not isinstance(frame, CallFrame):
        raise DecodeError(f"frame: unknown value ''{_REQUEST_WORDS['frame']}", _call_id_of(payload))
    if not _is_call_id(frame.call_id):
        raise DecodeError(f"call_id: expected at most {CALL_ID_MAX_BYTES} bytes")
    try:
        arm = _arm_decoder.decode(frame.call)
    except _UNDECODABLE as error:
        raise DecodeError(_explain(error, "call", _REQUEST_WORDS), frame.call_id) from error
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
        DecodeError: the daemon's fault, or a daemon too new for this client; it carries the ``call_id`` where one
            could be read.
    """
    try:
        return _reply_decoder.decode(payload)
    except _UNDECODABLE as error:
        raise DecodeError(_explain(error, "", _REPLY_WORDS), _call_id_of(payload)) from error


def _is_call_id(call_id: str) -> bool:
    # The schema counts characters; of those that are not ASCII, the bytes have to be counted.
    size = len(call_id) if call_id.isascii() else len(call_id.encode())
    return 0 < size <= CALL_ID_MAX_BYTES


def _call_id_of(payload: bytes) -> str:
    try:
        call_id = _envelope_id_decoder.decode(payload).call_id
    except _UNDECODABLE:
        return ""
    return call_id if _is_call_id(call_id) else ""


_TEXT_END_CHARS = 400
# msgspec names a missing or unknown field only in its text; golden tests pin these forms.
_PLACE = re.compile(r"^(?P<what>.*) - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)
_BAD_WORD = re.compile(r"^Invalid (?:enum )?value '(?P<value>.*)'$", re.DOTALL)


def _explain(error: BaseException, root: str, words: Mapping[str, str]) -> str:
    """One line: the field's path and what is wrong with it.

    ``root`` is "call" for an arm and "" for a whole frame; ``words`` says what a tag may be, by its path.
    """
    if isinstance(error, RecursionError):
        return _at(root, "nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        return _at(root, "not valid MessagePack, or a text in it is not UTF-8")
    text = str(error)
    if len(text) > 2 * _TEXT_END_CHARS:  # a name that the peer chose may be as long as a frame
        text = text[:_TEXT_END_CHARS] + text[-_TEXT_END_CHARS:]
    match = _PLACE.match(text)
    what, path, is_key = (match["what"], match["path"], bool(match["key"])) if match else (text, "", False)
    place = (root + path).lstrip(".")
    if found := _MISSING.match(what):
        return _at(_join(place, found["field"]), "required field is missing")
    if found := _UNKNOWN.match(what):
        name = found["field"][:_NAME_MAX_CHARS]
        near = get_close_matches(name, _FIELD_NAMES, n=1)
        return _at(_join(place, name), "unknown field" + (f"; did you mean {near[0]!r}?" if near else ""))
    if found := _BAD_WORD.match(what):
        word = found["value"][:_NAME_MAX_CHARS]
        return _at(place, f"unknown value {word!r}{words.get(place, '')}")
    wanted = what.replace("Expected", "expected", 1).replace("`", "")
    return _at(place, f"field name: {wanted}" if is_key else wanted)


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _at(place: str, what: str) -> str:
    """The message, bounded and printable: names and words in it may be the peer's own text."""
    text = f"{place or 'frame'}: {what}"[:_MESSAGE_MAX_CHARS]
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1][:_MESSAGE_MAX_CHARS]


_REQUEST_WORDS: Final = {"frame": "; expected 'call'", "call.arm": "; expected one of " + ", ".join(ARM_NAMES)}
_REPLY_WORDS: Final = {"frame": "; expected 'result' or 'fault'"}
_FIELD_NAMES: Final = sorted(
    {name for struct in (CallFrame, ForgeSelector, InlineComment, *ARMS) for name in struct.__struct_fields__}
)
