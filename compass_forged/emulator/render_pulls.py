"""What pull requests, reviews and checks look like in GitHub's answers.

Shapes: the OpenAPI document's ``pull-request``, ``pull-request-simple``, ``diff-entry``, ``pull-request-review``,
``pull-request-review-comment``, ``check-run`` and ``combined-commit-status``.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from compass_forged.emulator.diffs import counts
from compass_forged.emulator.pull_changes import facts
from compass_forged.emulator.records import (
    ChangedFile,
    CheckRun,
    CommitStatus,
    Issue,
    Repo,
    Review,
    ReviewComment,
    sha_of,
)
from compass_forged.emulator.refusals import JsonObject
from compass_forged.emulator.render import Renderer, maybe_timestamp, node_id, reactions, timestamp

_FULL_ONLY: Final = ("organization", "permissions", "subscribers_count", "network_count", "temp_clone_token")
_MINIMAL_NOT: Final = frozenset({"license"})
_APP_ID: Final = 15368
"""The id of the App under which every check run stands here; on github.com it is that of GitHub Actions."""


@dataclass(frozen=True, slots=True)
class PullRenderer:
    """Renders the pull requests of one forge for one request."""

    render: Renderer

    def _repo(self, pull: Issue) -> Repo:
        return self.render.state.repos[pull.repo_id]

    def pull_url(self, pull: Issue) -> str:
        """The pull request's address in the API."""
        return f"{self.render.repo_url(self._repo(pull))}/pulls/{pull.number}"

    def _page(self, pull: Issue) -> str:
        return self.render.page(pull)

    # --- pull requests

    def simple(self, pull: Issue) -> JsonObject:
        """A pull request as a list shows it."""
        render, held, repo = self.render, facts(pull), self._repo(pull)
        url, page = self.pull_url(pull), self._page(pull)
        issue_url = f"{render.repo_url(repo)}/issues/{pull.number}"
        shown = render.issue(pull)
        same = (
            *("number", "state", "locked", "title", "user", "body", "labels", "milestone", "active_lock_reason"),
            *("created_at", "updated_at", "closed_at", "assignee", "assignees", "author_association"),
        )
        links = {
            "self": url,
            "html": page,
            "issue": issue_url,
            "comments": f"{issue_url}/comments",
            "review_comments": f"{url}/comments",
            "review_comment": f"{render.repo_url(repo)}/pulls/comments{{/number}}",
            "commits": f"{url}/commits",
            "statuses": f"{render.repo_url(repo)}/statuses/{held.head_sha}",
        }
        head_repo = render.state.repos[held.head_repo_id] if held.head_repo_id else repo
        return {
            "url": url,
            "id": pull.id,
            "node_id": node_id("PullRequest", pull.id),
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            **{f"{name}_url": links[name] for name in links if name not in {"self", "html"}},
            **{name: shown[name] for name in same},
            "merged_at": maybe_timestamp(held.merged_at),
            "merge_commit_sha": sha_of("merge", held.head_sha),
            "requested_reviewers": [],
            "requested_teams": [],
            "head": self._end(head_repo, held.head, held.head_sha),
            "base": self._end(repo, held.base, held.base_sha),
            "_links": {name: {"href": href} for name, href in links.items()},
            "auto_merge": None,
            "draft": held.draft,
        }

    def _end(self, repo: Repo, ref: str, sha: str) -> JsonObject:
        owner = self.render.state.accounts[repo.owner_id]
        shown = self.render.repo(repo, None)
        return {
            "label": f"{owner.login}:{ref}",
            "ref": ref,
            "sha": sha,
            "user": self.render.account(owner),
            "repo": {name: value for name, value in shown.items() if name not in _FULL_ONLY},
        }

    def full(self, pull: Issue) -> JsonObject:
        """A pull request by itself."""
        held = facts(pull)
        changes = [counts(file) for file in held.files]
        closed = pull.state == "closed"
        return self.simple(pull) | {
            "merged": held.merged_at is not None,
            "mergeable": None if closed else True,
            "rebaseable": None if closed else True,
            "mergeable_state": "unknown" if closed else "draft" if held.draft else "clean",
            "merged_by": self.render.writer(pull.closed_by_id) if held.merged_at and pull.closed_by_id else None,
            "comments": len(pull.comments),
            "review_comments": len(held.review_comments),
            "maintainer_can_modify": False,
            "commits": len(held.diffs) or 1,
            "additions": sum(gained for gained, _ in changes),
            "deletions": sum(lost for _, lost in changes),
            "changed_files": len(changes),
        }

    def file(self, pull: Issue, file: ChangedFile) -> JsonObject:
        """A changed file. One without a diff has no ``patch`` at all."""
        repo, held = self._repo(pull), facts(pull)
        name = quote(file.name)
        page = f"{self.render.web}/{self.render.state.full_name(repo)}"
        gained, lost = counts(file)
        shown: JsonObject = {
            "sha": sha_of(file.name, file.patch or ""),
            "filename": file.name,
            "status": file.status,
            "additions": gained,
            "deletions": lost,
            "changes": gained + lost,
            "blob_url": f"{page}/blob/{held.head_sha}/{name}",
            "raw_url": f"{page}/raw/{held.head_sha}/{name}",
            "contents_url": f"{self.render.repo_url(repo)}/contents/{name}?ref={held.head_sha}",
        }
        if file.patch is not None:
            shown["patch"] = file.patch
        if file.previous_name is not None:
            shown["previous_filename"] = file.previous_name
        return shown

    # --- reviews

    def review(self, pull: Issue, review: Review) -> JsonObject:
        """A review; one that is pending has no ``submitted_at``."""
        page = f"{self._page(pull)}#pullrequestreview-{review.id}"
        author = self.render.state.accounts[review.author_id]
        shown: JsonObject = {
            "id": review.id,
            "node_id": node_id("PullRequestReview", review.id),
            "user": self.render.writer(review.author_id),
            "body": review.body,
            "state": review.state,
            "html_url": page,
            "pull_request_url": self.pull_url(pull),
            "author_association": self.render.state.association(self._repo(pull), author),
            "_links": {"html": {"href": page}, "pull_request": {"href": self.pull_url(pull)}},
            "commit_id": review.commit,
        }
        if review.submitted_at is not None:
            shown["submitted_at"] = timestamp(review.submitted_at)
        return shown

    def review_comment(self, pull: Issue, comment: ReviewComment) -> JsonObject:
        """A review comment. Once outdated its ``line`` and ``position`` are null, whatever the document says."""
        repo = self._repo(pull)
        url = f"{self.render.repo_url(repo)}/pulls/comments/{comment.id}"
        page = f"{self._page(pull)}#discussion_r{comment.id}"
        author = self.render.state.accounts[comment.author_id]
        shown: JsonObject = {
            "url": url,
            "pull_request_review_id": comment.review_id,
            "id": comment.id,
            "node_id": node_id("PullRequestReviewComment", comment.id),
            "diff_hunk": comment.hunk,
            "path": comment.path,
            "commit_id": comment.commit,
            "original_commit_id": comment.commit,
            "user": self.render.writer(comment.author_id),
            "body": comment.body,
            "created_at": timestamp(comment.created_at),
            "updated_at": timestamp(comment.created_at),
            "html_url": page,
            "pull_request_url": self.pull_url(pull),
            "author_association": self.render.state.association(repo, author),
            "_links": {
                "self": {"href": url},
                "html": {"href": page},
                "pull_request": {"href": self.pull_url(pull)},
            },
            "reactions": reactions(url),
            "start_line": comment.start_line if comment.line is not None else None,
            "original_start_line": comment.start_line,
            "start_side": comment.start_side,
            "line": comment.line,
            "original_line": comment.original_line,
            "side": comment.side,
            "original_position": comment.position or 1,
            "position": comment.position,
            "subject_type": "line",
        }
        if comment.reply_to is not None:
            shown["in_reply_to_id"] = comment.reply_to
        return shown

    # --- checks

    def check_run(self, repo: Repo, run: CheckRun) -> JsonObject:
        """A check run."""
        url = f"{self.render.repo_url(repo)}/check-runs/{run.id}"
        page = f"{self.render.web}/{self.render.state.full_name(repo)}/runs/{run.id}"
        started = timestamp(run.started_at)
        return {
            "id": run.id,
            "head_sha": run.sha,
            "node_id": node_id("CheckRun", run.id),
            "external_id": "",
            "url": url,
            "html_url": page,
            "details_url": page,
            "status": run.status,
            "conclusion": run.conclusion,
            "started_at": started,
            "completed_at": started if run.status == "completed" else None,
            "output": {
                "title": None,
                "summary": None,
                "text": None,
                "annotations_count": 0,
                "annotations_url": f"{url}/annotations",
            },
            "name": run.name,
            "check_suite": {"id": run.suite},
            "app": self._app(repo),
            "pull_requests": [],
        }

    def _app(self, repo: Repo) -> JsonObject:
        created = timestamp(repo.created_at)
        return {
            "id": _APP_ID,
            "slug": "builder",
            "node_id": node_id("Integration", _APP_ID),
            "owner": self.render.account(self.render.state.accounts[repo.owner_id]),
            "name": "Builder",
            "description": "",
            "external_url": f"{self.render.web}/apps/builder",
            "html_url": f"{self.render.web}/apps/builder",
            "created_at": created,
            "updated_at": created,
            "permissions": {"checks": "write", "metadata": "read"},
            "events": [],
        }

    def statuses(self, repo: Repo, sha: str, total: int, shown: list[CommitStatus], state: str) -> JsonObject:
        """A commit's combined status with a page of its statuses."""
        url = f"{self.render.repo_url(repo)}/commits/{sha}"
        page = self.render.repo(repo, None)
        return {
            "state": state,
            "statuses": [self._status(repo, each) for each in shown],
            "sha": sha,
            "total_count": total,
            "repository": {name: value for name, value in page.items() if name not in {*_FULL_ONLY, *_MINIMAL_NOT}},
            "commit_url": url,
            "url": f"{url}/status",
        }

    def _status(self, repo: Repo, status: CommitStatus) -> JsonObject:
        created = timestamp(status.created_at)
        return {
            "url": f"{self.render.repo_url(repo)}/statuses/{status.sha}",
            "avatar_url": f"{self.render.web}/avatars/u/{repo.owner_id}?v=4",
            "id": status.id,
            "node_id": node_id("StatusContext", status.id),
            "state": status.state,
            "description": None,
            "target_url": None,
            "context": status.context,
            "created_at": created,
            "updated_at": created,
        }
