"""Writes that leave no memo: comments and reviews. They ask the store nothing."""

from functools import partial

import msgspec

from compass_forged import owner
from compass_forged.errors import CallError
from compass_forged.folding import folded_bytes
from compass_forged.policy import review_chars
from compass_forged.ports import Provider, Work
from compass_forged.service import posts
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    InlineComment,
    IssueCommentResult,
    PullRequestCommentResult,
    ResultArm,
    ReviewResult,
    SubmitReview,
)


def comment(bound: BoundCall, arm: CommentOnIssue | CommentOnPullRequest) -> Work:
    """Comment under the caller's header.

    Raises:
        CallError: the body is too large.
    """
    body = bound.stamp(arm.body)  # 6. stamp
    if isinstance(arm, CommentOnIssue):
        return partial(_on_issue, bound, msgspec.structs.replace(arm, body=body))
    return partial(_on_pull_request, bound, msgspec.structs.replace(arm, body=body))


async def _on_issue(bound: BoundCall, arm: CommentOnIssue) -> ResultArm:
    return IssueCommentResult(comment=await posts.issue_comment(bound, arm))


async def _on_pull_request(bound: BoundCall, arm: CommentOnPullRequest) -> ResultArm:
    return PullRequestCommentResult(comment=await posts.pull_request_comment(bound, arm))


def review(bound: BoundCall, arm: SubmitReview) -> Work:
    """Review under the reviewer's credential: the summary under the caller's header, the inline comments without any.

    Raises:
        CallError: no reviewer is configured, or the review is too large.
    """
    reviewer = bound.entry.reviewer  # 4. role
    if reviewer is None:
        raise CallError(
            "failed_precondition",
            f"no reviewer is configured for {bound.entry.provider} at {bound.entry.host}; "
            "an operator must add a reviewer's credential",
            outcome="not_sent",
        )
    comments, reserved = _inline(arm, reviewer.body_limit)
    try:
        body = owner.stamp(arm.body, bound.author, reviewer.body_limit, reserved=reserved)  # 6. stamp
    except owner.BodyTooLarge as error:
        raise bound.too_large(error, "the owner header and all comments") from error
    return partial(_submit, bound, reviewer, msgspec.structs.replace(arm, body=body, comments=comments))


async def _submit(bound: BoundCall, reviewer: Provider, arm: SubmitReview) -> ResultArm:
    await bound.entry.check_reviewer()
    return ReviewResult(review=await posts.review(bound, reviewer, arm))


def _inline(arm: SubmitReview, limit: int) -> tuple[list[InlineComment], int]:
    """The inline comments without headers, and how many bytes they take if no line of the diff can hold any of them.

    It must not hang on the diff whether a review fits. What is far too large is not read.
    """
    if owner.is_hopeless(review_chars(arm), limit):
        return arm.comments, review_chars(arm) - len(arm.body)
    comments = [msgspec.structs.replace(inline, body=owner.strip(inline.body)) for inline in arm.comments]
    return comments, folded_bytes(comments)
