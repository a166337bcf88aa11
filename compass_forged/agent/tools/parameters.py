"""The parameters of the ten tools, as msgspec Structs: what a model is shown, and what its calls are checked against.

A parameter that may be left out is ``UNSET`` when it is. Bounds stand in the types alone: ``schema`` puts them into the
JSON Schema and, in words, behind each description. They are those of the wire, so that nothing passes here that the
daemon would refuse as malformed.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX, LIST_LIMIT_MAX

NON_BLANK = r"\S"
BODY_MAX_CHARS = 262_144
"""More than any forge takes (GitHub: 65,536), and little enough for a frame."""

_NOTE = " Markdown, without an attribution header: the daemon adds it."

Repo: TypeAlias = Annotated[
    str,
    Meta(
        pattern=NON_BLANK,
        max_length=512,
        description="The repository: owner/name on GitHub, such as acme/site; the team key on Linear, such as SEA.",
    ),
]
Title: TypeAlias = Annotated[
    str, Meta(pattern=NON_BLANK, max_length=4096, description="One line. GitHub takes about 256 characters.")
]
HeadRef: TypeAlias = Annotated[
    str,
    Meta(
        pattern=NON_BLANK,
        max_length=1024,
        description="The branch with the changes, which you have already pushed with your own git credential.",
    ),
]
BaseRef: TypeAlias = Annotated[
    str,
    Meta(
        pattern=NON_BLANK,
        max_length=1024,
        description="The branch to merge into. Leave it out for the repository's default branch.",
    ),
]
_IssueNumber: TypeAlias = Annotated[int, Meta(ge=1, le=ARTIFACT_NUMBER_MAX, description="The issue's number.")]
_PullNumber: TypeAlias = Annotated[int, Meta(ge=1, le=ARTIFACT_NUMBER_MAX, description="The pull request's number.")]
_Label: TypeAlias = Annotated[str, Meta(pattern=NON_BLANK, max_length=256, description="A label's name.")]
_Side: TypeAlias = Literal["LEFT", "RIGHT"]


class Selector(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What every tool takes besides its own: which forge to speak to."""

    forge_provider: (
        Annotated[
            Literal["github", "linear", "gitlab", "forgejo"],
            Meta(description="Leave it out for the default GitHub; linear for Linear."),
        ]
        | UnsetType
    ) = UNSET
    forge_host: (
        Annotated[
            str,
            Meta(
                pattern=NON_BLANK,
                max_length=255,
                description="The forge's host name, where a provider has several; needs forge_provider. Leave it out "
                "for the provider's default host.",
            ),
        ]
        | UnsetType
    ) = UNSET


class GetIssue(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_get_issue."""

    repo: Repo
    issue_number: _IssueNumber


class GetPullRequest(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_get_pull_request."""

    repo: Repo
    pull_number: _PullNumber


class ListIssues(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_list_issues."""

    repo: Repo
    state: Annotated[Literal["open", "closed", "all"], Meta(description="Leave it out for open.")] | UnsetType = UNSET
    labels: (
        Annotated[list[_Label], Meta(max_length=100, description="Only issues that have all of these labels.")]
        | UnsetType
    ) = UNSET
    limit: (
        Annotated[int, Meta(ge=1, le=LIST_LIMIT_MAX, description="How many issues at most. Leave it out for 30.")]
        | UnsetType
    ) = UNSET
    cursor: (
        Annotated[
            str,
            Meta(
                pattern=NON_BLANK,
                max_length=2048,
                description="For the next page: the cursor that the page before it named. All else as for that page.",
            ),
        ]
        | UnsetType
    ) = UNSET


class CommentOnIssue(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_comment_on_issue."""

    repo: Repo
    issue_number: _IssueNumber
    body: Annotated[
        str, Meta(pattern=NON_BLANK, max_length=BODY_MAX_CHARS, description="The text of the comment." + _NOTE)
    ]


class CommentOnPullRequest(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_comment_on_pull_request."""

    repo: Repo
    pull_number: _PullNumber
    body: Annotated[
        str, Meta(pattern=NON_BLANK, max_length=BODY_MAX_CHARS, description="The text of the comment." + _NOTE)
    ]


class InlineComment(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A comment of forge_submit_review at lines of the diff."""

    path: Annotated[
        str, Meta(pattern=NON_BLANK, max_length=4096, description="The file's path from the root of the repository.")
    ]
    line: Annotated[int, Meta(ge=1, le=ARTIFACT_NUMBER_MAX, description="The line; the last one of several.")]
    body: Annotated[
        str, Meta(pattern=NON_BLANK, max_length=BODY_MAX_CHARS, description="The text of the comment. Markdown.")
    ]
    side: (
        Annotated[_Side, Meta(description="LEFT for a line as it was before. Leave it out for RIGHT.")] | UnsetType
    ) = UNSET
    start_line: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=ARTIFACT_NUMBER_MAX,
                description="The first line of several, not after line. Leave it out for a single line.",
            ),
        ]
        | UnsetType
    ) = UNSET
    start_side: (
        Annotated[_Side, Meta(description="The side of start_line, which it needs. Leave it out for side's.")]
        | UnsetType
    ) = UNSET


class SubmitReview(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_submit_review."""

    repo: Repo
    pull_number: _PullNumber
    verdict: Annotated[Literal["approve", "request_changes", "comment"], Meta(description="What the review comes to.")]
    body: (
        Annotated[
            str,
            Meta(
                max_length=BODY_MAX_CHARS,
                description="The review's summary; not blank unless verdict is approve, which needs none." + _NOTE,
            ),
        ]
        | UnsetType
    ) = UNSET
    comments: (
        Annotated[list[InlineComment], Meta(max_length=300, description="Comments at lines of the diff.")] | UnsetType
    ) = UNSET


class CreateIssue(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_create_issue."""

    repo: Repo
    title: Title
    body: Annotated[str, Meta(max_length=BODY_MAX_CHARS, description="The issue's text." + _NOTE)] | UnsetType = UNSET
    labels: (
        Annotated[list[_Label], Meta(max_length=100, description="Labels to put on it, which exist already.")]
        | UnsetType
    ) = UNSET


class CreatePullRequest(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_create_pull_request."""

    repo: Repo
    title: Title
    head_ref: HeadRef
    base_ref: BaseRef | UnsetType = UNSET
    body: (
        Annotated[str, Meta(max_length=BODY_MAX_CHARS, description="The pull request's text." + _NOTE)] | UnsetType
    ) = UNSET
    draft: Annotated[bool, Meta(description="Whether it is a draft. Leave it out for false.")] | UnsetType = UNSET


class Subscribe(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_subscribe."""

    repo: Repo
    kind: Annotated[Literal["issue", "pull_request"], Meta(description="What the number is the number of.")]
    number: Annotated[int, Meta(ge=1, le=ARTIFACT_NUMBER_MAX, description="The number of the issue or pull request.")]


class Unsubscribe(Selector, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Of forge_unsubscribe."""

    subscription_id: Annotated[
        str, Meta(pattern=NON_BLANK, max_length=128, description="The id that forge_subscribe gave.")
    ]
