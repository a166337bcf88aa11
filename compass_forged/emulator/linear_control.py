"""The control path ``/_forge/...`` of the Linear half: script, log, state and changes from another process.

Every request carries ``Authorization: Bearer CONTROL_TOKEN``. It is not logged, not scripted and not limited.

==================== ============================================================================================
GET  /_forge/log     the requests that came in; ``?path=/graphql/*`` narrows them
GET  /_forge/state   teams with their issues and comments, counts of side effects
POST /_forge/script  a rule, or a list of rules, as JSON objects (see ``script.Rule``)
POST /_forge/change  ``{"change": NAME, ...}``: rename_team (key, to), move (issue, to), set_state (issue, type),
                     archive (issue), trash (issue), revoke_token (token), set_remaining (user, requests, points)
POST /_forge/reset   back to the first seed
==================== ============================================================================================
"""

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from starlette.requests import Request

from compass_forged.emulator.linear_limits import LinearLimits
from compass_forged.emulator.linear_refusals import JsonObject
from compass_forged.emulator.linear_state import LinearState
from compass_forged.emulator.routing import Answer
from compass_forged.emulator.script import RequestLog, Script, rule_from_json


class LinearControlled(Protocol):
    """What the control path reaches of a forge."""

    state: LinearState
    script: Script
    log: RequestLog
    limits: LinearLimits

    def reset(self) -> None:
        """Go back to the first seed."""
        ...


class LinearControl:
    """Answers the control path of one forge. Without a token the path is not there."""

    def __init__(self, forge: LinearControlled, token: str | None) -> None:
        self._forge = forge
        self._token = token
        self._actions: Mapping[tuple[str, str], Callable[[Request, Any], Any]] = {
            ("GET", "log"): self._log,
            ("GET", "state"): lambda _request, _body: linear_snapshot(self._forge.state),
            ("POST", "script"): self._script,
            ("POST", "change"): self._change,
            ("POST", "reset"): self._reset,
        }

    def answer(self, request: Request, path: str, raw_body: bytes) -> Answer:
        """The answer to one control request: JSON, errors as ``{"error": ...}``."""
        action = self._actions.get((request.method, path.removeprefix("/_forge/")))
        if self._token is None or action is None:
            return _json(404, {"error": f"{request.method} {path}: no such control path; see the control module"})
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return _json(401, {"error": "control token missing or wrong; send Authorization: Bearer TOKEN"})
        try:
            return _json(200, action(request, json.loads(raw_body) if raw_body else None))
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # whatever the body has wrong
            return _json(400, {"error": f"{type(error).__name__}: {error}"})

    def _log(self, request: Request, _body: Any) -> Any:
        query = request.query_params
        found = self._forge.log.find(query.get("method", "*"), query.get("path", "*"))
        return {"requests": [asdict(entry) for entry in found]}

    def _script(self, _request: Request, body: Any) -> Any:
        given: list[Any] = body if isinstance(body, list) else [body]
        self._forge.script.add(*[rule_from_json(rule) for rule in given])
        return {"pending": self._forge.script.pending}

    def _reset(self, _request: Request, _body: Any) -> Any:
        self._forge.reset()
        return {"ok": True}

    def _change(self, _request: Request, body: Any) -> Any:
        state, name = self._forge.state, body["change"]
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
                self._forge.limits.set_remaining(user.id, state.now(), **left)
            case _:
                raise ValueError(f"change: unknown {name!r}; see the control module")
        return {"ok": True}


def _json(status: int, body: Any) -> Answer:
    return Answer(status, {"content-type": "application/json"}, json.dumps(body).encode())


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
