"""The first contents of the Linear half as plain data, and what fills a workspace with it.

The form (every list may be missing)::

    users = [{name = "Mona & Co"}, {name = "compass", app = true}]
    tokens = [{token = "lin_api_…", user = "compass", oauth = true, app_actor = true, writes = true}]
    teams = [{key = "ENG", name = "Engineering", private = false, members = ["Mona & Co"]}]
    labels = [{name = "bug", team = "ENG", group = false, parent = "area"}]      # without team: the workspace's
    issues = [{team = "ENG", title = "Broken", author = "Mona & Co", description = "…", labels = ["bug"],
               comments = [{author = "Mona & Co", body = "Seen."}], state = "started"}]
"""

import secrets
from collections.abc import Mapping
from typing import Any

from compass_forged.emulator.linear_refusals import JsonObject
from compass_forged.emulator.linear_state import Authorship, LinearState

APP: str = "compass"
"""The user that the application of ``default_linear_seed`` acts as."""


def apply_linear_seed(state: LinearState, seed: Mapping[str, Any]) -> None:
    """Add a seed's contents to what is there.

    Raises:
        UnknownName: a name in it stands for nothing.
        TypeError, KeyError: it has another form.
    """
    for user in seed.get("users", ()):
        state.add_user(user["name"], app=user.get("app", False))
    for token in seed.get("tokens", ()):
        flags = {name: token[name] for name in ("oauth", "app_actor", "writes") if name in token}
        state.grant_token(token["token"], token["user"], **flags)
    for team in seed.get("teams", ()):
        state.add_team(**team)
    for label in seed.get("labels", ()):
        state.add_label(**label)
    for issue in seed.get("issues", ()):
        _add_issue(state, issue)


def _add_issue(state: LinearState, given: Mapping[str, Any]) -> None:
    labels = [label.id for name in given.get("labels", ()) for label in state.labels.values() if label.name == name]
    author = Authorship(user_id=state.user(given["author"]).id)
    issue = state.add_issue(
        state.team(given["team"]), author, given["title"], given.get("description"), label_ids=labels
    )
    for comment in given.get("comments", ()):
        state.add_comment(issue, Authorship(user_id=state.user(comment["author"]).id), comment["body"])
    if "state" in given:
        state.set_state(state.identifier(issue), given["state"])


def random_linear_token() -> str:
    """A token in the form of Linear's for OAuth applications."""
    return f"lin_oauth_{secrets.token_hex(20)}"


def default_linear_seed(token: str = "") -> JsonObject:
    """The teams ``ENG`` and ``OPS``, and ``SEC``, which is private; an application that writes as itself.

    Args:
        token: the application's; "" for a random one.
    """
    return {
        "users": [{"name": "Mona & Co"}, {"name": APP, "app": True}],
        "tokens": [{"token": token or random_linear_token(), "user": APP, "oauth": True, "app_actor": True}],
        "teams": [
            {"key": "ENG", "name": "Engineering"},
            {"key": "OPS", "name": "Operations"},
            {"key": "SEC", "name": "Security", "private": True, "members": ["Mona & Co"]},
        ],
        "labels": [
            {"name": "bug"},
            {"name": "Bug", "team": "ENG"},
            {"name": "R&D"},
            {"name": "area", "group": True},
            {"name": "web", "parent": "area"},
            {"name": "api", "parent": "area"},
        ],
        "issues": [
            {
                "team": "ENG",
                "title": "The nightly crawl is slow",
                "author": "Mona & Co",
                "description": "It takes nine hours.",
                "labels": ["R&D"],
                "comments": [{"author": "Mona & Co", "body": "Ten by now."}],
            },
            {"team": "SEC", "title": "Not for everyone", "author": "Mona & Co"},
        ],
    }
