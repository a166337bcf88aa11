"""Acknowledgements and failures: one line whatever the forge says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.agent.render import lines
from compass_forged.wire.schema import CommentRef, Issue, PullRequest, ReviewRef
from tests.agent.render.test_reads import TEXT
from tests.support.tool_world import GITHUB, SITE, issue

MADE = st.sampled_from([Issue, PullRequest]).flatmap(
    lambda kind: st.builds(
        kind,
        forge=st.just(GITHUB),
        repo=TEXT,
        number=st.integers(),
        url=TEXT,
        replayed=st.booleans(),
        replay_mismatch=st.booleans(),
        warnings=st.lists(TEXT, max_size=8),
    )
)
ACK_MAX_CHARS = 4_000


def check(line: str) -> None:
    assert len(line.splitlines()) == 1
    assert len(line) <= ACK_MAX_CHARS
    line.encode()


@given(MADE)
def test_a_create_is_one_line(made: Issue) -> None:
    check(lines.created(made))


@given(TEXT, TEXT, st.lists(TEXT, max_size=8), st.integers(0, 300))
def test_a_review_and_a_comment_are_one_line(link: str, verdict: str, warnings: list[str], folded: int) -> None:
    check(lines.commented(CommentRef(url=link, comment_id="1"), 7, pull=True))
    made = ReviewRef(url=link, review_id="5", verdict=verdict, folded_count=folded, warnings=warnings)
    check(lines.reviewed(made, 8))


@given(TEXT, TEXT)
def test_subscriptions_are_one_line(subscription_id: str, repo: str) -> None:
    check(lines.subscribed(subscription_id, "issue", 7, repo))
    check(lines.unsubscribed(subscription_id))


@given(TEXT, TEXT, st.integers(0, 10_000))
def test_a_failure_is_one_line(code: str, message: str, retry: int) -> None:
    check(lines.failed("forge_get_issue", code, message, retry, "look first"))


def test_a_failure_is_worded_as_promised() -> None:
    assert lines.failed("forge_get_issue", "not_found", "no such\nartifact", 0, "") == (
        "forge_get_issue failed: not_found: no such artifact"
    )
    assert lines.failed("forge_get_issue", "resource_exhausted", "wait", 1500, "") == (
        "forge_get_issue failed: resource_exhausted: wait; retry after 1500ms"
    )
    assert lines.failed("t", "internal", "x" * 600, 0, "").removeprefix("t failed: internal: ") == "x" * 499 + "\u2026"


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (issue(), f"Created issue #7 in acme/site: {SITE}/issues/7"),
        (issue(url="ftp://x"), "Created issue #7 in acme/site: (malformed)"),
        (issue(repo="acme/site\nx"), f"Created issue #7 in (malformed): {SITE}/issues/7"),
        (issue(url="", replayed=True), "Issue #7 in acme/site already created by an earlier attempt"),
        (
            PullRequest(forge=GITHUB, repo="acme/site", number=8, url=f"{SITE}/pull/8", replayed=True),
            f"PR #8 in acme/site already created by an earlier attempt: {SITE}/pull/8",
        ),
        (
            issue(warnings=[f"w{index}" for index in range(6)]),
            f"Created issue #7 in acme/site: {SITE}/issues/7; "
            + "; ".join([*(f"warning: w{index}" for index in range(5)), "left out: 1 warning"]),
        ),
    ],
)
def test_a_create_says_what_was_made(made: Issue, line: str) -> None:
    assert lines.created(made) == line


@pytest.mark.parametrize(
    ("warnings", "said"),
    [
        ([], "; 1 of 1 inline comments stand in the summary, since their lines are not in the diff"),
        (["the diff was cut"], "; 1 of 1 inline comments stand in the summary; warning: the diff was cut"),
    ],
)
def test_a_review_says_once_why_comments_stand_in_its_summary(warnings: list[str], said: str) -> None:
    made = ReviewRef(url="https://x/1", review_id="5", verdict="comment", folded_count=1, warnings=warnings)
    assert lines.reviewed(made, 8).endswith(said)
