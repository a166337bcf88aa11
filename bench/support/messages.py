"""What is sent in the round-trip benchmark: real frames of the daemon, all of one size, told apart by a number.

The echo and the gRPC server are sent the same bytes, which they do not look into, and answer with as many bytes as the
daemon does.
"""

from typing import Final, Literal, TypeAlias

from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import HEADER_BYTES, encode_frame
from compass_forged.wire.schema import Arm, CommentOnIssue, CreateIssue, ForgeCall

Operation: TypeAlias = Literal["comment", "create"]

_REPO: Final = "acme/site"
_PROSE: Final = (
    "The export fails where a customer has no address. Steps: open the list, choose all, export.\n\n"
    "- expected: a file\n- seen: `KeyError: 'street'` in `export.py`, line 214\n\n"
)
_NUMBER_DIGITS: Final = 10
_MARK: Final = 7_318_527_319
"""A number whose digits occur nowhere else in a frame: where it stands, other numbers are put."""


def arm_of(operation: Operation, body_bytes: int) -> Arm:
    """The call's arm, its body ``body_bytes`` of plain ASCII prose."""
    body = (_PROSE * (body_bytes // len(_PROSE) + 1))[:body_bytes]
    if operation == "comment":
        return CommentOnIssue(repo=_REPO, issue_number=7, body=body)
    return CreateIssue(repo=_REPO, title="The export fails where a customer has no address", body=body)


def numbered_call(arm: Arm, number: int) -> ForgeCall:
    """A call under an id of its own; a create under a key of its own too, so that no memo answers it."""
    digits = f"{number:0{_NUMBER_DIGITS}d}"
    return ForgeCall(call_id=digits, arm=arm, client_request_id=f"k{digits}" if isinstance(arm, CreateIssue) else "")


class FrameTemplate:
    """Encoded once: makes frames of the same size for any number without the codec."""

    def __init__(self, arm: Arm) -> None:
        """Encode ``arm`` as the daemon's clients do."""
        frame = encode_frame(encode_call(numbered_call(arm, _MARK)))
        self._pieces = frame.split(b"%d" % _MARK)
        self.frame_bytes = len(frame)

    def frame(self, number: int) -> bytes:
        """The frame of the call ``number``."""
        return (b"%010d" % number).join(self._pieces)

    def payload(self, number: int) -> bytes:
        """The same without its length."""
        return self.frame(number)[HEADER_BYTES:]
