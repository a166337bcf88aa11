"""What is sent in the benchmarks: real frames of the daemon, all of one size, told apart by a number.

The echo is sent the same bytes, which it does not look into, and answers with as many bytes as the daemon does. What
the contenders with protobuf are sent is in ``protobufs.py``.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import HEADER_BYTES, encode_frame
from compass_forged.wire.schema import Arm, CommentOnIssue, CreateIssue, ForgeCall

Operation: TypeAlias = Literal["comment", "create", "replay", "refused", "slow"]
"""``replay`` is one create again and again under its key, ``refused`` a create without a title: both are answered
without waiting. ``slow`` is a comment on the issue for which the benchmark's provider takes its time."""

_REPO: Final = "acme/site"
_TITLE: Final = "The export fails where a customer has no address"
SLOW_ISSUE: Final = 1234
_REPLAYED_KEY: Final = "the-key-of-the-replayed-create"
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
    if operation in {"comment", "slow"}:
        return CommentOnIssue(repo=_REPO, issue_number=7 if operation == "comment" else SLOW_ISSUE, body=body)
    return CreateIssue(repo=_REPO, title="" if operation == "refused" else _TITLE, body=body)


def template_of(operation: Operation, body_bytes: int) -> "FrameTemplate":
    """The frames of an operation."""
    return FrameTemplate(arm_of(operation, body_bytes), key=_REPLAYED_KEY if operation == "replay" else "")


def numbered_call(arm: Arm, number: int, key: str = "") -> ForgeCall:
    """A call under an id of its own; a create under a key of its own too, so that no memo answers it, unless given."""
    digits = f"{number:0{_NUMBER_DIGITS}d}"
    own = f"k{digits}" if isinstance(arm, CreateIssue) else ""
    return ForgeCall(call_id=digits, arm=arm, client_request_id=key or own)


class Template:
    """A message that was encoded once: the same for any number, without an encoder."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        """``encode`` makes the message of a number of ten digits, which it holds as such and nowhere else."""
        self._pieces = encode(_MARK).split(b"%d" % _MARK)

    def message(self, number: int) -> bytes:
        """The message ``number``."""
        return (b"%010d" % number).join(self._pieces)


class FrameTemplate(Template):
    """The daemon's frames, all of the same size."""

    def __init__(self, arm: Arm, key: str = "") -> None:
        """Encode ``arm`` as the daemon's clients do; ``key`` is the same for all numbers."""
        super().__init__(lambda number: encode_frame(encode_call(numbered_call(arm, number, key))))
        self.frame_bytes = len(self.message(_MARK))

    def frame(self, number: int) -> bytes:
        """The frame of the call ``number``."""
        return self.message(number)

    def payload(self, number: int) -> bytes:
        """The same without its length."""
        return self.message(number)[HEADER_BYTES:]
