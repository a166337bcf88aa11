"""The owner header: the one line of attribution in front of every body that the daemon writes. Pure.

::

    > `compass:owner agent=scout owner=ada session=s-41`

    The body.

``stamp`` writes it, ``strip`` removes it and everything that reads like it, ``parse`` reads it. A parsed header is a
claim: anyone can write one into a text that did not come through the daemon.

What reads as a header. A line is reduced to its *skeleton*: entities resolved, letters folded (NFKD, case, accents,
look-alikes from other scripts), and everything dropped that is no letter, digit, ``:`` or ``=`` (spaces, quote, list,
emphasis and code marks, backslashes, invisible characters). It reads as a header if the skeleton, after a list number,
begins with ``compass:owner`` and then one of the fields ``agent=``, ``owner=``, ``session=``, ``ref=``. So a sentence
that mentions the header stays. Lines are looked at as written, and as shown (without comments and tags); and lines
that read as a header only together are removed together.

``strip`` removes whole lines with their line ends. Where it removes from the very top, it also removes one blank line
that follows, which is the separator that ``stamp`` writes. Everything else comes through byte for byte.
"""

import html
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

HANDLE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,38}", re.ASCII)
"""An agent's, owner's or session's word in the header; to be used with ``fullmatch``."""

SEPARATOR: Final = "\n\n"
_REF: Final = re.compile(r"[a-z2-7]{16}", re.ASCII)
_HEADER: Final = re.compile(
    rf"> `compass:owner agent=({HANDLE.pattern}) owner=({HANDLE.pattern}) session=({HANDLE.pattern})"
    rf"(?: ref=({_REF.pattern}))?`",
    re.ASCII,
)


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


def stamp(body: str, author: Author, limit: int, *, ref: str = "") -> str:
    """``body`` under ``author``'s header, every other header stripped. Idempotent.

    Args:
        body: what the agent wrote; an empty one becomes the header alone.
        author: who speaks.
        limit: the most that the result may have, in bytes of UTF-8; 0 for no limit.
        ref: the create's ref, "" for none.

    Raises:
        BodyTooLarge: header, separator and body together are over ``limit``.
    """
    line = header(author, ref)
    if limit and len(body) > _HOPELESS * limit:
        raise BodyTooLarge(len(line) + len(SEPARATOR) + len(body.encode(errors="surrogatepass")) - limit, limit)
    clean = strip(body)
    stamped = line + SEPARATOR + clean if clean else line
    if limit:
        size = len(stamped.encode(errors="surrogatepass"))
        if size > limit:
            raise BodyTooLarge(size - limit, limit)
    return stamped


def parse(body: str) -> Claim | None:
    """The claim in the first line of ``body``, if that is a header to the letter. Nothing is normalised."""
    first = _LINE_END.split(body, maxsplit=1)[0]
    found = _HEADER.fullmatch(first)
    return None if found is None else Claim(found[1], found[2], found[3], found[4] or "")


def is_blank(body: str) -> bool:
    """Whether nothing visible is left of ``body`` once headers are stripped."""
    return not any(_shows(char) for char in strip(body))


def strip(body: str) -> str:
    """``body`` without any line that reads as a header, to a fixpoint: stripping again changes nothing.

    Removing a line can move text out of an HTML comment and so bring a new header to light; a text built to do so
    again and again is cut off at the line where it still does after ``_PASSES`` passes.
    """
    text = body
    for _ in range(_PASSES):
        if not may_hold_header(text):
            return text
        stripped, _first = _strip_once(text)
        if stripped == text:
            return text
        text = stripped
    stripped, first = _strip_once(text)
    return text if stripped == text else text[:first]


# --- folding --------------------------------------------------------------------------------------------------------

_HOPELESS: Final = 4
"""A body of so many times the limit is refused as it is: stripping is not asked to save it."""
_PASSES: Final = 6
_ENTITY_PASSES: Final = 5
_SKELETON_MAX: Final = 64
_SHORT_RUN: Final = 16
_OTHER: Final = "#"
"""The skeleton of a line that can be no part of a header."""
_HEAD_MAX: Final = 21
"""The longest of ``_HEADS``."""
_WINDOW: Final = _HEAD_MAX
"""As many lines with something in them may read as one header together, a character in each."""

# Every character that any common reader takes for the end of a line.
_LINE_END: Final = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_ASCII_MARK: Final = r"[\x00-/;<>-@\[-`{-\x7f]"
_ASCII_MARKS: Final = re.compile(_ASCII_MARK + "+")
_HIDDEN: Final = re.compile(r"<!--.*?(?:-->|\Z)|<[/a-zA-Z!?][^<>]*+(?:>|\Z)", re.DOTALL)
_TASK: Final = re.compile(r"[\s>*+\-\d.)]{0,40}\[[ xX]\]")
_LEAD: Final = re.compile(r"[\x00-%'-:;<>-@\[-`{-\x7f]*+")
_HEAD: Final = re.compile(r"compass:owner(?:agent|owner|session|ref)=")
_HEADS: Final = tuple(f"compass:owner{name}=" for name in ("agent", "owner", "session", "ref"))
_KEY_ANYWHERE: Final = re.compile(
    (_ASCII_MARK + "*+").join("[o0]" if char == "o" else char for char in "compass:owner"), re.IGNORECASE
)
_RIGHT_TO_LEFT: Final = "\u202e"

# Letters of other scripts that look like those of the header's words, after case folding. From Unicode's confusables
# (UTS #39), cut to the letters that matter.
_LOOKS_LIKE: Final = {
    "a": "аαɑᴀꭺ",
    "c": "сϲᴄꮯ",
    "e": "еεҽᴇꭼ",
    "f": "ꜰ",
    "g": "ɡցɢꮐ",
    "i": "іιıɪꭵ",
    "m": "мμᴍꮇ",
    "n": "пոηνɴ",
    "o": "оοօσᴏ",
    "p": "рρᴘꮲ",
    "r": "гᴦʀꮢ",
    "s": "ѕꜱꮪ",
    "t": "тτᴛꭲ",
    "w": "ԝѡωᴡꮃ",
    ":": "∶ː꞉˸։׃܃܄᛬",
    "=": "゠꞊═᐀⩵",
}
_CONFUSABLE: Final = {ord(char): letter for letter, chars in _LOOKS_LIKE.items() for char in chars}
# Cherokee folds to upper case, and squared and circled letters do not decompose.
_CONFUSABLE.update({ord(upper): letter for upper, letter in zip("ᏟᎪᎬᏀᎥᎷᏢᏒᏚᎢᎳ", "caegimprstw", strict=True)})
for _block in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6):
    _CONFUSABLE.update({_block + offset: chr(ord("a") + offset) for offset in range(26)})
# Letters to Unicode, blanks to the eye.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u17b4\u17b5")


def _fold_run(found: re.Match[str]) -> str:
    run = found[0]
    return _fold_short(run) if len(run) <= _SHORT_RUN else _fold(run)


def _fold(run: str) -> str:
    """A run of non-ASCII text as what it looks like: only letters, digits, ``:`` and ``=`` stay."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", run).casefold()).translate(_CONFUSABLE)
    return "".join(char for char in folded if char in ":=" or (char.isalnum() and char not in _FILLERS))


# A text has few different short runs, many times each. Long ones are not kept: a container chooses them.
_fold_short: Final = lru_cache(maxsize=4096)(_fold)


def _plain(text: str) -> str:
    """``text`` with entities resolved and letters folded, to a fixpoint that is bounded."""
    for _ in range(_ENTITY_PASSES):
        before = text
        if "&" in text:
            text = html.unescape(text)
        if text == before:
            break
    return text if text.isascii() else _NOT_ASCII.sub(_fold_run, text)


def _skeleton(line: str) -> str:
    """The first characters of a line's skeleton."""
    return _ASCII_MARKS.sub("", _plain(line).lower()).replace("0", "o")[:_SKELETON_MAX]


def _lead_off(line: str) -> str:
    """``line`` without the list number, footnote mark or task box that it may begin with."""
    box = _TASK.match(line)
    rest = line[box.end() :] if box else line
    lead = _LEAD.match(rest)
    return rest[lead.end() :] if lead else rest


def may_hold_header(body: str) -> bool:
    """Whether ``body`` must be looked at line by line. Quick, and never False where ``strip`` would remove something."""
    text = html.unescape(body) if "&" in body else body
    if _RIGHT_TO_LEFT in text:
        return True
    if _KEY_ANYWHERE.search(_plain(body)):
        return True
    return "<" in body and _KEY_ANYWHERE.search(_plain(_HIDDEN.sub("", body))) is not None


def _shows(char: str) -> bool:
    return not (
        char.isspace() or char in _FILLERS or char == "\u2800" or unicodedata.category(char) in {"Cf", "Cc", "Mn"}
    )


# --- stripping ------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A line in one view: its skeleton as the first line of a header, and as a later one."""

    line: int
    as_first: str
    as_later: str


class _View:
    """The kept lines of one view that have anything in them, as pieces of headers that span lines."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def drop_from(self, line: int) -> None:
        while self._pieces and self._pieces[-1].line >= line:
            self._pieces.pop()

    def add(self, line: int, text: str) -> int:
        """Add a line; the number of the line where a header that ends with it begins, or -1."""
        lead = _LEAD.match(text)
        end = lead.end() if lead else 0
        if end == len(text):
            return -1  # nothing but marks: neither part of a header nor between its parts
        waiting = bool(self._pieces) and self._pieces[-1].as_later != _OTHER
        if not waiting and text[end].isascii() and text[end] not in "&cCxX":
            self._block(line)  # cannot begin a header, and nothing waits for its continuation
            return -1
        later = _skeleton(text)
        if not later:
            return -1
        first = later if later[0] == "c" else _skeleton(_lead_off(text))
        if _HEAD.match(first):
            self._pieces.append(_Piece(line, first, later))
            return line
        alive = _begins_head(first)
        joined = later
        for earlier in reversed(self._pieces[-_WINDOW:]):
            whole = earlier.as_first + joined
            if _HEAD.match(whole):
                self._pieces.append(_Piece(line, first, later))
                return earlier.line
            alive = alive or _begins_head(whole)
            joined = earlier.as_later + joined
            if len(joined) > _HEAD_MAX or earlier.as_later == _OTHER:
                break
        if alive:
            self._pieces.append(_Piece(line, first, later))
        else:
            self._block(line)
        return -1

    def _block(self, line: int) -> None:
        if not self._pieces or self._pieces[-1].as_later != _OTHER:
            self._pieces.append(_Piece(line, _OTHER, _OTHER))


class _Kept:
    """The lines that stay so far."""

    def __init__(self, *, views: int) -> None:
        self.raw: list[str] = []
        self._starts: list[int] = []
        self._views = [_View() for _ in range(views)]

    def add(self, start: int, raw: str, *shown: str) -> int:
        """Add a line, as each view shows it; the number of the line where a header that ends with it begins, or -1."""
        line = len(self.raw)
        self.raw.append(raw)
        self._starts.append(start)
        found = [view.add(line, text) for view, text in zip(self._views, shown, strict=True)]
        begins = [begin for begin in found if begin >= 0]
        if _reads_backwards(raw):
            begins.append(line)
        return min(begins, default=-1)

    def drop_from(self, line: int) -> int:
        """Remove the lines from number ``line`` on; returns where the first of them began."""
        start = self._starts[line]
        del self.raw[line:], self._starts[line:]
        for view in self._views:
            view.drop_from(line)
        return start


def _strip_once(text: str) -> tuple[str, int]:
    """One pass. Also tells where the first removed line began."""
    lines = _split(text)
    views = [lines, _split(_HIDDEN.sub(_only_line_ends, text))] if "<" in text else [lines]
    kept = _Kept(views=len(views))
    first = len(text)
    start = 0
    separator_due = False
    for raw, *shown in zip(lines, *views, strict=True):
        at, start = start, start + len(raw)
        if separator_due and not raw.strip():
            separator_due = False
            continue
        begin = kept.add(at, raw, *shown)
        separator_due = False
        if begin >= 0:
            first = min(first, kept.drop_from(begin))
            separator_due = not kept.raw
    return "".join(kept.raw), first


def _begins_head(piece: str) -> bool:
    return piece != "" and any(head.startswith(piece) for head in _HEADS)


def _split(text: str) -> list[str]:
    """The lines of a text, each with its line end."""
    lines: list[str] = []
    at = 0
    for end in _LINE_END.finditer(text):
        lines.append(text[at : end.end()])
        at = end.end()
    lines.append(text[at:])
    return lines


def _only_line_ends(hidden: re.Match[str]) -> str:
    return "".join(_LINE_END.findall(hidden[0]))


def _reads_backwards(raw: str) -> bool:
    """Whether an override turns the line round on the screen into a header."""
    text = html.unescape(raw) if "&" in raw else raw
    return _RIGHT_TO_LEFT in text and _HEAD.match(_skeleton(text[::-1])) is not None
