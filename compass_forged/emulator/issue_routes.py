"""Routes of issues, their comments and labels. Pull requests answer here too, as on GitHub."""

from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime

from compass_forged.emulator import inputs
from compass_forged.emulator.paging import paginate
from compass_forged.emulator.reach import (
    ISSUES_DISABLED,
    NO_RIGHTS,
    issue,
    repository,
    usable_assignees,
    usable_labels,
    writable_repository,
)
from compass_forged.emulator.records import Issue, Repo
from compass_forged.emulator.refusals import DOCS, forbidden, gone, not_found, validation_failed
from compass_forged.emulator.routing import Call, Reply, Routes

_REPO = "/repos/{owner}/{repo}"
_ISSUE = f"{_REPO}/issues/{{issue_number}}"
_LOCKED = "Unable to create comment because issue is locked."
_REASONS = ("completed", "not_planned", "duplicate", "reopened")

routes = Routes()


# --- issues


@routes.add("GET", f"{_REPO}/issues", f"{DOCS}/issues/issues#list-repository-issues")
def list_issues(call: Call) -> Reply:
    """A repository's issues and pull requests, filtered, sorted and paged."""
    repo = repository(call)
    if not repo.has_issues:
        raise gone(ISSUES_DISABLED)
    shown, headers = paginate(call, repo, _sorted(call, _filtered(call, repo)))
    return Reply([call.render.issue(each) for each in shown], headers=headers)


def _filtered(call: Call, repo: Repo) -> list[Issue]:
    state = inputs.choice_of(call.query, "state", ("open", "closed", "all")) or "open"
    since = inputs.since_of(call.query)
    labels = {name.strip().casefold() for name in call.query.get("labels", "").split(",") if name.strip()}
    found = [each for each in repo.issues.values() if not each.deleted and not each.transferred_to]
    if state != "all":
        found = [each for each in found if each.state == state]
    if since is not None:
        found = [each for each in found if each.updated_at >= since]
    if labels:
        found = [each for each in found if labels <= {repo.labels[label].name.casefold() for label in each.labels}]
    if "creator" in call.query:
        found = [each for each in found if _wrote(call, each, call.query["creator"])]
    if "assignee" in call.query:
        found = [each for each in found if _assigned(call, each, call.query["assignee"])]
    return found


def _wrote(call: Call, each: Issue, login: str) -> bool:
    return call.state.accounts[each.author_id].login.casefold() == login.casefold()


def _assigned(call: Call, each: Issue, login: str) -> bool:
    if login in {"none", "*"}:
        return bool(each.assignees) == (login == "*")
    account = call.state.find_account(login)
    return account is not None and account.id in each.assignees


def _sorted(call: Call, found: list[Issue]) -> list[Issue]:
    order = inputs.choice_of(call.query, "sort", ("created", "updated", "comments")) or "created"
    direction = inputs.choice_of(call.query, "direction", ("asc", "desc")) or "desc"

    def key(each: Issue) -> tuple[datetime | int, int]:
        values: Mapping[str, datetime | int] = {
            "created": each.created_at,
            "updated": each.updated_at,
            "comments": len(each.comments),
        }
        return values[order], each.number

    return sorted(found, key=key, reverse=direction == "desc")


@routes.add("POST", f"{_REPO}/issues", f"{DOCS}/issues/issues#create-an-issue")
def create_issue(call: Call) -> Reply:
    """Open an issue: anybody who sees the repository may; labels and assignees need push access."""
    repo, author = writable_repository(call)
    if not repo.has_issues:
        raise gone(ISSUES_DISABLED)
    call.limits.check_creation(author.id, call.state.now())
    body = call.json()
    title, text = inputs.title_of(body), inputs.issue_body_of(body)
    labels = usable_labels(call, repo, author, inputs.label_names_of(body))
    assignees = usable_assignees(call, repo, author, inputs.logins_of(body))
    if body.get("milestone") is not None and call.state.may_push(repo, author):
        raise validation_failed("Issue", "milestone", "invalid", value=str(body["milestone"]))
    made = call.state.add_issue(repo, author, title, text, labels=labels, assignees=assignees)
    call.committed(author, "issue")
    return Reply(call.render.issue(made), 201, {"location": call.render.issue_url(made)})


@routes.add("GET", _ISSUE, f"{DOCS}/issues/issues#get-an-issue")
def get_issue(call: Call) -> Reply:
    """One issue or pull request."""
    found = issue(call, repository(call))
    return Reply(call.render.issue(found), headers={"last-modified": format_datetime(found.updated_at, usegmt=True)})


@routes.add("PATCH", _ISSUE, f"{DOCS}/issues/issues#update-an-issue")
def update_issue(call: Call) -> Reply:
    """Change an issue: its author and everybody with push access may; what is not named stays as it is."""
    repo, caller = writable_repository(call)
    found = issue(call, repo)
    if found.author_id != caller.id and not call.state.may_push(repo, caller):
        raise forbidden(NO_RIGHTS)
    body = call.json()
    # Everything is checked before anything is changed: a refused change leaves no trace.
    title = inputs.title_of(body) if body.get("title") is not None else found.title
    text = inputs.issue_body_of(body) if "body" in body else found.body
    state = inputs.issue_state_of(body)
    reason = inputs.choice_of(body, "state_reason", _REASONS)
    labels = usable_labels(call, repo, caller, inputs.label_names_of(body))
    assignees = usable_assignees(call, repo, caller, inputs.logins_of(body))
    if call.state.may_push(repo, caller):
        if "labels" in body:
            found.labels = call.state.label_ids(repo, labels)
        if "assignees" in body:
            found.assignees = [each.id for each in assignees]
    found.title, found.body, found.updated_at = title, text, call.state.now()
    if state is not None:
        call.state.set_issue_state(found, state, caller, reason)
    call.state.commits["issue_update"] += 1
    return Reply(call.render.issue(found))


# --- comments


@routes.add("GET", f"{_ISSUE}/comments", f"{DOCS}/issues/comments#list-issue-comments")
def list_comments(call: Call) -> Reply:
    """The comments of an issue or a pull request, oldest first."""
    repo = repository(call)
    found = issue(call, repo, sub_resource=True)
    since = inputs.since_of(call.query)
    comments = [call.state.comments[each] for each in found.comments]
    if since is not None:
        comments = [each for each in comments if each.updated_at >= since]
    shown, headers = paginate(call, repo, comments)
    return Reply([call.render.comment(each) for each in shown], headers=headers)


@routes.add("POST", f"{_ISSUE}/comments", f"{DOCS}/issues/comments#create-an-issue-comment")
def create_comment(call: Call) -> Reply:
    """Comment on an issue or a pull request.

    A locked conversation refuses everybody here. GitHub lets collaborators through; a client has to bear the refusal
    whoever it is.
    """
    repo, author = writable_repository(call)
    found = issue(call, repo, sub_resource=True)
    if found.locked:
        raise forbidden(_LOCKED)
    call.limits.check_creation(author.id, call.state.now())
    made = call.state.add_comment(found, author, inputs.comment_body_of(call.json()))
    call.committed(author, "comment")
    return Reply(call.render.comment(made), 201, {"location": call.render.comment_url(made)})


@routes.add("GET", f"{_REPO}/issues/comments/{{comment_id}}", f"{DOCS}/issues/comments#get-an-issue-comment")
def get_comment(call: Call) -> Reply:
    """One comment, by its id."""
    repo = repository(call)
    found = call.state.comments.get(call.number("comment_id"))
    if found is None or found.repo_id != repo.id or repo.issues[found.issue].deleted:
        raise not_found()
    return Reply(call.render.comment(found))


# --- labels


@routes.add("GET", f"{_REPO}/labels", f"{DOCS}/issues/labels#list-labels-for-a-repository")
def list_labels(call: Call) -> Reply:
    """A repository's labels."""
    repo = repository(call)
    shown, headers = paginate(call, repo, list(repo.labels.values()))
    return Reply([call.render.label(repo, each) for each in shown], headers=headers)


@routes.add("GET", f"{_REPO}/labels/{{name}}", f"{DOCS}/issues/labels#get-a-label")
def get_label(call: Call) -> Reply:
    """One label, by its name."""
    repo = repository(call)
    found = repo.label_named(call.params["name"])
    if found is None:
        raise not_found()
    return Reply(call.render.label(repo, found))


@routes.add("POST", f"{_REPO}/labels", f"{DOCS}/issues/labels#create-a-label")
def create_label(call: Call) -> Reply:
    """Create a label; without push access the labels are not there to be written."""
    repo, caller = writable_repository(call)
    if not call.state.may_push(repo, caller):
        raise not_found()
    wanted = inputs.new_label_of(call.json())
    if repo.label_named(wanted.name):
        raise validation_failed("Label", "name", "already_exists")
    made = call.state.add_label(repo, wanted.name, description=wanted.description)
    made.color = (wanted.color or made.color).lower()
    call.state.commits["label"] += 1
    shown = call.render.label(repo, made)
    return Reply(shown, 201, {"location": shown["url"]})


@routes.add("POST", f"{_ISSUE}/labels", f"{DOCS}/issues/labels#add-labels-to-an-issue")
def add_labels(call: Call) -> Reply:
    """Add labels to an issue, creating those that are not there; answers all labels of the issue."""
    repo, caller = writable_repository(call)
    found = issue(call, repo, sub_resource=True)
    if not call.state.may_push(repo, caller):
        raise forbidden(NO_RIGHTS)
    names = usable_labels(call, repo, caller, inputs.label_names_of(call.json()))
    found.labels = list(dict.fromkeys([*found.labels, *call.state.label_ids(repo, names)]))
    found.updated_at = call.state.now()
    call.state.commits["issue_labels"] += 1
    return Reply([call.render.label(repo, repo.labels[each]) for each in found.labels])
