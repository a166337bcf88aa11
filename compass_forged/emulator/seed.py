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

    [[repositories]]            # owner, name; private, archived, has_issues, default_branch, fork_of;
    owner = "acme"              # push, read: logins; labels: names
    name = "site"
    push = ["forge-author"]
    labels = ["bug"]

    [[repositories.branches]]   # name; files: what it changes against the default branch, each with name and old and
    name = "topic"              # new (texts) or patch; status, previous_name
    files = [{name = "a.txt", old = "1", new = "2"}]
    checks = [{name = "build", conclusion = "success"}]        # of its head; status, suite
    statuses = [{context = "ci/legacy", state = "pending"}]

    [[repositories.issues]]     # title, author; body, labels, state, locked, comments
    title = "Broken"
    author = "outsider"
    comments = [{author = "forge-author", body = "Seen."}]

    [[repositories.issues]]     # the same, and pull_request: head; base, draft; or true, for one without a branch
    title = "Mended"
    author = "outsider"
    pull_request = {head = "topic"}
    # author, event (without one it stays pending); body; comments: path, line, body; side, start_line, start_side
    reviews = [{author = "forge-reviewer", event = "APPROVE", comments = [{path = "a.txt", line = 1, body = "Good."}]}]
"""

import json
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compass_forged.emulator.apps import App
from compass_forged.emulator.diffs import patch_of
from compass_forged.emulator.pull_changes import NewComment, add_check_run, add_review, open_pull, push, set_status
from compass_forged.emulator.records import Account, ChangedFile, Issue, PullFacts, Repo
from compass_forged.emulator.refusals import JsonObject
from compass_forged.emulator.state import ForgeState, UnknownName

_IMAGES = "".join(f"line {number}\n" for number in range(1, 31))
_LAZY_IMAGES = _IMAGES.replace("line 5\n", "line 5, lazily\n").replace("line 25\n", "line 25\nand one more\n")

IDENTITIES = ("forge-author", "forge-reviewer", "outsider")
"""The accounts of ``default_seed`` that have a token."""

_ACCOUNT_KEYS = frozenset({"login", "type", "name", "members"})
_REPO_FLAGS = ("private", "archived", "has_issues", "default_branch", "fork_of", "push", "read")
_REPO_KEYS = frozenset({"owner", "name", *_REPO_FLAGS, "labels", "branches", "issues"})
_BRANCH_KEYS = frozenset({"name", "files", "checks", "statuses"})
_FILE_KEYS = frozenset({"name", "old", "new", "patch", "status", "previous_name"})
_ISSUE_KEYS = frozenset({"title", "author", "body", "labels", "state", "locked", "pull_request", "comments", "reviews"})
_PULL_KEYS = frozenset({"head", "base", "draft"})
_REVIEW_KEYS = frozenset({"author", "event", "body", "comments"})
_COMMENT_KEYS = frozenset({"path", "line", "body", "side", "start_line", "start_side"})
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
    flags = {name: given[name] for name in _REPO_FLAGS if name in given}
    repo = state.add_repo(given["owner"], given["name"], **flags)
    state.label_ids(repo, given.get("labels", ()))
    for branch in given.get("branches", ()):
        _add_branch(state, repo, branch)
    for issue in given.get("issues", ()):
        _add_issue(state, repo, issue)


def _add_branch(state: ForgeState, repo: Repo, given: Mapping[str, Any]) -> None:
    _check_keys("branches", given, _BRANCH_KEYS)
    branch = push(state, repo, given["name"], [read_file(file) for file in given.get("files", ())])
    for check in given.get("checks", ()):
        add_check_run(state, repo, branch.sha, **check)
    for status in given.get("statuses", ()):
        set_status(state, repo, branch.sha, status["context"], status["state"])


def read_file(given: Mapping[str, Any]) -> ChangedFile:
    """A changed file in a seed's form: its patch, or the texts that it lies between."""
    _check_keys("files", given, _FILE_KEYS)
    patch = given["patch"] if "patch" in given else patch_of(given.get("old", ""), given.get("new", ""))
    status = given.get("status", "modified" if given.get("old") or "patch" in given else "added")
    return ChangedFile(given["name"], patch, status, given.get("previous_name"))


def _add_issue(state: ForgeState, repo: Repo, given: Mapping[str, Any]) -> None:
    _check_keys("issues", given, _ISSUE_KEYS)
    author = state.account(given["author"])
    issue = _open(state, repo, author, given)
    issue.labels = state.label_ids(repo, given.get("labels", ()))
    for comment in given.get("comments", ()):
        state.add_comment(issue, state.account(comment["author"]), comment["body"])
    for review in given.get("reviews", ()):
        add_seeded_review(state, issue, review)
    state.set_issue_state(issue, given.get("state", "open"), author)
    issue.locked = bool(given.get("locked", False))


def _open(state: ForgeState, repo: Repo, author: Account, given: Mapping[str, Any]) -> Issue:
    title, body, pull = given["title"], given.get("body"), given.get("pull_request")
    if not isinstance(pull, Mapping):
        return state.add_issue(repo, author, title, body, pull=PullFacts() if pull else None)
    _check_keys("pull_request", pull, _PULL_KEYS)
    head, base, draft = repo.branches[pull["head"]], pull.get("base", repo.default_branch), pull.get("draft", False)
    return open_pull(state, repo, author, title, body, head, base, draft=draft)


def add_seeded_review(state: ForgeState, issue: Issue, given: Mapping[str, Any]) -> None:
    """Add a review in a seed's form."""
    _check_keys("reviews", given, _REVIEW_KEYS)
    comments = [_comment(comment) for comment in given.get("comments", ())]
    add_review(state, issue, state.account(given["author"]), given.get("event"), given.get("body", ""), comments)


def _comment(given: Mapping[str, Any]) -> NewComment:
    _check_keys("comments", given, _COMMENT_KEYS)
    side = given.get("side", "RIGHT")
    start = (given.get("start_side", side), given["start_line"]) if "start_line" in given else None
    return NewComment(given["path"], given["body"], side, given["line"], start)


def _check_keys(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(set(given) - known):
        raise BadSeed(f"seed: {where}: unknown name {unknown[0]!r}; known are {', '.join(sorted(known))}")


def random_token() -> str:
    """A token in the form of GitHub's classic personal access tokens."""
    return f"ghp_{secrets.token_hex(18)}"


def default_seed(tokens: Mapping[str, str] | None = None) -> JsonObject:
    """Two identities, an outsider, and the organisation ``acme`` with a public and a private repository.

    ``acme/site`` has the labels bug and docs, two issues that people wrote, a pull request of the branch ``topic``, and
    the branches ``front-page`` and ``how-to-test``, for which there is none yet; ``acme/vault`` is private and not seen
    by the outsider, and has a branch ``topic``.

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
                "branches": [
                    {
                        "name": "topic",
                        "files": [{"name": "src/images.js", "old": _IMAGES, "new": _LAZY_IMAGES}],
                        "checks": [
                            {"name": "build", "conclusion": "success"},
                            {"name": "lint", "conclusion": "skipped"},
                        ],
                        "statuses": [{"context": "ci/size", "state": "success"}],
                    },
                    {"name": "front-page", "files": [{"name": "src/page.js", "old": "slow()\n", "new": "fast()\n"}]},
                    {"name": "how-to-test", "files": [{"name": "docs/testing.md", "new": "Run `npm test`.\n"}]},
                ],
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
                        "pull_request": {"head": "topic"},
                    },
                ],
            },
            {
                "owner": "acme",
                "name": "vault",
                "private": True,
                "push": ["forge-author", "forge-reviewer"],
                "labels": ["bug"],
                "branches": [{"name": "topic", "files": [{"name": "plan.md", "new": "One.\nTwo.\n"}]}],
            },
        ],
    }
