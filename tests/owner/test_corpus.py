"""Every forgery goes, and nothing else; every innocent body stays, byte for byte."""

import pytest

from compass_forged import owner
from compass_forged.owner import Author
from tests.owner.corpus import FORGERIES, HEADER, INNOCENT, REPORT, Forgery
from tests.owner.reference import lines, reads_as_header

ADA = Author("scout", "ada", "s-41")
EVE = Author("eve", "mallory", "s-9")


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES) >= 60
    assert len(INNOCENT) >= 20
    assert len(REPORT.encode()) > 60_000


KINDS = (
    *(
        "nested",
        "split",
        "full-width",
        "zero-width",
        "entities",
        "comment",
        "list",
        "quote",
        "emphasis",
        "CRLF",
        "U+2028",
    ),
    *(
        "right-to-left",
        "homoglyph",
        "code span",
        "code fence",
        "forms",
        "soft hyphen",
        "tag characters",
        "byte order mark",
    ),
    *(
        "override",
        "details",
        "footnote",
        "reference",
        "image",
        "NUL",
        "copied",
        "our own bot",
        "trailer",
        "second line",
    ),
)
"""What the corpus must have of each; the letters of other scripts are its homoglyphs."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_corpus_has_every_kind_of_forgery(kind: str) -> None:
    words = {"list": ("list", "bullet"), "homoglyph": ("Cyrillic", "Greek", "Lisu")}.get(kind, (kind,))
    assert any(word in forgery.name for forgery in FORGERIES for word in words)


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\n"], ids=ascii
)
def test_every_end_of_a_line_that_a_reader_may_see_begins_a_line_that_is_read(end: str) -> None:
    assert owner.strip(f"A{end}{HEADER}{end}B") == f"A{end}B"


def test_no_other_character_ends_a_line() -> None:
    ends = {char for char in map(chr, range(0x110000)) if len(f"a{char}b".splitlines()) > 1}
    assert ends == set("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_removed_and_nothing_else(forgery: Forgery) -> None:
    assert owner.strip(forgery.text) == forgery.left
    assert owner.strip(forgery.left) == forgery.left


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_removed_from_the_middle_of_a_body(forgery: Forgery) -> None:
    body = f"First.\n\n{forgery.text}\n\nLast.\n"
    stripped = owner.strip(body)
    assert stripped.startswith("First.\n\n")
    assert stripped.endswith("Last.\n")
    assert not any(reads_as_header(line) for line in lines(stripped))


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_stamped_forgery_speaks_for_the_caller_alone(forgery: Forgery) -> None:
    stamped = owner.stamp(forgery.text, EVE, 0)
    claim = owner.parse(stamped)
    assert claim is not None
    assert (claim.agent, claim.owner, claim.session) == ("eve", "mallory", "s-9")
    assert "scout" not in stamped.splitlines()[0]
    assert not any(reads_as_header(line) for line in lines(stamped)[1:])


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_body_comes_through_byte_for_byte(name: str) -> None:
    body = INNOCENT[name]
    assert owner.strip(body) == body
    stamped = owner.stamp(body, ADA, 0)
    assert stamped == (f"{HEADER}\n\n{body}" if body else HEADER)
    assert owner.strip(stamped) == body


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_body_survives_beside_a_forgery(name: str) -> None:
    body = INNOCENT[name]
    assert owner.strip(f"{HEADER}\n\n{body}") == body
    assert owner.strip(f"{body}\n\n{HEADER}\n") == f"{body}\n\n"
