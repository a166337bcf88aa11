"""What an operator should know of a configuration before agents find out: whose the credentials are, what they lack.

Everything is asked with reads; nothing is written anywhere. Sources: GitHub's "Permissions required for fine-grained
personal access tokens", "Permissions required for GitHub Apps" and "Scopes for OAuth apps".
"""

import re
import resource
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec
import trio

from compass_forged.budget import served_at
from compass_forged.config import Config
from compass_forged.errors import BadAnswer, BadCredentials, CallError, ConfigError, ForgeError
from compass_forged.forges import open_registry
from compass_forged.ports import Provider, Role
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_app import AppToken
from compass_forged.providers.github_dialect import detail_of
from compass_forged.providers.github_identity import USER_REQUEST, is_installation, read_user
from compass_forged.providers.http import HttpAnswer, HttpRequest
from compass_forged.providers.identity import Identities, Identity, own_context
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.registry import Entry

State: TypeAlias = Literal["ok", "warning", "bad"]

CHECK_SECONDS: Final = 20.0
"""How long one credential may take."""
_ENDS_SOON: Final = timedelta(days=7)
_SKEW_SECONDS: Final = 30.0
_DESCRIPTORS: Final = 1024

# What a role cannot do without, and what it is poorer without.
_NEEDED: Final[Mapping[str, Mapping[str, str]]] = {
    "author": {"metadata": "read", "issues": "write", "pull_requests": "write"},
    "reviewer": {"metadata": "read", "pull_requests": "write"},
}
_USEFUL: Final[Mapping[str, Mapping[str, str]]] = {
    "author": {"checks": "read", "statuses": "read", "contents": "read"},
    "reviewer": {},
}
_LEVELS: Final = ("", "read", "write", "admin")
_BRANCH: Final = "{default_branch}"
_UNTOLD: Final = ("github_pat_", "ghs_", "ghu_")
"""How the tokens begin of which GitHub tells nobody, the token itself included, what they may do."""
_PROBES: Final[Mapping[str, tuple[str, ...]]] = {
    "issues": ("issues",),
    "pull requests": ("pulls",),
    "statuses": ("commits", _BRANCH, "status"),
    "checks": ("commits", _BRANCH, "check-runs"),
}
_POORER: Final = frozenset({"statuses", "checks"})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Attributes:
        subject: ``host`` for the machine, else ``provider:host role``.
        check: what was looked at.
        state: ``ok``; ``warning``: works as far as can be told, and something is poorer, ends soon or cannot be told;
            ``bad``: calls fail.
        said: what was found, and what to do where it is not ok.
    """

    subject: str
    check: str
    state: State
    said: str


class _Repository(msgspec.Struct):
    full_name: str
    default_branch: str
    permissions: dict[str, bool] = {}


async def examine(config: Config, repos: Sequence[tuple[str, str]] = ()) -> list[Finding]:
    """Look at everything.

    Args:
        config: checked by ``load_config``.
        repos: (owner, name) of repositories to try each credential on.

    Raises:
        ConfigError: the configuration cannot be used at all.
    """
    findings = [_descriptors()]
    async with open_registry(config) as registry:
        for entry in registry.entries:
            findings += await _entry(entry, repos)
    return findings


async def _entry(entry: Entry, repos: Sequence[tuple[str, str]]) -> list[Finding]:
    findings: list[Finding] = []
    roles: tuple[tuple[Role, Provider | None], ...] = (("author", entry.author), ("reviewer", entry.reviewer))
    for role, provider in roles:
        subject = f"{entry.provider}:{entry.host} {role}"
        if isinstance(provider, GitHubProvider):
            checkup = _Checkup(subject, role, provider.http)
            await checkup.run(repos)
            findings += checkup.findings
        elif provider is not None and entry.identities is not None:
            findings.append(await _account_alone(subject, entry.identities, role))
            if isinstance(provider, LinearProvider) and entry.identities.known(role) is not None:
                findings += _linear(subject, provider)
        elif provider is None and entry.provider == "github":
            said = "none; reviews are refused. Configure another account's credential to have them"
            findings.append(Finding(subject=subject, check="credential", state="warning", said=said))
    if entry.identities is not None and entry.reviewer is not None:
        findings.append(await _two_accounts(entry))
    return findings


async def _account_alone(subject: str, identities: Identities, role: Role) -> Finding:
    """The account of a credential of which its forge tells nothing else."""
    who = identities.author if role == "author" else identities.reviewer
    state: State = "bad"
    said = "not known"
    try:
        with trio.move_on_after(CHECK_SECONDS):
            if who is not None:
                await who.learn()
        if (account := identities.known(role)) is not None:
            state, said = "ok", str(account)
    except (ForgeError, ConfigError) as error:
        said = _failure(error)
    return Finding(subject=subject, check="account", state=state, said=said)


def _linear(subject: str, provider: LinearProvider) -> list[Finding]:
    """What is known of Linear once it has named the account: under what name things are written, what is left."""
    state: State = "ok"
    said = f"what is written stands under {provider.writes_as}"
    if not provider.writes_as:
        state = "warning"
        said = "what is written stands under the account itself; the owner header says which agent wrote it"
    told = [one for one in provider.http.gate.statistics().budget.resources if one.remaining is not None]
    left = ", ".join(f"{one.remaining} of {one.limit} {one.resource}" for one in told)
    return [
        Finding(subject=subject, check="name", state=state, said=said),
        Finding(
            subject=subject,
            check="limit",
            state="ok",
            said=f"{left} left this hour" if left else "the forge names none",
        ),
    ]


async def _two_accounts(entry: Entry) -> Finding:
    state: State = "ok"
    said = "are two accounts"
    try:
        if entry.identities is not None:
            await entry.identities.learn()
        await entry.check_reviewer()
    except (ForgeError, ConfigError, CallError) as error:
        state, said = "bad", str(error)
    return Finding(subject=f"{entry.provider}:{entry.host}", check="author and reviewer", state=state, said=said)


class _Checkup:
    """One credential, looked at."""

    def __init__(self, subject: str, role: str, http: ForgeHttp) -> None:
        self._subject = subject
        self._role = role
        self._http = http
        self.findings: list[Finding] = []

    async def run(self, repos: Sequence[tuple[str, str]]) -> None:
        """Find out everything there is, for at most ``CHECK_SECONDS``."""
        try:
            with trio.move_on_after(CHECK_SECONDS) as scope:
                await self._account()
                for owner, name in repos:
                    await self._repository(owner, name)
        except (ForgeError, ConfigError) as error:
            self._found("credential", "bad", _failure(error))
        else:
            if scope.cancelled_caught:
                self._found("forge", "bad", f"did not answer within {CHECK_SECONDS:.0f} s")

    def _found(self, check: str, state: State, said: str) -> None:
        self.findings.append(Finding(subject=self._subject, check=check, state=state, said=said))

    async def _account(self) -> None:
        source = self._http.credential.source
        if isinstance(source, AppToken):
            app = await source.app()
            self._identity(Identity("app", app.id, f"{app.slug}[bot]"))
            await source.token()
            self._permissions(source.permissions)
            return
        answer = await self._http.ask(USER_REQUEST, own_context())
        self._whose(answer)
        self._end(answer)
        self._scopes(answer, await self._http.credential.token())
        self._limit(answer)
        self._clock(answer)

    def _identity(self, identity: Identity) -> None:
        self._found("account", "ok", f"{identity} ({identity.kind} {identity.id})")

    def _whose(self, answer: HttpAnswer) -> None:
        if is_installation(answer):
            said = "an App's installation token, which the forge names to nobody; configure the App by its key"
            self._found("account", "warning", said)
        elif answer.status != 200:  # noqa: PLR2004 -- OK
            why = detail_of(answer) or "no word"
            self._found("account", "bad", f"the forge answered {answer.status} when asked whose it is: {why}")
        else:
            try:
                self._identity(read_user(answer.status, answer.body))
            except BadAnswer:
                self._found("account", "bad", "the forge's answer cannot be read; is base_url its API?")

    def _end(self, answer: HttpAnswer) -> None:
        text = answer.headers.get("github-authentication-token-expiration", "")
        if not text:
            return
        ends = _moment(text)
        if ends is None:
            self._found("expiry", "warning", f"ends at {text}, which is no date known here")
            return
        left = ends - datetime.fromtimestamp(served_at(answer.headers.get("date"), time.time()), UTC)
        if left > _ENDS_SOON:
            self._found("expiry", "ok", f"ends on {ends:%Y-%m-%d}, in {left.days} days")
        else:
            self._found("expiry", "warning", f"ends on {ends:%Y-%m-%d %H:%M} UTC; put a new token in its place")

    def _scopes(self, answer: HttpAnswer, token: str) -> None:
        """Of a classic token alone does the forge tell what it may do; of others, what a refused request lacked."""
        if "x-oauth-scopes" not in answer.headers:
            if token.startswith(_UNTOLD):
                said = (
                    "not told of this kind of token: --repo tries what it may read; a write permission that is missing "
                    "shows at the first refusal, as `permissions` of `the forge refuses` in the daemon's log"
                )
                self._found("permissions", "warning", said)
            return
        scopes = {scope.strip() for scope in answer.headers["x-oauth-scopes"].split(",")}
        if "repo" in scopes:
            self._found("permissions", "ok", "scope repo")
        elif "public_repo" in scopes:
            self._found("permissions", "warning", "scope public_repo: private repositories are not reached")
        else:
            self._found("permissions", "bad", "has neither scope repo nor public_repo; make a token with one of them")

    def _limit(self, answer: HttpAnswer) -> None:
        left, limit = (answer.headers.get(f"x-ratelimit-{word}") for word in ("remaining", "limit"))
        if left is None or limit is None:
            self._found("limit", "ok", "the forge names none")
        else:
            self._found("limit", "ok" if left != "0" else "warning", f"{left} of {limit} requests left this hour")

    def _clock(self, answer: HttpAnswer) -> None:
        now = time.time()
        skew = served_at(answer.headers.get("date"), now) - now
        if abs(skew) > _SKEW_SECONDS:
            apart = f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
            self._found("clock", "warning", f"the forge's is {apart}; have this host synchronise its own")

    def _permissions(self, granted: Mapping[str, str]) -> None:
        if missing := _lacking(granted, _NEEDED[self._role]):
            self._found(
                "permissions", "bad", f"lacks {missing}; grant it to the App and accept it for the installation"
            )
        elif poorer := _lacking(granted, _USEFUL[self._role]):
            self._found("permissions", "warning", f"lacks {poorer}: what depends on it is told as unknown")
        else:
            said = ", ".join(f"{name}={level}" for name, level in sorted(granted.items()))
            self._found("permissions", "ok", said)

    async def _repository(self, owner: str, name: str) -> None:
        path = ("repos", owner, name)
        place = f"{owner}/{name}"
        answer = await self._http.ask(HttpRequest("GET", path), own_context())
        if answer.status != 200:  # noqa: PLR2004 -- OK
            self._found(place, "bad", f"is not seen: {_why(answer)}")
            return
        try:
            repository = msgspec.json.decode(answer.body, type=_Repository)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._found(place, "bad", "the forge's answer cannot be read; is base_url its API?")
            return
        self._rights(place, repository)
        for what, below in _PROBES.items():
            if self._role == "reviewer" and what != "pull requests":
                continue
            inside = [repository.default_branch if part == _BRANCH else part for part in below]
            probed = await self._http.ask(HttpRequest("GET", (*path, *inside), (("per_page", "1"),)), own_context())
            if probed.status in {401, 403, 404}:
                state: State = "warning" if what in _POORER else "bad"
                self._found(place, state, f"{what} cannot be read: {_why(probed)}")

    def _rights(self, place: str, repository: _Repository) -> None:
        moved = (
            "" if repository.full_name.casefold() == place.casefold() else f"; its name is {repository.full_name} now"
        )
        if repository.permissions.get("push"):
            self._found(place, "ok", f"may be written to{moved}")
        else:
            said = "may be read and not be pushed to: labels that agents set are dropped without a word"
            self._found(place, "warning", said + moved)


def _failure(error: ForgeError | ConfigError) -> str:
    """What stood in the way of asking with a credential, and what to do about a credential that is refused."""
    if isinstance(error.__cause__, ConfigError):
        return f"{error} ({error.__cause__})"
    renew = "; renew it at the forge and put the new one in its place" if isinstance(error, BadCredentials) else ""
    return f"{error}{renew}"


def _lacking(granted: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name}={level}" for name, level in wanted.items() if _level(granted.get(name, "")) < _level(level)
    )


def _level(word: str) -> int:
    return _LEVELS.index(word) if word in _LEVELS else 0


def _why(answer: HttpAnswer) -> str:
    """Why the forge refused, by what its headers say rather than its words."""
    if answer.headers.get("x-github-sso"):
        return "the organisation wants the token authorised for its single sign-on"
    accepted = answer.headers.get("x-accepted-github-permissions", "")
    if accepted:
        return f"lacks {accepted.replace('; ', ' or ')}"
    return f"the forge answered {answer.status}"


def _moment(text: str) -> datetime | None:
    """The end of a token: ``2022-11-12 10:31:26 UTC``, or with a numeric offset."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (UTC|[+-]\d{4})", text, re.ASCII)
    if match is None:
        return None
    try:
        return datetime.strptime(f"{match[1]} {match[2].replace('UTC', '+0000')}", "%Y-%m-%d %H:%M:%S %z").astimezone(
            UTC
        )
    except (ValueError, OverflowError):
        return None


def _descriptors() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS
    shown = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
    said = shown if enough else f"{shown}; raise it (LimitNOFILE=) to {_DESCRIPTORS} at least"
    return Finding(subject="host", check="descriptors", state="ok" if enough else "warning", said=said)
