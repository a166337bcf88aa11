"""What requests change: ``issueCreate`` and ``commentCreate``, as strict as Linear is known to be."""

import uuid
from collections.abc import Mapping
from typing import Any

from compass_forged.emulator.linear_refusals import (
    JsonObject,
    already_exists,
    bad_argument,
    bad_input,
    no_scope,
    not_found,
)
from compass_forged.emulator.linear_render import LinearRenderer
from compass_forged.emulator.linear_state import Authorship, Grant, Issue, LinearState, Team


class LinearChanges:
    """The mutations of one caller."""

    def __init__(self, state: LinearState, grant: Grant, render: LinearRenderer) -> None:
        """``grant`` is the caller's."""
        self._state = state
        self._grant = grant
        self._render = render

    def create_issue(self, _info: Any, input: Mapping[str, Any]) -> JsonObject:  # noqa: A002 -- Linear's word
        """``issueCreate``."""
        author = self._author(input)
        issue_id = _own_id("id", input.get("id"))
        if issue_id in self._state.issues:
            raise already_exists("Issue", issue_id)
        team = self._team(input["teamId"])
        title = input.get("title") or ""
        if not title.strip():
            raise bad_argument("title", {"isNotEmpty": "title should not be empty"})
        issue = self._state.add_issue(
            team,
            author,
            title,
            input.get("description"),
            issue_id=issue_id or None,
            label_ids=self._labels(input.get("labelIds") or (), team),
            state_id=input.get("stateId"),
        )
        self._state.commits["issue"] += 1
        return {"success": True, "lastSyncId": 1.0, "issue": self._render.issue(issue)}

    def create_comment(self, _info: Any, input: Mapping[str, Any]) -> JsonObject:  # noqa: A002 -- Linear's word
        """``commentCreate``."""
        author = self._author(input)
        comment_id = _own_id("id", input.get("id"))
        if comment_id in self._state.comments:
            raise already_exists("Comment", comment_id)
        issue = self._issue(input.get("issueId") or "")
        body = input.get("body") or ""
        if not body.strip():
            raise bad_argument("body", {"isNotEmpty": "body should not be empty"})
        comment = self._state.add_comment(issue, author, body, comment_id=comment_id or None)
        self._state.commits["comment"] += 1
        return {"success": True, "lastSyncId": 1.0, "comment": self._render.comment(comment)}

    def _author(self, given: Mapping[str, Any]) -> Authorship:
        if not self._grant.writes:
            raise no_scope()
        user = self._state.users[self._grant.user_id]
        name = given.get("createAsUser")
        if name is None:
            if given.get("displayIconUrl") is not None:
                raise bad_input("displayIconUrl can only be used together with createAsUser.")
            return Authorship(user_id=user.id)
        if not self._grant.app_actor:
            raise bad_input("createAsUser can only be used by OAuth applications in actor=app mode.")
        return Authorship(bot_name=user.name, as_user=name)

    def _team(self, team_id: str) -> Team:
        _own_id("teamId", team_id)
        team = self._state.teams.get(team_id)
        if team is None or not self._render.sees(team):
            raise not_found("Team")
        if team.retired_at is not None:
            raise bad_input("The team is retired and cannot get new issues.")
        return team

    def _issue(self, wanted: str) -> Issue:
        issue = self._state.find_issue(wanted)
        if issue is None or issue.trashed or not self._render.sees_issue(issue):
            raise not_found("Issue")
        return issue

    def _labels(self, label_ids: Any, team: Team) -> list[str]:
        labels = []
        for label_id in label_ids:
            label = self._state.labels.get(label_id)
            if label is None:
                raise not_found("IssueLabel")
            if label.is_group:
                raise bad_input("Cannot apply a label group to an issue.")
            if label.team_id not in {None, team.id}:
                raise bad_input("The label is of another team.")
            labels.append(label)
        parents = [label.parent_id for label in labels if label.parent_id]
        if len(parents) != len(set(parents)):
            raise bad_input("labelIds not exclusive child labels")
        return [label.id for label in labels]


def _own_id(name: str, given: str | None) -> str:
    """An id that the client gives must be a UUID; "" for none."""
    try:
        return "" if given is None else str(uuid.UUID(given))
    except ValueError:
        raise bad_argument(name, {"isUuid": f"{name} must be a UUID"}) from None
