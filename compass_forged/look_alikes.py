"""What a text shows: entities resolved, and letters of whatever script and style as those that they look like. Pure.

Only letters, digits and what matters to ``header_readings`` stay of what is not ASCII.
"""

import html
import re
import unicodedata
from functools import lru_cache
from typing import Final

_ENTITY_PASSES: Final = 5
_SHORT_RUN: Final = 16

# In pieces, since normalisation sorts combining marks in quadratic time; they are dropped, so their order is nothing.
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]{1,256}")
# An override turns text round on the screen; it is kept as a control character that is otherwise a mark.
OVERRIDE, POP = "\x0e", "\x0f"

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
    OVERRIDE: "\u202e",
    POP: "\u202c",
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


_NOTHING: Final = re.compile(rf"[^\w:=<>\[\]()!\-\"'\\\n{OVERRIDE}{POP}]")
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


def as_shown(text: str) -> str:
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


def shows(char: str) -> bool:
    """Whether a reader sees anything of ``char``."""
    return not (char.isspace() or char in _BLANKS or unicodedata.category(char) in {"Cf", "Cc", "Mn"})


_BLANKS: Final = frozenset(_LOOKS_LIKE[" "] + "\u2800")
