"""The control path of the Linear half (see ``control_path``): what its state is, and how it is changed from outside.

==================== ============================================================================================
GET  /_forge/state   teams with their issues and comments, counts of side effects
POST /_forge/change  ``{"change": NAME, ...}``: rename_team (key, to), move (issue, to), set_state (issue, type),
                     archive (issue), trash (issue), revoke_token (token), set_remaining (user, requests, points)
==================== ============================================================================================
"""

from typing import Any, Final, Protocol

from compass_forged.emulator.control_path import ControlPath, Scripted
from compass_forged.emulator.linear_limits import LinearLimits
from compass_forged.emulator.linear_refusals import JsonObject
from compass_forged.emulator.linear_state import LinearState

_CHANGES: Final = ("rename_team", "move", "set_state", "archive", "trash", "revoke_token", "set_remaining")


class LinearControlled(Scripted, Protocol):
    """What the control path reaches of the Linear half."""

    state: LinearState
    limits: LinearLimits


def linear_control_path(forge: LinearControlled, token: str | None) -> ControlPath:
    """The control path of ``forge``; None keeps it shut."""
    return ControlPath(
        forge,
        token,
        state=lambda: linear_snapshot(forge.state),
        changes={"change": lambda body: _change(forge, body)},
    )


def _change(forge: LinearControlled, body: Any) -> None:
    state, name = forge.state, body["change"]
    match name:
        case "rename_team":
            state.rename_team(body["key"], body["to"])
        case "move":
            state.move_issue(body["issue"], body["to"])
        case "set_state":
            state.set_state(body["issue"], body["type"])
        case "archive" | "trash":
            state.archive(body["issue"], trash=name == "trash")
        case "revoke_token":
            state.tokens.pop(body["token"], None)
        case "set_remaining":
            user = state.user(body["user"])
            left = {word: body[word] for word in ("requests", "points") if word in body}
            forge.limits.set_remaining(user.id, state.now(), **left)
        case _:
            raise ValueError(f"change: unknown {name!r}; known are {', '.join(_CHANGES)}")


def linear_snapshot(state: LinearState) -> JsonObject:
    """The workspace's contents as JSON, without tokens, for assertions from another process."""
    return {
        "teams": {
            team.key: [
                {
                    "identifier": state.identifier(issue),
                    "title": issue.title,
                    "description": issue.description,
                    "labels": [state.labels[label_id].name for label_id in issue.label_ids],
                    "trashed": issue.trashed,
                    "comments": [comment.body for comment in state.comments_of(issue)],
                }
                for issue in state.issues.values()
                if issue.team_id == team.id
            ]
            for team in state.teams.values()
        },
        "commits": dict(state.commits),
    }
