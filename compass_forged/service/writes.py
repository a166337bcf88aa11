"""Writes that leave no memo: comments and reviews. They ask the store nothing."""

from functools import partial

import msgspec

from compass_forged import owner
from compass_forged.errors import CallError
from compass_forged.ports import Work
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
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
    return IssueCommentResult(comment=await bound.provider.comment_on_issue(arm, bound.context))


async def _on_pull_request(bound: BoundCall, arm: CommentOnPullRequest) -> ResultArm:
    return PullRequestCommentResult(comment=await bound.provider.comment_on_pull_request(arm, bound.context))


def review(bound: BoundCall, arm: SubmitReview) -> Work:
    """Review under the reviewer's credential: the summary under the caller's header, the inline comments without any.

    Raises:
        CallError: no reviewer is configured, or the review is too large.
    """
    reviewer = bound.entry.reviewer
    if reviewer is None:
        raise CallError(
            "failed_precondition",
            f"no reviewer is configured for {bound.entry.provider} at {bound.entry.host}; "
            "an operator must add a reviewer's credential",
            outcome="not_sent",
        )
    comments = [msgspec.structs.replace(inline, body=owner.strip(inline.body)) for inline in arm.comments]
    clean = msgspec.structs.replace(arm, comments=comments)
    return partial(_submit, bound, msgspec.structs.replace(clean, body=bound.stamp(arm.body)))


async def _submit(bound: BoundCall, arm: SubmitReview) -> ResultArm:
    assert bound.entry.reviewer is not None  # noqa: S101 -- ``review`` has looked
    return ReviewResult(review=await bound.entry.reviewer.submit_review(arm, bound.context))
