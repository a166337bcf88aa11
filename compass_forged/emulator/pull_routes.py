"""Routes of pull requests and of their files."""

from datetime import datetime

from compass_forged.emulator import inputs, pull_inputs
from compass_forged.emulator.paging import paginate
from compass_forged.emulator.pull_changes import facts, open_pull
from compass_forged.emulator.reach import pull_request, repository, writable_repository
from compass_forged.emulator.records import Account, Branch, Issue, Repo
from compass_forged.emulator.refusals import DOCS, forbidden, pull_refused, validation_failed
from compass_forged.emulator.render_pulls import PullRenderer
from compass_forged.emulator.routing import Call, Reply, Routes

_PULLS = "/repos/{owner}/{repo}/pulls"
_PULL = f"{_PULLS}/{{pull_number}}"
_FILES_MAX = 3000
_NOT_ACCESSIBLE = "Resource not accessible by personal access token"

routes = Routes()


@routes.add("GET", _PULLS, f"{DOCS}/pulls/pulls#list-pull-requests")
def list_pulls(call: Call) -> Reply:
    """A repository's pull requests, filtered, sorted and paged."""
    repo = repository(call)
    shown, headers = paginate(call, repo, _sorted(call, _filtered(call, repo)))
    render = PullRenderer(call.render)
    return Reply([render.simple(each) for each in shown], headers=headers)


def _filtered(call: Call, repo: Repo) -> list[Issue]:
    state = inputs.choice_of(call.query, "state", ("open", "closed", "all"), "PullRequest") or "open"
    found = [each for each in repo.issues.values() if each.pull and not each.deleted]
    if state != "all":
        found = [each for each in found if each.state == state]
    if "base" in call.query:
        found = [each for each in found if facts(each).base == call.query["base"]]
    owner, colon, branch = call.query.get("head", "").partition(":")
    if colon:  # without an owner it filters nothing
        found = [each for each in found if facts(each).head == branch and _owner(call, repo, each) == owner.casefold()]
    return found


def _owner(call: Call, repo: Repo, pull: Issue) -> str:
    head = call.state.repos[facts(pull).head_repo_id or repo.id]
    return call.state.accounts[head.owner_id].login.casefold()


def _sorted(call: Call, found: list[Issue]) -> list[Issue]:
    order = inputs.choice_of(call.query, "sort", ("created", "updated"), "PullRequest") or "created"
    direction = inputs.choice_of(call.query, "direction", ("asc", "desc"), "PullRequest") or "desc"

    def key(each: Issue) -> tuple[datetime, int]:
        return (each.created_at if order == "created" else each.updated_at), each.number

    return sorted(found, key=key, reverse=direction == "desc")


@routes.add("POST", _PULLS, f"{DOCS}/pulls/pulls#create-a-pull-request")
def create_pull(call: Call) -> Reply:
    """Open a pull request: whoever may write to its head may."""
    repo, author = writable_repository(call)
    call.limits.check_creation(author.id, call.state.now())
    body = call.json()
    title, text = inputs.title_of(body), inputs.issue_body_of(body)
    head_name, base = pull_inputs.text_of(body, "head"), pull_inputs.text_of(body, "base")
    draft = pull_inputs.flag_of(body, "draft")
    head_repo, head = _head(call, repo, author, head_name)
    if base not in repo.branches:
        raise validation_failed("PullRequest", "base", "invalid")
    if (head_repo is repo and head.name == base) or not head.files:
        raise pull_refused(f"No commits between {base} and {head_name}")
    for each in repo.issues.values():
        if each.pull and each.state == "open" and each.pull.head == head.name and each.pull.base == base:
            owner = call.state.accounts[head_repo.owner_id].login
            if _owner(call, repo, each) == owner.casefold():
                raise pull_refused(f"A pull request already exists for {owner}:{head.name}.")
    fork = None if head_repo is repo else head_repo
    made = open_pull(call.state, repo, author, title, text, head, base, head_repo=fork, draft=draft)
    call.committed(author, "pull_request")
    render = PullRenderer(call.render)
    return Reply(render.full(made), 201, {"location": render.pull_url(made)})


def _head(call: Call, repo: Repo, author: Account, name: str) -> tuple[Repo, Branch]:
    """The repository and the branch that ``branch`` or ``owner:branch`` names."""
    owner, colon, branch = name.partition(":")
    head_repo: Repo | None = repo
    if colon:
        head_repo = next((each for each in call.state.repos.values() if _is_of(call, each, repo, owner)), None)
    found = head_repo.branches.get(branch if colon else name) if head_repo else None
    if head_repo is None or found is None:
        raise validation_failed("PullRequest", "head", "invalid")
    if not call.state.may_push(head_repo, author):
        raise forbidden(_NOT_ACCESSIBLE)
    return head_repo, found


def _is_of(call: Call, each: Repo, repo: Repo, owner: str) -> bool:
    """Whether a repository is the one that is asked, or a fork of it, and ``owner``'s."""
    same_owner = call.state.accounts[each.owner_id].login.casefold() == owner.casefold()
    return same_owner and repo.id in {each.id, each.fork_of}


@routes.add("GET", _PULL, f"{DOCS}/pulls/pulls#get-a-pull-request")
def get_pull(call: Call) -> Reply:
    """One pull request."""
    return Reply(PullRenderer(call.render).full(pull_request(call, repository(call))))


@routes.add("GET", f"{_PULL}/files", f"{DOCS}/pulls/pulls#list-pull-requests-files")
def list_files(call: Call) -> Reply:
    """The files that a pull request changes, 3000 of them at most."""
    repo = repository(call)
    pull = pull_request(call, repo)
    shown, headers = paginate(call, repo, facts(pull).files[:_FILES_MAX])
    render = PullRenderer(call.render)
    return Reply([render.file(pull, each) for each in shown], headers=headers)
