"""The control path ``/_forge/...`` of either half: script, log and state of a forge from another process.

Every request carries ``Authorization: Bearer CONTROL_TOKEN``. It is not logged, not scripted and not limited.

==================== ============================================================================================
GET  /_forge/log     the requests that came in; ``?method=POST&path=/repos/*`` narrows them
GET  /_forge/state   what the half holds, counts of side effects
POST /_forge/script  a rule, or a list of rules, as JSON objects (see ``script.Rule``)
POST /_forge/reset   back to the first seed
==================== ============================================================================================

What else may be posted each half says: ``control`` and ``linear_control``.
"""

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeAlias

from starlette.requests import Request

from compass_forged.emulator.routing import Answer
from compass_forged.emulator.script import RequestLog, Script, rule_from_json

Action: TypeAlias = Callable[[Request, Any], Any]


class Scripted(Protocol):
    """What the control path reaches of either half."""

    script: Script
    log: RequestLog

    def reset(self) -> None:
        """Go back to the first seed."""
        ...


class ControlPath:
    """Answers the control path of one forge. Without a token the path is not there."""

    def __init__(
        self,
        forge: Scripted,
        token: str | None,
        *,
        state: Callable[[], Any],
        changes: Mapping[str, Callable[[Any], None]],
    ) -> None:
        """Nothing is asked yet.

        Args:
            forge: whose path it is.
            token: what opens it.
            state: the forge's contents as JSON, without tokens.
            changes: what else may be posted: by name, what is done with the body.
        """
        self._forge = forge
        self._token = token
        self._actions: Mapping[tuple[str, str], Action] = {
            ("GET", "log"): self._log,
            ("GET", "state"): lambda _request, _body: state(),
            ("POST", "script"): self._script,
            ("POST", "reset"): _done(lambda _body: self._forge.reset()),
            **{("POST", name): _done(change) for name, change in changes.items()},
        }

    def answer(self, request: Request, path: str, raw_body: bytes) -> Answer:
        """The answer to one control request: JSON, errors as ``{"error": ...}``."""
        action = self._actions.get((request.method, path.removeprefix("/_forge/")))
        if self._token is None or action is None:
            known = ", ".join(f"{method} /_forge/{name}" for method, name in self._actions)
            return _json(404, {"error": f"{request.method} {path}: no such control path; there are {known}"})
        if not _authorised(request.headers.get("authorization", ""), self._token):
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


def _done(change: Callable[[Any], None]) -> Action:
    def action(_request: Request, body: Any) -> Any:
        change(body)
        return {"ok": True}

    return action


def _authorised(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def _json(status: int, body: Any) -> Answer:
    return Answer(status, {"content-type": "application/json"}, json.dumps(body).encode())
