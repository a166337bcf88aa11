"""The ten tools, one for each arm: parameters to the arm, result arm to the text. Number and names are a contract."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from compass_forged.agent.render import lines, reads
from compass_forged.agent.tools import descriptions, parameters
from compass_forged.wire import schema
from compass_forged.wire.schema import Arm, ResultArm

Approval: TypeAlias = Literal["read", "write"]
_P = TypeVar("_P", bound=parameters.Selector)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spec(Generic[_P]):
    """One tool.

    Attributes:
        name: the tool's name, which models and configurations know.
        label: what a person is shown.
        approval: whether it only reads.
        description: the prompt.
        parameters: the Struct that its parameters are checked against.
        arm: the arm of a call with these parameters.
        shown: the text of the answer; None where the arm is not one that answers this call.
        keyed: whether it is a create, sent under an idempotency key.
        look: for a write, how to find out whether one of unknown outcome has happened.
    """

    name: str
    label: str
    approval: Approval
    description: str
    parameters: type[_P]
    arm: Callable[[_P], Arm]
    shown: Callable[[_P, ResultArm], str | None]
    keyed: bool = False
    look: str = ""


def _given(value: _T | UnsetType, absent: _T) -> _T:
    return absent if value is UNSET else value


# --- reads ----------------------------------------------------------------------------------------------------------


def _shown_issue(_: parameters.GetIssue, result: ResultArm) -> str | None:
    return reads.issue(result.issue) if isinstance(result, schema.IssueResult) else None


def _shown_pull_request(_: parameters.GetPullRequest, result: ResultArm) -> str | None:
    return reads.pull_request(result.pull_request) if isinstance(result, schema.PullRequestResult) else None


def _shown_issues(given: parameters.ListIssues, result: ResultArm) -> str | None:
    return reads.issues(result, given.repo) if isinstance(result, schema.IssuesResult) else None


def _list_arm(given: parameters.ListIssues) -> Arm:
    return schema.ListIssues(
        repo=given.repo,
        state=_given(given.state, ""),
        labels=_given(given.labels, []),
        limit=_given(given.limit, 0),
        cursor=_given(given.cursor, ""),
    )


# --- writes ---------------------------------------------------------------------------------------------------------


def _shown_issue_comment(given: parameters.CommentOnIssue, result: ResultArm) -> str | None:
    if not isinstance(result, schema.IssueCommentResult):
        return None
    return lines.commented(result.comment, given.issue_number, pull=False)


def _shown_pull_comment(given: parameters.CommentOnPullRequest, result: ResultArm) -> str | None:
    if not isinstance(result, schema.PullRequestCommentResult):
        return None
    return lines.commented(result.comment, given.pull_number, pull=True)


def _review_arm(given: parameters.SubmitReview) -> Arm:
    return schema.SubmitReview(
        repo=given.repo,
        pull_number=given.pull_number,
        verdict=given.verdict,
        body=_given(given.body, ""),
        comments=[
            schema.InlineComment(
                path=each.path,
                line=each.line,
                body=each.body,
                side=_given(each.side, ""),
                start_line=_given(each.start_line, 0),
                start_side=_given(each.start_side, ""),
            )
            for each in given.comments or ()
        ],
    )


def _shown_review(given: parameters.SubmitReview, result: ResultArm) -> str | None:
    return lines.reviewed(result.review, given.pull_number) if isinstance(result, schema.ReviewResult) else None


def _issue_arm(given: parameters.CreateIssue) -> Arm:
    return schema.CreateIssue(
        repo=given.repo, title=given.title, body=_given(given.body, ""), labels=_given(given.labels, [])
    )


def _shown_created_issue(_: parameters.CreateIssue, result: ResultArm) -> str | None:
    return _shown_created(result, schema.IssueResult)


def _pull_arm(given: parameters.CreatePullRequest) -> Arm:
    return schema.CreatePullRequest(
        repo=given.repo,
        title=given.title,
        head_ref=given.head_ref,
        body=_given(given.body, ""),
        base_ref=_given(given.base_ref, ""),
        draft=_given(given.draft, absent=False),
    )


def _shown_created_pull(_: parameters.CreatePullRequest, result: ResultArm) -> str | None:
    return _shown_created(result, schema.PullRequestResult)


def _shown_created(result: ResultArm, expected: type[ResultArm]) -> str | None:
    """A replayed create is of the stored kind, which may be the other one."""
    match result:
        case schema.IssueResult():
            made: schema.Issue = result.issue
        case schema.PullRequestResult():
            made = result.pull_request
        case _:
            return None
    return lines.created(made) if made.replayed or isinstance(result, expected) else None


def _shown_subscribed(given: parameters.Subscribe, result: ResultArm) -> str | None:
    if not isinstance(result, schema.SubscribedResult):
        return None
    return lines.subscribed(result.subscription_id, given.kind, given.number, given.repo)


def _shown_unsubscribed(given: parameters.Unsubscribe, result: ResultArm) -> str | None:
    return lines.unsubscribed(given.subscription_id) if isinstance(result, schema.UnsubscribedResult) else None


# --- the table ------------------------------------------------------------------------------------------------------

SPECS: Final[tuple[Spec[Any], ...]] = (  # Any: each has parameters of its own
    Spec(
        name="forge_get_issue",
        label="Get issue",
        approval="read",
        description=descriptions.GET_ISSUE,
        parameters=parameters.GetIssue,
        arm=lambda given: schema.GetIssue(repo=given.repo, issue_number=given.issue_number),
        shown=_shown_issue,
    ),
    Spec(
        name="forge_get_pull_request",
        label="Get pull request",
        approval="read",
        description=descriptions.GET_PULL_REQUEST,
        parameters=parameters.GetPullRequest,
        arm=lambda given: schema.GetPullRequest(repo=given.repo, pull_number=given.pull_number),
        shown=_shown_pull_request,
    ),
    Spec(
        name="forge_list_issues",
        label="List issues",
        approval="read",
        description=descriptions.LIST_ISSUES,
        parameters=parameters.ListIssues,
        arm=_list_arm,
        shown=_shown_issues,
    ),
    Spec(
        name="forge_comment_on_issue",
        label="Comment on issue",
        approval="write",
        description=descriptions.COMMENT_ON_ISSUE,
        parameters=parameters.CommentOnIssue,
        arm=lambda given: schema.CommentOnIssue(repo=given.repo, issue_number=given.issue_number, body=given.body),
        shown=_shown_issue_comment,
        look="whether the comment was posted is unknown: look with forge_get_issue before you call again, since a new "
        "call posts a new comment",
    ),
    Spec(
        name="forge_comment_on_pull_request",
        label="Comment on pull request",
        approval="write",
        description=descriptions.COMMENT_ON_PULL_REQUEST,
        parameters=parameters.CommentOnPullRequest,
        arm=lambda given: schema.CommentOnPullRequest(repo=given.repo, pull_number=given.pull_number, body=given.body),
        shown=_shown_pull_comment,
        look="whether the comment was posted is unknown: look with forge_get_pull_request before you call again, "
        "since a new call posts a new comment",
    ),
    Spec(
        name="forge_submit_review",
        label="Submit review",
        approval="write",
        description=descriptions.SUBMIT_REVIEW,
        parameters=parameters.SubmitReview,
        arm=_review_arm,
        shown=_shown_review,
        look="whether the review was posted is unknown: look with forge_get_pull_request before you call again, since "
        "a new call posts a new review",
    ),
    Spec(
        name="forge_create_issue",
        label="Create issue",
        approval="write",
        description=descriptions.CREATE_ISSUE,
        parameters=parameters.CreateIssue,
        arm=_issue_arm,
        shown=_shown_created_issue,
        keyed=True,
        look="whether the issue was created is unknown: look with forge_list_issues before you call again, since a "
        "new call is a new issue",
    ),
    Spec(
        name="forge_create_pull_request",
        label="Create pull request",
        approval="write",
        description=descriptions.CREATE_PULL_REQUEST,
        parameters=parameters.CreatePullRequest,
        arm=_pull_arm,
        shown=_shown_created_pull,
        keyed=True,
        look="whether the pull request was created is unknown: a new call is a new pull request, unless the forge "
        "answers it with already_exists for the same head_ref; look with forge_get_pull_request if you know its number",
    ),
    Spec(
        name="forge_subscribe",
        label="Subscribe",
        approval="write",
        description=descriptions.SUBSCRIBE,
        parameters=parameters.Subscribe,
        arm=lambda given: schema.Subscribe(repo=given.repo, kind=given.kind, number=given.number),
        shown=_shown_subscribed,
        look="whether the subscription is there is unknown; calling again does no harm",
    ),
    Spec(
        name="forge_unsubscribe",
        label="Unsubscribe",
        approval="write",
        description=descriptions.UNSUBSCRIBE,
        parameters=parameters.Unsubscribe,
        arm=lambda given: schema.Unsubscribe(subscription_id=given.subscription_id),
        shown=_shown_unsubscribed,
        look="whether the subscription has ended is unknown; calling again does no harm",
    ),
)
