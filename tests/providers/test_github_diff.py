import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.emulator.diffs import patch_of, place_of
from compass_forged.emulator.records import ChangedFile, Side
from compass_forged.providers import github_diff
from compass_forged.providers.github_diff import Anchor, Spot, anchors, find_spots, fits
from compass_forged.wire.schema import InlineComment

PATCH = "\n".join(  # noqa: FLY002 -- a row for each row
    [
        "@@ -1,3 +1,4 @@ def first():",
        " one",
        "-two",
        "+2",
        "+2.5",
        " three",
        "@@ -20 +21,2 @@",
        " twenty",
        "+twenty-one",
        "\\ No newline at end of file",
    ]
)
SHOWN = {
    Anchor("LEFT", 1): Spot(0, 0),
    Anchor("RIGHT", 1): Spot(0, 0),
    Anchor("LEFT", 2): Spot(0, 1),
    Anchor("RIGHT", 2): Spot(0, 2),
    Anchor("RIGHT", 3): Spot(0, 3),
    Anchor("LEFT", 3): Spot(0, 4),
    Anchor("RIGHT", 4): Spot(0, 4),
    Anchor("LEFT", 20): Spot(1, 0),
    Anchor("RIGHT", 21): Spot(1, 0),
    Anchor("RIGHT", 22): Spot(1, 1),
}
EVERY = [Anchor(side, line) for side in ("LEFT", "RIGHT") for line in range(30)]


def at(line: int, side: str = "", *, start: int = 0, start_side: str = "") -> InlineComment:
    return InlineComment(path="f", line=line, side=side, start_line=start, start_side=start_side, body="b")


def test_every_line_of_a_diff_and_no_other() -> None:
    assert find_spots(PATCH, EVERY) == SHOWN
    assert find_spots(PATCH, [Anchor("LEFT", 2), Anchor("LEFT", 99)]) == {Anchor("LEFT", 2): Spot(0, 1)}


@pytest.mark.parametrize(
    ("comment", "placed"),
    [
        (at(2), True),
        (at(2, "LEFT"), True),
        (at(5), False),
        (at(4, "LEFT"), False),
        (at(3, start=1), True),
        (at(3, start=3), True),
        (at(3, start=2, start_side="LEFT"), True),
        (at(3, "LEFT", start=2, start_side="RIGHT"), True),
        (at(2, "LEFT", start=2, start_side="RIGHT"), False),  # upwards
        (at(1, start=3), False),
        (at(22, start=4), False),  # over two hunks
        (at(22, start=1), False),
        (at(22, start=9), False),
        (at(99, start=1), False),
    ],
)
def test_what_fits(comment: InlineComment, placed: bool) -> None:
    assert fits(comment, find_spots(PATCH, set(anchors(comment)))) is placed


def test_a_range_begins_on_the_side_on_which_it_ends_unless_it_says_so() -> None:
    assert anchors(at(5, "LEFT", start=3)) == (Anchor("LEFT", 3), Anchor("LEFT", 5))
    assert anchors(at(5)) == (Anchor("RIGHT", 5), Anchor("RIGHT", 5))


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "\n",
        "no diff at all",
        "@@ -132,7 +132,7 @@ module Test @@ -1000,7 +1000,7 @@ module Test",
        "@@ -1 +1 @@",
        "@@ -1,0 +1,0 @@\n x\n+y\n-z",
        "@@ -9999999999 +1 @@\n x",
        "@@ -\u0661 +1 @@\n x",
        "+before any hunk",
        "@@ -1 +1 @@\n?odd",
    ],
)
def test_what_is_no_diff_shows_no_line(patch: str) -> None:
    assert find_spots(patch, EVERY) == {}


def test_lines_beyond_what_a_hunk_announces_are_none() -> None:
    spots = find_spots("@@ -1 +1,2 @@\n one\n+two\n+three\n four\n", EVERY)
    assert spots.keys() == {Anchor("LEFT", 1), Anchor("RIGHT", 1), Anchor("RIGHT", 2)}


def test_a_context_line_whose_blank_was_cut_off_is_one() -> None:
    assert find_spots("@@ -1,2 +1,2 @@\n\n one", EVERY).keys() >= {Anchor("LEFT", 2), Anchor("RIGHT", 2)}


def test_a_patch_beyond_all_measure_is_not_looked_into() -> None:
    within = PATCH + "\n" * (github_diff.PATCH_MAX_CHARS - len(PATCH))
    assert find_spots(within, EVERY) == SHOWN
    assert find_spots(within + "\n", EVERY) == {}


LINES = st.lists(st.sampled_from(["a", "b", "c", "", " ", "+", "-x", "@@ -1 +1 @@", "\\"]), max_size=25)


@given(LINES, LINES)
def test_the_bundled_forge_reads_a_diff_alike(old: list[str], new: list[str]) -> None:
    patch = "\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:])
    spots = find_spots(patch, EVERY)
    for anchor in EVERY:
        place = place_of(patch, anchor.side, anchor.line)
        assert (place is None) == (anchor not in spots), anchor
        if place is not None:
            assert place.hunk == spots[anchor].hunk
    in_order = sorted(spots, key=lambda anchor: spots[anchor])
    positions = [place.position for anchor in in_order if (place := place_of(patch, anchor.side, anchor.line))]
    assert positions == sorted(positions)


@given(LINES, LINES)
def test_every_changed_line_can_be_commented(old: list[str], new: list[str]) -> None:
    patch = "\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:])
    matcher = difflib.SequenceMatcher(None, old, new)
    spots = find_spots(patch, EVERY)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            assert all(Anchor("LEFT", line + 1) in spots for line in range(old_from, old_to))
            assert all(Anchor("RIGHT", line + 1) in spots for line in range(new_from, new_to))


@given(st.text(st.sampled_from("@-+ 0123,\n\\x"), max_size=200))
def test_any_text_is_read_within_its_length(text: str) -> None:
    assert len(find_spots(text, EVERY)) <= 2 * len(text)


def test_texts_make_patches() -> None:
    assert patch_of("same\n", "same\n") is None
    made = patch_of("a\nb\n", "a\nc\n")
    assert made == "@@ -1,2 +1,2 @@\n a\n-b\n+c"
    side: Side = "RIGHT"
    assert place_of(made, side, 2) is not None
    assert ChangedFile("f", made).status == "modified"
