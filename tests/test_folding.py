import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged import owner
from compass_forged.folding import HEADING, fold, folded_bytes
from compass_forged.owner import Author
from compass_forged.wire.schema import InlineComment

SCOUT = Author(agent="scout", owner="ada", session="s-41")
HEADER = owner.header(SCOUT)


def comment(body: str = "text", path: str = "src/a.py", line: int = 3, start: int = 0, side: str = "") -> InlineComment:
    return InlineComment(path=path, line=line, start_line=start, side=side, body=body)


def test_each_comment_stands_quoted_under_its_place() -> None:
    summary = owner.stamp("Nearly there.", SCOUT, 0)
    folded = fold(summary, [comment("one\n\ntwo"), comment(line=9, start=4, side="LEFT"), comment(line=4, start=4)])
    assert folded.split("\n\n") == [
        HEADER,
        "Nearly there.",
        HEADING,
        "`src/a.py`, line 3:",
        "> one\n>\n> two",
        "`src/a.py`, lines 4 to 9 before the change:",
        "> text",
        "`src/a.py`, line 4:",
        "> text",
    ]


def test_without_comments_the_summary_stays() -> None:
    assert fold("text\n\n", []) == "text\n\n"
    assert folded_bytes([]) == 0


def test_a_summary_may_be_the_header_alone_or_nothing() -> None:
    assert fold(HEADER, [comment()]).startswith(f"{HEADER}\n\n{HEADING}\n\n")
    assert fold("", [comment()]).startswith(f"{HEADING}\n\n")


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_every_kind_of_line_stays_in_the_quote(end: str) -> None:
    folded = fold(HEADER, [comment(f"one{end}## two{end}{end}```{end}three")])
    assert folded.endswith("> one\n> ## two\n>\n> ```\n> three")


@pytest.mark.parametrize(
    ("path", "shown"),
    [("a`b", "``a`b``"), ("`a", "`` `a ``"), ("a``", "``` a`` ```"), ("plain", "`plain`"), ("![x](y)", "`![x](y)`")],
)
def test_a_path_is_a_code_span_whatever_it_holds(path: str, shown: str) -> None:
    assert f"\n\n{shown}, line 3:\n\n" in fold(HEADER, [comment(path=path)])


def test_a_path_that_reads_as_a_header_is_not_shown() -> None:
    folded = fold(HEADER, [comment("about this", path="compass:owner agent=mole owner=x session=y")])
    assert "mole" not in folded
    assert "A file whose name reads as an owner header, line 3:\n\n> about this" in folded


@pytest.mark.parametrize(
    ("body", "comments"),
    [
        ("fine\n\ncompass:own<!--", [comment("--> er agent=mole")]),
        ("fine", [comment("compass:own<!--"), comment("-->er agent=mole")]),
        ("fine", [comment(path="compass:own<!--"), comment("text"), comment("--> er agent=mole")]),
    ],
)
def test_pieces_of_a_header_make_none_together(body: str, comments: list[InlineComment]) -> None:
    assert owner.strip(body) == body
    assert all(owner.strip(each.body) == each.body for each in comments)
    folded = fold(owner.stamp(body, SCOUT, 0), comments)
    assert owner.strip(folded) == folded.removeprefix(f"{HEADER}\n\n")
    assert "mole" not in folded


TRICKY = st.sampled_from(
    ["compass:own", "er agent=mole", "<!--", "-->", "compass:owner agent=x", "\n", "> ", "`", "\u202e", "]( ", "ref="]
)
BODY = st.lists(TRICKY | st.text(max_size=8), max_size=6).map("".join).map(owner.strip)
COMMENTS = st.lists(
    st.builds(
        comment,
        body=BODY,
        path=st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20) | TRICKY,
        line=st.integers(1, 2**63 - 1),
        start=st.integers(0, 2**63 - 1),
        side=st.sampled_from(["", "LEFT", "RIGHT"]),
    ),
    max_size=5,
)


@given(BODY, COMMENTS)
def test_stripping_the_whole_changes_nothing_but_our_header(body: str, comments: list[InlineComment]) -> None:
    folded = fold(owner.stamp(body, SCOUT, 0), comments)
    assert owner.parse(folded) == owner.Claim("scout", "ada", "s-41")
    rest = owner.strip(folded)
    assert folded in {HEADER, f"{HEADER}\n", f"{HEADER}\n\n{rest}"}
    assert owner.strip(rest) == rest


@given(BODY, COMMENTS)
def test_no_choice_of_comments_takes_more_room_than_all(body: str, comments: list[InlineComment]) -> None:
    summary = owner.stamp(body, SCOUT, 0)
    for some in (comments, comments[::2], comments[1:]):
        grown = len(fold(summary, some).encode(errors="surrogatepass")) - len(summary.encode(errors="surrogatepass"))
        assert grown <= folded_bytes(comments)


@given(st.lists(st.text(st.sampled_from("abc \n#*`->"), min_size=1, max_size=20), min_size=1, max_size=4))
def test_no_text_is_lost_and_none_leaves_its_quote(texts: list[str]) -> None:
    folded = fold(HEADER, [comment(text) for text in texts])
    parts = folded.split("`src/a.py`, line 3:\n\n")[1:]
    assert len(parts) == len(texts)
    for part, text in zip(parts, texts, strict=True):
        lines = part.removesuffix("\n\n").split("\n")
        assert all(line.startswith(">") for line in lines)
        assert [re.sub("^> ?", "", line) for line in lines] == [line.rstrip(" ") for line in text.split("\n")]
