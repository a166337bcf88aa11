"""The records that the forge holds: accounts, repositories, issues, pull requests, comments, labels, checks.

An issue and a pull request are one kind of record, as on GitHub. ``state`` holds them all, and counts their ids.
"""

from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha1
from typing import Literal, TypeAlias

AccountType: TypeAlias = Literal["User", "Bot", "Organization"]
Presence: TypeAlias = Literal["live", "ghost", "gone"]
Permission: TypeAlias = Literal["read", "push", "admin"]
IssueState: TypeAlias = Literal["open", "closed"]
ReviewState: TypeAlias = Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
FileStatus: TypeAlias = Literal["added", "removed", "modified", "renamed", "copied", "changed", "unchanged"]
Side: TypeAlias = Literal["LEFT", "RIGHT"]

DEFAULT_LABEL_COLOR = "ededed"
"""The colour GitHub gives to a label that is created by naming it on an issue (seen in recorded answers)."""


@dataclass(slots=True)
class Account:
    """Who writes. ``presence``: ``ghost`` shows as GitHub's ghost account, ``gone`` as a null user."""

    id: int
    login: str
    type: AccountType
    created_at: datetime
    name: str | None = None
    presence: Presence = "live"
    members: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class Label:
    """A label of a repository. Names compare without regard to case."""

    id: int
    name: str
    color: str = DEFAULT_LABEL_COLOR
    description: str | None = None
    default: bool = False


@dataclass(slots=True)
class Comment:
    """A comment on an issue or on a pull request's conversation; ``issue`` is the number."""

    id: int
    repo_id: int
    issue: int
    author_id: int
    body: str
    created_at: datetime
    updated_at: datetime


def sha_of(*words: str) -> str:
    """A commit's name: the same for the same words."""
    return sha1("\0".join(words).encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class ChangedFile:
    """A file as a branch changes it against the default branch.

    Attributes:
        patch: the hunks of its unified diff; None for what GitHub shows none of, a binary or an oversize file.
        previous_name: its name before, if it was renamed.
    """

    name: str
    patch: str | None
    status: FileStatus = "modified"
    previous_name: str | None = None


@dataclass(slots=True)
class Branch:
    """A branch: its head commit, and what it changes against the default branch."""

    name: str
    sha: str
    files: list[ChangedFile] = field(default_factory=list[ChangedFile])


@dataclass(slots=True)
class CheckRun:
    """A check run on a commit; ``suite`` tells the workflows apart that name their jobs alike."""

    id: int
    sha: str
    name: str
    status: str
    conclusion: str | None
    started_at: datetime
    suite: int


@dataclass(slots=True)
class CommitStatus:
    """A status on a commit; a later one of the same context takes its place."""

    id: int
    sha: str
    context: str
    state: str
    created_at: datetime


@dataclass(slots=True)
class ReviewComment:
    """A comment on a line of a pull request's diff.

    Attributes:
        line: None once the diff has moved on from it; ``original_line`` stays.
        reply_to: the id of the comment that begins its thread.
    """

    id: int
    review_id: int
    author_id: int
    path: str
    body: str
    side: Side
    line: int | None
    original_line: int
    start_side: Side | None
    start_line: int | None
    position: int | None
    hunk: str
    commit: str
    created_at: datetime
    reply_to: int | None = None


@dataclass(slots=True)
class Review:
    """A review of a pull request; a pending one is seen by its author alone."""

    id: int
    author_id: int
    body: str
    state: ReviewState
    commit: str
    submitted_at: datetime | None


@dataclass(slots=True)
class PullFacts:
    """What makes an issue a pull request.

    Attributes:
        head_repo_id: where its head branch lives; None for the repository itself.
        diffs: what it changes, by each head commit that it has had since its history was rewritten.
    """

    head: str = "topic"
    base: str = "main"
    draft: bool = False
    merged_at: datetime | None = None
    head_sha: str = sha_of("topic")
    base_sha: str = sha_of("main")
    head_repo_id: int | None = None
    diffs: dict[str, list[ChangedFile]] = field(default_factory=dict[str, list[ChangedFile]])
    reviews: list[Review] = field(default_factory=list[Review])
    review_comments: list[ReviewComment] = field(default_factory=list[ReviewComment])

    @property
    def files(self) -> list[ChangedFile]:
        """What it changes now."""
        return self.diffs.get(self.head_sha, [])


@dataclass(slots=True)
class Issue:
    """An issue, or a pull request seen as one (``pull`` is set).

    Attributes:
        labels: ids of the repository's labels, in the order they were set.
        transferred_to: (repository id, number) of the issue it became; its old address redirects.
    """

    id: int
    number: int
    repo_id: int
    author_id: int
    title: str
    body: str | None
    created_at: datetime
    updated_at: datetime
    state: IssueState = "open"
    state_reason: str | None = None
    closed_at: datetime | None = None
    closed_by_id: int | None = None
    labels: list[int] = field(default_factory=list[int])
    assignees: list[int] = field(default_factory=list[int])
    comments: list[int] = field(default_factory=list[int])
    locked: bool = False
    deleted: bool = False
    transferred_to: tuple[int, int] | None = None
    pull: PullFacts | None = None


@dataclass(slots=True)
class Repo:
    """A repository. ``permissions`` maps account ids to what they may do beyond what everybody may."""

    id: int
    owner_id: int
    name: str
    created_at: datetime
    private: bool = False
    archived: bool = False
    has_issues: bool = True
    default_branch: str = "main"
    fork_of: int | None = None
    permissions: dict[int, Permission] = field(default_factory=dict[int, Permission])
    branches: dict[str, Branch] = field(default_factory=dict[str, Branch])
    check_runs: list[CheckRun] = field(default_factory=list[CheckRun])
    statuses: list[CommitStatus] = field(default_factory=list[CommitStatus])
    former_names: set[str] = field(default_factory=set[str])
    labels: dict[int, Label] = field(default_factory=dict[int, Label])
    issues: dict[int, Issue] = field(default_factory=dict[int, Issue])

    def label_named(self, name: str) -> Label | None:
        """The label of that name, whatever its case; None if there is none."""
        return next((label for label in self.labels.values() if label.name.casefold() == name.casefold()), None)
