"""The frames, arms and canonical types that cross a container's socket, as msgspec Structs.

The schema evolves by adding optional fields and new tags only; a tag is never reused. Structs of the request
direction forbid fields they do not know, since a misspelt ``client_request_id`` must not silently become something
else; structs of the reply direction ignore them, so that an older client can talk to a newer daemon.

Length limits on strings and lists are part of the structure: going over one is a fault, not a domain error. Values
(an unknown verdict, a blank title, a number of 0) are judged by the service and answered in-band.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

CALL_ID_MAX_BYTES = 128
CLIENT_REQUEST_ID_MAX_CHARS = 256
ARTIFACT_NUMBER_MAX = 2**63 - 1
LIST_LIMIT_DEFAULT = 30
LIST_LIMIT_MAX = 100

_Repo: TypeAlias = Annotated[str, Meta(max_length=512)]
_Title: TypeAlias = Annotated[str, Meta(max_length=4096)]
_Ref: TypeAlias = Annotated[str, Meta(max_length=1024)]
_Path: TypeAlias = Annotated[str, Meta(max_length=4096)]
_Word: TypeAlias = Annotated[str, Meta(max_length=64)]
_Host: TypeAlias = Annotated[str, Meta(max_length=255)]
_Cursor: TypeAlias = Annotated[str, Meta(max_length=2048)]
_Labels: TypeAlias = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=100)]


PROVIDERS = ("github", "gitlab", "forgejo", "linear")
"""Every provider that has a word on the wire; which of them a daemon has is its configuration's matter."""


# --- canonical types, reply direction -------------------------------------------------------------------------------


class ForgeRef(Struct, frozen=True):
    """One configured forge, as a reply names it: ``provider`` is a lower-case word, ``host`` a host name."""

    provider: str
    host: str


class ForgeAccount(Struct, frozen=True):
    """The forge's own account behind a text. ``login`` is ``ghost`` where the forge no longer knows it."""

    login: str
    is_bot: bool = False


GHOST = ForgeAccount(login="ghost")


class Attribution(Struct, frozen=True):
    """Which agent wrote an artifact, for which owner, in which session.

    ``verified`` is true only where the daemon's own ownership index holds the artifact. Otherwise the three words
    were parsed from the text, which anyone can write: a claim.
    """

    agent: str
    owner: str
    session: str
    verified: bool = False


class Comment(Struct, kw_only=True):
    """A comment on an issue or pull request, its body without the owner header. Times are RFC 3339 in UTC."""

    id: str
    author: ForgeAccount
    body: str
    url: str
    created_at: str
    attribution: Attribution | None = None


class CommentRef(Struct, frozen=True):
    """The acknowledgement of a written comment."""

    url: str
    comment_id: str


class ReviewRef(Struct, kw_only=True, frozen=True):
    """The acknowledgement of a submitted review. ``verdict`` is the write token that was applied.

    ``inline_count`` comments stand at their lines, ``folded_count`` were folded into the summary since their lines
    are not part of the diff. ``warnings`` says what was not done as asked.
    """

    url: str
    review_id: str
    verdict: str
    inline_count: int = 0
    folded_count: int = 0
    warnings: list[str] = field(default_factory=list)


class Issue(Struct, kw_only=True):
    """An issue in the canonical shape. ``id`` is "" where the store does not track the artifact.

    ``replayed`` says that this create was answered from the memo: forge, repo, number, url and created_at are filled,
    all else is empty. ``replay_mismatch`` says that the key was reused with another payload, or that what stood already
    is not what was asked for.
    """

    forge: ForgeRef
    repo: str
    number: int
    id: str = ""
    title: str = ""
    body: str = ""
    state: Literal["open", "closed", ""] = ""
    labels: list[str] = field(default_factory=list)
    url: str = ""
    author: ForgeAccount | None = None
    attribution: Attribution | None = None
    created_at: str = ""
    updated_at: str = ""
    comments: list[Comment] = field(default_factory=list)
    comments_total: int = 0
    replayed: bool = False
    replay_mismatch: bool = False
    warnings: list[str] = field(default_factory=list)


class Checks(Struct, kw_only=True):
    """The roll-up of check runs and commit statuses at a pull request's head. ``failed`` names the failed ones."""

    state: Literal["success", "failure", "pending", "neutral", "none"] = "none"
    total: int = 0
    failed: list[str] = field(default_factory=list)


class Review(Struct, kw_only=True):
    """A submitted review, its body without the owner header; ``verdict`` in the read vocabulary."""

    author: ForgeAccount
    verdict: Literal["approved", "changes_requested", "commented", "dismissed", "pending"]
    body: str = ""
    attribution: Attribution | None = None


class ReviewThread(Struct, kw_only=True):
    """Review comments at one place. ``line`` is None once outdated; ``resolved`` None where the forge does not say."""

    path: str
    line: int | None = None
    resolved: bool | None = None
    comments: list[Comment] = field(default_factory=list)


class PullRequest(Issue, kw_only=True):
    """A pull request: everything an issue has, and its branches, checks, reviews and threads."""

    head_ref: str = ""
    base_ref: str = ""
    head_sha: str = ""
    draft: bool = False
    merged: bool = False
    checks: Checks | None = None
    reviews: list[Review] = field(default_factory=list)
    threads: list[ReviewThread] = field(default_factory=list)


# --- arms of a call, request direction ------------------------------------------------------------------------------


class _Arm(Struct, tag_field="arm", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What the ten arms share: the tag field, and that an unknown field is refused."""


class CreateIssue(_Arm, tag="create_issue", frozen=True, kw_only=True):
    """Open an issue. ``body`` comes without an owner header and may be empty."""

    repo: _Repo
    title: _Title
    body: str = ""
    labels: _Labels = field(default_factory=list)


class CommentOnIssue(_Arm, tag="comment_on_issue", frozen=True, kw_only=True):
    """Comment on an issue."""

    repo: _Repo
    issue_number: int
    body: str


class CreatePullRequest(_Arm, tag="create_pull_request", frozen=True, kw_only=True):
    """Open a pull request. ``base_ref`` "" is the repository's default branch."""

    repo: _Repo
    title: _Title
    head_ref: _Ref
    body: str = ""
    base_ref: _Ref = ""
    draft: bool = False


class CommentOnPullRequest(_Arm, tag="comment_on_pull_request", frozen=True, kw_only=True):
    """Comment on a pull request's conversation."""

    repo: _Repo
    pull_number: int
    body: str


class InlineComment(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A review comment at a line of the diff. ``side`` "" means RIGHT; ``start_line`` 0 means a single line."""

    path: _Path
    line: int
    body: str
    side: _Word = ""
    start_line: int = 0
    start_side: _Word = ""


class SubmitReview(_Arm, tag="submit_review", frozen=True, kw_only=True):
    """Review a pull request in one go: verdict, summary, inline comments."""

    repo: _Repo
    pull_number: int
    verdict: _Word
    body: str = ""
    comments: Annotated[list[InlineComment], Meta(max_length=300)] = field(default_factory=list)


class GetIssue(_Arm, tag="get_issue", frozen=True, kw_only=True):
    """Read an issue with its newest comments."""

    repo: _Repo
    issue_number: int


class ListIssues(_Arm, tag="list_issues", frozen=True, kw_only=True):
    """List issues. ``state`` "" means open, ``limit`` 0 means 30 and over 100 counts as 100."""

    repo: _Repo
    state: _Word = ""
    labels: _Labels = field(default_factory=list)
    limit: int = 0
    cursor: _Cursor = ""


class GetPullRequest(_Arm, tag="get_pull_request", frozen=True, kw_only=True):
    """Read a pull request with its checks, reviews and threads."""

    repo: _Repo
    pull_number: int


class Subscribe(_Arm, tag="subscribe", frozen=True, kw_only=True):
    """Keep a subscription to an artifact: ``kind`` is ``issue`` or ``pull_request``."""

    repo: _Repo
    kind: _Word
    number: int


class Unsubscribe(_Arm, tag="unsubscribe", frozen=True, kw_only=True):
    """Drop a subscription."""

    subscription_id: Annotated[str, Meta(max_length=128)]


Arm: TypeAlias = (
    CreateIssue
    | CommentOnIssue
    | CreatePullRequest
    | CommentOnPullRequest
    | SubmitReview
    | GetIssue
    | ListIssues
    | GetPullRequest
    | Subscribe
    | Unsubscribe
)
ARMS: tuple[type[Arm], ...] = (
    CreateIssue,
    CommentOnIssue,
    CreatePullRequest,
    CommentOnPullRequest,
    SubmitReview,
    GetIssue,
    ListIssues,
    GetPullRequest,
    Subscribe,
    Unsubscribe,
)
ARM_NAMES: tuple[str, ...] = tuple(str(arm.__struct_config__.tag) for arm in ARMS)
READ_ARMS: tuple[type[Arm], ...] = (GetIssue, ListIssues, GetPullRequest)


def arm_name(arm: Arm) -> str:
    """The arm's tag, such as ``create_issue``."""
    return str(arm.__struct_config__.tag)


class ForgeSelector(Struct, forbid_unknown_fields=True, frozen=True):
    """Which forge a call addresses. An empty host is the provider's default host."""

    provider: _Word
    host: _Host = ""


# --- arms of a result, reply direction ------------------------------------------------------------------------------


class _Result(Struct, tag_field="arm", kw_only=True, frozen=True):
    """What the result arms share: the tag field."""


class IssueResult(_Result, tag="issue", frozen=True, kw_only=True):
    """Answers create_issue and get_issue."""

    issue: Issue


class IssueCommentResult(_Result, tag="issue_comment", frozen=True, kw_only=True):
    """Answers comment_on_issue."""

    comment: CommentRef


class PullRequestResult(_Result, tag="pull_request", frozen=True, kw_only=True):
    """Answers create_pull_request and get_pull_request."""

    pull_request: PullRequest


class PullRequestCommentResult(_Result, tag="pr_comment", frozen=True, kw_only=True):
    """Answers comment_on_pull_request."""

    comment: CommentRef


class ReviewResult(_Result, tag="review", frozen=True, kw_only=True):
    """Answers submit_review."""

    review: ReviewRef


class IssuesResult(_Result, tag="issues", frozen=True, kw_only=True):
    """Answers list_issues. ``next_cursor`` is "" on the last page. Items carry no comments.

    ``warnings`` says what of the page is missing, such as items of the forge's that could not be read.
    """

    items: list[Issue]
    next_cursor: str = ""
    warnings: list[str] = field(default_factory=list)


class SubscribedResult(_Result, tag="subscribed", frozen=True, kw_only=True):
    """Answers subscribe."""

    subscription_id: str


class UnsubscribedResult(_Result, tag="unsubscribed", frozen=True, kw_only=True):
    """Answers unsubscribe."""


ErrorCode: TypeAlias = Literal[
    "invalid_argument",
    "not_found",
    "permission_denied",
    "failed_precondition",
    "already_exists",
    "resource_exhausted",
    "unimplemented",
    "unavailable",
    "deadline_exceeded",
    "internal",
]
Outcome: TypeAlias = Literal["", "not_sent", "rejected", "unknown"]


class ErrorResult(_Result, tag="error", frozen=True, kw_only=True):
    """A domain failure, answered in-band: the connection lives on.

    ``retry_after_ms`` is 0 where nothing is known. ``outcome`` says of a failed write whether it was ``not_sent``,
    ``rejected``, or is ``unknown`` (sent, no answer: retry a create under the same ``client_request_id``); it is ""
    on a failed read.
    """

    code: str
    message: str
    retry_after_ms: int = 0
    outcome: str = ""


ResultArm: TypeAlias = (
    IssueResult
    | IssueCommentResult
    | PullRequestResult
    | PullRequestCommentResult
    | ReviewResult
    | IssuesResult
    | SubscribedResult
    | UnsubscribedResult
    | ErrorResult
)


# --- frames ---------------------------------------------------------------------------------------------------------


class CallFrame(Struct, tag_field="frame", tag="call", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A call, agent to daemon. ``call`` stays raw until the envelope is known to be good.

    ``timeout_ms`` 0 is absent; it lowers the daemon's own deadline for the arm and never raises it.
    ``client_request_id`` "" is absent; it counts on the two create arms only.
    """

    call_id: Annotated[str, Meta(min_length=1, max_length=CALL_ID_MAX_BYTES)]
    call: Raw
    forge: ForgeSelector | None = None
    client_request_id: Annotated[str, Meta(max_length=CLIENT_REQUEST_ID_MAX_CHARS)] = ""
    timeout_ms: Annotated[int, Meta(ge=0, le=ARTIFACT_NUMBER_MAX)] = 0


class ResultFrame(Struct, tag_field="frame", tag="result", kw_only=True, frozen=True):
    """The answer to a call, daemon to agent; ``result`` may be a domain failure."""

    call_id: str
    result: ResultArm


FaultCode: TypeAlias = Literal["permission_denied", "not_found", "unavailable", "invalid_argument", "internal"]


class FaultFrame(Struct, tag_field="frame", tag="fault", kw_only=True, frozen=True):
    """A failure of the relay itself, daemon to agent. ``call_id`` is "" where it could not be read."""

    call_id: str
    code: str
    message: str
    retry_after_ms: int = 0


ReplyFrame: TypeAlias = ResultFrame | FaultFrame


class ForgeCall(Struct, kw_only=True, frozen=True):
    """A call after decoding: the envelope's fields and its typed arm. This is what travels inside the daemon."""

    call_id: str
    arm: Arm
    forge: ForgeSelector | None = None
    client_request_id: str = ""
    timeout_ms: int = 0
