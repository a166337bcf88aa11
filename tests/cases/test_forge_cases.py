"""Known bugs about limits, redirects, credentials and connections, replayed: each case, or what differs and why."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from tests.cases import limits, reaching
from tests.support.cases import FIELDS, Case, Entry, Replay

OURS = Path(__file__).with_name("forge_cases.jsonl")
CORPUS = Path(__file__).parents[3] / "shared" / "cases" / "corpus.jsonl"
KINDS = frozenset({"rate-limit", "redirect", "auth", "pool-leak"})

_HIDDEN = (
    "a 403 for want of rights is told byte for byte as a 404 is, so that nobody can probe for what exists: "
    "not_found. The log says why"
)


def rows(path: Path) -> list[dict[str, Any]]:
    """The cases of these kinds in a file, cut to what a replay needs; Linear's have a table of their own."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {name: row[name] for name in FIELDS}
        for row in found
        if row["kind"] in KINDS and row.get("forge", "github") != "linear"
    ]


CASES = {row["id"]: Case(**row) for row in rows(OURS)}

TABLE: dict[str, Entry] = {
    "C004": Entry(virtual=(limits.secondary_forms,)),
    "C007": Entry(
        virtual=(limits.primary_by_its_words,),
        otherwise="GitHub is spoken to over REST: the same words under 403 and 429, with a count that is not 0",
    ),
    "C009": Entry(virtual=(limits.the_last_good_answer,), otherwise="over REST, with an issue"),
    "C011": Entry(virtual=(limits.nothing_leaves_during_a_pause,)),
    "C013": Entry(
        virtual=(limits.a_low_count_delays_nothing,),
        otherwise="a reserve of 10 is left to others who share the credential: it shuts the gate to the next call, and "
        "never delays the answer that told of it",
    ),
    "C014": Entry(virtual=(limits.a_long_wait_is_told_at_once,)),
    "C015": Entry(
        virtual=(limits.an_hour_s_budget_is_spent_once,),
        otherwise="the hour's budget is the forge's own, told by its headers; ours to configure are points a minute "
        "and creations",
    ),
    "C017": Entry(virtual=(limits.creates_are_paced,)),
    "C018": Entry(virtual=(reaching.rights_are_no_limit,), otherwise=_HIDDEN),
    "C019": Entry(virtual=(limits.secondary_forms,), otherwise="there are no events to list: comments stand for them"),
    "C022": Entry(
        virtual=(limits.secondary_forms,),
        otherwise="reads wait with the writes: GitHub warns of bans for going on. docs/operating.md says so",
    ),
    "C025": Entry(virtual=(limits.one_line_a_pause,)),
    "C027": Entry(virtual=(reaching.a_single_401,)),
    "C044": Entry(virtual=(reaching.a_renamed_repository_gets_its_issue,)),
    "C045": Entry(virtual=(reaching.a_renamed_repository_s_list_is_followed,)),
    "C047": Entry(virtual=(reaching.redirects_that_lead_nowhere,)),
    "C094": Entry(virtual=(reaching.rights_are_no_limit,), otherwise=_HIDDEN),
    "C103": Entry(virtual=(limits.no_headers_no_limit,)),
    "C153": Entry(virtual=(reaching.rights_are_no_limit,), otherwise=_HIDDEN),
    "C154": Entry(
        virtual=(reaching.rights_are_no_limit,),
        otherwise="over REST: the 403 of an archived repository. " + _HIDDEN,
    ),
    "C165": Entry(
        virtual=(limits.subscribing_asks_no_forge,), otherwise="nothing is delivered yet: a subscription is a row"
    ),
    "C179": Entry(virtual=(reaching.a_forge_out_of_reach_is_no_bad_token,)),
    "C182": Entry(virtual=(reaching.an_installation_token_serves,)),
    "C184": Entry(
        virtual=(reaching.an_enterprise_that_moved,),
        otherwise="a redirect that is not followed is not_found, as is every place that is no longer there",
    ),
    "C196": Entry(virtual=(limits.a_flood_keeps_nobody_waiting,)),
    "C205": Entry(virtual=(reaching.a_token_in_the_forge_s_words,)),
    "C244": Entry(real=(reaching.a_deadline_within_the_body,)),
    "C246": Entry(real=(reaching.errors_with_large_bodies,)),
    "C247": Entry(real=(reaching.a_store_that_dies_after_the_answer,)),
}


def _replays(real: bool) -> list[Any]:
    return [
        pytest.param(CASES[case], replay, id=f"{case}-{replay.__name__}")
        for case, entry in TABLE.items()
        if case in CASES
        for replay in (entry.real if real else entry.virtual)
    ]


def test_every_case_is_in_the_table() -> None:
    assert TABLE.keys() == CASES.keys()
    assert all(entry.real or entry.virtual for entry in TABLE.values())


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus that the copy comes from stands beside the checkout only")
def test_the_copy_holds_every_case_of_its_kinds() -> None:
    assert {row["id"]: Case(**row) for row in rows(CORPUS)} == CASES


@pytest.mark.parametrize(("case", "replay"), _replays(real=True))
async def test_replayed(case: Case, replay: Replay) -> None:
    await replay(case)


@pytest.mark.parametrize(("case", "replay"), _replays(real=False))
async def test_replayed_in_virtual_time(case: Case, replay: Replay, autojump_clock: trio.testing.MockClock) -> None:
    await replay(case)
