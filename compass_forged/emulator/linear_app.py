"""The Linear half of the bundled forge: one path for GraphQL, one for tokens, behind one ASGI application.

graphql-core validates and executes every document over Linear's schema, cut to what is answered here. Its resolvers
are plain functions, so that everything between reading a request and sending its answer happens without a wait and no
effect is torn; scripted delays stand before or after it.

The order: control path → body → script → token → limits → parse, validate, cost → execute. A rule of the script sees a
query under ``/graphql/OPERATION``, such as ``/graphql/IssueCreate``.
"""

import base64
import binascii
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

from graphql import (
    ExecutionResult,
    GraphQLError,
    GraphQLSchema,
    build_schema,
    execute_sync,
    parse,
    validate,
)
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from compass_forged.emulator.asgi import drop, play, receive_request, send_answer
from compass_forged.emulator.linear_changes import LinearChanges
from compass_forged.emulator.linear_complexity import POINTS_MAX, complexity
from compass_forged.emulator.linear_control import linear_control_path
from compass_forged.emulator.linear_limits import LinearLimits, LinearLimitSettings
from compass_forged.emulator.linear_refusals import (
    JsonObject,
    LinearRefused,
    key_as_bearer,
    not_authenticated,
    not_found,
    not_valid,
    too_complex,
)
from compass_forged.emulator.linear_render import LinearRenderer, iso
from compass_forged.emulator.linear_seed import apply_linear_seed
from compass_forged.emulator.linear_state import Grant, LinearState
from compass_forged.emulator.routing import Answer
from compass_forged.emulator.script import LoggedRequest, RequestLog, Script
from compass_forged.emulator.state import Clock, system_clock

API_KEY_PREFIX = "lin_api_"
TOKEN_SECONDS = 2_591_999
_TOKENS_MAX_DEPTH = 20_000


@cache
def linear_schema() -> GraphQLSchema:
    """The schema that this half answers."""
    place = importlib.resources.files("compass_forged.emulator") / "linear_schema.graphql"
    return build_schema(place.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class LinearSettings:
    """How this half behaves.

    Attributes:
        limits: what an hour holds.
        error_status: the HTTP status of errors that have none of their own; Linear uses 200 and 400.
        clients: the OAuth applications that may ask for tokens: client id to (secret, the name of its user).
        control_token: opens ``/_forge/``; None keeps it shut.
    """

    limits: LinearLimitSettings = field(default_factory=LinearLimitSettings)
    error_status: int = 400
    clients: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]], repr=False)
    control_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as it came: what it asks for, and the name of its operation."""

    request: Request
    body: Any
    path: str

    @property
    def authorization(self) -> str:
        return self.request.headers.get("authorization", "").strip()


class LinearForge:
    """A stand-in for Linear's API: state, script, log and limits behind one ASGI application.

    Everything may be read and changed from the process that holds it, between requests and during them.

    Attributes:
        state: what the workspace holds.
        script: what the forge does to the next requests.
        log: the requests that came in; a query's path is ``/graphql/OPERATION``.
        limits: what each user has used.
    """

    def __init__(
        self,
        seed: Mapping[str, Any] | None = None,
        *,
        settings: LinearSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """``seed`` fills the workspace and is what ``reset`` goes back to; see the seed module."""
        self.settings = settings or LinearSettings()
        self._seed = seed
        self._clock = clock
        self._minted = 0
        self._scopes: dict[str, str] = {}
        self.script = Script()
        self.log = RequestLog()
        self._control = linear_control_path(self, self.settings.control_token)
        self.reset()

    def reset(self) -> None:
        """Back to the seed: no rules, an empty log, fresh limits."""
        self.state = LinearState(self._clock)
        self.limits = LinearLimits(replace(self.settings.limits))
        self.script.clear()
        self.log.clear()
        if self._seed is not None:
            apply_linear_seed(self.state, self._seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the ASGI entry point."""
        received = await receive_request(scope, receive, send, self._control)
        if received is None:
            return
        request, path, raw_body = received.request, received.path, received.raw_body
        if raw_body is None:
            await send_answer(send, Answer(413, {"content-type": "text/html"}, b"<h1>Payload too large</h1>\n"))
            return
        incoming = _incoming(request, path, raw_body)
        entry = self._note(incoming, raw_body)
        rule = self.script.take(request.method, incoming.path)
        if rule is None:
            answer = self._answer(incoming)
        else:
            answer = await play(rule, lambda: self._answer(incoming), lambda: {"date": self._date()})
            entry.scripted = True
            if rule.drop:
                await drop(scope, send)
                return
        entry.status = answer.status
        await send_answer(send, answer, truncate=rule.truncate if rule else None)

    def _note(self, incoming: _Incoming, raw_body: bytes) -> LoggedRequest:
        grant = self._grant(incoming.authorization)
        login = self.state.users[grant.user_id].name if isinstance(grant, Grant) else None
        request = incoming.request
        at = iso(self.state.now()) or ""
        # What goes to the path of tokens is not for a log.
        body = raw_body if incoming.path.startswith("/graphql") else b""
        return self.log.open(at, request.method, incoming.path, request.url.query, login, request.headers.items(), body)

    # --- the usual way

    def _answer(self, incoming: _Incoming) -> Answer:
        if incoming.request.method != "POST":
            return self._json(404, {"error": "not here"})
        if incoming.path == "/oauth/token":
            return self._mint(incoming)
        if not incoming.path.startswith("/graphql"):
            return self._json(404, {"error": "not here"})
        grant = self._grant(incoming.authorization)
        if isinstance(grant, LinearRefused):
            return self._json(grant.status, {"errors": [grant.as_json()]})
        now = self.state.now()
        try:
            self.limits.check(grant.user_id, now)
            result, points = self._execute(incoming.body, grant)
        except LinearRefused as refused:
            self.limits.charge(grant.user_id, 0, now)
            headers = self.limits.headers(grant.user_id, now)
            return self._json(refused.status, {"errors": [refused.as_json()]}, headers)
        self.limits.charge(grant.user_id, points, now)
        headers = {"x-complexity": f"{points:.1f}", **self.limits.headers(grant.user_id, now)}
        return self._json(self._status(result), _body(result), headers)

    def _execute(self, body: Any, grant: Grant) -> tuple[ExecutionResult, float]:
        if not isinstance(body, dict) or not isinstance(body.get("query"), str):
            raise not_valid("Must provide query string.")
        variables = body.get("variables") or {}
        try:
            document = parse(body["query"], max_tokens=_TOKENS_MAX_DEPTH)
        except GraphQLError as error:
            raise not_valid(error.message) from error
        schema = linear_schema()
        if errors := validate(schema, document):
            raise not_valid(errors[0].message)
        points = complexity(schema, document, variables)
        if points > POINTS_MAX:
            raise too_complex(points)
        root = self._root(grant)
        return execute_sync(schema, document, root, None, variables, body.get("operationName")), points

    def _root(self, grant: Grant) -> JsonObject:
        viewer = self.state.users[grant.user_id]
        render = LinearRenderer(self.state, viewer)
        changes = LinearChanges(self.state, grant, render)

        def team(_info: Any, id: str) -> JsonObject:  # noqa: A002 -- Linear's word
            found = self.state.teams.get(id)
            if found is None or not render.sees(found):
                raise not_found("Team")
            return render.team(found)

        def issue(_info: Any, id: str) -> JsonObject:  # noqa: A002 -- Linear's word
            found = self.state.find_issue(id)
            if found is None or not render.sees_issue(found):
                raise not_found("Issue")
            return render.issue(found)

        return {
            "viewer": render.user(viewer),
            "organization": {"id": "1", "name": "Acme", "urlKey": self.state.url_key},
            "team": team,
            "teams": render.teams,
            "issue": issue,
            "issues": render.issues,
            "issueLabels": render.labels,
            "comments": render.comments,
            "issueCreate": changes.create_issue,
            "commentCreate": changes.create_comment,
        }

    def _grant(self, authorization: str) -> Grant | LinearRefused:
        """Whose token this is, or how it is refused."""
        bearer = authorization.removeprefix("Bearer ")
        behind_bearer = bearer != authorization
        if behind_bearer and bearer.startswith(API_KEY_PREFIX):
            return key_as_bearer()
        grant = self.state.tokens.get(bearer)
        return not_authenticated() if grant is None or grant.oauth != behind_bearer else grant

    def _mint(self, incoming: _Incoming) -> Answer:
        """A token for an application's client credentials; other scopes than before end the ones it has."""
        client = _basic(incoming.authorization)
        known = self.settings.clients.get(client[0])
        if known is None or known[0] != client[1]:
            return self._json(401, {"error": "invalid_client", "error_description": "Client credentials are invalid"})
        form = incoming.body
        if form.get("grant_type") != "client_credentials":
            return self._json(400, {"error": "unsupported_grant_type"})
        scope = form.get("scope", "read")
        name = known[1]
        user_id = self.state.user(name).id
        if self._scopes.setdefault(client[0], scope) != scope:
            self.state.tokens = {token: one for token, one in self.state.tokens.items() if one.user_id != user_id}
            self._scopes[client[0]] = scope
        self._minted += 1
        token = f"lin_oauth_minted{self._minted:024d}"
        self.state.grant_token(token, name, oauth=True, app_actor=True, writes="write" in scope.split(","))
        told = {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_SECONDS, "scope": scope}
        return self._json(200, told)

    # --- answers

    def _status(self, result: ExecutionResult) -> int:
        if not result.errors:
            return 200
        return 200 if result.data else self.settings.error_status

    def _date(self) -> str:
        return format_datetime(self.state.now().replace(microsecond=0), usegmt=True)

    def _json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        told = {"content-type": "application/json; charset=utf-8", "date": self._date(), **(headers or {})}
        return Answer(status, told, json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())


def _body(result: ExecutionResult) -> JsonObject:
    told: JsonObject = {"data": result.data}
    if result.errors:
        told["errors"] = [error.formatted for error in result.errors]
    return told


def _incoming(request: Request, path: str, raw_body: bytes) -> _Incoming:
    if path != "/graphql":
        form = parse_qs(raw_body.decode("ascii", "replace"), keep_blank_values=True)
        return _Incoming(request, {name: values[0] for name, values in form.items()}, path)
    try:
        body = json.loads(raw_body)
    except (ValueError, RecursionError):
        body = None
    operation = body.get("operationName") if isinstance(body, dict) else None
    return _Incoming(request, body, f"/graphql/{operation}" if isinstance(operation, str) else "/graphql/")


def _basic(authorization: str) -> tuple[str, str]:
    """Client id and secret of a ``Basic`` header; empty where there are none."""
    try:
        text = base64.b64decode(authorization.removeprefix("Basic "), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    name, _, secret = text.partition(":")
    return unquote(name), unquote(secret)
