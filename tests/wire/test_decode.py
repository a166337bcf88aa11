"""Decoding: what is refused, in which words, and that nothing else can come out of it."""

import datetime as dt
import math
import string
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compass_forged.wire.codec import DecodeError, decode_call, decode_reply, encode_call, encode_reply
from compass_forged.wire.schema import (
    ARM_NAMES,
    ARMS,
    CallFrame,
    ErrorResult,
    FaultFrame,
    ForgeCall,
    ForgeSelector,
    GetIssue,
    ResultFrame,
    SubscribedResult,
)
from tests.support import golden_frames

pack = msgspec.msgpack.encode
ABSENT: Any = object()
_KNOWN = "expected one of " + ", ".join(ARM_NAMES)


def envelope(**changes: Any) -> bytes:
    """A good call's payload with fields changed, or taken out where ABSENT."""
    fields = {"frame": "call", "call_id": "c1", "call": {"arm": "get_issue", "repo": "o/r", "issue_number": 1}}
    return pack({name: value for name, value in (fields | changes).items() if value is not ABSENT})


def arm(name: Any, **fields: Any) -> bytes:
    return envelope(call={"arm": name, **fields})


def review(*comments: Any) -> bytes:
    return arm("submit_review", repo="o/r", pull_number=1, verdict="comment", comments=list(comments))


def pull(number: Any) -> bytes:
    return arm("get_pull_request", repo="o/r", pull_number=number)


GOOD_COMMENT = {"path": "a.py", "line": 1, "body": "b"}
NOT_MSGPACK = "frame: not valid MessagePack, or a text in it is not UTF-8"
NOW = dt.datetime.now(dt.UTC)

# name: payload, message, the call id that the fault can carry
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "no frame": (envelope(frame=ABSENT), "frame: required field is missing", "c1"),
    "another frame": (envelope(frame="ping"), "frame: unknown value 'ping'; expected 'call'", "c1"),
    "a reply's frame": (envelope(frame="fault"), "frame: unknown value 'fault'; expected 'call'", "c1"),
    "an empty frame": (pack({"frame": "", "call_id": "c1"}), "frame: unknown value ''; expected 'call'", "c1"),
    "frame not text": (envelope(frame=1), "frame: expected str, got int", "c1"),
    "no call": (envelope(call=ABSENT), "call: required field is missing", "c1"),
    "no call id": (envelope(call_id=ABSENT), "call_id: required field is missing", ""),
    "empty call id": (envelope(call_id=""), "call_id: expected str of length >= 1", ""),
    "long call id": (envelope(call_id="x" * 129), "call_id: expected str of length <= 128", ""),
    "call id of too many bytes": (envelope(call_id="é" * 65), "call_id: expected at most 128 bytes", ""),
    "call id as bytes": (envelope(call_id=b"c1"), "call_id: expected str, got bytes", ""),
    "misspelt key": (
        envelope(client_request_idd="k"),
        "client_request_idd: unknown field; did you mean 'client_request_id'?",
        "c1",
    ),
    "unknown field": (envelope(dry_run=True), "dry_run: unknown field", "c1"),
    "long key": (envelope(client_request_id="k" * 257), "client_request_id: expected str of length <= 256", "c1"),
    "negative timeout": (envelope(timeout_ms=-1), "timeout_ms: expected int >= 0", "c1"),
    "huge timeout": (envelope(timeout_ms=2**63), "timeout_ms: expected int <= 9223372036854775807", "c1"),
    "timeout is true": (envelope(timeout_ms=True), "timeout_ms: expected int, got bool", "c1"),
    "timeout is a float": (envelope(timeout_ms=1.0), "timeout_ms: expected int, got float", "c1"),
    "forge is text": (envelope(forge="github"), "forge: expected object | null, got str", "c1"),
    "forge without provider": (envelope(forge={}), "forge.provider: required field is missing", "c1"),
    "forge with more": (
        envelope(forge={"provider": "github", "hst": ""}),
        "forge.hst: unknown field; did you mean 'host'?",
        "c1",
    ),
    "forge provider is no text": (envelope(forge={"provider": 1}), "forge.provider: expected str, got int", "c1"),
    "no arm": (envelope(call={"repo": "o/r"}), "call.arm: required field is missing", "c1"),
    "unknown arm": (arm("merge"), f"call.arm: unknown value 'merge'; {_KNOWN}", "c1"),
    "arm is no text": (arm(3), "call.arm: expected str, got int", "c1"),
    "call is null": (envelope(call=None), "call: expected object, got None", "c1"),
    "call is a list": (envelope(call=[1]), "call: expected object, got array", "c1"),
    "number is text": (pull("3"), "call.pull_number: expected int, got str", "c1"),
    "number is a float": (pull(3.0), "call.pull_number: expected int, got float", "c1"),
    "number is not a number": (pull(math.nan), "call.pull_number: expected int, got float", "c1"),
    "number is null": (pull(None), "call.pull_number: expected int, got None", "c1"),
    "number is missing": (
        arm("get_pull_request", repo="o/r"),
        "call.pull_number: required field is missing",
        "c1",
    ),
    "number is an ext": (pull(msgspec.msgpack.Ext(5, b"x")), "call.pull_number: expected int, got ext", "c1"),
    "number is a time": (pull(NOW), "call.pull_number: expected int, got ext", "c1"),
    "arm is an ext": (envelope(call=msgspec.msgpack.Ext(1, b"")), "call: expected object, got ext", "c1"),
    "arm with more": (
        arm("create_issue", repo="o/r", title="t", labelz=[]),
        "call.labelz: unknown field; did you mean 'labels'?",
        "c1",
    ),
    "a label is no text": (
        arm("create_issue", repo="o/r", title="t", labels=["a", 3]),
        "call.labels[1]: expected str, got int",
        "c1",
    ),
    "inline comment with more": (
        review(GOOD_COMMENT, GOOD_COMMENT | {"position": 1}),
        "call.comments[1].position: unknown field",
        "c1",
    ),
    "inline comment without body": (
        review({"path": "a.py", "line": 1}),
        "call.comments[0].body: required field is missing",
        "c1",
    ),
    "inline comment's line is text": (
        review(GOOD_COMMENT | {"line": "1"}),
        "call.comments[0].line: expected int, got str",
        "c1",
    ),
    "no bytes": (b"", NOT_MSGPACK, ""),
    "truncated": (envelope()[:-1], NOT_MSGPACK, ""),
    "bytes behind": (envelope() + b"\0", NOT_MSGPACK, ""),
    "text, not MessagePack": (b'{"frame": "call"}', "frame: expected object, got int", ""),
    "null": (b"\xc0", "frame: expected object, got None", ""),
    "a list": (pack([1]), "frame: expected object, got array", ""),
    "a key that is no text": (pack({1: 2}), "frame: field name: expected str, got int", ""),
    "a length that lies, map": (b"\xdf\xff\xff\xff\xff", NOT_MSGPACK, ""),
    "a length that lies, text": (b"\x81\xdb\xff\xff\xff\xff", NOT_MSGPACK, ""),
    "a length that lies, list": (b"\x81\xa4call\xdd\xff\xff\xff\xff", NOT_MSGPACK, ""),
    "a length that lies, bytes": (b"\x81\xa4call\xc6\xff\xff\xff\xff", NOT_MSGPACK, ""),
    "a reserved byte": (b"\xc1", NOT_MSGPACK, ""),
    "text that is no UTF-8 in the envelope": (envelope().replace(b"\xa2c1", b"\xa2c\xff"), NOT_MSGPACK, ""),
    "an encoded surrogate": (envelope(call_id="abc").replace(b"abc", b"\xed\xa0\x80"), NOT_MSGPACK, ""),
    "text that is no UTF-8 in the arm": (
        envelope().replace(b"o/r", b"o/\xff"),
        "call: not valid MessagePack, or a text in it is not UTF-8",
        "c1",
    ),
    "deep": (b"\x91" * 100_000, "frame: expected object, got array", ""),
    "deep in the envelope": (
        b"\x82\xa7call_id\xa2c1\xa4call" + b"\x91" * 100_000 + b"\x01",
        "frame: nested too deeply",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_in_which_words(case: str) -> None:
    payload, message, call_id = REFUSED[case]
    with pytest.raises(DecodeError) as refused:
        decode_call(payload)
    bounded = message[:300]
    assert (str(refused.value), refused.value.call_id) == (bounded, call_id)


REPLIES_REFUSED: dict[str, tuple[bytes, str, str]] = {
    "no frame": (pack({"call_id": "c1", "code": "x", "message": "y"}), "frame: required field is missing", "c1"),
    "a request": (
        pack({"frame": "call", "call_id": "c1"}),
        "frame: unknown value 'call'; expected 'result' or 'fault'",
        "c1",
    ),
    "no result": (pack({"frame": "result", "call_id": "c1"}), "result: required field is missing", "c1"),
    "an arm of the future": (
        pack({"frame": "result", "call_id": "c1", "result": {"arm": "merged"}}),
        "result.arm: unknown value 'merged'",
        "c1",
    ),
    "an issue without a number": (
        pack({"frame": "result", "call_id": "c1", "result": {"arm": "issue", "issue": {}}}),
        "result.issue.forge: required field is missing",
        "c1",
    ),
    "a state of the future": (
        pack(
            {
                "frame": "result",
                "call_id": "c1",
                "result": {
                    "arm": "issue",
                    "issue": {"forge": {"provider": "p", "host": "h"}, "repo": "r", "number": 1, "state": "asleep"},
                },
            }
        ),
        "result.issue.state: unknown value 'asleep'",
        "c1",
    ),
    "garbage": (b"\xff\xff", "frame: expected object, got int", ""),
}


@pytest.mark.parametrize("case", REPLIES_REFUSED)
def test_which_replies_are_refused_and_in_which_words(case: str) -> None:
    payload, message, call_id = REPLIES_REFUSED[case]
    with pytest.raises(DecodeError) as refused:
        decode_reply(payload)
    assert (str(refused.value), refused.value.call_id) == (message, call_id)


# --- what passes ----------------------------------------------------------------------------------------------------


def test_an_unknown_provider_is_a_value_and_no_decode_error() -> None:
    assert decode_call(envelope(forge={"provider": "sourcehut"})).forge == ForgeSelector(provider="sourcehut")


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64 - 1, -(2**63)])
def test_an_impossible_number_is_a_value_and_no_decode_error(number: int) -> None:
    decoded = decode_call(arm("get_issue", repo="o/r", issue_number=number)).arm
    assert decoded == GetIssue(repo="o/r", issue_number=number)


def test_control_characters_are_a_value_and_no_decode_error() -> None:
    decoded = decode_call(envelope(call_id="a\0b", call={"arm": "get_issue", "repo": "\0\x1b", "issue_number": 1}))
    assert decoded.call_id == "a\0b"
    assert decoded.arm == GetIssue(repo="\0\x1b", issue_number=1)


def test_of_a_key_that_comes_twice_the_last_counts_for_the_call_and_for_its_id() -> None:
    twice = b"\x84" + envelope()[1:] + b"\xa7call_id\xa2c2"
    assert decode_call(twice).call_id == "c2"
    broken = b"\x85" + envelope()[1:] + b"\xa7call_id\xa2c2" + b"\xa1x\x01"
    with pytest.raises(DecodeError) as refused:
        decode_call(broken)
    assert refused.value.call_id == "c2"


def test_absent_optionals_and_null_forge_give_the_defaults() -> None:
    plain = ForgeCall(call_id="c1", arm=GetIssue(repo="o/r", issue_number=1))
    assert decode_call(envelope()) == plain
    assert decode_call(envelope(forge=None)) == plain


@pytest.mark.parametrize("name", golden_frames.REPLIES)
def test_a_client_ignores_what_it_does_not_know_in_a_reply_at_every_level(name: str) -> None:
    def with_more(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: with_more(item) for key, item in value.items()} | {"of_the_future": [1]}
        return [with_more(item) for item in value] if isinstance(value, list) else value

    reply = golden_frames.REPLIES[name]
    assert decode_reply(pack(with_more(msgspec.msgpack.decode(encode_reply(reply))))) == reply


@pytest.mark.parametrize("name", golden_frames.CALLS)
def test_the_daemon_refuses_what_it_does_not_know_in_a_request_at_every_level(name: str) -> None:
    call = msgspec.msgpack.decode(encode_call(golden_frames.CALLS[name]))

    def places(value: Any, path: str) -> list[tuple[dict[str, Any], str]]:
        if isinstance(value, dict):
            inner = [place for key, item in value.items() for place in places(item, f"{path}.{key}".lstrip("."))]
            return [(value, path), *inner]
        if isinstance(value, list):
            return [place for index, item in enumerate(value) for place in places(item, f"{path}[{index}]")]
        return []

    for fields, path in places(call, ""):
        fields["zz"] = 1
        with pytest.raises(DecodeError) as refused:
            decode_call(pack(call))
        assert str(refused.value) == f"{path}.zz: unknown field".lstrip(".")
        assert refused.value.call_id == golden_frames.CALLS[name].call_id
        del fields["zz"]
    assert decode_call(pack(call)) == golden_frames.CALLS[name]


# --- limits ---------------------------------------------------------------------------------------------------------


def _create(**fields: Any) -> bytes:
    return arm("create_pull_request", **({"repo": "o/r", "title": "t", "head_ref": "h"} | fields))


def _listing(**fields: Any) -> bytes:
    return arm("list_issues", **({"repo": "o/r"} | fields))


# field: (limit, payload of a value of that size)
LIMITS: dict[str, tuple[int, Any]] = {
    "call_id": (128, lambda size: envelope(call_id="i" * size)),
    "client_request_id": (256, lambda size: envelope(client_request_id="k" * size)),
    "forge.provider": (64, lambda size: envelope(forge={"provider": "p" * size})),
    "forge.host": (255, lambda size: envelope(forge={"provider": "p", "host": "h" * size})),
    "call.repo": (512, lambda size: _create(repo="r" * size)),
    "call.title": (4096, lambda size: _create(title="é" * size)),
    "call.head_ref": (1024, lambda size: _create(head_ref="h" * size)),
    "call.base_ref": (1024, lambda size: _create(base_ref="b" * size)),
    "call.labels": (100, lambda size: _listing(labels=["l"] * size)),
    "call.labels[0]": (256, lambda size: _listing(labels=["l" * size])),
    "call.state": (64, lambda size: _listing(state="s" * size)),
    "call.cursor": (2048, lambda size: _listing(cursor="c" * size)),
    "call.verdict": (64, lambda size: arm("submit_review", repo="o/r", pull_number=1, verdict="v" * size)),
    "call.comments": (300, lambda size: review(*[GOOD_COMMENT] * size)),
    "call.comments[0].path": (4096, lambda size: review(GOOD_COMMENT | {"path": "p" * size})),
    "call.comments[0].side": (64, lambda size: review(GOOD_COMMENT | {"side": "s" * size})),
    "call.comments[0].start_side": (64, lambda size: review(GOOD_COMMENT | {"start_side": "s" * size})),
    "call.kind": (64, lambda size: arm("subscribe", repo="o/r", kind="k" * size, number=1)),
    "call.subscription_id": (128, lambda size: arm("unsubscribe", subscription_id="s" * size)),
}


@pytest.mark.parametrize("field", LIMITS)
def test_the_limit_itself_passes_and_one_more_is_refused_by_name(field: str) -> None:
    limit, payload = LIMITS[field]
    decode_call(payload(limit - 1))
    decode_call(payload(limit))
    with pytest.raises(DecodeError, match=rf"^{field.replace('[', '.').replace(']', '.')}: expected .* <= {limit}$"):
        decode_call(payload(limit + 1))


def test_the_bytes_of_a_call_id_are_limited_too() -> None:
    assert decode_call(envelope(call_id="é" * 64)).call_id == "é" * 64
    with pytest.raises(DecodeError, match="at most 128 bytes"):
        decode_call(envelope(call_id="é" * 64 + "x"))


def test_every_text_and_list_of_a_request_but_a_body_has_a_limit() -> None:
    names = {path.rpartition(".")[2].partition("[")[0] for path in LIMITS}
    _, schema = msgspec.json.schema_components([CallFrame, *ARMS])
    assert len(schema) == 13  # the envelope, the ten arms, the selector and the inline comment
    for name, struct in schema.items():
        for field, described in struct["properties"].items():
            kind = described.get("type")
            if field in {"frame", "arm", "body"} or kind not in {"string", "array"}:
                continue
            assert "maxLength" in described or "maxItems" in described, f"{name}.{field}"
            assert field in names, f"{name}.{field}"


# --- any bytes ------------------------------------------------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


PRINTABLE = set(string.printable) - set("\t\n\r\x0b\x0c")


def check_any(payload: bytes) -> None:
    """Whatever comes in, a value or the one typed error comes out, and its words can be shown."""
    for decode in (decode_call, decode_reply):
        try:
            decode(payload)
        except DecodeError as error:
            refused = error
        else:
            continue
        assert 0 < len(str(refused)) <= 300
        assert set(str(refused)) <= PRINTABLE
        assert len(refused.call_id.encode()) <= 128


@given(st.binary(max_size=200))
@example(b"\x83\xa5frame\xa4call\xa7call_id\xa2c1\xa4call\x81\xa4repo\xd7\xff" + b"\xff" * 8)  # an impossible time
@example(b"\xc7\x0c\xff" + b"\xff" * 12)
@example(b"\x81" * 200_000)
@example(b"\x82\xa7call_id\xd9\xff" + b"x" * 255)
def test_any_bytes(payload: bytes) -> None:
    check_any(payload)


@given(st.data())
def test_a_frame_on_record_with_bytes_changed(data: st.DataObject) -> None:
    frame = bytearray.fromhex(golden_frames.encoded()[data.draw(st.sampled_from(sorted(golden_frames.encoded())))])[4:]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        width = data.draw(st.sampled_from([0, 1, 1, 1, 4]))
        frame[at : at + width] = data.draw(st.binary(max_size=4))
        if not frame:
            break
    check_any(bytes(frame))


@given(st.data())
def test_a_call_on_record_with_values_changed(data: st.DataObject) -> None:
    call = msgspec.msgpack.decode(encode_call(data.draw(st.sampled_from(list(golden_frames.CALLS.values())))))
    target = data.draw(st.sampled_from([call, call["call"], *call["call"].get("comments", [])]))
    name = data.draw(st.sampled_from(sorted(target)) | st.text(max_size=80))
    target[name] = data.draw(VALUES)
    check_any(pack(call))


@pytest.mark.parametrize(
    "name", ["a`b", "x` - at `$.y", "x` - at `$.\n\0é", "\0\n\x1b[31m", "é" * 80, "z" * 5000, "' - at `key` in `$", ""]
)
def test_a_field_or_arm_of_any_name_is_shown_bounded_and_printable(name: str) -> None:
    for payload in (envelope(**{name: 1}), arm("get_issue", **{name: 1}), arm(name), envelope(frame=name)):
        check_any(payload)
        with pytest.raises(DecodeError):
            decode_call(payload)


def test_what_is_encoded_decodes_to_the_same() -> None:
    call = ForgeCall(call_id="c", arm=GetIssue(repo="o/r", issue_number=1), client_request_id="k", timeout_ms=5)
    assert decode_call(encode_call(call)) == call
    for reply in (
        ResultFrame(call_id="c", result=SubscribedResult(subscription_id="s")),
        ResultFrame(call_id="c", result=ErrorResult(code="a code of the future", message="m")),
        FaultFrame(call_id="", code="a code of the future", message="m"),
    ):
        assert decode_reply(encode_reply(reply)) == reply
