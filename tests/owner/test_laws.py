"""Laws of stamp, strip and parse, over texts made of headers and their pieces."""

import re
import unicodedata
from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st

from compass_forged import owner
from compass_forged.header_readings import may_hold_header
from compass_forged.look_alikes import OVERRIDE, as_shown, shows
from compass_forged.owner import Author, Claim
from tests.owner.corpus import FIELDS, FORGERIES, HEADER, INNOCENT, WORDS
from tests.owner.reference import lines, reads_as_header

ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")

handles = st.from_regex(owner.HANDLE, fullmatch=True)
authors = st.builds(Author, handles, handles, handles)
refs = st.just("") | st.from_regex(r"[a-z2-7]{16}", fullmatch=True).filter(str.isascii)

PIECES = (
    *ENDS,
    *("c", "com", "pass", "compass", "compass:", ":", "owner", "own", "er", "agent", "agent=", "=", "ref=", "session="),
    *("<!--", "-->", "--!>", "<!", "<b>", "</b>", "<b", "<", ">", "<br>", "<p ", '="', '"', "'", "<bdo>", "</bdo>"),
    *(
        "<rp>",
        "</rp>",
        "<img alt=",
        "](",
        ")",
        "][",
        "]",
        "[^",
        "[x]",
        "[ ]",
        "\\",
        "\\rm ",
        "&#99;",
        "&amp;",
        "&",
        "#99;",
    ),
    *(
        "\u202e",
        "\u202c",
        "\u200b",
        "\u00ad",
        "\ufeff",
        "\ud800",
        "\u0441",
        "\u0301",
        "\uff1a",
        "\u4e2d",
        "&#x202e;",
        "&NewLine;",
    ),
    *(
        "> ",
        "`",
        "**",
        "_",
        "- ",
        "1. ",
        "0",
        "1",
        "l",
        "rn",
        "vv",
        "x",
        " ",
        "\t",
        "|",
        "word",
        "tnega",
        "renwo:ssapmoc",
    ),
    *(WORDS, WORDS[::-1], HEADER, FIELDS, f"{HEADER}\n\n"),
)
texts = (
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
    | st.lists(st.sampled_from([forgery.text for forgery in FORGERIES]) | st.sampled_from(PIECES), max_size=4).map(
        "".join
    )
    | st.text(max_size=40)
)


@st.composite
def spliced(draw: st.DrawFn) -> str:
    """Two texts cut at any place, the one put into the other."""
    outer, inner = draw(texts), draw(texts)
    at = draw(st.integers(0, len(outer)))
    return outer[:at] + inner + outer[at:]


bodies = texts | spliced()


@given(bodies, authors, refs)
def test_what_was_stamped_is_parsed(body: str, author: Author, ref: str) -> None:
    stamped = owner.stamp(body, author, 0, ref=ref)
    assert owner.parse(stamped) == Claim(author.agent, author.owner, author.session, ref)


@given(bodies, authors, refs)
def test_stamp_is_idempotent(body: str, author: Author, ref: str) -> None:
    stamped = owner.stamp(body, author, 0, ref=ref)
    assert owner.stamp(stamped, author, 0, ref=ref) == stamped


@given(bodies, authors, authors)
def test_a_second_author_takes_over_whole(body: str, first: Author, second: Author) -> None:
    assert owner.stamp(owner.stamp(body, first, 0), second, 0) == owner.stamp(body, second, 0)


@given(bodies)
@example("compass:\n\nowner\nagent=")
@example(f'com<b title="a>\r{HEADER}\n\nb">pass:owner agent=a')
@example("c<!--\nx-->ompass:owner agent=a -->ompass:owner agent=a")
def test_strip_is_idempotent(body: str) -> None:
    stripped = owner.strip(body)
    assert owner.strip(stripped) == stripped


@given(bodies, authors, refs)
def test_strip_takes_back_what_stamp_wrote(body: str, author: Author, ref: str) -> None:
    assert owner.strip(owner.stamp(body, author, 0, ref=ref)) == owner.strip(body)


@given(st.lists(st.sampled_from(("\n\n", "\r\n\r\n", "\n", "\r\n", "\n \n", "")), max_size=3), bodies, authors, refs)
def test_cutting_our_own_header_off_is_what_reading_it_would_do(
    ends: list[str], body: str, author: Author, ref: str
) -> None:
    text = "".join(owner.header(author, ref) + end for end in ends) + body
    assert owner.strip(text) == owner._strip_lines(text)


@given(st.sampled_from(("", "\n", "# ", "> ", "- a", "hello", "x", "C", "1. ", "**w")), bodies)
def test_a_text_is_blank_if_nothing_shows_once_it_is_stripped(start: str, body: str) -> None:
    text = start + body
    assert owner.is_blank(text) == (not any(shows(char) for char in owner._strip_lines(text)))


@given(bodies)
def test_a_stripped_text_makes_no_claim(body: str) -> None:
    assert owner.parse(owner.strip(body)) is None


@given(bodies, authors)
def test_only_the_first_line_of_a_stamped_text_reads_as_a_header(body: str, author: Author) -> None:
    first, *others = lines(owner.stamp(body, author, 0))
    assert reads_as_header(first)
    assert not any(reads_as_header(line) for line in others)


@given(bodies)
def test_no_two_lines_read_as_a_header_together(body: str) -> None:
    kept = lines(owner.strip(body))
    # A line that ends within a tag's first characters opens none: its name must follow at once (CommonMark 6.6).
    pairs = [(one, other) for one, other in pairwise(kept) if not re.search(r"<[/!-]*\Z", one)]
    assert not any(reads_as_header(one + other) for one, other in pairs)


@given(bodies)
def test_strip_only_takes_whole_lines_away(body: str) -> None:
    rest = iter(re.split(r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])", body))
    kept = re.split(r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])", owner.strip(body))
    assert all(line in rest for line in kept if line)


@given(bodies)
def test_what_needs_no_look_holds_no_header(body: str) -> None:
    if not may_hold_header(body):
        assert owner._strip_lines(body) == body


@given(st.text())
def test_a_text_without_the_letters_of_the_key_is_untouched(body: str) -> None:
    assume("c" not in as_shown(body) and OVERRIDE not in as_shown(body))
    assert owner.strip(body) == body


@given(
    st.lists(st.sampled_from([body for body in INNOCENT.values() if len(body) < 400]), max_size=6),
    st.sampled_from(ENDS),
)
def test_innocent_bodies_in_a_row_are_untouched(parts: list[str], end: str) -> None:
    body = f"{end}--{end}".join(parts)
    assert owner.strip(body) == body


def _wide(char: str) -> str:
    return chr(ord(char) + 0xFEE0)


LOOKS_LIKE = {
    "c": ("\u0441", "\u03f2", "\U0001d41c", "\u24d2"),
    "o": ("\u043e", "\u03bf", "0", "\u00f8", "\u00f6", "\u0966"),
    "m": ("\u043c", "rn", "\u1d0d"),
    "p": ("\u0440", "\u03c1"),
    "a": ("\u0430", "\u00e4", "\u0251"),
    "s": ("\u0455", "\u017f", "\ua731"),
    "w": ("\u051d", "vv"),
    "n": ("\u0274", "\u0578"),
    "e": ("\u0435", "\u00e9"),
    "r": ("\u0433", "\u0280"),
    ":": ("\u2236", "&colon;", "\ua789"),
    "=": ("&equals;", "\u2550"),
}
HIDDEN = (
    *(
        "\u200b",
        "\u200d",
        "\u00ad",
        "\ufeff",
        "\u2060",
        "\U000e0061",
        "\ufe0f",
        "\u3164",
        "\u2800",
        "\u0301",
        "\u202b",
        "\u2066",
    ),
    *(
        "&shy;",
        "&ZeroWidthSpace;",
        "&#8203;",
        "&amp;shy;",
        " ",
        "\u00a0",
        "\t",
        "*",
        "**",
        "_",
        "__",
        "~~",
        "`",
        "\\",
        "\x00",
    ),
    *(
        "<b></b>",
        "<i>",
        "</i>",
        "<!-- x -->",
        "<!---->",
        "<!-- <b> -->",
        "<img src=x>",
        '<a title="x>y">',
        "[](x)",
        "[][y]",
    ),
)
LEADS = (
    *(
        "",
        "> ",
        "> > ",
        "- ",
        "* ",
        "+ ",
        "1. ",
        "12) ",
        "- [ ] ",
        "1. [x] ",
        "[^1]: ",
        "[^note]: ",
        "# ",
        "| ",
        "    ",
        "`",
        "```",
    ),
    *(
        "<p>",
        "<!-- a -->",
        "<details><summary>",
        "\ufeff",
        "\U0001f9ed ",
        "\u2460 ",
        "**",
        "![",
        "[",
        "~~~ ",
        "&gt; ",
        ": ",
    ),
)


@st.composite
def disguised(draw: st.DrawFn) -> str:
    """The words of a header in a dress that still reads as the header."""
    dressed = ""
    for char in "compass:owner agent=":
        dress = draw(st.integers(0, 6))
        hidden = draw(st.sampled_from(HIDDEN)) if draw(st.integers(0, 4)) == 0 else ""
        dressed += hidden
        if char == " ":
            dressed += draw(st.sampled_from((" ", "", "\u3000", "\u2003", "&nbsp;")))
        elif dress == 1:
            dressed += char.upper()
        elif dress == 2:
            dressed += _wide(char)
        elif dress == 3:
            dressed += draw(st.sampled_from((f"&#{ord(char)};", f"&#x{ord(char):x};", f"&amp;#{ord(char)};")))
        elif dress == 4:
            dressed += draw(st.sampled_from(LOOKS_LIKE.get(char, (char,))))
        elif dress == 5 and char.isalpha():
            dressed += unicodedata.normalize("NFC", char + "\u0301")
        else:
            dressed += char
    return (
        draw(st.sampled_from(LEADS))
        + dressed
        + draw(st.sampled_from(("scout", "scout owner=ada session=s-1`", "", "x-->")))
    )


@given(disguised(), st.sampled_from(ENDS), st.sampled_from(ENDS))
def test_a_disguised_header_is_removed_and_its_neighbours_stay(line: str, before: str, after: str) -> None:
    assert owner.strip(f"First.{before}{line}{after}Last.{after}") == f"First.{before}Last.{after}"


@given(disguised(), st.data())
def test_a_disguised_header_that_is_cut_into_lines_is_removed(line: str, data: st.DataObject) -> None:
    """Cut where no entity, tag or target is cut."""
    places = [found.end() for found in re.finditer(r"(?i)[a-z](?![^<]*>|[^&]*;|[^(]*\)|[^\[]*\])", line)]
    assume(places)
    at = data.draw(st.sampled_from(places))
    stripped = owner.strip(f"First.\n{line[:at]}\n{line[at:]}\nLast.\n")
    assert not any(reads_as_header(one) for one in [*lines(stripped), "".join(lines(stripped)[1:])])


@given(st.text(alphabet=st.characters(exclude_categories=["L", "N"]), max_size=8))
def test_marks_in_front_make_no_difference(marks: str) -> None:
    assume(not any(char in as_shown(marks) for char in "&<"))
    assume(all(char in ":=\n" or not char.isalnum() for char in as_shown(marks)))
    assert "agent" not in owner.strip(f"First.\n{marks}{WORDS}")


@given(bodies)
def test_every_text_is_taken(body: str) -> None:
    """Nothing raises, lone surrogates included."""
    owner.is_blank(body)
    owner.parse(body)
    may_hold_header(body)
    assert set(owner.strip(body)) <= set(body)
