"""A slow and obvious detector of header lines, to compare with: it shares nothing with the package."""

import html
import re
import unicodedata
from typing import Final

_HEADS: Final = tuple(f"compass:owner{field}=" for field in ("agent", "owner", "session", "ref"))
_CYRILLIC: Final = str.maketrans(
    "\u0441\u043e\u043c\u0440\u0430\u0455\u0456\u0435\u0442\u0433\u043f\u03bf\u03b1\u051d", "compasietrnoaw"
)


def lines(text: str) -> list[str]:
    """``str.splitlines`` knows all eleven ends of lines."""
    return text.splitlines()


def _skeleton(line: str) -> str:
    for _ in range(5):
        line = html.unescape(line)
    folded = unicodedata.normalize("NFKD", line).casefold().translate(_CYRILLIC)
    kept = "".join(char for char in folded if char.isalnum() or char in ":=")
    return re.sub(r"^[0-9:=]+", "", kept).replace("0", "o")


def reads_as_header(line: str) -> bool:
    """Whether the line reads as a header as it stands, or without its comments and tags."""
    shown = re.sub(r"<[a-zA-Z/][^<>]*>", "", re.sub(r"<!--.*?-->", "", line))
    return _skeleton(line).startswith(_HEADS) or _skeleton(shown).startswith(_HEADS)
