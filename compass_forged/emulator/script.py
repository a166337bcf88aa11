"""Scripts: what the forge does to the next matching requests instead of, or besides, answering them; and the log.

A rule matches by method and path and is used up after ``times`` matches; the first rule that matches a request
applies, in the order they were queued. Rules travel over the control path as JSON objects with the same names.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

LOG_MAX_ENTRIES = 10_000
BODY_LOG_MAX_CHARS = 200_000


@dataclass(slots=True)
class Rule:
    """What happens to the next matching requests.

    Attributes:
        method: an HTTP method, or ``*``.
        path: the path without query, where ``*`` stands for any characters, slashes included.
        times: for how many matches it holds.
        skip: how many matches are let through first: ``skip=2`` breaks the third.
        commit: the request is carried out as usual, with its effect, before it is answered.
        status: the answer's status; None leaves the forge's own answer (and then the request is carried out).
        headers: the answer's headers, added to the usual ones, and replacing those of the same name.
        body: the answer's body: text and bytes as they are, None empty, anything else as JSON.
        delay: seconds on the event loop's clock before the request is carried out.
        delay_after: seconds between the effect and the answer.
        truncate: only so many bytes of the body are sent, though ``content-length`` promises all of them.
        drop: the connection is closed instead of an answer.
    """

    method: str = "*"
    path: str = "*"
    times: int = 1
    skip: int = 0
    commit: bool = False
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    delay: float = 0.0
    delay_after: float = 0.0
    truncate: int | None = None
    drop: bool = False

    @property
    def carries_out(self) -> bool:
        """Whether the request has its usual effect."""
        return self.commit or (self.status is None and not self.drop)

    def matches(self, method: str, path: str) -> bool:
        """Whether the rule is about such a request."""
        return self.method in {"*", method} and fnmatchcase(path, self.path)

    def body_bytes(self) -> bytes:
        """The body to send."""
        if self.body is None:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


def rule_from_json(value: Any) -> Rule:
    """A rule from the control path.

    Raises:
        ValueError: a name that no rule has, or a value of the wrong type; the message says which.
    """
    if not isinstance(value, dict):
        raise ValueError(f"rule: {value!r} has the wrong type; a rule is an object")  # noqa: TRY004 -- one kind of error
    for name, given in value.items():
        expected = _RULE_TYPES.get(name)
        if expected is None:
            raise ValueError(f"rule: unknown name {name!r}; known are {', '.join(_RULE_TYPES)}")
        # A bool is an int to isinstance, but ``times: true`` is a mistake.
        mistaken = name != "body" and isinstance(given, bool) is not (expected is bool)
        if mistaken or not isinstance(given, expected):
            raise ValueError(f"rule: {name}: {given!r} has the wrong type")
    return Rule(**value)


_RULE_TYPES: Mapping[str, Any] = {
    "method": str,
    "path": str,
    "times": int,
    "skip": int,
    "commit": bool,
    "status": int,
    "headers": dict,
    "body": object,
    "delay": int | float,
    "delay_after": int | float,
    "truncate": int,
    "drop": bool,
}


class Script:
    """The queue of rules."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, *rules: Rule) -> None:
        """Queue rules behind those that are there."""
        self._rules.extend(rules)

    def clear(self) -> None:
        """Forget what is queued."""
        self._rules.clear()

    @property
    def pending(self) -> int:
        """How many rules are not used up yet."""
        return len(self._rules)

    def take(self, method: str, path: str) -> Rule | None:
        """The rule for this request, which uses up one of its times; None to answer as usual."""
        for rule in self._rules:
            if not rule.matches(method, path):
                continue
            if rule.skip > 0:
                rule.skip -= 1
                return None
            rule.times -= 1
            if rule.times <= 0:
                self._rules.remove(rule)
            return rule
        return None


@dataclass(slots=True)
class LoggedRequest:
    """One request that came in. The token is never here; ``login`` says whose it was.

    Attributes:
        number: counts all requests from 1.
        at: the forge's time, ISO 8601.
        login: who asked; None without a valid token.
        headers: the request's headers but for those that hold credentials.
        body: the JSON value, the text where it is none, None where there was no body.
        status: what was answered; None while it is not, and for a dropped connection.
        scripted: whether a rule applied.
    """

    number: int
    at: str
    method: str
    path: str
    query: str
    login: str | None
    headers: Mapping[str, str]
    body: Any
    status: int | None = None
    scripted: bool = False


class RequestLog:
    """The last ``LOG_MAX_ENTRIES`` requests, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[LoggedRequest] = deque(maxlen=LOG_MAX_ENTRIES)
        self._count = 0

    def open(
        self,
        at: str,
        method: str,
        path: str,
        query: str,
        login: str | None,
        headers: Iterable[tuple[str, str]],
        raw_body: bytes,
    ) -> LoggedRequest:
        """Note a request as it comes in."""
        self._count += 1
        kept = {name: value for name, value in headers if name not in {"authorization", "cookie"}}
        entry = LoggedRequest(self._count, at, method, path, query, login, kept, _readable(raw_body))
        self._entries.append(entry)
        return entry

    def find(self, method: str = "*", path: str = "*") -> list[LoggedRequest]:
        """The requests of a method and a path (``*`` as in a rule), oldest first."""
        return [each for each in self._entries if method in {"*", each.method} and fnmatchcase(each.path, path)]

    def count(self, method: str = "*", path: str = "*") -> int:
        """How many such requests came in."""
        return len(self.find(method, path))

    def clear(self) -> None:
        """Forget the requests; numbers go on."""
        self._entries.clear()


def _readable(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")[:BODY_LOG_MAX_CHARS]
