"""A pull request whose create was committed and whose answer was lost, on the bundled forge: found, never doubled."""

import gc
import sys
from dataclasses import replace

import msgspec
import pytest
import trio.testing

from compass_forged import owner
from compass_forged.emulator.app import Forge
from compass_forged.emulator.pull_changes import push
from compass_forged.emulator.records import ChangedFile
from compass_forged.emulator.script import Rule
from compass_forged.wire.schema import CreatePullRequest, PullRequest, PullRequestResult, ResultArm
from tests.support.bundled import REPO, github_as, new_forge
from tests.support.cases import Desk, refused
from tests.support.forge_http import new_context

OPEN = CreatePullRequest(repo=REPO, title="Faster", head_ref="front-page", body="It waits no more.\n\n* at all\n")

LOST = [
    Rule(method="POST", path="*/pulls", commit=True, status=502, body=""),
    Rule(method="POST", path="*/pulls", commit=True, drop=True),
    Rule(method="POST", path="*/pulls", truncate=10),
]


@pytest.fixture
def forge() -> Forge:
    return new_forge()


@pytest.fixture
def desk(forge: Forge) -> Desk:
    return Desk(github_as(forge))


def pull_of(result: ResultArm) -> PullRequest:
    assert isinstance(result, PullRequestResult), result
    return result.pull_request


@pytest.mark.parametrize("rule", LOST, ids=["502", "dropped", "truncated"])
async def test_a_retry_under_the_key_finds_what_stands_and_records_it(
    forge: Forge, desk: Desk, rule: Rule, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(replace(rule))
    assert refused(await desk.ask(OPEN, "k-1")).outcome == "unknown"
    assert await desk.store.list_authored_artifacts() == []
    found = pull_of(await desk.ask(OPEN, "k-1"))
    assert (found.replayed, found.replay_mismatch, found.repo) == (True, False, REPO)
    standing = forge.state.issue(REPO, found.number)
    claim = owner.parse(standing.body or "")
    assert claim is not None
    assert claim.ref
    (row,) = await desk.store.list_authored_artifacts()
    assert (row.coordinate.kind, row.coordinate.number, row.url) == ("pull_request", found.number, found.url)
    assert forge.state.commits["pull_request"] == 1
    asked = forge.log.count()
    assert pull_of(await desk.ask(OPEN, "k-1")).number == found.number
    assert forge.log.count() == asked  # from the memo


async def test_without_the_key_or_under_another_it_is_already_there(
    forge: Forge, desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(replace(LOST[0]))
    await desk.ask(OPEN, "k-1")
    for key in ("", "k-2"):
        error = refused(await desk.ask(OPEN, key))
        assert (error.code, error.outcome) == ("already_exists", "rejected")
        assert "a pull request for that head and base exists: " in error.message
    assert await desk.store.list_authored_artifacts() == []
    again = pull_of(await desk.ask(msgspec.structs.replace(OPEN, title="Faster still"), "k-1"))
    assert (again.replayed, again.replay_mismatch) == (True, True)


async def test_a_create_that_is_refused_for_what_stands_is_let_go_without_the_garbage_collector(
    forge: Forge, desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(replace(LOST[0]))
    await desk.ask(OPEN, "k-1")
    arm = msgspec.structs.replace(OPEN, title="Faster again")
    gc.collect()
    gc.disable()
    try:
        before = sys.getrefcount(arm)
        assert refused(await desk.ask(arm)).code == "already_exists"
        assert sys.getrefcount(arm) == before
    finally:
        gc.enable()


async def test_what_the_index_holds_is_answered_and_another_agents_is_not(
    forge: Forge, desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    made = pull_of(await desk.ask(OPEN, "k-1"))
    again = pull_of(await desk.ask(OPEN, "k-2"))
    assert (again.number, again.replayed, again.replay_mismatch) == (made.number, True, False)
    mine = desk.caller
    assert mine.account is not None
    desk.caller = replace(mine, account=replace(mine.account, agent_id=mine.account.agent_id + 1, agent="mole"))
    error = refused(await desk.ask(OPEN, "k-1"))
    assert (error.code, error.outcome) == ("already_exists", "rejected")
    assert str(made.number) in error.message
    assert len(await desk.store.list_authored_artifacts()) == 1


async def test_a_stranger_s_copy_of_the_header_is_not_adopted(
    forge: Forge, desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    forge.script.add(replace(LOST[0]))
    await desk.ask(OPEN, "k-1")
    (ours,) = [each for each in forge.state.repo(REPO).issues.values() if each.title == OPEN.title]
    fork = forge.state.add_repo("outsider", "site", fork_of=REPO, push=["forge-author"])
    push(forge.state, fork, "front-page", [ChangedFile("a.txt", "@@ -0,0 +1 @@\n+x", "added")])
    theirs = msgspec.structs.replace(OPEN, head_ref="outsider:front-page", base_ref="main", body=ours.body or "")
    await github_as(forge, "outsider").create_pull_request(theirs, new_context()[0])
    error = refused(await desk.ask(msgspec.structs.replace(OPEN, head_ref="outsider:front-page"), "k-1"))
    assert (error.code, error.outcome) == ("already_exists", "rejected")
    assert await desk.store.list_authored_artifacts() == []
    assert pull_of(await desk.ask(OPEN, "k-1")).number == ours.number
