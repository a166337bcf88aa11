"""What comes of an input in this process, and whether it may: the checks of ``fuzz_wire.py``."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from bench.support.fuzz_grammar import DocumentKind
from bench.support.fuzz_streams import Frame, FuzzInput, Split, split
from compass_forged.control import schema as control
from compass_forged.wire import codec, frames
from compass_forged.wire.codec import DecodeError
from compass_forged.wire.frames import FramingError
from compass_forged.wire.schema import ARMS, CALL_ID_MAX_BYTES, FaultFrame, ForgeCall, ResultFrame

_MESSAGE_MAX_CHARS: Final = 300

# What the two ends of the control socket turn into a refusal.
_CONTROL_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Decode: TypeAlias = Callable[[bytes], object]
Outcome: TypeAlias = object  # a decoded value, or the exception that came instead


class Taken(NamedTuple):
    """What came of an input.

    Attributes:
        payloads: the frames that the buffer gave.
        calls: of each, what ``decode_call`` made of it.
        own: of each, what the decoder of its kind made of it.
        error: what the buffer raised, if it did.
        in_frame: whether the buffer waits for more at the end.
    """

    payloads: list[bytes]
    calls: list[Outcome]
    own: list[Outcome]
    error: Exception | None
    in_frame: bool


def take(given: FuzzInput) -> Taken:
    """Receive an input as a connection does. Nothing that is raised gets out: what came is looked at afterwards."""
    buffer = frames.FrameBuffer(given.limit)
    payloads: list[bytes] = []
    calls: list[Outcome] = []
    own: list[Outcome] = []
    kinds = [frame.kind for frame in given.frames]
    try:
        for chunk in given.chunks:
            buffer.feed(chunk)
            while (payload := buffer.next_frame()) is not None:
                kind = kinds[min(len(payloads), len(kinds) - 1)]
                payloads.append(payload)
                calls.append(_outcome(codec.decode_call, payload))
                if kind != "call":
                    own.append(_outcome(_decoder(kind), payload))
                else:
                    own.append(calls[-1])
    except Exception as error:  # noqa: BLE001 -- which one it is, is judged
        return Taken(payloads, calls, own, _last_word(buffer, given, error), buffer.in_frame)
    return Taken(payloads, calls, own, None, buffer.in_frame)


def _last_word(buffer: frames.FrameBuffer, given: FuzzInput, error: Exception) -> Exception:
    """The error of a broken buffer, which must stay broken whatever comes; what it does instead, as an error."""
    try:
        buffer.feed(given.chunks[0])
        came = buffer.next_frame()
    except FramingError as again:
        return error if str(again) == str(error) else again
    except Exception as other:  # noqa: BLE001 -- which one it is, is judged
        return other
    return AssertionError(f"nothing after a framing error, but a result: {came!r}")


def _decoder(kind: DocumentKind) -> Decode:
    """The decoder of a kind, looked up anew: a test puts a faulty one in its place."""
    if kind == "reply":
        return codec.decode_reply
    return control.decode_request if kind == "control_request" else control.decode_reply


def _outcome(decode: Decode, payload: bytes) -> Outcome:
    try:
        return decode(payload)
    except Exception as error:  # noqa: BLE001 -- which one it is, is judged
        return error


def judge(given: FuzzInput, taken: Taken) -> str:
    """What is wrong with what came of an input; "" where nothing is."""
    if fault := _judge_framing(taken, split(given.data, given.limit)):
        return fault
    meant: Iterable[Frame | None] = given.frames if given.whole else [None] * len(taken.payloads)
    kinds = [given.frames[min(index, len(given.frames) - 1)].kind for index in range(len(taken.payloads))]
    for call, own, frame, kind in zip(taken.calls, taken.own, meant, kinds, strict=True):
        if fault := _judge_call(call) or _judge_own(kind, own) or _judge_meaning(own, frame):
            return fault
    return ""


def _judge_framing(taken: Taken, wanted: Split) -> str:
    error = taken.error
    if error is not None and type(error) is not FramingError:
        return f"the buffer raised {_named(error)}"
    if taken.payloads != wanted.payloads:
        return f"the buffer gave {len(taken.payloads)} frames, or other bytes, where {len(wanted.payloads)} were sent"
    if (error is not None) != (wanted.ending == "broken"):
        return f"the buffer {'raised' if error else 'did not raise'} on a stream that is {wanted.ending}"
    if taken.in_frame != (wanted.ending == "inside"):
        return f"the buffer says in_frame={taken.in_frame} at the end of a stream that is {wanted.ending}"
    fault = "" if error is None else _bad_text(str(error))
    return f"the buffer's message {fault}" if fault else ""


def _judge_call(outcome: Outcome) -> str:
    if isinstance(outcome, Exception):
        return _judge_refusal("decode_call", outcome)
    if not isinstance(outcome, ForgeCall) or not isinstance(outcome.arm, ARMS):
        return f"decode_call gave a {type(outcome).__name__}"
    if not 0 < len(outcome.call_id.encode()) <= CALL_ID_MAX_BYTES:
        return f"decode_call took a call_id of {len(outcome.call_id.encode())} bytes"
    if _outcome(codec.decode_call, codec.encode_call(outcome)) != outcome:
        return "a call that was taken does not survive being encoded and decoded again"
    return ""


def _judge_own(kind: DocumentKind, outcome: Outcome) -> str:
    if kind == "call":
        return ""
    if kind == "reply":
        if isinstance(outcome, Exception):
            return _judge_refusal("decode_reply", outcome)
        if not isinstance(outcome, ResultFrame | FaultFrame):
            return f"decode_reply gave a {type(outcome).__name__}"
        again = _outcome(codec.decode_reply, codec.encode_reply(outcome))
        return "" if again == outcome else "a reply that was taken does not survive being encoded and decoded again"
    if isinstance(outcome, Exception):
        return "" if isinstance(outcome, _CONTROL_ERRORS) else f"the {kind} decoder raised {_named(outcome)}"
    return "" if isinstance(outcome, msgspec.Struct) else f"the {kind} decoder gave a {type(outcome).__name__}"


def _judge_refusal(name: str, error: Exception) -> str:
    if type(error) is not DecodeError:
        return f"{name} raised {_named(error)}"
    if fault := _bad_text(str(error)):
        return f"{name}'s message {fault}"
    if len(error.call_id.encode()) > CALL_ID_MAX_BYTES:
        return f"{name}'s error carries a call_id of {len(error.call_id.encode())} bytes"
    return ""


def _judge_meaning(outcome: Outcome, frame: Frame | None) -> str:
    if frame is None:
        return ""
    if frame.value is not None and outcome != frame.value:
        came = _named(outcome) if isinstance(outcome, Exception) else "another value"
        return f"a valid {frame.kind} gave {came}"
    if frame.refused and not isinstance(outcome, Exception):
        return f"a broken {frame.kind} was taken"
    return ""


def _bad_text(text: str) -> str:
    if not 0 < len(text) <= _MESSAGE_MAX_CHARS:
        return f"has {len(text)} characters"
    return "" if text.isascii() and text.isprintable() else "is not one line of printable ASCII"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
