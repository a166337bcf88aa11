"""From a request's path to the repository and the issue it names, and what the caller may do there.

What the caller must not know of answers exactly as what is not there.
"""

from compass_forged.emulator.inputs import check_named_labels
from compass_forged.emulator.records import Account, Issue, Repo
from compass_forged.emulator.refusals import forbidden, gone, moved, not_found, validation_failed
from compass_forged.emulator.routing import Call

ISSUES_DISABLED = "Issues are disabled for this repo"
ISSUE_DELETED = "This issue was deleted"
ARCHIVED = "Repository was archived so is read-only."
NO_RIGHTS = "Must have admin rights to Repository."


def repository(call: Call) -> Repo:
    """The repository of the path.

    Raises:
        Refused: 404 if it is not there or not to be seen; 301 or 307 to ``/repositories/ID`` under a former name.
    """
    if "repository_id" in call.params:
        repo = call.state.repos.get(call.number("repository_id"))
    else:
        repo = call.state.find_repo(call.params["owner"], call.params["repo"])
    if repo is None or call.state.permission(repo, call.caller) is None:
        raise not_found()
    if "owner" in call.params and not _named(call, repo):
        raise moved(call.method, _with_query(call, f"{call.render.api}/repositories/{repo.id}{call.tail}"))
    return repo


def _named(call: Call, repo: Repo) -> bool:
    return call.state.full_name(repo).casefold() == f"{call.params['owner']}/{call.params['repo']}".casefold()


def _with_query(call: Call, url: str) -> str:
    return f"{url}?{call.query_string}" if call.query_string else url


def writable_repository(call: Call) -> tuple[Repo, Account]:
    """The repository of a write, and who writes.

    Raises:
        Refused: as ``repository``; 401 without a token, 403 for an archived one.
    """
    repo = repository(call)
    caller = call.writer()
    if repo.archived:
        raise forbidden(ARCHIVED)
    return repo, caller


def issue(call: Call, repo: Repo, *, sub_resource: bool = False) -> Issue:
    """The issue of the path.

    Raises:
        Refused: 404 if it is not there; 410 if it was deleted or issues are off; 301 or 307 if it was transferred.
            What lies below a transferred issue is not redirected but 404.
    """
    found = repo.issues.get(call.number("issue_number"))
    if found is None:
        raise not_found()
    if found.deleted:
        raise gone(ISSUE_DELETED)
    if found.transferred_to:
        repo_id, number = found.transferred_to
        target = call.state.repos[repo_id]
        if sub_resource or call.state.permission(target, call.caller) is None:
            raise not_found()
        raise moved(call.method, f"{call.render.api}/repositories/{repo_id}/issues/{number}")
    if not repo.has_issues and found.pull is None:
        raise gone(ISSUES_DISABLED)
    return found


def usable_labels(call: Call, repo: Repo, account: Account, names: list[str]) -> list[str]:
    """The labels that ``account`` may set: all (then checked as names) with push access, silently none without."""
    if not call.state.may_push(repo, account):
        return []
    check_named_labels(names)
    return names


def usable_assignees(call: Call, repo: Repo, account: Account, logins: list[str]) -> list[Account]:
    """The accounts that ``account`` may assign: silently none without push access."""
    if not call.state.may_push(repo, account):
        return []
    found: list[Account] = []
    for login in logins:
        assignee = call.state.find_account(login)
        if assignee is None or assignee.presence != "live" or call.state.association(repo, assignee) == "NONE":
            raise validation_failed("Issue", "assignees", "invalid", value=login)
        found.append(assignee)
    return found


def pull_request(call: Call, repo: Repo) -> Issue:
    """The pull request of the path; its pages are there where issues are off, too.

    Raises:
        Refused: 404 if it is not there, or an issue.
    """
    found = repo.issues.get(call.number("pull_number"))
    if found is None or found.pull is None or found.deleted:
        raise not_found()
    return found
