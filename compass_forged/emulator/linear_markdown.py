"""What Linear does to Markdown: it keeps a rich-text document, and writes it anew when it is read. Pure.

Close enough for tests: list marks and rules become one kind, what has no place in such a document is lost, blank lines
are made single, and what could be taken for markup is escaped. Fenced code and code spans stay as they are.
"""

import re
from typing import Final

_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG: Final = re.compile(r"</?(?:details|summary|div|span|sub|sup|br)\b[^<>]*>", re.IGNORECASE)
_BULLET: Final = re.compile(r"^(\s*)[-+] ")
_HEADING_END: Final = re.compile(r"^(#{1,6} .*?)\s+#+\s*$")
_UNDERLINED: Final = re.compile(r"^(?:===+|---+)\s*$")
_SPAN: Final = re.compile(r"(`+)(?:.+?)\1(?!`)")
_ESCAPED: Final = re.compile(r"(?<!\\)([~|])")


def rewritten(text: str) -> str:
    """``text`` as it is read back."""
    lines: list[str] = []
    fence = ""
    for line in _without_comments(text.replace("\r\n", "\n")).split("\n"):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark is not None and mark[1] == fence else fence
            lines.append(line)
        elif mark is not None:
            fence = mark[1]
            lines.append(line)
        else:
            lines.append(_plain_line(line))
    return _single_blanks("\n".join(lines)).strip("\n")


def _without_comments(text: str) -> str:
    """Comments are lost, but where they stand within fenced code."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _COMMENT.sub("", part) for part in parts)


def _plain_line(line: str) -> str:
    if _UNDERLINED.match(line) and line.startswith("-"):
        return "***"
    line = _HEADING_END.sub(r"\1", _BULLET.sub(r"\1* ", line)).rstrip()
    parts: list[str] = []
    at = 0
    for span in _SPAN.finditer(line):
        parts += [_escaped(line[at : span.start()]), span[0]]
        at = span.end()
    return "".join(parts) + _escaped(line[at:])


def _escaped(text: str) -> str:
    return _ESCAPED.sub(r"\\\1", _TAG.sub("", text))


def _single_blanks(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text)
