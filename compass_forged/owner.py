"""The owner header: the one line of attribution in front of every body that the daemon writes. Pure.

::

    > `compass:owner agent=scout owner=ada session=s-41`

    The body.

``stamp`` writes it, ``strip`` removes it and everything that reads like it, ``parse`` reads it. A parsed header is a
claim: anyone can write one into a text that did not come through the daemon.

What reads as a header. A line is reduced to its *skeleton*: entities resolved, letters folded (NFKD, case, accents,
look-alikes), and everything dropped that is no letter, digit, ``:`` or ``=`` (spaces, quote, list, emphasis and code
marks, backslashes, invisible characters). It reads as a header if the skeleton, after a list number, begins with
``compass:owner`` and then one of the fields ``agent=``, ``owner=``, ``session=``, ``ref=``. So a sentence that mentions
the header stays. What a reader may not be shown (comments, tags, targets of links) may stand anywhere in between;
renderers disagree on what that is, so every reading counts, which is what an automaton is for: see ``_Reading``.
Lines that read as a header only together are removed together.

``strip`` removes whole lines with their line ends. Where it removes from the very top, it also removes one blank line
that follows, which is the separator that ``stamp`` writes. Everything else comes through byte for byte.
"""

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
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
_OUR_TOP: Final = re.compile(rf"(?:{_HEADER.pattern})(?:\n\n|\r\n\r\n|(?:\r\n|\n)?\Z)", re.ASCII)


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
    return any(_shows(char) for char in text)


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


def may_hold_header(body: str) -> bool:
    """Whether ``body`` must be read line by line. Quick, and never False where ``strip`` would remove something."""
    if body.isascii() and not _more_than_it_looks(body):
        # Plain text: nothing is hidden and nothing folds, so the key's letters must stand there, marks between them,
        # and behind them a field's equals sign.
        if "=" not in body or ":" not in body:
            return False
        letters = body.encode().translate(_LOWER, _DROPPED)
        return _PLAIN_KEY_PART in letters and _PLAIN_KEY.search(letters) is not None
    text = _shown(body)
    return _KEY.search(text) is not None or _BROKEN_KEY.search(text) is not None or any(odd in text for odd in _ODD)


def _more_than_it_looks(body: str) -> bool:
    """Whether there are entities, tags and comments, links, escapes and formulas, or overrides; a loop costs more."""
    return "&" in body or "<" in body or "[" in body or "]" in body or "\\" in body or _OVERRIDE in body or _POP in body


# --- what a text shows ----------------------------------------------------------------------------------------------

_HOPELESS_SLACK: Final = 4096
"""A body of so many characters over the limit is refused as it is: stripping, which may take 100 ms for 64 KiB that
were made to be slow, is not asked to save it."""
BLANK_MAX_CHARS: Final = 65_536 + _HOPELESS_SLACK
"""A longer text is not looked through for something that shows: no forge takes it, blank or not."""
_ENTITY_PASSES: Final = 5
_SHORT_RUN: Final = 16

# Every character that any common reader takes for the end of a line.
_LINE_END: Final = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# In pieces, since normalisation sorts combining marks in quadratic time; they are dropped, so their order is nothing.
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]{1,256}")
# An override turns text round on the screen; it is kept as a control character that is otherwise a mark.
_OVERRIDE, _POP = "\x0e", "\x0f"

# Letters of other scripts that look like those of the header's words, after case folding. From Unicode's confusables
# (UTS #39), cut to the letters that matter.
_LOOKS_LIKE: Final = {
    "a": "аαɑꭺꓮⲁ𐊠⍺",
    "c": "сϲꮯꓚⲥ𐐽𐊢𐌂🝌",
    "e": "еεҽꭼꓰⲉⴹ℮ꬲ",
    "g": "ɡցꮐꓖƍ",
    "i": "іιıɩꭵꓲⲓ⍳ꙇӏ",
    "m": "мμꮇꓟⲙ𐌑",
    "n": "пոηղꓠⲛռ",
    "o": "оοօσɵꓳⲟⵔ〇𐐬ჿסဝഠംಂە",
    "p": "рρꮲꓑⲣ⍴",
    "r": "гᴦꮢꓣⲅꭇꭈꮁ",
    "s": "ѕꮪꓢ𐑈ƽ𑣁",
    "t": "тτꭲꓔⲧ𐊗𐌕",
    "w": "ԝѡωшꮃꓪⲱɯա",
    ":": "∶ː꞉˸։׃܃܄᛬⁚︰፡ःઃ᠃᠉ꓽ",
    "=": "゠꞊═᐀⩵⹀꓿🟰≡",
    "\n": "\x85\u2028\u2029",
    _OVERRIDE: "\u202e",
    _POP: "\u202c",
    # Letters to Unicode, blanks to the eye.
    " ": "\u115f\u1160\u3164\uffa0\u17b4\u17b5",
}
_STROKED: Final = re.compile(
    r"LATIN (?:SMALL LETTER |LETTER |CAPITAL LETTER )(?:SMALL CAPITAL )?([A-Z])(?: WITH [A-Z ]+)?"
)
_LATIN: Final = ((0x80, 0x250), (0x250, 0x2B0), (0x1D00, 0x1DC0), (0x2C60, 0x2C80), (0xA720, 0xA800), (0xAB30, 0xAB70))


def _look_alikes() -> dict[int, str]:
    """What each look-alike is taken for: strokes and hooks do not decompose, nor do small capitals."""
    table: dict[int, str] = {}
    for first, end in _LATIN:
        for code in range(first, end):
            named = _STROKED.fullmatch(unicodedata.name(chr(code), ""))
            if named:
                table[code] = named[1].lower()
    # Squared and circled letters do not decompose, and Cherokee folds to upper case.
    for block in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6):
        table.update({block + offset: chr(ord("a") + offset) for offset in range(26)})
    table.update({ord(char): letter for letter, chars in _LOOKS_LIKE.items() for char in chars})
    table.update({ord(upper): letter for upper, letter in zip("ᏟᎪᎬᏀᎥᎷᏢᏒᏚᎢᎳ", "caegimprstw", strict=True)})
    return table


_CONFUSABLE: Final = _look_alikes()


_NOTHING: Final = re.compile(rf"[^\w:=<>\[\]()!\-\"'\\\n{_OVERRIDE}{_POP}]")
_DIGIT: Final = re.compile(r"[^\D0-9]")


def _fold(run: str) -> str:
    """A run of non-ASCII text as what it looks like: only letters, digits and what matters here stay."""
    # Look-alikes first: decomposition makes a sigma of the lunate one, which looks like a c.
    folded = unicodedata.normalize("NFKD", run.translate(_CONFUSABLE)).casefold()
    folded = unicodedata.normalize("NFKD", folded).translate(_CONFUSABLE)
    return _DIGIT.sub(lambda found: str(unicodedata.decimal(found[0])), _NOTHING.sub("", folded))


# A text has few different short runs, many times each. Long ones are not kept: a container chooses them.
_fold_short: Final = lru_cache(maxsize=4096)(_fold)


def _fold_run(found: re.Match[str]) -> str:
    run = found[0]
    return _fold_short(run) if len(run) <= _SHORT_RUN else _fold(run)


def _shown(text: str) -> str:
    """``text`` with entities resolved (to a fixpoint that is bounded) and letters folded, in lower case."""
    for _ in range(_ENTITY_PASSES):
        if "&" not in text:
            break
        before, text = text, html.unescape(text)
        if text == before:
            break
    if not text.isascii():
        text = _NOT_ASCII.sub(_fold_run, text)
    # No name of a field and no key holds these pairs, or a box.
    return text.lower().replace("rn", "m").replace("vv", "w").replace("[x]", "[]")


def _shows(char: str) -> bool:
    return not (char.isspace() or char in _BLANKS or unicodedata.category(char) in {"Cf", "Cc", "Mn"})


_BLANKS: Final = frozenset(_LOOKS_LIKE[" "] + "\u2800")

# --- reading --------------------------------------------------------------------------------------------------------

_KEY_WORDS: Final = "compass:owner"
_HEADS: Final = tuple(f"{_KEY_WORDS}{name}=" for name in ("agent", "owner", "session", "ref"))
_MARKS: Final = r"[\x00-/;<>-@\[-`{-\x7f]*"
_LETTERS: Final = [char.replace("o", "[o0]") for char in _KEY_WORDS]
_KEY: Final = re.compile((_MARKS + "+").join(_LETTERS))


# A first line of plain text whose first letter begins no header: it stays.
_PLAIN_START: Final = re.compile(r"[ \t\r\n#*_>`~+.,;\-]*+[abd-wyzABD-WYZ][\t -%'-;=-Z^-~]*+(?:[\r\n]|\Z)")
_LOWER: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0", b"abcdefghijklmnopqrstuvwxyzo")
_DROPPED: Final = bytes(byte for byte in range(0x80) if not (chr(byte).isalnum() or chr(byte) == ":"))
_PLAIN_KEY_PART: Final = b"pass:o"
"""In every form of the key: found in a fraction of the time."""
_PLAIN_KEY: Final = re.compile(rb"co(?:m|rn)pass:o(?:w|vv)ner")


def _broken_key() -> str:
    """The beginning of the key, then what may begin something hidden."""
    pattern = ""
    for letter in reversed(_LETTERS[1:]):
        pattern = f"(?:{_MARKS}{letter}{pattern})?"
    return rf"c(?<![a-z]c){pattern}{_MARKS}[<\[\]\\]"  # a literal first is what makes the search quick


_BROKEN_KEY: Final = re.compile(_broken_key())
# Turned round, or not shown although no tag: see _OTHERWISE.
_ODD: Final = (_OVERRIDE, "<bdo", "<rp")

# Where a renderer begins a new line within a line.
_BLOCK_TAG: Final = re.compile(
    r"<(?=/?(?:address|article|aside|blockquote|br|center|d[dlt]|details|div|fig\w*|footer|form|h[1-6r]|header|li|main"
    r"|nav|[ou]l|p|pre|section|summary|table|tr)\b)"
)
_OTHERWISE: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    # Turned round.
    (re.compile(rf"(?:{_OVERRIDE}|<bdo\b[^<>]*+>)(.*?)(?:{_POP}|</bdo|\Z)", re.DOTALL), lambda found: found[1][::-1]),
    # An image that does not load shows its text.
    (re.compile(r"<img\b[^<>]*?\balt\s*=\s*[\"']?"), lambda _found: ""),
    # Shown only where ruby is unknown.
    (re.compile(r"<rp\b[^<>]*+>[^<]*+(?:</rp\b[^<>]*+>)?"), lambda _found: ""),
    # Commands of mathematics.
    (re.compile(r"\\[a-z]+"), lambda found: ":" if found[0] == "\\colon" else ""),
)
"""Other readings of a line, each as what is found and what is shown in its place."""
_MAYBE_OTHERWISE: Final = re.compile(rf"[<\\{_OVERRIDE}]")

_POINT: Final = re.compile(
    r"""[0-9a-z:=\x80-\U0010ffff]+|<!---?>|<!(?=--)|--!?>|<(?=[a-z/!?])|>|["']|\]\(|\]\[|\[\^|[])\n\r\v\f\x1c-\x1e]"""
)


class _Reading(NamedTuple):
    """Where every reading of a text has got to: a nondeterministic automaton, its sets of states as bits.

    A bit is a place in one of the heads, laid end to end: so many of its characters were seen. Marks leave a place as
    it is, and so do ends of lines; a letter that does not lead on ends it. What may be hidden can be skipped: the
    places where it begins wait in a set of their own for its end, and are kept besides, since it may be shown.

    Attributes:
        seen: places reached by what was shown.
        comment: waiting for the end of a comment.
        tag: waiting for ``>``, whatever comes before.
        attributes: the same, minding quotes.
        double, single: waiting for the end of a quote in a tag.
        target: waiting for the end of a link's target.
        label: waiting for the end of a link's or footnote's label.
    """

    seen: int = 0
    comment: int = 0
    tag: int = 0
    attributes: int = 0
    double: int = 0
    single: int = 0
    target: int = 0
    label: int = 0


def _automaton() -> tuple[int, int, dict[str, int]]:
    """First and last places, and for each character the places that it leads on from."""
    start = accept = place = 0
    leads: dict[str, int] = {}
    for head in _HEADS:
        start |= 1 << place
        for char in head:
            leads[char] = leads.get(char, 0) | 1 << place
            place += 1
        accept |= 1 << place
        place += 1
    leads |= {"0": leads["o"], "1": leads["i"], "l": leads["i"]}
    return start, accept, leads


_START, _ACCEPT, _LEADS = _automaton()
# A list number and the colon of a footnote may stand before a header.
_LEAD: Final = frozenset("0123456789:=")


def _read_word(seen: int, word: str) -> int:
    for char in word:
        if not seen:
            break
        stays = seen & _START if char in _LEAD else 0
        seen = (seen & _LEADS.get(char, 0)) << 1 | stays
        if seen & _ACCEPT:
            break
    return seen


def _read_line(reading: _Reading, line: str) -> _Reading | None:
    """Read one line, as shown; None if a header ends in it."""
    after = _read_straight(reading, line)
    if after is None or _reads_otherwise(line):
        return None
    # Nothing but a comment goes on over a blank line.
    return _Reading(after.seen, after.comment) if not line or line.isspace() else after


def _read_straight(  # noqa: C901, PLR0912 -- a table: what each point does to each set
    reading: _Reading, line: str
) -> _Reading | None:
    seen, comment, tag, attributes, double, single, target, label = reading
    seen |= _START
    word = ""
    for found in _POINT.finditer(line):
        before, word = word, ""
        match found[0]:
            case "<" | "<!" as opened:
                tag |= seen
                attributes |= seen
                comment |= seen if opened == "<!" else 0
            case "<!-->" | "<!--->":  # a whole comment to some, the beginning of one to others
                seen |= tag | attributes | comment
                tag = attributes = 0
                comment = seen
            case ">":
                seen |= tag | attributes
                tag = attributes = 0
            case "-->" | "--!>":
                seen |= tag | attributes | comment
                tag = attributes = comment = 0
            case '"':
                attributes, double = _quote(attributes, double, opens=before.endswith("="))
            case "'":
                attributes, single = _quote(attributes, single, opens=before.endswith("="))
            case "](":
                seen |= label
                target |= seen
                label = 0
            case "[^" | "][":
                label |= seen
            case "]":
                seen |= label
                label = 0
            case ")":
                seen |= target
            case word if word[0] > " ":
                seen = _read_word(seen, word)
                if seen & _ACCEPT:
                    return None
            case _:  # the end of a line
                seen |= _START
    return _Reading(seen, comment, tag, attributes, double, single, target, label)


def _quote(outside: int, inside: int, *, opens: bool) -> tuple[int, int]:
    """Both sets after a quote: what was inside is outside, and if one opens, the reverse."""
    return (inside, outside) if opens else (outside | inside, 0)


def _reads_otherwise(line: str) -> bool:
    """Whether one line by itself reads as a header in another way than from left to right as it stands."""
    if not _MAYBE_OTHERWISE.search(line):
        return False
    return any(
        other != line and _read_straight(_Reading(), other) is None
        for other in (pattern.sub(shown, line) for pattern, shown in _OTHERWISE)
    )


# --- stripping ------------------------------------------------------------------------------------------------------

_EXACTLY: Final = 4096
"""A header that is spread over more lines takes up to as many again before it along."""
_SHORT_LINE: Final = 8
_ASCII_BLANKS: Final = " \t\n\r\v\f"


@lru_cache(maxsize=2)  # a comment's body is first looked at for whether anything is left of it, and then stripped
def _strip_lines(text: str) -> str:
    kept: list[str] = []
    shown: list[str] = []
    readings: list[_Reading] = []  # before each line
    reading = _Reading()
    separator_due = False
    for raw in _split(text):
        if separator_due and not raw.strip():
            separator_due = False
            continue
        if raw == "\n" and kept and kept[-1].endswith("\r"):
            kept[-1] += raw  # what stood between is gone, and the two are one end of a line from now on
            continue
        line = _show_short(raw) if len(raw) <= _SHORT_LINE else _show_line(raw)
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


def _show_line(raw: str) -> str:
    line = _shown(raw)
    if "<" in line:
        line = _BLOCK_TAG.sub("\n<", line)
    # A line of invisible characters is blank to the eye, and goes on with its paragraph.
    return "\0" + line if not line.strip() and raw.strip(_ASCII_BLANKS) else line


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
    reading = _Reading()
    for line in islice(shown, begin, None):
        after = _read(reading, line)
        if after is None:
            return True
        reading = after
    return False


def _read(reading: _Reading, line: str) -> _Reading | None:
    return _read_short(reading, line) if len(line) <= _SHORT_LINE else _read_line(reading, line)


# Text that is nothing but short lines has the most of them.
_show_short: Final = lru_cache(maxsize=4096)(_show_line)
_read_short: Final = lru_cache(maxsize=4096)(_read_line)


def _split(text: str) -> list[str]:
    """The lines of a text, each with its line end."""
    lines: list[str] = []
    at = 0
    for end in _LINE_END.finditer(text):
        lines.append(text[at : end.end()])
        at = end.end()
    lines.append(text[at:])
    return lines
