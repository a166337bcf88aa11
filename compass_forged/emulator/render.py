"""What the forge's records look like in GitHub's answers: every field that GitHub always sends.

Shapes: the OpenAPI document's ``issue``, ``issue-comment``, ``label``, ``full-repository``, ``private-user``, and the
recorded answers. ``api`` is the base of the API's own links and ``web`` that of pages for people; neither ends in a
slash.
"""

from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from compass_forged.emulator.records import Account, Comment, Issue, Label, Repo
from compass_forged.emulator.refusals import JsonObject
from compass_forged.emulator.state import ForgeState

GHOST_ID = 10137
"""The id of github.com/ghost, under which the writings of deleted accounts stand."""

_REPO_TEMPLATES = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}

_REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


def timestamp(moment: datetime) -> str:
    """A moment as GitHub writes it: UTC, whole seconds, ``Z``."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def maybe_timestamp(moment: datetime | None) -> str | None:
    """As ``timestamp``; null for what has not happened."""
    return None if moment is None else timestamp(moment)


def node_id(kind: str, number: int) -> str:
    """A node id in GitHub's older form: the base64 of the kind's length, the kind and the id."""
    return b64encode(f"{len(kind):03}:{kind}{number}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders the records of one forge for one request."""

    state: ForgeState
    api: str
    web: str

    # --- addresses

    def repo_url(self, repo: Repo) -> str:
        """The repository's address in the API, under its canonical name."""
        return f"{self.api}/repos/{self.state.full_name(repo)}"

    def issue_url(self, issue: Issue) -> str:
        """The issue's address in the API."""
        return f"{self.repo_url(self.state.repos[issue.repo_id])}/issues/{issue.number}"

    def page(self, issue: Issue) -> str:
        """The page for people of an issue or a pull request."""
        kind = "pull" if issue.pull else "issues"
        return f"{self.web}/{self.state.full_name(self.state.repos[issue.repo_id])}/{kind}/{issue.number}"

    # --- people

    def account(self, account: Account) -> JsonObject:
        """An account as others see it; the ghost for a deleted one."""
        if account.presence != "live":
            return self._person("ghost", GHOST_ID, "User")
        return self._person(account.login, account.id, account.type)

    def _person(self, login: str, number: int, kind: str) -> JsonObject:
        url = f"{self.api}/users/{quote(login, safe='')}"
        page = f"{self.web}/{login}" if kind != "Bot" else f"{self.web}/apps/{login.removesuffix('[bot]')}"
        return {
            "login": login,
            "id": number,
            "node_id": node_id("User", number),
            "avatar_url": f"{self.web}/avatars/u/{number}?v=4",
            "gravatar_id": "",
            "url": url,
            "html_url": page,
            "followers_url": f"{url}/followers",
            "following_url": f"{url}/following{{/other_user}}",
            "gists_url": f"{url}/gists{{/gist_id}}",
            "starred_url": f"{url}/starred{{/owner}}{{/repo}}",
            "subscriptions_url": f"{url}/subscriptions",
            "organizations_url": f"{url}/orgs",
            "repos_url": f"{url}/repos",
            "events_url": f"{url}/events{{/privacy}}",
            "received_events_url": f"{url}/received_events",
            "type": kind,
            "user_view_type": "public",
            "site_admin": False,
        }

    def writer(self, account_id: int) -> JsonObject | None:
        """Who wrote something: null where the account is gone for good."""
        account = self.state.accounts[account_id]
        return None if account.presence == "gone" else self.account(account)

    def me(self, account: Account) -> JsonObject:
        """The authenticated user, as it sees itself."""
        created = timestamp(account.created_at)
        return self.account(account) | {
            "user_view_type": "private",
            "name": account.name,
            "company": None,
            "blog": "",
            "location": None,
            "email": None,
            "notification_email": None,
            "hireable": None,
            "bio": None,
            "twitter_username": None,
            "public_repos": 0,
            "public_gists": 0,
            "followers": 0,
            "following": 0,
            "created_at": created,
            "updated_at": created,
            "private_gists": 0,
            "total_private_repos": 0,
            "owned_private_repos": 0,
            "disk_usage": 0,
            "collaborators": 0,
            "two_factor_authentication": True,
            "plan": {"name": "free", "space": 976_562_499, "collaborators": 0, "private_repos": 10_000},
        }

    def app(self, account: Account) -> JsonObject | None:
        """The App through which a bot writes; null for people."""
        if account.type != "Bot":
            return None
        slug = account.login.removesuffix("[bot]")
        created = timestamp(account.created_at)
        return {
            "id": account.id,
            "slug": slug,
            "node_id": node_id("Integration", account.id),
            "owner": self.account(account),
            "name": slug,
            "description": None,
            "external_url": f"{self.web}/apps/{slug}",
            "html_url": f"{self.web}/apps/{slug}",
            "created_at": created,
            "updated_at": created,
            "permissions": {"issues": "write", "metadata": "read"},
            "events": [],
        }

    # --- repositories and labels

    def repo(self, repo: Repo, caller: Account | None) -> JsonObject:
        """A repository in full. ``permissions`` stands only where somebody asks by name, as on GitHub."""
        url, full_name = self.repo_url(repo), self.state.full_name(repo)
        owner = self.state.accounts[repo.owner_id]
        open_issues = sum(issue.state == "open" and not issue.deleted for issue in repo.issues.values())
        created = timestamp(repo.created_at)
        host = self.web.partition("://")[2]
        page: JsonObject = {
            "id": repo.id,
            "node_id": node_id("Repository", repo.id),
            "name": repo.name,
            "full_name": full_name,
            "private": repo.private,
            "owner": self.account(owner),
            "html_url": f"{self.web}/{full_name}",
            "description": None,
            "fork": repo.fork_of is not None,
            "url": url,
            **{name: url + tail for name, tail in _REPO_TEMPLATES.items()},
            "created_at": created,
            "updated_at": created,
            "pushed_at": created,
            "git_url": f"git://{host}/{full_name}.git",
            "ssh_url": f"git@{host}:{full_name}.git",
            "clone_url": f"{self.web}/{full_name}.git",
            "svn_url": f"{self.web}/{full_name}",
            "mirror_url": None,
            "homepage": None,
            "size": 0,
            "language": None,
            "has_issues": repo.has_issues,
            "has_projects": True,
            "has_downloads": True,
            "has_wiki": True,
            "has_pages": False,
            "has_discussions": False,
            "archived": repo.archived,
            "disabled": False,
            "license": None,
            "allow_forking": True,
            "is_template": False,
            "web_commit_signoff_required": False,
            "topics": [],
            "visibility": "private" if repo.private else "public",
            "default_branch": repo.default_branch,
            "temp_clone_token": None,
            "open_issues": open_issues,
            "open_issues_count": open_issues,
            **dict.fromkeys(
                ("forks", "forks_count", "stargazers_count", "watchers", "watchers_count", "network_count"), 0
            ),
            "subscribers_count": 0,
        }
        if owner.type == "Organization":
            page["organization"] = self.account(owner)
        if caller is not None:
            page["permissions"] = _permissions(self.state.permission(repo, caller))
        return page

    def label(self, repo: Repo, label: Label) -> JsonObject:
        """A label."""
        return {
            "id": label.id,
            "node_id": node_id("Label", label.id),
            "url": f"{self.repo_url(repo)}/labels/{quote(label.name, safe='')}",
            "name": label.name,
            "color": label.color,
            "default": label.default,
            "description": label.description,
        }

    # --- issues and comments

    def issue(self, issue: Issue) -> JsonObject:
        """An issue, or a pull request as the issue endpoints show it."""
        repo = self.state.repos[issue.repo_id]
        author = self.state.accounts[issue.author_id]
        url, page = self.issue_url(issue), self.page(issue)
        assignees = [self.account(self.state.accounts[each]) for each in issue.assignees]
        shown: JsonObject = {
            "url": url,
            "repository_url": self.repo_url(repo),
            "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments",
            "events_url": f"{url}/events",
            "html_url": page,
            "id": issue.id,
            "node_id": node_id("PullRequest" if issue.pull else "Issue", issue.id),
            "number": issue.number,
            "title": issue.title,
            "user": self.writer(issue.author_id),
            "labels": [self.label(repo, repo.labels[each]) for each in issue.labels],
            "state": issue.state,
            "locked": issue.locked,
            "assignee": assignees[0] if assignees else None,
            "assignees": assignees,
            "milestone": None,
            "comments": len(issue.comments),
            "created_at": timestamp(issue.created_at),
            "updated_at": timestamp(issue.updated_at),
            "closed_at": maybe_timestamp(issue.closed_at),
            "author_association": self.state.association(repo, author),
            "active_lock_reason": None,
            "body": issue.body,
            "closed_by": None if issue.closed_by_id is None else self.writer(issue.closed_by_id),
            "reactions": reactions(url),
            "timeline_url": f"{url}/timeline",
            "performed_via_github_app": self.app(author),
            "state_reason": issue.state_reason,
        }
        if issue.pull:
            shown["draft"] = issue.pull.draft
            shown["pull_request"] = {
                "url": f"{self.repo_url(repo)}/pulls/{issue.number}",
                "html_url": page,
                "diff_url": f"{page}.diff",
                "patch_url": f"{page}.patch",
                "merged_at": maybe_timestamp(issue.pull.merged_at),
            }
        return shown

    def comment_url(self, comment: Comment) -> str:
        """The comment's address in the API."""
        return f"{self.repo_url(self.state.repos[comment.repo_id])}/issues/comments/{comment.id}"

    def comment(self, comment: Comment) -> JsonObject:
        """A comment."""
        repo = self.state.repos[comment.repo_id]
        issue = repo.issues[comment.issue]
        author = self.state.accounts[comment.author_id]
        url = self.comment_url(comment)
        return {
            "url": url,
            "html_url": f"{self.page(issue)}#issuecomment-{comment.id}",
            "issue_url": self.issue_url(issue),
            "id": comment.id,
            "node_id": node_id("IssueComment", comment.id),
            "user": self.writer(comment.author_id),
            "created_at": timestamp(comment.created_at),
            "updated_at": timestamp(comment.updated_at),
            "author_association": self.state.association(repo, author),
            "body": comment.body,
            "reactions": reactions(url),
            "performed_via_github_app": self.app(author),
        }


def reactions(url: str) -> JsonObject:
    """The reactions to what stands at ``url``: none."""
    return {"url": f"{url}/reactions", "total_count": 0, **dict.fromkeys(_REACTIONS, 0)}


def _permissions(permission: str | None) -> JsonObject:
    return {
        "admin": permission == "admin",
        "maintain": permission == "admin",
        "push": permission in {"push", "admin"},
        "triage": permission in {"push", "admin"},
        "pull": permission is not None,
    }


_REMOVED_2026 = frozenset({"assignee", "rate", "has_downloads", "use_squash_pr_title_as_default"})


def for_version(value: Any, version: str) -> Any:
    """The answer under an API version: 2026-03-10 lacks some fields (``x-github-breaking-changes``)."""
    if version < "2026-03-10":
        return value
    if isinstance(value, dict):
        return {name: for_version(each, version) for name, each in value.items() if name not in _REMOVED_2026}
    if isinstance(value, list):
        return [for_version(each, version) for each in value]
    return value
