"""What the Linear half holds: one workspace's users, teams, workflow states, labels, issues and comments, in memory.

Plain records and the changes to them; no GraphQL, no permission and no validation stands here. Ids are UUIDs counted
up from a fixed start, so that the same seed and the same requests give the same answers.
"""

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Final, TypeVar

from compass_forged.emulator.linear_markdown import rewritten
from compass_forged.emulator.state import Clock, UnknownName, system_clock

STATE_TYPES: Final = ("triage", "backlog", "unstarted", "started", "completed", "canceled", "duplicate")
"""The types of workflow states; every team gets one state of each."""
STATE_NAMES: Final = ("Triage", "Backlog", "Todo", "In Progress", "Done", "Canceled", "Duplicate")


@dataclass(slots=True)
class User:
    """Somebody in the workspace; ``app``: the user that an OAuth application acts as."""

    id: str
    name: str
    app: bool = False


@dataclass(slots=True)
class State:
    """A workflow state of a team. Names are free text."""

    id: str
    name: str
    type: str


@dataclass(slots=True)
class Team:
    """A team. ``members`` are the ids of the users who see a private one."""

    id: str
    key: str
    name: str
    private: bool = False
    members: set[str] = field(default_factory=set[str])
    retired_at: datetime | None = None
    states: list[State] = field(default_factory=list[State])
    last_number: int = 0


@dataclass(slots=True)
class Label:
    """A label of a team, or of the workspace where ``team_id`` is None; ``parent_id``: of the group it is in."""

    id: str
    name: str
    team_id: str | None = None
    is_group: bool = False
    parent_id: str | None = None


@dataclass(slots=True)
class Authorship:
    """Who wrote something: a user of the workspace, an app on somebody's behalf, or somebody outside."""

    user_id: str | None = None
    bot_name: str | None = None
    as_user: str | None = None
    external: str | None = None


@dataclass(slots=True)
class Comment:
    """A comment on an issue."""

    id: str
    issue_id: str
    author: Authorship
    body: str
    created_at: datetime


@dataclass(slots=True)
class Issue:
    """An issue. ``previous`` are the identifiers that it had in other teams."""

    id: str
    team_id: str
    number: int
    title: str
    description: str | None
    state_id: str
    author: Authorship
    created_at: datetime
    updated_at: datetime
    label_ids: list[str] = field(default_factory=list[str])
    previous: list[str] = field(default_factory=list[str])
    archived_at: datetime | None = None
    trashed: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token may do.

    Attributes:
        user_id: as whom it acts.
        oauth: whether it goes behind ``Bearer``; an API key goes as it is.
        app_actor: whether it acts as the application itself, which may name who speaks.
        writes: whether it may create anything.
    """

    user_id: str
    oauth: bool = False
    app_actor: bool = False
    writes: bool = True


_N = TypeVar("_N", User, Label)


class LinearState:
    """Everything that the workspace remembers, and every change to it.

    Attributes:
        commits: how many issues and comments were created by requests: the side effects.
    """

    def __init__(self, clock: Clock = system_clock, *, url_key: str = "acme") -> None:
        """An empty workspace, which stands as ``url_key`` in the URLs of its issues."""
        self.clock = clock
        self.url_key = url_key
        self.users: dict[str, User] = {}
        self.teams: dict[str, Team] = {}
        self.labels: dict[str, Label] = {}
        self.issues: dict[str, Issue] = {}
        self.comments: dict[str, Comment] = {}
        self.tokens: dict[str, Grant] = {}
        self.commits: Counter[str] = Counter()
        self._ids = count(1)

    def now(self) -> datetime:
        """The forge's time."""
        return self.clock()

    def new_id(self) -> str:
        """A fresh id in the form of a version 4 UUID."""
        return str(uuid.UUID(int=(0xC0FFEE << 96) | next(self._ids), version=4))

    # --- people, teams, labels

    def add_user(self, name: str, *, app: bool = False) -> User:
        """A new user."""
        user = User(self.new_id(), name, app)
        self.users[user.id] = user
        return user

    def user(self, name: str) -> User:
        """The user of that name.

        Raises:
            UnknownName: there is none.
        """
        return _named(self.users.values(), name, "user")

    def grant_token(
        self, token: str, name: str, *, oauth: bool = False, app_actor: bool = False, writes: bool = True
    ) -> None:
        """From now on ``token`` speaks as the user of that name."""
        self.tokens[token] = Grant(self.user(name).id, oauth, app_actor, writes)

    def add_team(self, key: str, name: str = "", *, private: bool = False, members: Iterable[str] = ()) -> Team:
        """A new team with a workflow state of each type."""
        team = Team(self.new_id(), key, name or key, private, {self.user(one).id for one in members})
        team.states = [State(self.new_id(), *both) for both in zip(STATE_NAMES, STATE_TYPES, strict=True)]
        self.teams[team.id] = team
        return team

    def team(self, key: str) -> Team:
        """The team of that key.

        Raises:
            UnknownName: there is none.
        """
        if found := next((team for team in self.teams.values() if team.key == key), None):
            return found
        raise UnknownName(f"team {key!r}: not there; add it first")

    def sees(self, user_id: str, team: Team) -> bool:
        """Whether a user sees a team."""
        return not team.private or user_id in team.members

    def add_label(self, name: str, *, team: str | None = None, group: bool = False, parent: str | None = None) -> Label:
        """A new label of the team of that key, or of the workspace; ``parent`` is the name of a group."""
        label = Label(self.new_id(), name, self.team(team).id if team else None, group)
        if parent is not None:
            label.parent_id = _named(self.labels.values(), parent, "label").id
        self.labels[label.id] = label
        return label

    # --- issues and comments

    def identifier(self, issue: Issue) -> str:
        """What people call it, such as ``ENG-12``."""
        return f"{self.teams[issue.team_id].key}-{issue.number}"

    def add_issue(
        self,
        team: Team,
        author: Authorship,
        title: str,
        description: str | None = None,
        *,
        issue_id: str | None = None,
        label_ids: Iterable[str] = (),
        state_id: str | None = None,
    ) -> Issue:
        """Open an issue; its text is kept as it will be read back."""
        team.last_number += 1
        now = self.now()
        issue = Issue(
            id=issue_id or self.new_id(),
            team_id=team.id,
            number=team.last_number,
            title=title,
            description=None if description is None else rewritten(description),
            state_id=state_id or next(state.id for state in team.states if state.type == "backlog"),
            author=author,
            created_at=now,
            updated_at=now,
            label_ids=list(dict.fromkeys(label_ids)),
        )
        self.issues[issue.id] = issue
        return issue

    def add_comment(self, issue: Issue, author: Authorship, body: str, *, comment_id: str | None = None) -> Comment:
        """Comment on an issue."""
        comment = Comment(comment_id or self.new_id(), issue.id, author, rewritten(body), self.now())
        self.comments[comment.id] = comment
        issue.updated_at = comment.created_at
        return comment

    def comments_of(self, issue: Issue) -> list[Comment]:
        """An issue's comments, oldest first."""
        return [comment for comment in self.comments.values() if comment.issue_id == issue.id]

    def find_issue(self, wanted: str) -> Issue | None:
        """The issue of an id, an identifier, or an identifier that it had before."""
        if wanted in self.issues:
            return self.issues[wanted]
        by_now = next((issue for issue in self.issues.values() if self.identifier(issue) == wanted.upper()), None)
        return by_now or next((issue for issue in self.issues.values() if wanted.upper() in issue.previous), None)

    def issue(self, wanted: str) -> Issue:
        """As ``find_issue``.

        Raises:
            UnknownName: there is none.
        """
        if found := self.find_issue(wanted):
            return found
        raise UnknownName(f"issue {wanted!r}: not there; open it first")

    def titled(self, title: str) -> list[Issue]:
        """All issues of that title."""
        return [issue for issue in self.issues.values() if issue.title == title]

    # --- what people do

    def rename_team(self, key: str, new_key: str) -> None:
        """Give a team another key, and with it its issues other identifiers."""
        self.team(key).key = new_key

    def move_issue(self, wanted: str, key: str) -> Issue:
        """Move an issue to another team, where it gets a new number."""
        issue, team = self.issue(wanted), self.team(key)
        state = next(state.type for state in self.teams[issue.team_id].states if state.id == issue.state_id)
        issue.previous.append(self.identifier(issue))
        team.last_number += 1
        issue.team_id, issue.number = team.id, team.last_number
        issue.state_id = next(one.id for one in team.states if one.type == state)
        issue.updated_at = self.now()
        return issue

    def set_state(self, wanted: str, kind: str) -> None:
        """Put an issue into the team's state of that type."""
        issue = self.issue(wanted)
        issue.state_id = next(state.id for state in self.teams[issue.team_id].states if state.type == kind)
        issue.updated_at = self.now()

    def archive(self, wanted: str, *, trash: bool = False) -> None:
        """Archive an issue, which does not count as an update of it; ``trash``: delete it, as people do."""
        issue = self.issue(wanted)
        issue.archived_at = self.now()
        issue.trashed = trash


def _named(found: Iterable[_N], name: str, what: str) -> _N:
    if match := next((one for one in found if one.name == name), None):
        return match
    raise UnknownName(f"{what} {name!r}: not there; add it first")
