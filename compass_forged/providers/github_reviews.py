"""GitHub's reviews: what submits one, what lists them, and what their answers mean. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from compass_forged.errors import ForgeStatus
from compass_forged.providers.answers import Items, bad, decode, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import OwnAccount, User, account, expect_author, expect_place, repo_path
from compass_forged.providers.github_diff import anchors
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import InlineComment, Review, ReviewRef, SubmitReview

Verdict: TypeAlias = Literal["approved", "changes_requested", "commented", "dismissed", "pending"]

_EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "approve": ("APPROVE", "APPROVED"),
    "request_changes": ("REQUEST_CHANGES", "CHANGES_REQUESTED"),
    "comment": ("COMMENT", "COMMENTED"),
}
"""Each verdict's word in a request, and the state in which the review must come back."""
_VERDICTS: Final[Mapping[str, Verdict]] = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "changes_requested",
    "COMMENTED": "commented",
    "DISMISSED": "dismissed",
    "PENDING": "pending",
}
_UNPROCESSABLE: Final = 422
# The forge's own words: "User can only have one pending review per pull request".
_LEFTOVER: Final = re.compile(r"one pending review per pull request", re.IGNORECASE)


class _Review(msgspec.Struct):
    id: int
    state: str
    body: str | None = None
    user: User | None = None
    html_url: str = ""


_review_decoder = msgspec.json.Decoder(_Review)


# --- submit: docs.github.com/rest/pulls/reviews#create-a-review-for-a-pull-request ----------------------------------


def review_request(arm: SubmitReview, body: str, inline: Sequence[InlineComment], commit: str) -> HttpRequest:
    """What submits a review in one go.

    It always has an event, without which GitHub keeps it as a draft that nobody else sees.

    Args:
        arm: the pull request and the verdict.
        body: the summary, stamped, with what was folded into it.
        inline: the comments at lines of the diff; without any there is no key for them.
        commit: the commit whose diff the comments' lines were found in; "" for the head of the moment.
    """
    json: dict[str, object] = {"event": _EVENTS[arm.verdict][0], "body": body}
    if inline:
        json["comments"] = [_comment(comment) for comment in inline]
        if commit:
            json["commit_id"] = commit
    return HttpRequest("POST", _reviews_path(arm.repo, arm.pull_number), json=json)


def _comment(comment: InlineComment) -> dict[str, object]:
    """A comment by lines. A range of one line is none: GitHub refuses a start that does not precede the end."""
    first, last = anchors(comment)
    told: dict[str, object] = {"path": comment.path, "body": comment.body, "line": last.line, "side": last.side}
    if first != last:
        told |= {"start_line": first.line, "start_side": first.side}
    return told


def submitted_review(answer: ForgeAnswer, arm: SubmitReview, own: OwnAccount | None = None) -> ReviewRef:
    """The review that was submitted, without its counts. It answers 200, not 201.

    Raises:
        BadAnswer: it is another's, or did not come back in the state that the verdict asks for. Nobody knows what
            stands on the forge.
    """
    raw = decode(_review_decoder, answer)
    expect_place(answer, raw.html_url, answer.moved_to or arm.repo, arm.pull_number, "pull")
    expect_author(answer, raw.user, own)
    if raw.id <= 0:
        bad(answer, "the forge's answer has no id")
    if raw.state.upper() != _EVENTS[arm.verdict][1]:
        bad(answer, "the review came back in another state than its verdict asks for")
    return ReviewRef(url=raw.html_url, review_id=str(raw.id), verdict=arm.verdict)


def says_leftover(refused: ForgeStatus) -> bool:
    """Whether a review was refused since one of the same account was begun and never submitted."""
    return refused.status == _UNPROCESSABLE and bool(_LEFTOVER.search(refused.detail))


# --- list: docs.github.com/rest/pulls/reviews#list-reviews-for-a-pull-request ---------------------------------------


class ListedReview(msgspec.Struct, frozen=True):
    """A review as a list shows it. Pending ones are shown to their own author alone."""

    id: int
    review: Review


def reviews_request(repo: str, number: int, size: int, page: int) -> HttpRequest:
    """What reads a page of a pull request's reviews, oldest first."""
    query = (("per_page", str(size)), ("page", str(page)))
    return HttpRequest("GET", _reviews_path(repo, number), query)


def read_reviews(answer: ForgeAnswer, repo: str, number: int) -> Items[ListedReview]:
    """A page of reviews.

    Raises:
        BadAnswer: the answer is not about this pull request.
    """

    def read(raw: _Review) -> ListedReview:
        if raw.html_url and not answer.moved:
            expect_place(answer, raw.html_url, repo, number, "pull")
        # The set of states is open; one that nobody knows is no verdict.
        verdict = _VERDICTS.get(raw.state.upper(), "commented")
        return ListedReview(raw.id, Review(author=account(raw.user), verdict=verdict, body=raw.body or ""))

    return decode_items(_review_decoder, read, answer)


# --- delete: docs.github.com/rest/pulls/reviews#delete-a-pending-review-for-a-pull-request --------------------------


def delete_request(repo: str, number: int, review_id: int) -> HttpRequest:
    """What deletes a pending review; one that was submitted cannot be deleted."""
    return HttpRequest("DELETE", (*_reviews_path(repo, number), str(review_id)))


def _reviews_path(repo: str, number: int) -> tuple[str, ...]:
    return (*repo_path(repo), "pulls", str(number), "reviews")
