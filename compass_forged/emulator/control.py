"""The control path of the GitHub half (see ``control_path``): what its state is, and how it is changed from outside.

==================== ============================================================================================
GET  /_forge/state   accounts, repositories with their issues and comments, counts of side effects
POST /_forge/seed    a seed to add (see the seed module)
POST /_forge/change  ``{"change": NAME, ...}``: rename, archive, disable_issues, lock, delete, transfer, close,
                     delete_account, revoke_token, set_remaining, push, merge, review, reply, check, status
==================== ============================================================================================
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from compass_forged.emulator.control_path import ControlPath, Scripted
from compass_forged.emulator.limits import Limits
from compass_forged.emulator.pull_changes import add_check_run, merge, push, reply, set_status
from compass_forged.emulator.records import Issue, PullFacts, Repo
from compass_forged.emulator.refusals import JsonObject
from compass_forged.emulator.render import timestamp
from compass_forged.emulator.seed import add_seeded_review, apply_seed, read_file
from compass_forged.emulator.state import ForgeState


class Controlled(Scripted, Protocol):
    """What the control path reaches of the GitHub half."""

    state: ForgeState
    limits: Limits


def control_path(forge: Controlled, token: str | None) -> ControlPath:
    """The control path of ``forge``; None keeps it shut."""
    return ControlPath(
        forge,
        token,
        state=lambda: snapshot(forge.state),
        changes={
            "seed": lambda seed: apply_seed(forge.state, seed),
            "change": lambda body: _change(forge, body),
        },
    )


def _change(forge: Controlled, body: Any) -> None:
    change = _CHANGES.get(body["change"])
    if change is None:
        raise ValueError(f"change: unknown {body['change']!r}; known are {', '.join(_CHANGES)}")
    change(forge, body)


# --- changes from outside, as people and administrators make them


def _issue(forge: Controlled, body: JsonObject) -> Issue:
    return forge.state.issue(body["repo"], body["number"])


def _rename(forge: Controlled, body: JsonObject) -> None:
    forge.state.rename_repo(body["repo"], body["to"])


def _archive(forge: Controlled, body: JsonObject) -> None:
    forge.state.repo(body["repo"]).archived = True


def _disable_issues(forge: Controlled, body: JsonObject) -> None:
    forge.state.repo(body["repo"]).has_issues = False


def _lock(forge: Controlled, body: JsonObject) -> None:
    _issue(forge, body).locked = True


def _delete(forge: Controlled, body: JsonObject) -> None:
    _issue(forge, body).deleted = True


def _transfer(forge: Controlled, body: JsonObject) -> None:
    forge.state.transfer_issue(body["repo"], body["number"], body["to"])


def _close(forge: Controlled, body: JsonObject) -> None:
    forge.state.set_issue_state(_issue(forge, body), "closed", forge.state.account(body["by"]))


def _delete_account(forge: Controlled, body: JsonObject) -> None:
    forge.state.delete_account(body["login"], "gone" if body.get("gone") else "ghost")


def _revoke_token(forge: Controlled, body: JsonObject) -> None:
    forge.state.revoke_token(body["token"])


def _set_remaining(forge: Controlled, body: JsonObject) -> None:
    account = forge.state.account(body["login"])
    forge.limits.set_remaining(account.id, body["remaining"], forge.state.now())


def _push(forge: Controlled, body: JsonObject) -> None:
    files = [read_file(file) for file in body.get("files", ())]
    push(forge.state, forge.state.repo(body["repo"]), body["branch"], files, force=bool(body.get("force")))


def _merge(forge: Controlled, body: JsonObject) -> None:
    merge(forge.state, _issue(forge, body), forge.state.account(body["by"]))


def _review(forge: Controlled, body: JsonObject) -> None:
    add_seeded_review(forge.state, _issue(forge, body), body["review"])


def _reply(forge: Controlled, body: JsonObject) -> None:
    reply(forge.state, _issue(forge, body), forge.state.account(body["by"]), body["to"], body["body"])


def _check(forge: Controlled, body: JsonObject) -> None:
    repo = forge.state.repo(body["repo"])
    given = {name: body[name] for name in ("conclusion", "status", "suite") if name in body}
    add_check_run(forge.state, repo, repo.branches[body["branch"]].sha, body["name"], **given)


def _status(forge: Controlled, body: JsonObject) -> None:
    repo = forge.state.repo(body["repo"])
    set_status(forge.state, repo, repo.branches[body["branch"]].sha, body["context"], body["state"])


_CHANGES: Mapping[str, Callable[[Controlled, JsonObject], None]] = {
    "rename": _rename,
    "archive": _archive,
    "disable_issues": _disable_issues,
    "lock": _lock,
    "delete": _delete,
    "transfer": _transfer,
    "close": _close,
    "delete_account": _delete_account,
    "revoke_token": _revoke_token,
    "set_remaining": _set_remaining,
    "push": _push,
    "merge": _merge,
    "review": _review,
    "reply": _reply,
    "check": _check,
    "status": _status,
}


# --- a view of the state, without tokens


def snapshot(state: ForgeState) -> JsonObject:
    """The forge's contents as JSON, for assertions from another process."""
    return {
        "accounts": [{"login": each.login, "id": each.id, "type": each.type} for each in state.accounts.values()],
        "repositories": {state.full_name(repo): _repo(state, repo) for repo in state.repos.values()},
        "commits": dict(state.commits),
    }


def _repo(state: ForgeState, repo: Repo) -> JsonObject:
    return {
        "id": repo.id,
        "private": repo.private,
        "archived": repo.archived,
        "labels": [label.name for label in repo.labels.values()],
        "issues": [_issue_view(state, repo, issue) for issue in repo.issues.values()],
    }


def _issue_view(state: ForgeState, repo: Repo, issue: Issue) -> JsonObject:
    comments = [state.comments[each] for each in issue.comments]
    return {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "author": state.accounts[issue.author_id].login,
        "state": issue.state,
        "labels": [repo.labels[each].name for each in issue.labels],
        "pull_request": _pull_view(state, issue.pull) if issue.pull else None,
        "locked": issue.locked,
        "deleted": issue.deleted,
        "created_at": timestamp(issue.created_at),
        "comments": [
            {"id": each.id, "author": state.accounts[each.author_id].login, "body": each.body} for each in comments
        ],
    }


def _pull_view(state: ForgeState, pull: PullFacts) -> JsonObject:
    def login(account_id: int) -> str:
        return state.accounts[account_id].login

    return {
        "head": pull.head,
        "base": pull.base,
        "head_sha": pull.head_sha,
        "draft": pull.draft,
        "merged": pull.merged_at is not None,
        "reviews": [
            {"id": each.id, "author": login(each.author_id), "state": each.state, "body": each.body}
            for each in pull.reviews
        ],
        "review_comments": [
            {
                "id": each.id,
                "review": each.review_id,
                "author": login(each.author_id),
                "path": each.path,
                "side": each.side,
                "line": each.line,
                "start_side": each.start_side,
                "start_line": each.start_line,
                "body": each.body,
            }
            for each in pull.review_comments
        ],
    }
