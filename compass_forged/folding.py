"""Review comments that no line of the diff can hold, put into the review's summary. Pure.

Behind the summary stands each one's place, then its text, quoted::

    > `compass:owner agent=scout owner=ada session=s-41`

    The summary.

    **Comments on lines outside the diff**

    `src/app.py`, lines 3 to 7:

    > This can fail where ...

Nothing in them reads as an owner header, alone or together with what stands around it: what would is removed from the
whole, as ``owner.strip`` does it, so that stripping the result again changes nothing but the header on top.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from compass_forged import owner
from compass_forged.wire.schema import InlineComment

HEADING: Final = "**Comments on lines outside the diff**"
_GAP: Final = "\n\n"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_TICKS: Final = re.compile(r"`+")
_UNNAMEABLE: Final = "A file whose name reads as an owner header"


def fold(summary: str, comments: Sequence[InlineComment]) -> str:
    """The summary with the comments behind it; as it is where there are none.

    Args:
        summary: stamped; may be the header alone.
        comments: stripped of headers, in the order in which they are to stand.
    """
    if not comments:
        return summary
    head = summary.rstrip("\n")
    return owner.strip_below(_GAP.join([*([head] if head else []), *_block(comments)]))


def folded_bytes(comments: Iterable[InlineComment]) -> int:
    """How many bytes of UTF-8 ``fold`` adds to a summary at the most, whichever of the comments it takes."""
    block = _block(comments)
    if len(block) == 1:
        return 0
    return len((_GAP + _GAP.join(block)).encode(errors="surrogatepass"))


def _block(comments: Iterable[InlineComment]) -> list[str]:
    parts = [HEADING]
    for comment in comments:
        parts += [_place(comment), _quoted(comment.body)]
    return parts


def _place(comment: InlineComment) -> str:
    """The comment's path and lines, as one line."""
    if comment.start_line and comment.start_line != comment.line:
        lines = f"lines {comment.start_line} to {comment.line}"
    else:
        lines = f"line {comment.line}"
    side = " before the change" if comment.side == "LEFT" else ""
    named = f"{_code(comment.path)}, {lines}{side}:"
    return named if owner.strip(named) == named else f"{_UNNAMEABLE}, {lines}{side}:"


def _code(text: str) -> str:
    """``text`` as a code span, whatever backticks it holds."""
    ticks = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _quoted(text: str) -> str:
    """Every line of ``text`` as a quote, so that nothing in it reaches beyond it."""
    return "\n".join(f"> {line}".rstrip(" ") for line in _LINE_END.split(text))
