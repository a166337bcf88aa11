"""The only way from the service to a forge's writes.

What must be true of everything that is posted is looked at here once more, right before it goes to the provider: a
body begins with the header of the one who calls, and a review's inline comments hold none. The steps before make it
so. If one of them ever does not, the call fails here and nothing is sent.

Each function hands back the provider's own awaitable, so that a look costs no frame of its own.
"""

from collections.abc import Awaitable

from compass_forged import owner
from compass_forged.errors import PromiseBroken
from compass_forged.ports import Provider
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    Issue,
    PullRequest,
    ReviewRef,
    SubmitReview,
)


def issue(bound: BoundCall, arm: CreateIssue) -> Awaitable[Issue]:
    """Open an issue."""
    _check(bound, arm.body)
    return bound.provider.create_issue(arm, bound.context)


def pull_request(bound: BoundCall, arm: CreatePullRequest) -> Awaitable[PullRequest]:
    """Open a pull request."""
    _check(bound, arm.body)
    return bound.provider.create_pull_request(arm, bound.context)


def issue_comment(bound: BoundCall, arm: CommentOnIssue) -> Awaitable[CommentRef]:
    """Comment on an issue."""
    _check(bound, arm.body)
    return bound.provider.comment_on_issue(arm, bound.context)


def pull_request_comment(bound: BoundCall, arm: CommentOnPullRequest) -> Awaitable[CommentRef]:
    """Comment on a pull request."""
    _check(bound, arm.body)
    return bound.provider.comment_on_pull_request(arm, bound.context)


def review(bound: BoundCall, reviewer: Provider, arm: SubmitReview) -> Awaitable[ReviewRef]:
    """Submit a review under the reviewer's credential."""
    _check(bound, arm.body)
    for index, comment in enumerate(arm.comments):
        if owner.strip(comment.body) != comment.body:
            raise PromiseBroken(f"comments[{index}] was about to be posted with an owner header in it")
    return reviewer.submit_review(arm, bound.context)


def _check(bound: BoundCall, body: str) -> None:
    if not owner.is_stamped_for(body, bound.author):
        raise PromiseBroken("a body was about to be posted without the header of its author")
