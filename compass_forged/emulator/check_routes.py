"""Routes of a commit's checks: check runs, which Apps write, and statuses."""

from compass_forged.emulator.paging import paginate
from compass_forged.emulator.pull_changes import facts
from compass_forged.emulator.reach import repository
from compass_forged.emulator.records import CheckRun, CommitStatus, Repo
from compass_forged.emulator.refusals import DOCS, not_found, refusal
from compass_forged.emulator.render_pulls import PullRenderer
from compass_forged.emulator.routing import Call, Reply, Routes

_COMMIT = "/repos/{owner}/{repo}/commits/{ref}"

routes = Routes()


def _commit(call: Call, repo: Repo) -> str | None:
    """The commit that the path's ``ref`` names: a branch's head, or a commit that is the head of something."""
    ref = call.params["ref"]
    if ref in repo.branches:
        return repo.branches[ref].sha
    heads = {branch.sha for branch in repo.branches.values()}
    for each in repo.issues.values():
        if each.pull:
            heads |= {facts(each).head_sha, *facts(each).diffs}
    return ref if ref in heads else None


@routes.add("GET", f"{_COMMIT}/check-runs", f"{DOCS}/checks/runs#list-check-runs-for-a-git-reference")
def list_check_runs(call: Call) -> Reply:
    """A commit's check runs, of each name in a suite the latest unless all are asked for."""
    repo = repository(call)
    sha = _commit(call, repo)
    if sha is None:
        raise refusal(422, f"No commit found for SHA: {call.params['ref']}")
    runs = [each for each in repo.check_runs if each.sha == sha]
    if call.query.get("filter", "latest") == "latest":
        latest: dict[tuple[int, str], CheckRun] = {(each.suite, each.name): each for each in runs}
        runs = list(latest.values())
    shown, headers = paginate(call, repo, runs[::-1])
    render = PullRenderer(call.render)
    body = {"total_count": len(runs), "check_runs": [render.check_run(repo, each) for each in shown]}
    return Reply(body, headers=headers)


@routes.add("GET", f"{_COMMIT}/status", f"{DOCS}/commits/statuses#get-the-combined-status-for-a-specific-reference")
def get_combined_status(call: Call) -> Reply:
    """A commit's statuses, of each context the latest, and what they come to: pending where there are none."""
    repo = repository(call)
    sha = _commit(call, repo)
    if sha is None:
        raise not_found()
    latest: dict[str, CommitStatus] = {each.context: each for each in repo.statuses if each.sha == sha}
    states = {each.state for each in latest.values()}
    if states & {"failure", "error"}:
        state = "failure"
    else:
        state = "pending" if "pending" in states or not states else "success"
    shown, headers = paginate(call, repo, list(latest.values()))
    body = PullRenderer(call.render).statuses(repo, sha, len(latest), list(shown), state)
    return Reply(body, headers=headers)
