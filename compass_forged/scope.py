"""Scopes: which repositories a session may touch. Pure.

A scope is a list of patterns ``provider[:host]/repo``. ``*`` stands for any run of characters within one segment of
the repo and nothing else is special. A pattern without a host means the provider's default host, exactly as a call
without a host does. Everything is compared casefolded. No scope (None) allows all; an empty one allows nothing.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from compass_forged.wire.schema import PROVIDERS

SCOPE_MAX_PATTERNS: Final = 200
_PATTERN = re.compile(
    r"(?P<provider>[a-z][a-z0-9]{0,31})(?::(?P<host>[a-z0-9][a-z0-9.:-]{0,252}))?/(?P<repo>[a-z0-9*._/-]{1,140})",
    re.ASCII | re.IGNORECASE,
)


def check_scope(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns as a tuple, each checked.

    Raises:
        ValueError: one line naming the pattern that is none.
    """
    checked = tuple(patterns)
    if len(checked) > SCOPE_MAX_PATTERNS:
        raise ValueError(f"scope: {len(checked)} patterns; at most {SCOPE_MAX_PATTERNS} are allowed")
    for pattern in checked:
        provider, _host, _repo = _compile(pattern)
        if provider not in PROVIDERS:
            raise ValueError(
                f"scope: {pattern[:80]!r} names no provider ({', '.join(PROVIDERS)}); write github/acme/* for acme/*"
            )
    return checked


def allows(scope: tuple[str, ...] | None, *, provider: str, host: str, repo: str, default_host: str) -> bool:
    """Whether a session of this scope may touch ``repo`` on (``provider``, ``host``)."""
    if scope is None:
        return True
    wanted = (provider.casefold(), host.casefold(), repo.casefold())
    return any(_matches(pattern, wanted, default_host.casefold()) for pattern in scope)


def _matches(pattern: str, wanted: tuple[str, str, str], default_host: str) -> bool:
    provider, host, repo = _compile(pattern)
    return (provider, host or default_host) == wanted[:2] and repo.fullmatch(wanted[2]) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> tuple[str, str, re.Pattern[str]]:
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        raise ValueError(f"scope: {pattern[:80]!r} is no pattern; write provider[:host]/repo, such as github/acme/*")
    repo = "/".join(_segment(segment) for segment in match["repo"].casefold().split("/"))
    return match["provider"].casefold(), (match["host"] or "").casefold(), re.compile(repo)


def _segment(segment: str) -> str:
    """One segment as a regex. Each part between two stars is matched at its first place and for good.

    Without the atomic groups a pattern of many stars would try every way to divide a name that does not match.
    """
    first, *rest = (re.escape(part) for part in segment.split("*"))
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{part})" for part in middle) + f"[^/]*{last}"
