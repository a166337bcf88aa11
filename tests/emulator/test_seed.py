"""Seeds fill a forge, and say what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.pull_changes import facts
from compass_forged.emulator.seed import IDENTITIES, BadSeed, apply_seed, default_seed, random_token, read_seed
from compass_forged.emulator.state import ForgeState, UnknownName

TOML = """
[tokens]
"t" = "ann"

[[accounts]]
login = "ann"

[[accounts]]
login = "org"
type = "Organization"
members = ["ann"]

[[repositories]]
owner = "org"
name = "box"
private = true
labels = ["one"]

[[repositories.issues]]
title = "closed and locked"
author = "ann"
state = "closed"
locked = true
labels = ["two"]
comments = [{author = "ann", body = "hello"}]
"""


def _applied(seed: dict[str, Any]) -> ForgeState:
    state = ForgeState()
    apply_seed(state, seed)
    return state


def test_seed_from_toml_and_json(tmp_path: Path) -> None:
    (tmp_path / "seed.toml").write_text(TOML)
    seed = read_seed(tmp_path / "seed.toml")
    (tmp_path / "seed.json").write_text(json.dumps(seed))
    assert read_seed(tmp_path / "seed.json") == seed
    state = _applied(seed)
    issue = state.issue("ORG/box", 1)
    ann = state.caller("t")
    assert ann is not None
    assert ann.login == "ann"
    assert state.permission(state.repo("org/box"), ann) == "admin"
    assert state.permission(state.repo("org/box"), None) is None
    assert (issue.state, issue.locked, len(issue.comments)) == ("closed", True, 1)
    assert [label.name for label in state.repo("org/box").labels.values()] == ["one", "two"]
    assert not state.commits


@pytest.mark.parametrize(("name", "text"), [("seed.toml", "= 1"), ("seed.json", "{"), ("seed.json", "[]")])
def test_unreadable_seed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadSeed, match="seed"):
        read_seed(tmp_path / name)
    with pytest.raises(BadSeed, match="cannot be read"):
        read_seed(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "seed",
    [
        {"account": []},
        {"accounts": [{"name": "x"}]},
        {"accounts": [{"login": "x", "logn": "y"}]},
        {"accounts": ["x"]},
        {"tokens": {"t": "nobody"}},
        {"tokens": ["t"]},
        {"repositories": [{"owner": "nobody", "name": "x"}]},
        {"accounts": [{"login": "x"}], "repositories": [{"owner": "x", "name": "y"}] * 2},
        {"accounts": [{"login": "x"}], "repositories": [{"owner": "x", "name": "y", "issues": [{"title": "t"}]}]},
        {"accounts": [{"login": "x"}], "repositories": [{"owner": "x", "name": "y", "branches": [{"label": "z"}]}]},
        {"accounts": [{"login": "x"}], "repositories": [{"owner": "x", "name": "y", "fork_of": "x/none"}]},
        {
            "accounts": [{"login": "x"}],
            "repositories": [
                {"owner": "x", "name": "y", "issues": [{"title": "t", "author": "x", "pull_request": {"head": "none"}}]}
            ],
        },
        {
            "accounts": [{"login": "x"}],
            "repositories": [
                {"owner": "x", "name": "y", "issues": [{"title": "t", "author": "x", "reviews": [{"author": "x"}]}]}
            ],
        },
    ],
)
def test_mistakes_are_named(seed: dict[str, Any]) -> None:
    with pytest.raises(BadSeed, match=r"^seed: "):
        _applied(seed)


def test_default_seed_has_random_tokens_but_for_those_given() -> None:
    seed = default_seed({"outsider": "mine"})
    assert seed["tokens"]["mine"] == "outsider"
    assert set(seed["tokens"].values()) == set(IDENTITIES)
    assert default_seed()["tokens"] != default_seed()["tokens"]
    assert random_token().startswith("ghp_")
    state = _applied(seed)
    vault = state.repo("acme/vault")
    assert state.permission(vault, state.account("outsider")) is None
    assert state.may_push(vault, state.account("forge-author"))
    assert state.issue("acme/site", 3).pull is not None


def test_a_seed_of_branches_pull_requests_and_reviews() -> None:
    state = _applied(
        {
            "accounts": [{"login": "x"}, {"login": "y"}],
            "repositories": [
                {
                    "owner": "x",
                    "name": "r",
                    "default_branch": "trunk",
                    "branches": [
                        {
                            "name": "topic",
                            "files": [
                                {"name": "a", "old": "1\n", "new": "2\n"},
                                {"name": "b", "new": "1\n"},
                                {"name": "c", "patch": None, "status": "renamed", "previous_name": "d"},
                            ],
                            "checks": [{"name": "build", "status": "queued", "suite": 4}],
                            "statuses": [{"context": "ci", "state": "pending"}],
                        }
                    ],
                    "issues": [
                        {
                            "title": "t",
                            "author": "x",
                            "labels": ["bug"],
                            "pull_request": {"head": "topic", "draft": True},
                            "reviews": [
                                {
                                    "author": "y",
                                    "event": "APPROVE",
                                    "comments": [{"path": "a", "line": 1, "body": "c"}],
                                },
                                {"author": "y", "body": "begun"},
                            ],
                        },
                        {"title": "u", "author": "x", "pull_request": True},
                    ],
                }
            ],
        }
    )
    repo, pull = state.repo("x/r"), facts(state.issue("x/r", 1))
    assert (pull.head, pull.base, pull.draft, pull.head_sha) == ("topic", "trunk", True, repo.branches["topic"].sha)
    assert [(file.name, file.patch, file.status) for file in pull.files] == [
        ("a", "@@ -1 +1 @@\n-1\n+2", "modified"),
        ("b", "@@ -0,0 +1 @@\n+1", "added"),
        ("c", None, "renamed"),
    ]
    assert [each.state for each in pull.reviews] == ["APPROVED", "PENDING"]
    assert [(each.path, each.line) for each in pull.review_comments] == [("a", 1)]
    assert [(each.sha, each.suite) for each in repo.check_runs] == [(pull.head_sha, 4)]
    assert facts(state.issue("x/r", 2)).files == []


def test_state_names_what_is_not_there() -> None:
    state = _applied(default_seed())
    for look in (
        lambda: state.account("x"),
        lambda: state.repo("acme/x"),
        lambda: state.repo("x"),
        lambda: state.issue("acme/site", 99),
    ):
        with pytest.raises(UnknownName, match="not there"):
            look()
    with pytest.raises(ValueError, match="taken"):
        state.add_account("OUTSIDER")


def test_read_permission_and_owner() -> None:
    state = _applied({"accounts": [{"login": "a"}, {"login": "b"}, {"login": "c"}]})
    repo = state.add_repo("a", "r", private=True, read=["b"])
    a, b, c = (state.account(login) for login in "abc")
    assert [state.permission(repo, each) for each in (a, b, c)] == ["admin", "read", None]
    assert [state.association(repo, each) for each in (a, b, c)] == ["OWNER", "COLLABORATOR", "NONE"]


def test_control_token_is_not_shown() -> None:
    assert "secret" not in repr(ForgeSettings(control_token="secret"))
    assert Forge().state.accounts == {}
