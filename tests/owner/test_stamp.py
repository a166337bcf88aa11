"""The header's grammar, limits to the byte, and what counts as blank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged import owner
from compass_forged.owner import SEPARATOR, Author, BodyTooLarge, Claim
from tests.owner.corpus import HEADER, REPORT

SCOUT = Author("scout", "ada", "s-41")
REF = "abcdefgh234567ab"
ROOM = 100
LIMIT = len(HEADER) + len(SEPARATOR) + ROOM


def test_the_header_stands_first_and_a_blank_line_follows() -> None:
    assert owner.stamp("The body.", SCOUT, 0) == "> `compass:owner agent=scout owner=ada session=s-41`\n\nThe body."


def test_a_ref_stands_last() -> None:
    assert owner.header(SCOUT, REF) == f"> `compass:owner agent=scout owner=ada session=s-41 ref={REF}`"


@pytest.mark.parametrize("ref", ["short", REF.upper(), REF[:-1] + "1", REF + "a", REF[:-1] + "\n"])
def test_a_bad_ref_is_a_mistake_of_the_program(ref: str) -> None:
    with pytest.raises(ValueError, match="is no ref"):
        owner.header(SCOUT, ref)


@pytest.mark.parametrize("word", ["", "-a", "A", "a b", "a`", "a\n", "\uff41", "a" * 40, "a_b"])
def test_what_is_no_handle_is_no_author(word: str) -> None:
    assert not owner.is_handle(word)
    for words in ((word, "o", "s"), ("a", word, "s"), ("a", "o", word)):
        with pytest.raises(ValueError, match="is no handle"):
            Author(*words)


@pytest.mark.parametrize("word", ["a", "0", "s-41", "a" * 39])
def test_handles(word: str) -> None:
    assert owner.is_handle(word)


@pytest.mark.parametrize(
    "body",
    [
        "",
        " " + HEADER,
        "\ufeff" + HEADER,
        "\n" + HEADER,
        HEADER[2:],
        HEADER + " ",
        HEADER.upper(),
        HEADER.replace("scout", "Scout"),
        HEADER.replace("`", ""),
        HEADER[:-1] + " ref=short`",
        HEADER.replace("scout", "\uff53cout"),
        HEADER.replace("scout", "\u212ait"),  # Kelvin's sign, of which lower() makes a k
    ],
)
def test_parse_takes_a_header_to_the_letter_only(body: str) -> None:
    assert owner.parse(body) is None


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r", "\u2028", "\n\nBody.\n"])
def test_parse_reads_the_first_line(end: str) -> None:
    assert owner.parse(HEADER + end) == Claim("scout", "ada", "s-41", "")


@pytest.mark.parametrize("char", ["x", "\u00e9", "\u20ac", "\U0001f9ed"])
@pytest.mark.parametrize("over", [-1, 0, 1, 2, 7])
def test_the_limit_is_kept_to_the_byte(char: str, over: int) -> None:
    size = ROOM + over
    width = len(char.encode())
    body = char * (size // width) + "x" * (size % width)
    if over <= 0:
        assert owner.stamp(body, SCOUT, LIMIT).encode() == f"{HEADER}\n\n{body}".encode()
        return
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp(body, SCOUT, LIMIT)
    assert (refused.value.overage, refused.value.limit) == (over, LIMIT)
    assert str(refused.value) == f"{over} bytes over the limit of {LIMIT}"


def test_a_ref_takes_its_bytes_from_the_body() -> None:
    body = "x" * ROOM
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp(body, SCOUT, LIMIT, ref=REF)
    assert refused.value.overage == len(f" ref={REF}")


@given(st.text(max_size=300), st.integers(1, 400))
def test_the_overage_is_exact(body: str, limit: int) -> None:
    whole = len(owner.stamp(body, SCOUT, 0).encode())
    if whole <= limit:
        assert len(owner.stamp(body, SCOUT, limit).encode()) == whole
        return
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp(body, SCOUT, limit)
    assert refused.value.overage == whole - limit


def test_a_body_of_many_times_the_limit_is_refused_unread() -> None:
    body = f"{HEADER}\n" * LIMIT
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp(body, SCOUT, LIMIT)
    assert refused.value.overage == len(HEADER) + len(SEPARATOR) + len(body) - LIMIT


def test_headers_in_the_body_do_not_count_against_the_limit() -> None:
    body = f"{HEADER}\n\n{'x' * ROOM}"
    assert owner.stamp(body, SCOUT, LIMIT) == body


def test_no_limit() -> None:
    assert owner.stamp(REPORT * 3, SCOUT, 0) == f"{HEADER}\n\n{REPORT * 3}"


@pytest.mark.parametrize("body", ["", HEADER, f"{HEADER}\n\n", f"{HEADER}\r\n{HEADER}\r\n"])
def test_an_empty_body_becomes_the_header_alone(body: str) -> None:
    assert owner.stamp(body, SCOUT, len(HEADER)) == HEADER
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp(body, SCOUT, len(HEADER) - 1)
    assert refused.value.overage == 1


def test_crlf_is_kept_byte_for_byte() -> None:
    body = "One.\r\n\r\nTwo.\r\n"
    assert owner.stamp(f"{HEADER}\r\n\r\n{body}", SCOUT, 0) == f"{HEADER}\n\n{body}"


def test_only_one_blank_line_goes_and_only_at_the_top() -> None:
    assert owner.strip(f"{HEADER}\n\n\nBody.") == "\nBody."
    assert owner.strip(f"Body.\n{HEADER}\n\nMore.") == "Body.\n\nMore."
    assert owner.strip(f"\n{HEADER}\n\nMore.") == "\n\nMore."


def test_a_lone_surrogate_counts_its_three_bytes() -> None:
    assert owner.stamp("\ud800" * 33, SCOUT, LIMIT).endswith("\ud800")
    with pytest.raises(BodyTooLarge) as refused:
        owner.stamp("\ud800" * 34, SCOUT, LIMIT)
    assert refused.value.overage == 2


@pytest.mark.parametrize("body", ["", " \r\n\t", "\u200b\u2800\u3164\ufeff\u0301", HEADER, f"{HEADER}\n\n \n{HEADER}"])
def test_blank(body: str) -> None:
    assert owner.is_blank(body)


@pytest.mark.parametrize("body", ["x", f"{HEADER}\n\n.", "\U0001f9ed", "-", "\u4e2d"])
def test_not_blank(body: str) -> None:
    assert not owner.is_blank(body)
