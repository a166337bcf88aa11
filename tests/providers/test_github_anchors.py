"""The files of a diff that a review's comments are on: how far they are looked for, and what is told of a diff cut."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import pytest
import trio
import trio.testing

from compass_forged.budget import BudgetSettings
from compass_forged.errors import ForgeStatus
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.http import BODY_MAX_BYTES
from compass_forged.wire.schema import InlineComment, ReviewRef, SubmitReview
from tests.support.forge_http import answer, new_context, new_http, pull_json, review_json

PATCH = "@@ -1 +1 @@\n-a\n+b"


def name(number: int) -> str:
    return f"f{number:04}.txt"


@dataclass
class Diff(httpx.AsyncBaseTransport):
    """A pull request of so many files.

    Attributes:
        files: how many there are.
        page_max: how many of them fit under the cap of an answer.
        broken: the numbers of files that cannot be read.
        heavy: the numbers of files that are over the cap by themselves.
        seconds: what a page takes.
        refusal: how its files are refused; None if they are not.
        pages: what was asked for: items a page, page.
    """

    files: int
    page_max: int = 100
    broken: frozenset[int] = frozenset()
    heavy: frozenset[int] = frozenset()
    seconds: float = 0.0
    refusal: int | None = None
    pages: list[tuple[int, int]] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        if request.method == "POST":
            self.inline = [each["path"] for each in json.loads(request.content).get("comments", [])]
            return answer(200, review_json())
        if not request.url.path.endswith("/files"):
            return answer(200, pull_json())
        size, page = (int(request.url.params[key]) for key in ("per_page", "page"))
        self.pages.append((size, page))
        await trio.sleep(self.seconds)
        return self._page(size, page)

    def _page(self, size: int, page: int) -> httpx.Response:
        if self.refusal is not None:
            return answer(self.refusal, {"message": "no"})
        shown = range((page - 1) * size, min(page * size, self.files))
        if len(shown) > self.page_max or self.heavy.intersection(shown):
            return answer(200, b"0" * (BODY_MAX_BYTES + 1))
        relation, other = ("next", page + 1) if page * size < self.files else ("prev", page - 1)
        link = {"link": f'<https://api.github.com/x?per_page={size}&page={other}>; rel="{relation}"'} if other else {}
        return answer(
            200, [{} if each in self.broken else {"filename": name(each), "patch": PATCH} for each in shown], link
        )


async def review(diff: Diff, paths: Sequence[str]) -> ReviewRef:
    provider = GitHubProvider(new_http(diff, settings=BudgetSettings(points_per_minute=9000)))
    comments = [InlineComment(path=path, line=1, body="c") for path in paths]
    arm = SubmitReview(repo="acme/site", pull_number=7, verdict="comment", body="b", comments=comments)
    with trio.fail_after(60):
        return await provider.submit_review(arm, new_context()[0])


def not_found(count: int, total: int, why: str) -> str:
    return (
        f"{count} of {total} comments are on files that were not found in the diff: {why}; "
        "they stand in the review's summary"
    )


async def test_a_file_far_behind_in_small_pages_is_found(autojump_clock: trio.testing.MockClock) -> None:
    diff = Diff(1000, page_max=20)
    ref = await review(diff, [name(3), name(777)])
    assert (ref.inline_count, ref.folded_count, ref.warnings) == (2, 0, [])
    assert diff.inline == [name(3), name(777)]
    assert diff.pages == [(100, 1), *((20, page) for page in range(1, 40))]


async def test_pages_are_small_from_the_first_on_that_is_too_large(autojump_clock: trio.testing.MockClock) -> None:
    diff = Diff(500, heavy=frozenset({250}))
    ref = await review(diff, [name(260)])
    assert (ref.inline_count, ref.warnings) == (1, [])
    assert diff.pages == [(100, 1), (100, 2), (100, 3), (20, 11), (20, 12), (20, 13), (20, 14)]


async def test_a_diff_read_to_its_end_does_not_hold_what_was_not_found(autojump_clock: trio.testing.MockClock) -> None:
    diff = Diff(700, page_max=20)
    ref = await review(diff, ["nowhere.txt", name(1)])
    assert (ref.inline_count, ref.folded_count) == (1, 1)
    assert ref.warnings == ["1 of 2 comments are on lines outside the diff; they stand in the review's summary"]
    assert len(diff.pages) == 36


@pytest.mark.parametrize(
    ("diff", "why", "requests"),
    [
        (Diff(3200), "the forge lists no more than 3000 files", 30),
        (Diff(3000, page_max=20), "only its first 1180 files were read", 60),
        (Diff(300, page_max=1), "parts of it could not be read", 4),
        (Diff(130, heavy=frozenset({20})), "parts of it could not be read", 8),
        (Diff(130, broken=frozenset({5})), "parts of it could not be read", 2),
        (Diff(130, refusal=406), "the forge does not show it", 1),
        (Diff(130, refusal=422), "the forge does not show it", 1),
        (Diff(3000, seconds=2), "only its first 700 files were read", 8),
        (Diff(3000, seconds=40), "only its first 0 files were read", 1),
    ],
)
async def test_a_diff_that_was_not_read_to_its_end_is_told_as_cut(
    diff: Diff, why: str, requests: int, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await review(diff, ["elsewhere.txt", "elsewhere.txt"])
    assert (ref.inline_count, ref.folded_count, diff.inline) == (0, 2, [])
    assert ref.warnings == [not_found(2, 2, why)]
    assert len(diff.pages) == requests


async def test_what_was_found_before_the_cut_is_told_for_what_it_is(autojump_clock: trio.testing.MockClock) -> None:
    diff = Diff(3000, seconds=2)
    provider = GitHubProvider(new_http(diff))
    comments = [
        InlineComment(path=name(5), line=1, body="on it"),
        InlineComment(path=name(6), line=9, body="off it"),
        InlineComment(path=name(2999), line=1, body="behind the cut"),
    ]
    arm = SubmitReview(repo="acme/site", pull_number=7, verdict="comment", body="b", comments=comments)
    with trio.fail_after(20):  # of which the search may take one half
        ref = await provider.submit_review(arm, new_context()[0])
    assert trio.current_time() == 10
    assert (ref.inline_count, ref.folded_count, diff.inline) == (1, 2, [name(5)])
    assert ref.warnings == [
        "1 of 3 comments are on lines outside the diff; they stand in the review's summary",
        not_found(1, 3, "only its first 400 files were read"),
    ]


async def test_files_that_may_not_be_read_sink_the_review(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(ForgeStatus) as refused:
        await review(Diff(1, refusal=404), ["a"])
    assert refused.value.outcome == "rejected"


async def test_a_call_that_is_cancelled_as_the_pull_request_comes_ends_as_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scope = trio.CancelScope()

    class Cancelling(Diff):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            found = await super().handle_async_request(request)
            scope.cancel()  # with no time left, and nobody told yet
            return found

    diff = Cancelling(3)
    with scope:
        await review(diff, [name(1)])
    assert scope.cancelled_caught
    assert diff.pages == []
