"""The forge as an ASGI application: what happens to a request before and after its route.

The order: control path → User-Agent → body → token → log → script → API version → rate limit → route → ETag. Everything
between reading the body and sending the answer is plain code without a wait, so a request's effect is never torn;
scripted delays stand before or after it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from compass_forged.emulator import app_routes, basic_routes, check_routes, issue_routes, pull_routes, review_routes
from compass_forged.emulator.apps import App
from compass_forged.emulator.asgi import drop, play, receive_request, send_answer
from compass_forged.emulator.control import control_path
from compass_forged.emulator.limits import Limits, LimitSettings, Window
from compass_forged.emulator.permissions import check_permissions
from compass_forged.emulator.records import Account
from compass_forged.emulator.refusals import DOCS, Refused, bad_credentials, no_route, unsupported_version
from compass_forged.emulator.render import Renderer, for_version, timestamp
from compass_forged.emulator.routing import Answer, Call, Match, Reply, Routes
from compass_forged.emulator.script import LoggedRequest, RequestLog, Script
from compass_forged.emulator.seed import apply_seed
from compass_forged.emulator.state import Clock, ForgeState, system_clock

_VARY = "Accept, Authorization, Cookie, X-GitHub-OTP,Accept-Encoding, Accept, X-Requested-With"
_NO_AGENT = (
    "\r\nRequest forbidden by administrative rules. Please make sure your request has a User-Agent header "
    "(https://docs.github.com/en/rest/overview/resources-in-the-rest-api#user-agent-required). "
    "Check https://developer.github.com for other possible causes.\r\n"
)


@dataclass(frozen=True, slots=True)
class ForgeSettings:
    """How the forge behaves.

    Attributes:
        limits: the rate limits; ``replace`` them to switch them off.
        enterprise: a GHES release such as ``3.19.0``: its ``/meta``, headers, versions and missing paths.
        prefix: a path before all routes, such as a GHES's ``/api/v3``.
        control_token: opens ``/_forge/``; None keeps it shut.
    """

    limits: LimitSettings = field(default_factory=LimitSettings)
    enterprise: str | None = None
    prefix: str = ""
    control_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as it came, with who asks."""

    request: Request
    method: str
    path: str
    raw_body: bytes
    token: str | None
    caller: Account | None
    request_id: str

    @property
    def bucket(self) -> int | None:
        """Whose rate limit is charged."""
        return self.caller.id if self.caller else None


class Forge:
    """A stand-in for GitHub's REST API: state, script, log and limits behind one ASGI application.

    Everything may be read and changed from the process that holds it, between requests and during them.

    Attributes:
        state: what the forge holds.
        script: what it does to the next requests.
        log: the requests that came in.
        limits: what each account has used.
    """

    def __init__(
        self,
        seed: Mapping[str, Any] | None = None,
        *,
        settings: ForgeSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """``seed`` fills the forge and is what ``reset`` goes back to; see the seed module."""
        self.settings = settings or ForgeSettings()
        self._seed = seed
        self._clock = clock
        self.script = Script()
        self.log = RequestLog()
        self._requests = 0
        self._routes = Routes()
        for module in (basic_routes, app_routes, issue_routes, pull_routes, review_routes, check_routes):
            self._routes.include(module.routes)
        self._control = control_path(self, self.settings.control_token)
        self.reset()

    def reset(self) -> None:
        """Back to the seed: no rules, an empty log, fresh limits."""
        self.state = ForgeState(self._clock)
        self.limits = Limits(replace(self.settings.limits))
        self.script.clear()
        self.log.clear()
        if self._seed is not None:
            apply_seed(self.state, self._seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the ASGI entry point."""
        received = await receive_request(scope, receive, send, self._control)
        if received is None:
            return
        request, path, raw_body = received.request, received.path, received.raw_body
        if not request.headers.get("user-agent", "").strip():
            await send_answer(send, Answer(403, {"content-type": "text/html"}, _NO_AGENT.encode()))
            return
        if raw_body is None:
            await send_answer(
                send, Answer(413, {"content-type": "text/html", "connection": "close"}, b"Payload too large\n")
            )
            return
        incoming = self._incoming(request, path, raw_body)
        entry = self._note(incoming)
        rule = self.script.take(incoming.method, unquote(path))
        if rule is None:
            answer = self._answer(incoming)
        else:
            entry.scripted = True
            answer = await play(rule, lambda: self._answer(incoming), lambda: self._bare_headers(incoming))
            if rule.drop:
                await drop(scope, send)
                return
        entry.status = answer.status
        await send_answer(send, answer, head=incoming.method == "HEAD", truncate=rule.truncate if rule else None)

    def _incoming(self, request: Request, path: str, raw_body: bytes) -> _Incoming:
        self._requests += 1
        number = self._requests
        token = _token(request.headers.get("authorization"))
        return _Incoming(
            request=request,
            method=request.method,
            path=path,
            raw_body=raw_body,
            token=token,
            caller=self.state.caller(token) if token else None,
            request_id=f"{number:04X}:{0xF06E:04X}:{number:07X}:{number:07X}:{number:08X}",
        )

    def _note(self, incoming: _Incoming) -> LoggedRequest:
        return self.log.open(
            timestamp(self.state.now()),
            incoming.method,
            unquote(incoming.path),
            incoming.request.url.query,
            incoming.caller.login if incoming.caller else None,
            incoming.request.headers.items(),
            incoming.raw_body,
        )

    def _bare_headers(self, incoming: _Incoming) -> dict[str, str]:
        return self._common_headers(incoming, self.limits.window(incoming.bucket, self.state.now()))

    # --- the usual way

    def _answer(self, incoming: _Incoming) -> Answer:
        """Answer a request as GitHub would."""
        now = self.state.now()
        match = self._find(incoming)
        bucket = incoming.bucket
        version = incoming.request.headers.get("x-github-api-version", basic_routes.DEFAULT_VERSION)
        try:
            reply = self._reply(incoming, match, version)
        except Refused as refused:
            body = {
                "message": refused.body["message"],
                **{name: value for name, value in refused.body.items() if name != "message"},
                "documentation_url": refused.body.get("documentation_url", match.route.docs if match else DOCS),
            }
            if "url" not in body and not isinstance(body.get("errors"), str):
                body["status"] = str(refused.status)
            reply = Reply(body, refused.status, refused.headers)
            if version not in basic_routes.versions(self.settings.enterprise):
                version = basic_routes.DEFAULT_VERSION
        raw = json.dumps(for_version(reply.body, version), ensure_ascii=False, separators=(",", ":")).encode()
        etag = _etag(incoming, raw) if reply.status == HTTPStatus.OK else None
        fresh = etag is not None and _matches(incoming.request.headers.get("if-none-match"), etag)
        free = bool(match and match.route.free) or (fresh and incoming.caller is not None)
        window = self.limits.window(bucket, now) if free else self.limits.charge(bucket, now)
        headers = self._common_headers(incoming, window)
        if etag is not None:
            headers |= {"etag": etag, "vary": _VARY, "cache-control": "private, max-age=60, s-maxage=60"}
        if fresh:
            links = {name: value for name, value in reply.headers.items() if name.casefold() == "link"}
            return Answer(304, headers | links, b"")  # a page may stay as it was while others come and go
        headers |= {
            "content-type": "application/json; charset=utf-8",
            "x-github-media-type": "github.v3; format=json",
            "x-github-api-version-selected": version,
            **reply.headers,
        }
        return Answer(reply.status, headers, raw)

    def _find(self, incoming: _Incoming) -> Match | None:
        if not incoming.path.startswith(self.settings.prefix):
            return None
        return self._routes.find(incoming.method, incoming.path.removeprefix(self.settings.prefix))

    def _reply(self, incoming: _Incoming, match: Match | None, version: str) -> Reply:
        app = None
        if app_routes.is_app_path(incoming.path.removeprefix(self.settings.prefix)):
            app = self.state.apps.claimed(incoming.token or "", self.state.now())
        elif incoming.token is not None and incoming.caller is None:
            raise bad_credentials()
        if version not in basic_routes.versions(self.settings.enterprise):
            raise unsupported_version(version)
        if not (match and match.route.free):
            self.limits.check(incoming.bucket, self.state.now(), incoming.request_id)
        if match is None:
            raise no_route()
        granted = self.state.token_permissions.get(incoming.token or "")
        check_permissions(incoming.caller, granted, incoming.method, match.route.pattern)
        return match.route.handler(self._call(incoming, match, app))

    def _call(self, incoming: _Incoming, match: Match, app: App | None) -> Call:
        url = incoming.request.url
        origin = f"{url.scheme}://{url.netloc}"
        return Call(
            state=self.state,
            limits=self.limits,
            render=Renderer(self.state, origin + self.settings.prefix, origin),
            method=incoming.method,
            caller=incoming.caller,
            params=match.params,
            query=incoming.request.query_params,
            query_string=url.query,
            tail=match.tail,
            raw_body=incoming.raw_body,
            enterprise=self.settings.enterprise,
            app=app,
        )

    def _common_headers(self, incoming: _Incoming, window: Window | None) -> dict[str, str]:
        headers = {
            "server": "compass-forge",
            "date": format_datetime(self.state.now(), usegmt=True),
            "x-github-request-id": incoming.request_id,
        }
        if window is not None:
            headers |= window.headers()
        ends = self.state.token_ends.get(incoming.token or "")
        if ends is not None and incoming.caller is not None and incoming.caller.type == "User":
            headers["github-authentication-token-expiration"] = f"{ends:%Y-%m-%d %H:%M:%S} UTC"
        if self.settings.enterprise:
            headers["x-github-enterprise-version"] = f"enterprise-server@{self.settings.enterprise}"
        return headers


# --- small helpers


def _token(authorization: str | None) -> str | None:
    """The token of an ``Authorization`` header; "" for one in a form that GitHub does not take."""
    if not authorization:
        return None
    scheme, _, value = authorization.partition(" ")
    return value.strip() if scheme.lower() in {"bearer", "token"} else ""


def _etag(incoming: _Incoming, raw: bytes) -> str:
    """A weak tag over the answer, the credential and what it varies on: another token has another tag."""
    headers = incoming.request.headers
    vary = "\n".join((headers.get("authorization", ""), headers.get("accept", "")))
    return f'W/"{sha256(vary.encode() + raw).hexdigest()}"'


def _matches(if_none_match: str | None, etag: str) -> bool:
    if not if_none_match:
        return False
    wanted = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return bool(wanted & {"*", etag.removeprefix("W/")})
