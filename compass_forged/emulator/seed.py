"""Seeds: a forge's first contents as plain data, from TOML, JSON or ``default_seed``.

The form (every list may be missing)::

    [tokens]
    "some-token" = "forge-author"

    [[accounts]]                # login; type User (default), Bot or Organization; name; members (of an organisation)
    login = "acme"
    type = "Organization"

    [[apps]]                    # id, slug, public_key (PEM); client_id, permissions, installations: id, account
    id = 4711
    slug = "compass"
    public_key = "-----BEGIN PUBLIC KEY-----…"
    installations = [{id = 99, account = "acme"}]

    [[repositories]]            # owner, name; private, archived, has_issues; push, read: logins; labels: names
    owner = "acme"
    name = "site"
    push = ["forge-author"]
    labels = ["bug"]

    [[repositories.issues]]     # title, author; body, labels, state, locked, pull_request, comments
    title = "Broken"
    author = "outsider"
    comments = [{author = "forge-author", body = "Seen."}]
"""

import json
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compass_forged.emulator.apps import App
from compass_forged.emulator.refusals import JsonObject
from compass_forged.emulator.state import ForgeState, PullFacts, Repo, UnknownName

IDENTITIES = ("forge-author", "forge-reviewer", "outsider")
"""The accounts of ``default_seed`` that have a token."""

_ACCOUNT_KEYS = frozenset({"login", "type", "name", "members"})
_REPO_KEYS = frozenset({"owner", "name", "private", "archived", "has_issues", "push", "read", "labels", "issues"})
_ISSUE_KEYS = frozenset({"title", "author", "body", "labels", "state", "locked", "pull_request", "comments"})
_APP_KEYS = frozenset({"id", "slug", "public_key", "client_id", "permissions", "installations"})
_SEED_KEYS = frozenset({"tokens", "accounts", "apps", "repositories"})


class BadSeed(ValueError):
    """A seed names what it should not, or leaves out what it must have: its author's mistake."""


def read_seed(path: Path) -> JsonObject:
    """A seed from a ``.toml`` or ``.json`` file.

    Raises:
        BadSeed: the file cannot be read as one.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise BadSeed(f"seed {path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise BadSeed(f"seed {path}: expected an object with {', '.join(sorted(_SEED_KEYS))}")
    return value


def apply_seed(state: ForgeState, seed: Mapping[str, Any]) -> None:
    """Add a seed's contents to what is there. Accounts that are there already are taken as they are.

    Raises:
        BadSeed: nothing is said of what was added before the mistake.
    """
    try:
        _apply(state, seed)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSeed(f"seed: {type(error).__name__}: {error}; see the seed module for the form") from error
    except (UnknownName, ValueError) as error:
        raise BadSeed(f"seed: {error}") from error


def _apply(state: ForgeState, seed: Mapping[str, Any]) -> None:
    _check_keys("seed", seed, _SEED_KEYS)
    for account in seed.get("accounts", ()):
        _check_keys("accounts", account, _ACCOUNT_KEYS)
        if state.find_account(account["login"]) is None:
            state.add_account(account["login"], account.get("type", "User"), name=account.get("name"))
    for account in seed.get("accounts", ()):
        members = {state.account(login).id for login in account.get("members", ())}
        state.account(account["login"]).members |= members
    for token, login in seed.get("tokens", {}).items():
        state.grant_token(token, login)
    for repository in seed.get("repositories", ()):
        _add_repository(state, repository)
    for app in seed.get("apps", ()):
        _add_app(state, app)


def _add_app(state: ForgeState, given: Mapping[str, Any]) -> None:
    _check_keys("apps", given, _APP_KEYS)
    client_id = given.get("client_id", f"Iv1.{given['id']:016x}")
    app = App(given["id"], given["slug"], client_id, given["public_key"], state.now())
    if "permissions" in given:
        app.permissions = given["permissions"]
    state.apps.add(app)
    for installation in given.get("installations", ()):
        state.install_app(app, installation["id"], installation["account"])


def _add_repository(state: ForgeState, given: Mapping[str, Any]) -> None:
    _check_keys("repositories", given, _REPO_KEYS)
    flags = {name: given[name] for name in ("private", "archived", "has_issues", "push", "read") if name in given}
    repo = state.add_repo(given["owner"], given["name"], **flags)
    state.label_ids(repo, given.get("labels", ()))
    for issue in given.get("issues", ()):
        _add_issue(state, repo, issue)


def _add_issue(state: ForgeState, repo: Repo, given: Mapping[str, Any]) -> None:
    _check_keys("issues", given, _ISSUE_KEYS)
    author = state.account(given["author"])
    pull = PullFacts() if given.get("pull_request") else None
    issue = state.add_issue(repo, author, given["title"], given.get("body"), labels=given.get("labels", ()), pull=pull)
    for comment in given.get("comments", ()):
        state.add_comment(issue, state.account(comment["author"]), comment["body"])
    state.set_issue_state(issue, given.get("state", "open"), author)
    issue.locked = bool(given.get("locked", False))


def _check_keys(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(set(given) - known):
        raise BadSeed(f"seed: {where}: unknown name {unknown[0]!r}; known are {', '.join(sorted(known))}")


def random_token() -> str:
    """A token in the form of GitHub's classic personal access tokens."""
    return f"ghp_{secrets.token_hex(18)}"


def default_seed(tokens: Mapping[str, str] | None = None) -> JsonObject:
    """Two identities, an outsider, and the organisation ``acme`` with a public and a private repository.

    ``acme/site`` has the labels bug and docs, two issues that people wrote and a pull request; ``acme/vault`` is
    private and not seen by the outsider.

    Args:
        tokens: tokens by login for any of ``IDENTITIES``; the others get random ones.
    """
    given = dict(tokens or {})
    return {
        "tokens": {given.get(login) or random_token(): login for login in IDENTITIES},
        "accounts": [
            *({"login": login} for login in IDENTITIES),
            {"login": "mona", "name": "Mona Lisa"},
            {"login": "acme", "type": "Organization", "name": "Acme", "members": ["mona"]},
        ],
        "repositories": [
            {
                "owner": "acme",
                "name": "site",
                "push": ["forge-author", "forge-reviewer"],
                "labels": ["bug", "docs"],
                "issues": [
                    {
                        "title": "The front page does not load on slow networks",
                        "author": "mona",
                        "body": "It stays white for ten seconds.",
                        "labels": ["bug"],
                        "comments": [{"author": "outsider", "body": "I see the same."}],
                    },
                    {"title": "Say how to run the tests", "author": "outsider", "labels": ["docs"]},
                    {
                        "title": "Load images lazily",
                        "author": "mona",
                        "body": "Images below the fold wait until they are near.",
                        "pull_request": True,
                    },
                ],
            },
            {
                "owner": "acme",
                "name": "vault",
                "private": True,
                "push": ["forge-author", "forge-reviewer"],
                "labels": ["bug"],
            },
        ],
    }
