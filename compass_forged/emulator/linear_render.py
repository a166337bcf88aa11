"""The workspace as GraphQL sees it: plain values, and functions for what takes arguments."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from compass_forged.emulator.linear_complexity import FIRST_DEFAULT
from compass_forged.emulator.linear_filters import View, matches
from compass_forged.emulator.linear_refusals import JsonObject, bad_argument, bad_input
from compass_forged.emulator.linear_state import Authorship, Comment, Issue, Label, LinearState, Team, User

FIRST_MAX: Final = 250
_T = TypeVar("_T")
Connection = Callable[..., JsonObject]


def iso(moment: datetime | None) -> str | None:
    """A time as Linear writes it: with milliseconds, and ``Z``."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class LinearRenderer:
    """Views of a workspace for one caller, who sees no private team that is not the caller's own."""

    def __init__(self, state: LinearState, viewer: User) -> None:
        """``viewer`` is who asks."""
        self._state = state
        self._viewer = viewer

    # --- roots

    def teams(self, _info: Any, **arguments: Any) -> JsonObject:
        """``teams``."""
        return self._connection(self._state.teams.values(), self.team, lambda team: team.id, arguments, self.sees)

    def labels(self, _info: Any, **arguments: Any) -> JsonObject:
        """``issueLabels``."""
        found = self._state.labels.values()
        return self._connection(found, self.label, lambda label: label.id, arguments, self._sees_label)

    def issues(self, _info: Any, **arguments: Any) -> JsonObject:
        """``issues``, newest first."""
        archived = bool(arguments.get("includeArchived"))
        found = [issue for issue in self._state.issues.values() if archived or issue.archived_at is None]
        newest_first = sorted(found, key=lambda issue: (issue.created_at, issue.number), reverse=True)
        return self._connection(newest_first, self.issue, lambda issue: issue.id, arguments, self.sees_issue)

    def comments(self, _info: Any, **arguments: Any) -> JsonObject:
        """``comments``, newest first."""
        return self._comments(self._state.comments.values(), arguments)

    # --- what is seen

    def sees(self, team: Team) -> bool:
        """Whether the caller sees a team."""
        return self._state.sees(self._viewer.id, team)

    def sees_issue(self, issue: Issue) -> bool:
        """Whether the caller sees an issue's team."""
        return self.sees(self._state.teams[issue.team_id])

    def _sees_label(self, label: Label) -> bool:
        return label.team_id is None or self.sees(self._state.teams[label.team_id])

    # --- views

    def user(self, user: User) -> JsonObject:
        """A user; names come back with their ampersands escaped, as has been seen."""
        name = user.name.replace("&", "&amp;")
        return {"id": user.id, "name": name, "displayName": name, "app": user.app}

    def team(self, team: Team) -> JsonObject:
        """A team."""
        by_type = {state.type: {"id": state.id, "name": state.name, "type": state.type} for state in team.states}
        return {
            "id": team.id,
            "key": team.key,
            "name": team.name,
            "private": team.private,
            "retiredAt": iso(team.retired_at),
            "triageEnabled": False,
            "triageIssueState": by_type["triage"],
            "defaultIssueState": by_type["backlog"],
        }

    def label(self, label: Label) -> JsonObject:
        """A label."""
        return {
            "id": label.id,
            "name": label.name.replace("&", "&amp;"),
            "isGroup": label.is_group,
            "parent": self.label(self._state.labels[label.parent_id]) if label.parent_id else None,
            "team": self.team(self._state.teams[label.team_id]) if label.team_id else None,
        }

    def issue(self, issue: Issue) -> JsonObject:
        """An issue."""
        state = self._state
        team = state.teams[issue.team_id]
        identifier = state.identifier(issue)
        labels = [state.labels[label_id] for label_id in issue.label_ids]

        def its_labels(_info: Any, **arguments: Any) -> JsonObject:
            return self._connection(labels, self.label, lambda label: label.id, arguments)

        def its_comments(_info: Any, **arguments: Any) -> JsonObject:
            return self._comments(state.comments_of(issue), arguments)

        return {
            "id": issue.id,
            "identifier": identifier,
            "previousIdentifiers": list(issue.previous),
            "number": float(issue.number),
            "priority": 0.0,
            "url": f"https://linear.app/{state.url_key}/issue/{identifier}/{_slug(issue.title)}",
            "title": issue.title,
            "description": issue.description,
            "createdAt": iso(issue.created_at),
            "updatedAt": iso(issue.updated_at),
            "archivedAt": iso(issue.archived_at),
            "trashed": issue.trashed or None,
            "state": next(
                {"id": one.id, "name": one.name, "type": one.type} for one in team.states if one.id == issue.state_id
            ),
            "team": self.team(team),
            "labelIds": list(issue.label_ids),
            "labels": its_labels,
            "comments": its_comments,
            **self._author(issue.author, "creator", "externalUserCreator"),
        }

    def comment(self, comment: Comment) -> JsonObject:
        """A comment."""
        issue = self.issue(self._state.issues[comment.issue_id])
        return {
            "id": comment.id,
            "body": comment.body,
            "createdAt": iso(comment.created_at),
            "updatedAt": iso(comment.created_at),
            "url": f"{issue['url']}#comment-{comment.id[:8]}",
            "issue": issue,
            **self._author(comment.author, "user", "externalUser"),
        }

    def _author(self, author: Authorship, user: str, external: str) -> JsonObject:
        bot = {"id": None, "type": "oauthClient", "name": author.bot_name, "userDisplayName": author.as_user}
        outside = {"id": self._viewer.id, "name": author.external, "displayName": author.external}
        return {
            user: self.user(self._state.users[author.user_id]) if author.user_id else None,
            "botActor": bot if author.bot_name else None,
            external: outside if author.external else None,
        }

    def _comments(self, found: Iterable[Comment], arguments: Mapping[str, Any]) -> JsonObject:
        newest_first = list(found)[::-1]

        def seen(comment: Comment) -> bool:
            return self.sees_issue(self._state.issues[comment.issue_id])

        return self._connection(newest_first, self.comment, lambda comment: comment.id, arguments, seen)

    # --- connections

    def _connection(
        self,
        found: Iterable[_T],
        view: Callable[[_T], JsonObject],
        key: Callable[[_T], str],
        arguments: Mapping[str, Any],
        seen: Callable[[_T], bool] = lambda _one: True,
    ) -> JsonObject:
        """One page of what is seen and fits the filter. A cursor is the id of the last item before it."""
        wanted = arguments.get("filter")
        fitting = [one for one in found if seen(one) and (not wanted or matches(_flat(view(one)), wanted))]
        first = _first(arguments.get("first"))
        start = 0
        if (after := arguments.get("after")) is not None:
            keys = [key(one) for one in fitting]
            if after not in keys:
                raise bad_input(f"`{after}` does not appear to be a valid cursor.")
            start = keys.index(after) + 1
        page = fitting[start : start + first]
        return {
            "nodes": [view(one) for one in page],
            "pageInfo": {
                "hasNextPage": len(fitting) > start + first,
                "hasPreviousPage": start > 0,
                "startCursor": key(page[0]) if page else None,
                "endCursor": key(page[-1]) if page else None,
            },
        }


def _first(given: int | None) -> int:
    first = FIRST_DEFAULT if given is None else given
    if first < 1:
        raise bad_argument("first", {"min": "first must not be less than 1"})
    if first > FIRST_MAX:
        raise bad_argument("first", {"max": "first must not be greater than 250"})
    return first


def _flat(view: JsonObject) -> View:
    """A view for filters: names as they are kept, and lists instead of the functions that page them."""
    flat = {name: value for name, value in view.items() if not callable(value)}
    if "name" in flat:
        flat["name"] = str(flat["name"]).replace("&amp;", "&")
    if callable(view.get("labels")):
        flat["labels"] = [_flat(one) for one in view["labels"](None, first=FIRST_MAX)["nodes"]]
    return flat


def _slug(title: str) -> str:
    words = "".join(char if char.isascii() and char.isalnum() else " " for char in title.lower()).split()
    return "-".join(words[:8]) or "untitled"
