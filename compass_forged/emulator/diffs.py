"""Unified diffs as GitHub gives them for one file: hunks without file names. Pure."""

import difflib
import re
from typing import NamedTuple

from compass_forged.emulator.records import ChangedFile, Side

_HEADER = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@.*$", re.MULTILINE)


class Place(NamedTuple):
    """Where a line of a file stands in its patch.

    Attributes:
        hunk: counted from 0.
        position: GitHub's: rows below the first hunk's header, counted from 1, later headers included.
        upto: the hunk from its header to this line, as a comment on it shows it.
    """

    hunk: int
    position: int
    upto: str


def patch_of(old: str, new: str) -> str | None:
    """The hunks between two texts; None where there are none."""
    rows = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    return "\n".join(rows) or None


def place_of(patch: str, side: Side, line: int) -> Place | None:
    """Where ``line`` of one side stands; None if the patch does not show it."""
    heads = list(_HEADER.finditer(patch))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(patch)
        at = int(head[1] if side == "LEFT" else head[2])
        rows = patch[head.end() + 1 : end].rstrip("\n").split("\n")
        for row, text in enumerate(rows):
            if text[:1] in ("- " if side == "LEFT" else "+ "):
                if at == line:
                    shown = "\n".join([head[0], *rows[: row + 1]])
                    return Place(index, patch.count("\n", 0, head.end()) + row + 1, shown)
                at += 1
    return None


def counts(file: ChangedFile) -> tuple[int, int]:
    """How many lines a file gains and loses."""
    rows = (file.patch or "").split("\n")
    return sum(row.startswith("+") for row in rows), sum(row.startswith("-") for row in rows)
