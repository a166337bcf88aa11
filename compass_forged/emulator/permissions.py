"""Which permission of a fine-grained token or an App a request takes. Names and alternatives are GitHub's.

Source: GitHub's "Permissions required for fine-grained personal access tokens", whose names Apps share.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from compass_forged.emulator.records import Account
from compass_forged.emulator.refusals import refusal

_LEVELS: Final[Mapping[str, int]] = {"read": 1, "write": 2, "admin": 3}
_EITHER: Final = ("issues", "pull_requests")
_BY_WORD: Final[Mapping[str, tuple[str, ...]]] = {
    "pulls": ("pull_requests",),
    "labels": _EITHER,
    "branches": ("contents",),
    "git": ("contents",),
    "check-runs": ("checks",),
    "check-suites": ("checks",),
    "status": ("statuses",),
    "statuses": ("statuses",),
}


def accepted(method: str, pattern: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The permissions any of which is enough for a route, each with its level; none for what takes no permission."""
    if pattern[0] not in {"repos", "repositories"}:
        return ()
    words = [word for word in pattern[1:] if not word.startswith("{")]
    level = "read" if method in {"GET", "HEAD"} else "write"
    if not words:
        return (("metadata", "read"),)
    names = next((_BY_WORD[word] for word in reversed(words) if word in _BY_WORD), ())
    if not names and words[0] == "issues":
        names = ("issues",) if words == ["issues"] else _EITHER
    return tuple((name, level) for name in names or ("contents",))


def check_permissions(
    account: Account | None, granted: Mapping[str, str] | None, method: str, pattern: Sequence[str]
) -> None:
    """Refuse a request whose token lacks what it takes.

    Args:
        account: who asks.
        granted: the token's permissions; None for a token that has all its account has.
        method: of the request.
        pattern: of the route.

    Raises:
        Refused: 403, naming in a header what would be accepted, and nothing of it in the body.
    """
    enough = accepted(method, pattern)
    if granted is None or not enough:
        return
    if any(_LEVELS.get(granted.get(name, ""), 0) >= _LEVELS[level] for name, level in enough):
        return
    who = "integration" if account is not None and account.type == "Bot" else "personal access token"
    raise refusal(
        403,
        f"Resource not accessible by {who}",
        headers={"x-accepted-github-permissions": "; ".join(f"{name}={level}" for name, level in enough)},
    )
