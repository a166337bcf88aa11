"""Where a review comment may stand: the lines of a diff. Pure.

GitHub takes a comment on any line that its diff shows, changed or context, by side and line number; a range must lie
within one hunk and run downwards. One comment elsewhere makes it refuse the whole review, without saying which.
docs.github.com/rest/pulls/comments#create-a-review-comment-for-a-pull-request
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from compass_forged.wire.schema import InlineComment

Side: TypeAlias = Literal["LEFT", "RIGHT"]

PATCH_MAX_CHARS: Final = 2 << 20
"""A longer patch of one file is not looked into: GitHub shows none of that size."""

_HUNK: Final = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@", re.ASCII)


class Anchor(NamedTuple):
    """A line of one side of a file: LEFT is the file before the change, RIGHT after."""

    side: Side
    line: int


class Spot(NamedTuple):
    """Where an anchor stands in a patch: the hunk, and the row in it, both counted from 0."""

    hunk: int
    row: int


def anchors(comment: InlineComment) -> tuple[Anchor, Anchor]:
    """The first and the last line that a comment is about, which are the same for one on a single line."""
    side = _side(comment.side)
    end = Anchor(side, comment.line)
    return (Anchor(_side(comment.start_side or side), comment.start_line) if comment.start_line else end), end


def find_spots(patch: str, wanted: Collection[Anchor]) -> dict[Anchor, Spot]:
    """The spots of those of the ``wanted`` anchors that the patch shows."""
    if len(patch) > PATCH_MAX_CHARS:
        return {}
    spots: dict[Anchor, Spot] = {}
    for spot, shown in _rows(patch):
        for anchor in shown:
            if anchor in wanted:
                spots.setdefault(anchor, spot)
    return spots


def fits(comment: InlineComment, spots: Mapping[Anchor, Spot]) -> bool:
    """Whether GitHub takes the comment at its lines."""
    first, last = (spots.get(anchor) for anchor in anchors(comment))
    return first is not None and last is not None and first.hunk == last.hunk and first.row <= last.row


def _rows(patch: str) -> Iterator[tuple[Spot, tuple[Anchor, ...]]]:
    """Each row of each hunk with the lines that it shows. Rows beyond what a hunk announces are none."""
    hunk, row = -1, 0
    left = right = left_end = right_end = 0
    for line in patch.split("\n"):
        found = _HUNK.match(line)
        if found:
            hunk, row = hunk + 1, 0
            left, right = int(found[1]), int(found[3])
            left_end = left + int(found[2] or 1)
            right_end = right + int(found[4] or 1)
            continue
        shown: tuple[Anchor, ...]
        match line[:1]:
            case "-" if left < left_end:
                shown = (Anchor("LEFT", left),)
            case "+" if right < right_end:
                shown = (Anchor("RIGHT", right),)
            case " " | "" if left < left_end and right < right_end:
                shown = (Anchor("LEFT", left), Anchor("RIGHT", right))
            case _:  # "no newline at the end of the file", or nothing of a diff
                continue
        for anchor in shown:
            left += anchor.side == "LEFT"
            right += anchor.side == "RIGHT"
        yield Spot(hunk, row), shown
        row += 1


def _side(word: str) -> Side:
    return "LEFT" if word == "LEFT" else "RIGHT"
