"""The checks of a commit at GitHub, rolled up from check runs and commit statuses. Pure.

Both sources count: Apps write check runs, older integrations statuses. A credential may be refused either (a
fine-grained token cannot read check runs at all); then what the other says holds only if it is a failure.
docs.github.com/rest/checks/runs#list-check-runs-for-a-git-reference and
docs.github.com/rest/commits/statuses#get-the-combined-status-for-a-specific-reference; the roll-up is that of the
GitHub CLI (pkg/cmd/pr/checks/aggregate.go).
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from compass_forged.providers.answers import Items, decode, read_items, utc_time
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import COUNT_MAX, repo_path
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import Checks

Outcome: TypeAlias = Literal["failure", "pending", "success", "neutral"]

State: TypeAlias = Literal["failure", "pending", "success", "neutral", "none"]
Ask: TypeAlias = Callable[[str, str, int, int], HttpRequest]
"""(repo, commit, items a page, page) to the request for a page of one of the two sources."""

FAILED_SHOWN: Final = 50
NAME_SHOWN_CHARS: Final = 200

_FAILURES: Final = frozenset({"failure", "error", "cancelled", "timed_out", "action_required", "startup_failure"})
_MILDEST_FIRST: Final[tuple[Outcome, ...]] = ("neutral", "success", "pending", "failure")
_NOT_BLOCKING: Final = frozenset({"neutral", "skipped"})


class Check(NamedTuple):
    """One check, as far as the roll-up asks.

    Attributes:
        key: what a newer run of the same check has too.
        order: (time, id); of several with one key the greatest counts.
        name: for people.
        outcome: what it amounts to.
    """

    key: Hashable
    order: tuple[str, int]
    name: str
    outcome: Outcome


Translate: TypeAlias = Callable[[ForgeAnswer], Items[Check]]
"""The translator of such a page."""


class _Suite(msgspec.Struct):
    id: int = 0


class _App(msgspec.Struct):
    id: int = 0


class _Run(msgspec.Struct):
    name: str
    status: str
    id: int = 0
    conclusion: str | None = None
    started_at: str | None = None
    check_suite: _Suite | None = None
    app: _App | None = None


class _Runs(msgspec.Struct):
    check_runs: list[msgspec.Raw]


class _Status(msgspec.Struct):
    context: str
    state: str
    id: int = 0
    updated_at: str | None = None


class _Statuses(msgspec.Struct):
    statuses: list[msgspec.Raw]


_runs_decoder = msgspec.json.Decoder(_Runs)
_run_decoder = msgspec.json.Decoder(_Run)
_statuses_decoder = msgspec.json.Decoder(_Statuses)
_status_decoder = msgspec.json.Decoder(_Status)


def check_runs_request(repo: str, sha: str, size: int, page: int) -> HttpRequest:
    """What reads a page of a commit's check runs, of each the latest attempt."""
    query = (("filter", "latest"), ("per_page", str(size)), ("page", str(page)))
    return HttpRequest("GET", (*repo_path(repo), "commits", sha, "check-runs"), query)


def read_check_runs(answer: ForgeAnswer) -> Items[Check]:
    """A page of check runs.

    Runs of one name in two suites are two checks (two workflows may name a job alike); in one suite the newest counts.

    Raises:
        BadAnswer: it is none.
    """
    return read_items(decode(_runs_decoder, answer).check_runs, _run_decoder, _run, answer)


def _run(raw: _Run) -> Check:
    suite = raw.check_suite.id if raw.check_suite else 0
    app = raw.app.id if raw.app else 0
    done = raw.conclusion if raw.status == "completed" else None
    return Check(("run", app, suite, raw.name), (utc_time(raw.started_at), raw.id), raw.name, _outcome(done))


def statuses_request(repo: str, sha: str, size: int, page: int) -> HttpRequest:
    """What reads a page of a commit's statuses, of each context the latest."""
    query = (("per_page", str(size)), ("page", str(page)))
    return HttpRequest("GET", (*repo_path(repo), "commits", sha, "status"), query)


def read_statuses(answer: ForgeAnswer) -> Items[Check]:
    """A page of statuses. The combined state beside them is not read: it says pending where there are none at all.

    Raises:
        BadAnswer: it is none.
    """
    return read_items(decode(_statuses_decoder, answer).statuses, _status_decoder, _status, answer)


def _status(raw: _Status) -> Check:
    return Check(("status", raw.context), (utc_time(raw.updated_at), raw.id), raw.context, _outcome(raw.state))


def _outcome(word: str | None) -> Outcome:
    """Both words are open sets: one that nobody knows is as good as none yet."""
    if word in _FAILURES:
        return "failure"
    if word == "success":
        return "success"
    return "neutral" if word in _NOT_BLOCKING else "pending"


def roll_up(checks: Iterable[Check], *, complete: bool) -> Checks | None:
    """What the checks come to; None where that is not known.

    Args:
        checks: all that were read.
        complete: whether these are all there are. Without the rest only a failure is certain.
    """
    newest: dict[Hashable, Check] = {}
    for check in checks:
        known = newest.get(check.key)
        if known is None or known.order <= check.order:
            newest[check.key] = check
    outcomes = {check.outcome for check in newest.values()}
    if "failure" not in outcomes and not complete:
        return None
    state: State = "none"
    for outcome in _MILDEST_FIRST:
        state = outcome if outcome in outcomes else state
    failed = sorted({check.name[:NAME_SHOWN_CHARS] for check in newest.values() if check.outcome == "failure"})
    return Checks(state=state, total=min(len(newest), COUNT_MAX), failed=failed[:FAILED_SHOWN])
