"""Text from outside on a terminal: forges and containers write it, nobody vouches for it. Pure."""

import re

# What drives a terminal or hides: C0 but tab and newline, DEL, C1, bidi controls, zero-width and tag characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """``text`` without what could drive or fool a terminal."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, limit: int = 200) -> str:
    """``printable`` text on one line, cut to ``limit`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
