"""The bytes of every frame, so that a change of the protocol shows."""

import json

import pytest

from compass_forged.wire.codec import decode_call, decode_reply
from compass_forged.wire.frames import FrameBuffer
from compass_forged.wire.schema import ARM_NAMES, ARMS, READ_ARMS, ForgeCall, GetIssue, ResultArm, arm_name
from tests.support import golden_frames

GOLDEN: dict[str, str] = json.loads(golden_frames.GOLDEN.read_text())


def payload_of(name: str) -> bytes:
    buffer = FrameBuffer()
    buffer.feed(bytes.fromhex(GOLDEN[name]))
    payload = buffer.next_frame()
    assert payload is not None
    assert not buffer.in_frame
    return payload


def test_every_kind_of_frame_has_its_bytes_on_record() -> None:
    assert golden_frames.ARMS.keys() == set(ARM_NAMES)
    results = {arm.__struct_config__.tag for arm in ResultArm.__args__}
    assert golden_frames.RESULTS.keys() == results
    assert len(ARMS) == 10
    assert len(results) == 9
    assert GOLDEN.keys() == golden_frames.CALLS.keys() | golden_frames.REPLIES.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_has_the_bytes_on_record(name: str) -> None:
    assert golden_frames.encoded()[name] == GOLDEN[name]


@pytest.mark.parametrize("name", golden_frames.CALLS)
def test_the_bytes_on_record_decode_to_the_call(name: str) -> None:
    assert decode_call(payload_of(name)) == golden_frames.CALLS[name]


@pytest.mark.parametrize("name", golden_frames.REPLIES)
def test_the_bytes_on_record_decode_to_the_reply(name: str) -> None:
    assert decode_reply(payload_of(name)) == golden_frames.REPLIES[name]


def test_a_call_by_hand_reads_as_documented() -> None:
    # A map of three: frame is call, call_id is a, and call is a map of three: arm, repo, issue_number.
    payload = (
        b"\x83\xa5frame\xa4call\xa7call_id\xa1a\xa4call\x83\xa3arm\xa9get_issue\xa4repo\xa3o/r\xacissue_number\x01"
    )
    assert decode_call(payload) == ForgeCall(call_id="a", arm=GetIssue(repo="o/r", issue_number=1))


def test_an_arm_is_named_by_its_tag() -> None:
    assert [arm_name(golden_frames.ARMS[name]) for name in ARM_NAMES] == list(ARM_NAMES)
    assert {str(arm.__struct_config__.tag) for arm in READ_ARMS} == {"get_issue", "list_issues", "get_pull_request"}
