"""Changes to branches, pull requests, reviews and checks, as people, Apps and requests make them.

The records stand in ``state``; here is what a change of one means for the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compass_forged.emulator.diffs import Place, place_of
from compass_forged.emulator.records import (
    Account,
    Branch,
    ChangedFile,
    CheckRun,
    CommitStatus,
    Issue,
    PullFacts,
    Repo,
    Review,
    ReviewComment,
    ReviewState,
    Side,
    sha_of,
)
from compass_forged.emulator.state import ForgeState, UnknownName

EVENTS: Final[Mapping[str, ReviewState]] = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}
"""Each event of a review, and the state that it puts it into."""


@dataclass(frozen=True, slots=True)
class NewComment:
    """A comment of a review that is to be made; ``start`` is the first line of a range."""

    path: str
    body: str
    side: Side
    line: int
    start: tuple[Side, int] | None = None


def facts(pull: Issue) -> PullFacts:
    """What makes ``pull`` a pull request.

    Raises:
        UnknownName: it is an issue.
    """
    if pull.pull is None:
        raise UnknownName(f"#{pull.number}: is no pull request")
    return pull.pull


def push(state: ForgeState, repo: Repo, name: str, files: Sequence[ChangedFile], *, force: bool = False) -> Branch:
    """A new commit on a branch, which then changes ``files`` against the default branch; a new branch if need be.

    Open pull requests of the branch follow; comments on lines that their diff no longer shows are outdated. ``force``
    rewrites the branch's history.
    """
    old = repo.branches.get(name)
    branch = Branch(name, sha_of(name, old.sha if old else state.full_name(repo)), list(files))
    repo.branches[name] = branch
    for base in state.repos.values():
        for issue in base.issues.values():
            pull = issue.pull
            if pull and issue.state == "open" and pull.head == name and (pull.head_repo_id or base.id) == repo.id:
                _follow(pull, branch, force=force)
                issue.updated_at = state.now()
    return branch


def _follow(pull: PullFacts, branch: Branch, *, force: bool) -> None:
    if force:
        pull.diffs.clear()
    pull.head_sha = branch.sha
    pull.diffs[branch.sha] = branch.files
    for comment in pull.review_comments:
        if comment.line is not None:
            here = find_line(branch.files, comment.path, comment.side, comment.line)
            comment.position = here.position if here else None
            comment.line = comment.line if here else None


def find_line(files: Iterable[ChangedFile], path: str, side: Side, line: int) -> Place | None:
    """Where a line stands in the diff of ``files``; None if the diff does not show it."""
    patch = next((file.patch for file in files if file.name == path), None)
    return place_of(patch, side, line) if patch else None


def open_pull(
    state: ForgeState,
    repo: Repo,
    author: Account,
    title: str,
    body: str | None,
    head: Branch,
    base: str,
    *,
    head_repo: Repo | None = None,
    draft: bool = False,
) -> Issue:
    """Open a pull request for a branch of the repository, or of a fork."""
    pull = PullFacts(
        head=head.name,
        base=base,
        draft=draft,
        head_sha=head.sha,
        base_sha=repo.branches[base].sha,
        head_repo_id=head_repo.id if head_repo else None,
        diffs={head.sha: head.files},
    )
    return state.add_issue(repo, author, title, body, pull=pull)


def merge(state: ForgeState, pull: Issue, by: Account) -> None:
    """Merge a pull request, which closes it."""
    facts(pull).merged_at = state.now()
    state.set_issue_state(pull, "closed", by)


# --- reviews ----------------------------------------------------------------------------------------------------------


def add_review(
    state: ForgeState,
    pull: Issue,
    author: Account,
    event: str | None,
    body: str,
    comments: Sequence[NewComment] = (),
    *,
    commit: str | None = None,
) -> Review:
    """Review a pull request; without an event the review stays pending.

    Raises:
        UnknownName: a comment's line is not part of the diff at the commit.
    """
    held = facts(pull)
    at = commit or held.head_sha
    pending = event is None
    review = Review(
        id=next(state.ids.reviews),
        author_id=author.id,
        body=body,
        state="PENDING" if event is None else EVENTS[event],
        commit=at,
        submitted_at=None if pending else state.now(),
    )
    made = [_comment(state, held, review, author, comment) for comment in comments]
    held.reviews.append(review)
    held.review_comments += made
    pull.updated_at = state.now()
    return review


def _comment(state: ForgeState, pull: PullFacts, review: Review, author: Account, wanted: NewComment) -> ReviewComment:
    here = find_line(pull.diffs[review.commit], wanted.path, wanted.side, wanted.line)
    if here is None:
        raise UnknownName(f"{wanted.path}:{wanted.line}: not a line of the diff")
    start_side, start_line = wanted.start or (None, None)
    return ReviewComment(
        id=next(state.ids.comments),
        review_id=review.id,
        author_id=author.id,
        path=wanted.path,
        body=wanted.body,
        side=wanted.side,
        line=wanted.line,
        original_line=wanted.line,
        start_side=start_side,
        start_line=start_line,
        position=here.position,
        hunk=here.upto,
        commit=review.commit,
        created_at=state.now(),
    )


def reply(state: ForgeState, pull: Issue, author: Account, to: int, body: str) -> ReviewComment:
    """Answer a review comment, in a review of its own, as GitHub does.

    Raises:
        UnknownName: there is none of that id.
    """
    held = facts(pull)
    above = next((each for each in held.review_comments if each.id == to), None)
    if above is None:
        raise UnknownName(f"review comment {to}: not there")
    review = add_review(state, pull, author, "COMMENT", "")
    made = replace(
        above,
        id=next(state.ids.comments),
        review_id=review.id,
        author_id=author.id,
        body=body,
        created_at=state.now(),
        reply_to=above.reply_to or above.id,
    )
    held.review_comments.append(made)
    return made


def submit_pending(state: ForgeState, review: Review, event: str, body: str | None = None) -> None:
    """Submit a review that was begun; ``body`` replaces its own."""
    review.state = EVENTS[event]
    review.body = review.body if body is None else body
    review.submitted_at = state.now()


def delete_review(pull: Issue, review: Review) -> None:
    """Take a review away, and its comments."""
    held = facts(pull)
    held.reviews.remove(review)
    held.review_comments = [each for each in held.review_comments if each.review_id != review.id]


# --- checks -----------------------------------------------------------------------------------------------------------


def add_check_run(
    state: ForgeState,
    repo: Repo,
    sha: str,
    name: str,
    conclusion: str | None = None,
    *,
    status: str | None = None,
    suite: int = 1,
) -> CheckRun:
    """A check run on a commit: completed where it has a conclusion, else in progress or as ``status`` says."""
    run = CheckRun(
        id=next(state.ids.checks),
        sha=sha,
        name=name,
        status=status or ("completed" if conclusion else "in_progress"),
        conclusion=conclusion,
        started_at=state.now(),
        suite=suite,
    )
    repo.check_runs.append(run)
    return run


def set_status(state: ForgeState, repo: Repo, sha: str, context: str, status: str) -> CommitStatus:
    """A status on a commit; it takes the place of the one before of the same context."""
    made = CommitStatus(next(state.ids.checks), sha, context, status, state.now())
    repo.statuses.append(made)
    return made
