"""Submitting a review at GitHub: which comments a line of the diff can hold, one POST, and a leftover in its way.

A review is all or nothing: one comment outside the diff, and GitHub refuses the whole of it without saying which. So
the comments' lines are looked up in the diff first, and what no line can hold goes into the summary.
"""

from collections.abc import Sequence
from typing import Final

from compass_forged import owner
from compass_forged.errors import BadReview, ForgePrecondition, ForgeStatus
from compass_forged.folding import fold, folded_bytes
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext
from compass_forged.providers import github_pulls as pulls
from compass_forged.providers import github_reviews as reviews
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_access import Access, check_moved, failing_as, read_list
from compass_forged.providers.github_anchors import Anchored, find_anchors
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import InlineComment, PullRequest, ReviewRef, SubmitReview

log = get_logger(__name__)

_IN_THE_WAY: Final = "the reviewer account has a pending review on this pull request"
_GONE: Final = frozenset({404, 422})
"""How the deletion of a pending review is answered that was deleted or submitted meanwhile."""


async def submit(access: Access, arm: SubmitReview, context: CallContext, body_limit: int) -> ReviewRef:
    """Submit the review, its comments at their lines where the diff has them, the others in its summary.

    Raises:
        BadReview: too large, or a verdict on a pull request of the account's own.
        ForgePrecondition: a pending review that is not ours stands in the way.
        ForgeError: another of its kinds.
    """
    _check_size(arm, body_limit)
    inline: list[InlineComment] = []
    folded: list[InlineComment] = []
    commit = ""
    warnings: list[str] = []
    if arm.comments:
        with failing_as("not_sent", refused="rejected"):
            pull = await _reviewed(access, arm, context)
            found = await find_anchors(access, pull, arm.comments, context)
        commit = pull.head_sha if pulls.is_sha(pull.head_sha) else ""
        for comment in arm.comments:
            (inline if found.holds(comment) else folded).append(comment)
        warnings += _folded_for(folded, found, len(arm.comments))
    request = reviews.review_request(arm, fold(arm.body, folded), inline, commit)
    try:
        answer = await access.http.write(request, context)
    except ForgeStatus as refused:
        if not reviews.says_leftover(refused):
            raise
        with failing_as("rejected"):
            await _remove_leftover(access, arm, context)
        warnings.append("a review of the reviewer account that was begun and never submitted was removed")
        answer = await _once_more(access, request, context)
    with access.http.proving():
        ref = reviews.submitted_review(answer, arm, access.own)
    return ReviewRef(
        url=ref.url,
        review_id=ref.review_id,
        verdict=ref.verdict,
        inline_count=len(inline),
        folded_count=len(folded),
        warnings=warnings,
    )


def _folded_for(folded: Sequence[InlineComment], found: Anchored, total: int) -> list[str]:
    """Why comments stand in the summary: a diff that was not read whole says nothing of a file that did not come."""
    unsure = sum(found.may_hold(comment) for comment in folded)
    outside = len(folded) - unsure
    reasons = []
    if outside:
        reasons.append(f"{outside} of {total} comments are on lines outside the diff")
    if unsure:
        reasons.append(f"{unsure} of {total} comments are on files that were not found in the diff: {found.cut}")
    return [f"{reason}; they stand in the review's summary" for reason in reasons]


def _check_size(arm: SubmitReview, limit: int) -> None:
    """Judged with every comment folded in, so that it does not hang on the diff whether a review fits."""
    needed = len(arm.body.encode(errors="surrogatepass")) + folded_bytes(arm.comments)
    if needed > limit:
        raise BadReview(
            f"body: {needed - limit} bytes too large; GitHub takes {limit} bytes with the owner header and all "
            "comments, which may have to stand in the summary"
        )


async def _reviewed(access: Access, arm: SubmitReview, context: CallContext) -> PullRequest:
    """The pull request that is reviewed.

    Raises:
        BadReview: its author is the account that reviews, and GitHub takes no verdict of it.
    """
    answer = await access.http.read(pulls.get_request(arm.repo, arm.pull_number), context)
    pull = pulls.read_pull(answer, arm.repo, arm.pull_number, access.forge)
    check_moved(answer, pull.repo, context)
    if arm.verdict != "comment" and pull.author and access.own.named(pull.author.login):
        raise BadReview("verdict: the reviewer account opened this pull request itself; only comment is possible")
    return pull


# --- a review that was begun and never submitted ----------------------------------------------------------------------


async def _remove_leftover(access: Access, arm: SubmitReview, context: CallContext) -> None:
    """Delete the account's pending review if it is ours: this daemon leaves none, but an older tool or a crash may.

    Raises:
        ForgePrecondition: its first line is no owner header, or it cannot be found or deleted.
    """
    listed = await read_list(
        access.http,
        context,
        lambda size, page: reviews.reviews_request(arm.repo, arm.pull_number, size, page),
        lambda answer: reviews.read_reviews(answer, arm.repo, arm.pull_number),
        newest=True,  # where the account's own pending one stands
        may_move=True,  # the deletion goes where this call may
    )
    pending = [
        each
        for each in listed.items
        if each.review.verdict == "pending" and (not access.own.known or access.own.named(each.review.author.login))
    ]
    for each in pending:
        if owner.parse(each.review.body) is None:
            raise ForgePrecondition(_IN_THE_WAY + " that this daemon did not write; a person must submit or delete it")
    if not pending:
        raise ForgePrecondition(_IN_THE_WAY + ", as the forge says, and does not show it")
    for each in pending:
        try:
            await access.http.write(reviews.delete_request(arm.repo, arm.pull_number, each.id), context)
        except ForgeStatus as refused:
            if refused.status not in _GONE:
                raise ForgePrecondition(_IN_THE_WAY + ", and the forge refuses to delete it") from refused
        access.counters.add("pending_reviews_removed")
        log.warning("a pending review was removed", coordinate=context.coordinate, number=arm.pull_number)


async def _once_more(access: Access, request: HttpRequest, context: CallContext) -> ForgeAnswer:
    try:
        with failing_as("rejected", sent="unknown"):
            return await access.http.write(request, context)
    except ForgeStatus as refused:
        if reviews.says_leftover(refused):
            raise ForgePrecondition(_IN_THE_WAY + "; a person must submit or delete it") from refused
        raise
