"""What the forge holds: accounts, tokens, repositories, issues, pull requests, comments and labels, in memory.

The changes to plain records (``records``); no HTTP, no permission of a route and no validation of a request stands
here. Ids are counted up from fixed starts, so that the same seed and the same requests give the same answers. Issues
and pull requests of a repository share one number sequence, as on GitHub.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import TypeAlias

import trio

from compass_forged.emulator.apps import App, Apps, Installation
from compass_forged.emulator.records import (
    DEFAULT_LABEL_COLOR,
    Account,
    AccountType,
    Branch,
    Comment,
    Issue,
    IssueState,
    Label,
    Permission,
    Presence,
    PullFacts,
    Repo,
    sha_of,
)

Clock: TypeAlias = Callable[[], datetime]


class UnknownName(LookupError):
    """A seed or a change names an account, a repository or an issue that is not there: the caller's mistake."""


def system_clock() -> datetime:
    """The time of day in UTC."""
    return datetime.now(UTC)


def loop_clock(start: datetime) -> Clock:
    """A clock that stands at ``start`` now and goes with trio's clock, so that a MockClock governs it.

    Call it inside a trio run; the clock it returns works only there.
    """
    offset = start.timestamp() - trio.current_time()
    return lambda: datetime.fromtimestamp(offset + trio.current_time(), UTC)


class PullIds:
    """The ids of reviews, of their comments and of checks, counted on through every change."""

    def __init__(self) -> None:
        self.reviews = count(4_000_001)
        self.comments = count(5_000_001)
        self.checks = count(6_000_001)


class ForgeState:
    """Everything the forge remembers, and every change to it.

    Attributes:
        clock: where the time comes from; must return an aware UTC datetime.
        commits: how many objects were created or changed by requests, by kind: the side effects.
    """

    def __init__(self, clock: Clock = system_clock) -> None:
        self.clock = clock
        self.accounts: dict[int, Account] = {}
        self.tokens: dict[str, int] = {}
        self.token_ends: dict[str, datetime] = {}
        self.token_permissions: dict[str, Mapping[str, str]] = {}
        self.apps = Apps()
        self.repos: dict[int, Repo] = {}
        self.comments: dict[int, Comment] = {}
        self.commits: Counter[str] = Counter()
        self._account_ids = count(1001)
        self._repo_ids = count(500_001)
        self._issue_ids = count(7_000_001)
        self._comment_ids = count(9_000_001)
        self._label_ids = count(3_000_001)
        self.ids = PullIds()

    def now(self) -> datetime:
        """The forge's time, in whole seconds, as GitHub keeps it."""
        return self.clock().replace(microsecond=0)

    # --- accounts

    def add_account(self, login: str, kind: AccountType = "User", *, name: str | None = None) -> Account:
        """A new account. Logins are unique without regard to case.

        Raises:
            ValueError: the login is taken.
        """
        if self.find_account(login):
            raise ValueError(f"account {login!r}: the login is taken; give each account its own")
        account = Account(next(self._account_ids), login, kind, self.now(), name)
        self.accounts[account.id] = account
        return account

    def find_account(self, login: str) -> Account | None:
        """The account of that login, whatever its case."""
        return next((each for each in self.accounts.values() if each.login.casefold() == login.casefold()), None)

    def account(self, login: str) -> Account:
        """The account of that login.

        Raises:
            UnknownName: there is none.
        """
        if found := self.find_account(login):
            return found
        raise UnknownName(f"account {login!r}: not there; add it first")

    def grant_token(
        self,
        token: str,
        login: str,
        *,
        ends: datetime | None = None,
        permissions: Mapping[str, str] | None = None,
    ) -> None:
        """From now on ``token`` speaks as ``login``; an account may have several.

        Args:
            token: the token.
            login: whose it is.
            ends: when it expires; None: never.
            permissions: what it may do, by GitHub's names; None: all that its account may.
        """
        self.tokens[token] = self.account(login).id
        self.token_ends.pop(token, None)
        self.token_permissions.pop(token, None)
        if ends is not None:
            self.token_ends[token] = ends
        if permissions is not None:
            self.token_permissions[token] = permissions

    def revoke_token(self, token: str) -> None:
        """From now on ``token`` is a bad credential; revoking an unknown one changes nothing."""
        self.tokens.pop(token, None)

    def delete_account(self, login: str, presence: Presence = "ghost") -> None:
        """The account is gone: its tokens are bad, and what it wrote stands under nobody."""
        account = self.account(login)
        account.presence = presence
        self.tokens = {token: owner for token, owner in self.tokens.items() if owner != account.id}

    def caller(self, token: str) -> Account | None:
        """Who speaks with ``token``; None for a bad credential."""
        found = self.tokens.get(token)
        ends = self.token_ends.get(token)
        return None if found is None or (ends is not None and self.now() >= ends) else self.accounts[found]

    # --- Apps

    def install_app(self, app: App, installation_id: int, login: str) -> Installation:
        """Put an App on an account: its tokens may write to the repositories that the account has now.

        Raises:
            UnknownName: no account has the login.
        """
        owner = self.account(login)
        bot = self.find_account(app.login) or self.add_account(app.login, "Bot")
        for repo in self.repos.values():
            if repo.owner_id == owner.id:
                repo.permissions[bot.id] = "push"
        installation = app.installations[installation_id] = Installation(installation_id, login)
        return installation

    # --- repositories

    def add_repo(
        self,
        owner: str,
        name: str,
        *,
        private: bool = False,
        archived: bool = False,
        has_issues: bool = True,
        default_branch: str = "main",
        fork_of: str | None = None,
        push: Iterable[str] = (),
        read: Iterable[str] = (),
    ) -> Repo:
        """A new repository of ``owner``, in which ``push`` may write and which ``read`` may see.

        It holds its default branch; ``fork_of`` names the repository that it was forked from.

        Raises:
            ValueError: the owner has one of that name.
        """
        if (found := self.find_repo(owner, name)) and self.full_name(found).casefold() == f"{owner}/{name}".casefold():
            raise ValueError(f"repository {owner}/{name}: is there already; give each its own name")
        repo = Repo(
            next(self._repo_ids),
            self.account(owner).id,
            name,
            self.now(),
            private=private,
            archived=archived,
            has_issues=has_issues,
            default_branch=default_branch,
            fork_of=self.repo(fork_of).id if fork_of else None,
        )
        repo.branches[default_branch] = Branch(default_branch, sha_of(default_branch))
        repo.permissions |= {self.account(login).id: "read" for login in read}
        repo.permissions |= {self.account(login).id: "push" for login in push}
        self.repos[repo.id] = repo
        return repo

    def full_name(self, repo: Repo) -> str:
        """``owner/name``, as the forge writes it."""
        return f"{self.accounts[repo.owner_id].login}/{repo.name}"

    def find_repo(self, owner: str, name: str) -> Repo | None:
        """The repository of that name or, where no other took the name since, the one that had it before."""
        wanted = f"{owner}/{name}".casefold()
        for repo in self.repos.values():
            if self.full_name(repo).casefold() == wanted:
                return repo
        return next((repo for repo in self.repos.values() if wanted in repo.former_names), None)

    def repo(self, full_name: str) -> Repo:
        """The repository ``owner/name``.

        Raises:
            UnknownName: there is none.
        """
        owner, _, name = full_name.partition("/")
        if found := self.find_repo(owner, name):
            return found
        raise UnknownName(f"repository {full_name!r}: not there; add it first")

    def rename_repo(self, full_name: str, new_name: str) -> Repo:
        """Give the repository another name; the old one redirects. ``new_name`` may be ``owner/name``: a move."""
        repo = self.repo(full_name)
        repo.former_names.add(self.full_name(repo).casefold())
        owner, slash, name = new_name.rpartition("/")
        if slash:
            repo.owner_id = self.account(owner).id
        repo.name = name
        return repo

    def permission(self, repo: Repo, account: Account | None) -> Permission | None:
        """What ``account`` may do in ``repo``; None if it cannot even see it. An owner's members administer."""
        public: Permission | None = None if repo.private else "read"
        if account is None:
            return public
        if account.id == repo.owner_id or account.id in self.accounts[repo.owner_id].members:
            return "admin"
        return repo.permissions[account.id] if account.id in repo.permissions else public  # noqa: SIM401 -- keeps the type

    def may_push(self, repo: Repo, account: Account | None) -> bool:
        """Whether ``account`` may write to ``repo``."""
        return self.permission(repo, account) in {"push", "admin"}

    def association(self, repo: Repo, account: Account) -> str:
        """GitHub's ``author_association`` of ``account`` in ``repo``."""
        if account.id == repo.owner_id:
            return "OWNER"
        if account.id in self.accounts[repo.owner_id].members:
            return "MEMBER"
        return "COLLABORATOR" if account.id in repo.permissions else "NONE"

    # --- labels, issues, comments

    def add_label(
        self, repo: Repo, name: str, *, color: str = DEFAULT_LABEL_COLOR, description: str | None = None
    ) -> Label:
        """A new label; the caller has looked that there is none of that name."""
        label = Label(next(self._label_ids), name, color, description)
        repo.labels[label.id] = label
        return label

    def add_issue(
        self,
        repo: Repo,
        author: Account,
        title: str,
        body: str | None = None,
        *,
        labels: Iterable[str] = (),
        assignees: Iterable[Account] = (),
        pull: PullFacts | None = None,
    ) -> Issue:
        """Open an issue, or a pull request; labels that are not there are created."""
        now = self.now()
        number = max(repo.issues, default=0) + 1
        issue = Issue(next(self._issue_ids), number, repo.id, author.id, title, body, now, now, pull=pull)
        issue.labels = self.label_ids(repo, labels)
        issue.assignees = [account.id for account in assignees]
        repo.issues[number] = issue
        return issue

    def label_ids(self, repo: Repo, names: Iterable[str]) -> list[int]:
        """The labels' ids in order and each once, creating those that are not there."""
        found = ((repo.label_named(name) or self.add_label(repo, name)).id for name in names)
        return list(dict.fromkeys(found))

    def add_comment(self, issue: Issue, author: Account, body: str) -> Comment:
        """A comment below ``issue``, which counts as an update of it."""
        now = self.now()
        comment = Comment(next(self._comment_ids), issue.repo_id, issue.number, author.id, body, now, now)
        self.comments[comment.id] = comment
        issue.comments.append(comment.id)
        issue.updated_at = now
        return comment

    def set_issue_state(self, issue: Issue, state: IssueState, by: Account, reason: str | None = None) -> None:
        """Close or open an issue; one that is in that state already stays as it is."""
        if issue.state == state:
            return
        now = self.now()
        closing = state == "closed"
        issue.state = state
        issue.state_reason = (reason or "completed") if closing else "reopened"
        issue.closed_at = now if closing else None
        issue.closed_by_id = by.id if closing else None
        issue.updated_at = now

    def issue(self, full_name: str, number: int) -> Issue:
        """The issue or pull request of that number.

        Raises:
            UnknownName: there is none.
        """
        if found := self.repo(full_name).issues.get(number):
            return found
        raise UnknownName(f"issue {full_name}#{number}: not there; open it first")

    def transfer_issue(self, full_name: str, number: int, to: str) -> Issue:
        """Move an issue to the repository ``to``, where it gets a new number; the old address redirects."""
        old, target = self.issue(full_name, number), self.repo(to)
        new = self.add_issue(target, self.accounts[old.author_id], old.title, old.body)
        for comment_id in old.comments:
            comment = self.comments[comment_id]
            comment.repo_id, comment.issue = target.id, new.number
        new.comments, old.comments = old.comments, []
        old.transferred_to = (target.id, new.number)
        return new
