"""What a person does not see is taken out and counted; what belongs to visible text stays."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.agent.render.invisible import is_blank, visible

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "shown", "taken"),
    [
        ("plain, a tab\tand\nlines", "plain, a tab\tand\nlines", 0),
        ("\ufeffREADME", "README", 1),
        ("a\u200bb\u200cc\u200dd\u2060e", "abcde", 4),
        ("\u202eevil\u202c \u2066x\u2069 \u200fabc\u200e \u061c", "evil x abc ", 7),
        ("x" + "".join(chr(0xE0000 + ord(each)) for each in "run rm"), "x", 6),
        ("\x00\x08\x0b\x1b[31m\x7f\x9b", "[31m", 6),
        ("so\xadft \u034f\u115f\u3164\uffa0", "soft ", 5),
        ("x\ufe01\ufe02\U000e0100\U000e01ef", "x", 4),
        ("\u845b\ufe00\ufe00 \u845b\U000e0100 \u845b\U000e01ef", "\u845b\ufe00 \u845b \u845b", 3),
        ("a\ufdd0b\ufdefc\uffffd\U0001fffee\U0010fffff\U0001d159", "abcdef", 6),
        ("a\r\nb\rc\x85d\u2028e\u2029f", "a\nb\nc\nd\ne\nf", 0),
        ("\udcef tail", "\ufffd tail", 0),
        (
            "\u05d0\u05d1 d\u00e9j\u00e0 'x\u00a0y' \u2003 \u2800",
            "\u05d0\u05d1 d\u00e9j\u00e0 'x\u00a0y' \u2003 \u2800",
            0,
        ),
    ],
)
def test_taken_out_and_counted(text: str, shown: str, taken: int) -> None:
    assert visible(text) == (shown, taken)


@pytest.mark.parametrize(
    "text",
    [
        FAMILY,
        "\u2764\ufe0f\u200d\U0001f525",
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",
        "1\ufe0f\u20e3",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "\u845b\ufe00",
    ],
)
def test_what_belongs_to_visible_text_stays(text: str) -> None:
    assert visible(text) == (text, 0)


@pytest.mark.parametrize(
    "text", ["\u200d\U0001f469", "\U0001f469\u200d", "a\u200d\U0001f469", "\U0001f469\ufe0f\ufe0f"]
)
def test_a_joiner_or_selector_without_its_neighbours_goes(text: str) -> None:
    assert visible(text)[1] == 1


@given(st.text(st.characters(codec=None)))
def test_nothing_is_left_to_take_out_and_the_count_is_right(text: str) -> None:
    shown, taken = visible(text)
    assert visible(shown) == (shown, 0)
    shown.encode()
    assert len(text) - taken - text.count("\r\n") == len(shown)
    assert not {unicodedata.category(each) for each in shown} & {"Zl", "Zp", "Cs"}
    assert all(each in "\n\t" or unicodedata.category(each) != "Cc" for each in shown)


def test_every_format_character_of_unicode_goes_but_those_that_are_seen() -> None:
    # Signs that enclose or precede numbers in Arabic, Syriac and Kaithi, and Egyptian ones that arrange hieroglyphs.
    kept = {code for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf" and not visible(chr(code))[1]}
    seen = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    assert kept <= seen


def test_a_text_of_nothing_visible_is_blank() -> None:
    assert is_blank(" \u200b\n\u2060")
    assert not is_blank("\u200bx")
