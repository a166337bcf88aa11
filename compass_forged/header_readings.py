"""Whether a text reads as an owner header, in any of the ways in which a renderer may show it. Pure.

``may_hold_header`` is a quick look at the whole of it; ``show_line`` and ``read_line`` go through it line by line. What
reads as a header, and why, is said in ``owner``.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from compass_forged.look_alikes import OVERRIDE, POP, as_shown

# --- a quick look ---------------------------------------------------------------------------------------------------

_KEY_WORDS: Final = "compass:owner"
_MARKS: Final = r"[\x00-/;<>-@\[-`{-\x7f]*"
_LETTERS: Final = [char.replace("o", "[o0]") for char in _KEY_WORDS]
_KEY: Final = re.compile((_MARKS + "+").join(_LETTERS))
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
_ODD: Final = (OVERRIDE, "<bdo", "<rp")


def may_hold_header(body: str) -> bool:
    """Whether ``body`` must be read line by line. Quick, and never False where ``strip`` would remove something."""
    if body.isascii() and not _more_than_it_looks(body):
        # Plain text: nothing is hidden and nothing folds, so the key's letters must stand there, marks between them,
        # and behind them a field's equals sign.
        if "=" not in body or ":" not in body:
            return False
        letters = body.encode().translate(_LOWER, _DROPPED)
        return _PLAIN_KEY_PART in letters and _PLAIN_KEY.search(letters) is not None
    text = as_shown(body)
    return _KEY.search(text) is not None or _BROKEN_KEY.search(text) is not None or any(odd in text for odd in _ODD)


def _more_than_it_looks(body: str) -> bool:
    """Whether there are entities, tags and comments, links, escapes and formulas, or overrides; a loop costs more."""
    return "&" in body or "<" in body or "[" in body or "]" in body or "\\" in body or OVERRIDE in body or POP in body


# --- line by line ---------------------------------------------------------------------------------------------------

_HEADS: Final = tuple(f"{_KEY_WORDS}{name}=" for name in ("agent", "owner", "session", "ref"))
_ASCII_BLANKS: Final = " \t\n\r\v\f"
# Where a renderer begins a new line within a line.
_BLOCK_TAG: Final = re.compile(
    r"<(?=/?(?:address|article|aside|blockquote|br|center|d[dlt]|details|div|fig\w*|footer|form|h[1-6r]|header|li|main"
    r"|nav|[ou]l|p|pre|section|summary|table|tr)\b)"
)
_OTHERWISE: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    # Turned round.
    (re.compile(rf"(?:{OVERRIDE}|<bdo\b[^<>]*+>)(.*?)(?:{POP}|</bdo|\Z)", re.DOTALL), lambda found: found[1][::-1]),
    # An image that does not load shows its text.
    (re.compile(r"<img\b[^<>]*?\balt\s*=\s*[\"']?"), lambda _found: ""),
    # Shown only where ruby is unknown.
    (re.compile(r"<rp\b[^<>]*+>[^<]*+(?:</rp\b[^<>]*+>)?"), lambda _found: ""),
    # Commands of mathematics.
    (re.compile(r"\\[a-z]+"), lambda found: ":" if found[0] == "\\colon" else ""),
)
"""Other readings of a line, each as what is found and what is shown in its place."""
_MAYBE_OTHERWISE: Final = re.compile(rf"[<\\{OVERRIDE}]")

_POINT: Final = re.compile(
    r"""[0-9a-z:=\x80-\U0010ffff]+|<!---?>|<!(?=--)|--!?>|<(?=[a-z/!?])|>|["']|\]\(|\]\[|\[\^|[])\n\r\v\f\x1c-\x1e]"""
)


class Reading(NamedTuple):
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


def show_line(raw: str) -> str:
    """One line, with or without its end, as ``read_line`` takes it."""
    line = as_shown(raw)
    if "<" in line:
        line = _BLOCK_TAG.sub("\n<", line)
    # A line of invisible characters is blank to the eye, and goes on with its paragraph.
    return "\0" + line if not line.strip() and raw.strip(_ASCII_BLANKS) else line


def read_line(reading: Reading, line: str) -> Reading | None:
    """Where ``reading`` has got to behind one more line, as ``show_line`` has it; None if a header ends in that."""
    after = _read_straight(reading, line)
    if after is None or _reads_otherwise(line):
        return None
    # Nothing but a comment goes on over a blank line.
    return Reading(after.seen, after.comment) if not line or line.isspace() else after


def _read_straight(  # noqa: C901, PLR0912 -- a table: what each point does to each set
    reading: Reading, line: str
) -> Reading | None:
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
    return Reading(seen, comment, tag, attributes, double, single, target, label)


def _quote(outside: int, inside: int, *, opens: bool) -> tuple[int, int]:
    """Both sets after a quote: what was inside is outside, and if one opens, the reverse."""
    return (inside, outside) if opens else (outside | inside, 0)


def _reads_otherwise(line: str) -> bool:
    """Whether one line by itself reads as a header in another way than from left to right as it stands."""
    if not _MAYBE_OTHERWISE.search(line):
        return False
    return any(
        other != line and _read_straight(Reading(), other) is None
        for other in (pattern.sub(shown, line) for pattern, shown in _OTHERWISE)
    )
