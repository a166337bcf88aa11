"""Routes: which handler answers a method and a path, and what a handler is given and gives back.

Paths are matched segment by segment on the undecoded path, so that ``%2F`` stays inside its segment, and exactly: a
trailing slash is another path. A route below ``/repos/{owner}/{repo}`` answers below ``/repositories/{id}`` too, where
GitHub's redirects and page links lead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

from compass_forged.emulator.apps import App
from compass_forged.emulator.inputs import parse_object
from compass_forged.emulator.limits import Limits
from compass_forged.emulator.records import Account
from compass_forged.emulator.refusals import JsonObject, needs_authentication
from compass_forged.emulator.render import Renderer
from compass_forged.emulator.state import ForgeState

_REPO_PREFIX = "/repos/{owner}/{repo}"
_NUMBER_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a handler sees it.

    Attributes:
        caller: who asks; None without a token.
        app: the App that asks, by its claim.
        tail: the path behind the repository, such as ``/issues/3``; what a redirect carries over.
        query_string: the query as it came.
    """

    state: ForgeState
    limits: Limits
    render: Renderer
    method: str
    caller: Account | None
    params: Mapping[str, str]
    query: Mapping[str, str]
    query_string: str
    tail: str
    raw_body: bytes
    enterprise: str | None
    app: App | None = None

    def json(self) -> JsonObject:
        """The body as a JSON object; refuses what is none."""
        return parse_object(self.raw_body)

    def number(self, name: str) -> int:
        """A path parameter that the route matched as digits."""
        return int(self.params[name])

    def writer(self) -> Account:
        """The caller of a write; refuses one without a token."""
        if self.caller is None:
            raise needs_authentication()
        return self.caller

    def committed(self, author: Account, kind: str) -> None:
        """Count a creation: as a side effect of its kind, and against its author's creation limits."""
        self.state.commits[kind] += 1
        self.limits.count_creation(author.id, self.state.now())


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers: a JSON value and the headers of its own."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Answer:
    """What goes out: status, headers by lower-case name, bytes."""

    status: int
    headers: dict[str, str]
    body: bytes


Handler: TypeAlias = Callable[[Call], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """A handler under a method and a pattern. ``free``: it costs nothing of the rate limit."""

    method: str
    pattern: tuple[str, ...]
    handler: Handler
    docs: str
    free: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A route and the values of its path's parameters."""

    route: Route
    params: Mapping[str, str]
    tail: str


class Routes:
    """A table of routes; ``include`` joins the tables of several modules."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def add(self, method: str, path: str, docs: str, *, free: bool = False) -> Callable[[Handler], Handler]:
        """Register a handler; ``docs`` is the operation's documentation page, which its errors name."""

        def register(handler: Handler) -> Handler:
            self._routes.append(Route(method, _split(path), handler, docs, free))
            if path.startswith(_REPO_PREFIX):
                by_id = "/repositories/{repository_id}" + path.removeprefix(_REPO_PREFIX)
                self._routes.append(Route(method, _split(by_id), handler, docs, free))
            return handler

        return register

    def include(self, other: "Routes") -> None:
        """Take over another table's routes."""
        self._routes.extend(other._routes)  # noqa: SLF001 -- of the same class

    def find(self, method: str, raw_path: str) -> Match | None:
        """The first route that matches; a HEAD is answered as a GET."""
        wanted = "GET" if method == "HEAD" else method
        segments = _split(raw_path)
        for route in self._routes:
            if route.method == wanted and (params := _match(route.pattern, segments)) is not None:
                behind = 2 if route.pattern[0] == "repositories" else 3
                tail = "".join(f"/{segment}" for segment in segments[behind:])
                return Match(route, params, tail)
        return None


def _split(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix("/").split("/"))


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    params: dict[str, str] = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if not expected.startswith("{"):
            if expected != segment:
                return None
            continue
        name, value = expected[1:-1], unquote(segment)
        if not value or (name.endswith(("_id", "_number")) and not _is_number(value)):
            return None
        params[name] = value
    return params


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_MAX_DIGITS
