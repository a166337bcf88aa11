"""Characters that a person does not see and a model reads are taken out, and counted.

Out go: zero-width characters, bidi controls, Unicode tags and all other default-ignorable characters, and controls but
newline and tab. What belongs to visible text stays: a joiner inside an emoji or between letters of a script that is
written with joiners, the selectors of an emoji's form, one of the three standardized selectors behind a Han character
(not of the 240 others, which name glyphs of a collection: each could carry a byte that nobody sees). Line ends of every
kind become a newline, which is no loss and not counted; a lone surrogate becomes U+FFFD.

The sets come from Unicode's ``Default_Ignorable_Code_Point`` and general category ``Cf``; noncharacters and the
empty notehead, which show nothing either, go too.
"""

import re
from typing import Final

_LINE_ENDS: Final = re.compile("\r\n|[\r\x85\u2028\u2029]")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_JOINERS: Final = "\u200c\u200d"
_VARIATIONS: Final = "\ufe00-\ufe02"
_NONCHARACTERS: Final = "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_HIDDEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, fillers, Mongolian selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero width, bidi
    "\u3164\ufeff\uffa0\ufff0-\ufffb"  # fillers, byte order mark, interlinear annotation
    "\ufdd0-\ufdef\U0001d159"  # noncharacters, an empty notehead
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical format controls
    "\U000e0000-\U000e0fff"  # tags and variation selectors
    "\ufe00-\ufe0f" + _NONCHARACTERS + "]"
)
# Blocks of emoji and pictographs, their modifiers, and the older symbols that have an emoji form.
_PICTURE: Final = (
    "[\u00a9\u00ae\u203c\u2049\u20e3\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Arabic, Syriac, Thaana, N'Ko, Mandaic; the scripts of India to Khmer; Mongolian: they are written with joiners.
_JOINING: Final = "[\u0600-\u061b\u061d-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af]"
_HAN: Final = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_WANTED: Final = re.compile(
    f"(?<={_PICTURE})\u200d(?={_PICTURE})"
    f"|(?<={_PICTURE}\ufe0f)\u200d(?={_PICTURE})"
    f"|(?<={_JOINING})[{_JOINERS}](?={_JOINING})"
    f"|(?<=[#*0-9])\ufe0f(?=\u20e3)"
    f"|(?<={_PICTURE})[\ufe0e\ufe0f]"
    f"|(?<={_HAN})[{_VARIATIONS}]"
)


def visible(text: str) -> tuple[str, int]:
    """``text`` without what a person does not see, and how many characters were taken out."""
    if text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()):
        return text, 0
    text = _SURROGATES.sub("\ufffd", _LINE_ENDS.sub("\n", text))
    wanted = {match.start() for match in _WANTED.finditer(text)}
    taken = 0

    def out(match: re.Match[str]) -> str:
        nonlocal taken
        if match.start() in wanted:
            return match[0]
        taken += 1
        return ""

    return _HIDDEN.sub(out, text), taken


def is_blank(text: str) -> bool:
    """Whether a person would see nothing of ``text``."""
    return not visible(text)[0].strip()
