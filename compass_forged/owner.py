"""The owner header: the one line of attribution in front of every body that the daemon writes. Pure.

::

    > `compass:owner agent=scout owner=ada session=s-41`

    The body.

``stamp`` writes it, ``strip`` removes it and everything that reads like it, ``parse`` reads it. A parsed header is a
claim: anyone can write one into a text that did not come through the daemon.

What reads as a header. A line is reduced to its *skeleton*: entities resolved, letters folded (NFKD, case, accents,
look-alikes: ``look_alikes``), and everything dropped that is no letter, digit, ``:`` or ``=`` (spaces, quote, list,
emphasis and code marks, backslashes, invisible characters). It reads as a header if the skeleton, after a list number,
begins with ``compass:owner`` and then one of the fields ``agent=``, ``owner=``, ``session=``, ``ref=``. So a sentence
that mentions the header stays. What a reader may not be shown (comments, tags, targets of links) may stand anywhere in
between; renderers disagree on what that is, so every reading counts, which is what an automaton is for:
``header_readings``. Lines that read as a header only together are removed together.

``strip`` removes whole lines with their line ends. Where it removes from the very top, it also removes one blank line
that follows, which is the separator that ``stamp`` writes. Everything else comes through byte for byte.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from compass_forged.header_readings import Reading, may_hold_header, read_line, show_line
from compass_forged.look_alikes import shows

HANDLE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,38}", re.ASCII)
"""An agent's, owner's or session's word in the header; to be used with ``fullmatch``."""

SEPARATOR: Final = "\n\n"
_REF: Final = re.compile(r"[a-z2-7]{16}", re.ASCII)
_HEADER: Final = re.compile(
    rf"> `compass:owner agent=({HANDLE.pattern}) owner=({HANDLE.pattern}) session=({HANDLE.pattern})"
    rf"(?: ref=({_REF.pattern}))?`",
    re.ASCII,
)
_OUR_TOP: Final = re.compile(rf"(?:{_HEADER.pattern})(?:\n\n|\r\n\r\n|(?:\r\n|\n)?\Z)", re.ASCII)
# Every character that any common reader takes for the end of a line.
_LINE_END: Final = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# A first line of plain text whose first letter begins no header: it stays.
_PLAIN_START: Final = re.compile(r"[ \t\r\n#*_>`~+.,;\-]*+[abd-wyzABD-WYZ][\t -%'-;=-Z^-~]*+(?:[\r\n]|\Z)")

_HOPELESS_SLACK: Final = 4096
"""A body of so many characters over the limit is refused as it is: stripping, which may take 100 ms for 64 KiB that
were made to be slow, is not asked to save it."""
BLANK_MAX_CHARS: Final = 65_536 + _HOPELESS_SLACK
"""A longer text is not looked through for something that shows: no forge takes it, blank or not."""


class BodyTooLarge(ValueError):
    """The body does not fit under the limit together with its header: the agent's to shorten.

    Attributes:
        overage: how many bytes too many.
        limit: the limit, in bytes of UTF-8.
    """

    def __init__(self, overage: int, limit: int) -> None:
        super().__init__(f"{overage} bytes over the limit of {limit}")
        self.overage = overage
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Author:
    """Who speaks. Each word is a handle; anything else is a mistake of the program and a ValueError."""

    agent: str
    owner: str
    session: str

    def __post_init__(self) -> None:
        for word in (self.agent, self.owner, self.session):
            if not is_handle(word):
                raise ValueError(f"{word!r} is no handle")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a text says of its author. ``ref`` is "" where there is none."""

    agent: str
    owner: str
    session: str
    ref: str = ""


def is_handle(text: str) -> bool:
    """Whether ``text`` may stand in a header."""
    return HANDLE.fullmatch(text) is not None


def header(author: Author, ref: str = "") -> str:
    """The header line, without its line end. ``ref`` is 16 characters of lower-case base32, or "".

    Raises:
        ValueError: ``ref`` is neither: a mistake of the program.
    """
    if ref and _REF.fullmatch(ref) is None:
        raise ValueError(f"{ref!r} is no ref")
    tail = f" ref={ref}" if ref else ""
    return f"> `compass:owner agent={author.agent} owner={author.owner} session={author.session}{tail}`"


def stamp(body: str, author: Author, limit: int, *, ref: str = "", reserved: int = 0) -> str:
    """``body`` under ``author``'s header, every other header stripped. Idempotent.

    Args:
        body: what the agent wrote; an empty one becomes the header alone.
        author: who speaks.
        limit: the most that the result may have, in bytes of UTF-8; 0 for no limit.
        ref: the create's ref, "" for none.
        reserved: how many bytes of the limit are kept for what will be written behind the body.

    Raises:
        BodyTooLarge: header, separator, body and what is reserved are together over ``limit``.
    """
    line = header(author, ref)
    if is_hopeless(len(body) + reserved, limit):
        size = len(line) + len(SEPARATOR) + len(body.encode(errors="surrogatepass")) + reserved
        raise BodyTooLarge(size - limit, limit)
    clean = strip(body)
    stamped = line + SEPARATOR + clean if clean else line
    if limit:
        size = reserved + (len(stamped) if stamped.isascii() else len(stamped.encode(errors="surrogatepass")))
        if size > limit:
            raise BodyTooLarge(size - limit, limit)
    return stamped


def is_hopeless(chars: int, limit: int) -> bool:
    """Whether so many characters are so far over ``limit`` that nobody need read them: stripping is no rescue."""
    return limit > 0 and chars > limit + _HOPELESS_SLACK


def is_stamped_for(body: str, author: Author) -> bool:
    """Whether ``body`` begins with ``author``'s header as ``stamp`` writes it, with or without a ref."""
    found = _OUR_TOP.match(body)
    return found is not None and (found[1], found[2], found[3]) == (author.agent, author.owner, author.session)


def parse(body: str) -> Claim | None:
    """The claim in the first line of ``body``, if that is a header to the letter. Nothing is normalised."""
    first = _LINE_END.split(body, maxsplit=1)[0]
    found = _HEADER.fullmatch(first)
    return None if found is None else Claim(found[1], found[2], found[3], found[4] or "")


def is_blank(body: str) -> bool:
    """Whether nothing visible is left of ``body`` once headers are stripped."""
    if _PLAIN_START.match(body) or len(body) > BLANK_MAX_CHARS:
        return False
    return not shows_anything(strip(body))


def shows_anything(text: str) -> bool:
    """Whether a reader sees any of ``text``: neither blanks nor invisible characters."""
    return any(shows(char) for char in text)


def strip(body: str) -> str:
    """``body`` without any line that reads as a header; stripping again changes nothing.

    Removing lines can bring others together that then read as a header. They go too: the reading that leads on after
    a removal is the one that stood where the removed lines began.
    """
    rest = _without_our_own(body)
    return _strip_lines(rest) if may_hold_header(rest) else rest


def strip_below(body: str) -> str:
    """``body`` with the header of ours that stands on top of it, and without any other line that reads as one.

    ``strip`` over the result then removes that header and its separator, and changes nothing else.
    """
    found = _OUR_TOP.match(body)
    top = found[0] if found else ""
    return top + strip(body[len(top) :])


def _without_our_own(body: str) -> str:
    """``body`` without the header and separator that ``stamp`` puts on top.

    What every body that comes back from a forge begins with, so it is cut off by the letter rather than read.
    """
    at = 0
    while found := _OUR_TOP.match(body, at):
        at = found.end()
    return body[at:]


# --- stripping ------------------------------------------------------------------------------------------------------

_EXACTLY: Final = 4096
"""A header that is spread over more lines takes up to as many again before it along."""
_SHORT_LINE: Final = 8


@lru_cache(maxsize=2)  # a comment's body is first looked at for whether anything is left of it, and then stripped
def _strip_lines(text: str) -> str:
    kept: list[str] = []
    shown: list[str] = []
    readings: list[Reading] = []  # before each line
    reading = Reading()
    separator_due = False
    for raw in _split(text):
        if separator_due and not raw.strip():
            separator_due = False
            continue
        if raw == "\n" and kept and kept[-1].endswith("\r"):
            kept[-1] += raw  # what stood between is gone, and the two are one end of a line from now on
            continue
        line = _show_short(raw) if len(raw) <= _SHORT_LINE else show_line(raw)
        kept.append(raw)
        shown.append(line)
        readings.append(reading)
        after = _read(reading, line)
        separator_due = False
        if after is not None:
            reading = after
            continue
        begin = _begin(shown)
        reading = readings[begin]
        del kept[begin:], shown[begin:], readings[begin:]
        separator_due = not kept
    return "".join(kept)


def _begin(shown: list[str]) -> int:
    """The last line from which on ``shown``, which ends with the end of a header, reads as one."""
    end = len(shown)
    reach = 1
    while reach < end and not _reads_from(shown, end - reach):
        reach *= 2
    least = max(0, end - reach)
    if reach > _EXACTLY:
        return least
    return bisect_left(range(least, end), 1, key=lambda begin: 0 if _reads_from(shown, begin) else 1) + least - 1


def _reads_from(shown: list[str], begin: int) -> bool:
    reading = Reading()
    for line in islice(shown, begin, None):
        after = _read(reading, line)
        if after is None:
            return True
        reading = after
    return False


def _read(reading: Reading, line: str) -> Reading | None:
    return _read_short(reading, line) if len(line) <= _SHORT_LINE else read_line(reading, line)


# Text that is nothing but short lines has the most of them.
_show_short: Final = lru_cache(maxsize=4096)(show_line)
_read_short: Final = lru_cache(maxsize=4096)(read_line)


def _split(text: str) -> list[str]:
    """The lines of a text, each with its line end."""
    lines: list[str] = []
    at = 0
    for end in _LINE_END.finditer(text):
        lines.append(text[at : end.end()])
        at = end.end()
    lines.append(text[at:])
    return lines
