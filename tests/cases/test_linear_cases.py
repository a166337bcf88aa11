"""Known bugs of tools that speak to Linear, or GraphQL, replayed: each case has its replay, or says what differs."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import trio.testing

from tests.cases import linear
from tests.support.cases import Case

OURS = Path(__file__).with_name("linear_cases.jsonl")
CORPUS = Path(__file__).parents[3] / "shared" / "cases" / "corpus.jsonl"
FIELDS = ("id", "kind", "forge", "symptom", "input", "expect")

Replay: TypeAlias = Callable[[Case], Awaitable[None]]


class Entry(NamedTuple):
    """How a case is replayed, and where this daemon does not do what the case expects: what instead, and why."""

    replay: Replay
    otherwise: str = ""


def rows(path: Path) -> list[dict[str, Any]]:
    """The cases of Linear and of GraphQL's errors in a file, cut to what a replay needs."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {name: row[name] for name in FIELDS}
        for row in found
        if row["forge"] == "linear" or row["kind"] == "graphql-error"
    ]


CASES = {row["id"]: Case(**{name: value for name, value in row.items() if name != "forge"}) for row in rows(OURS)}

TABLE: dict[str, Entry] = {
    "C033": Entry(
        linear.records_that_are_lost,
        "the first answer is the issue, which exists, its attribution not verified; that its record was lost is "
        "logged and counted",
    ),
    "C066": Entry(linear.bare_words, "GitHub is spoken to over REST: the same answer is replayed from Linear"),
    "C073": Entry(linear.limited_at_the_look_up),
    "C074": Entry(linear.limited_by_a_page),
    "C075": Entry(linear.limited_in_milliseconds),
    "C076": Entry(linear.limited_until_nobody_knows),
    "C077": Entry(linear.our_queries_are_cheap),
    "C079": Entry(linear.our_faults_are_internal),
    "C080": Entry(
        linear.empty_texts,
        "an issue's text is its description; what else a document of Linear's may hold is not asked for, since its "
        "published schema marks it as internal. docs/operating.md says so",
    ),
    "C081": Entry(linear.nulls_in_rows),
    "C083": Entry(
        linear.forms_of_tokens,
        "a refused credential of the daemon's own is failed_precondition: an operator must act",
    ),
    "C084": Entry(linear.keys_with_digits, "a repo with spaces around it is invalid_argument"),
    "C086": Entry(linear.keys_are_resolved_first),
    "C087": Entry(linear.missing_is_missing),
    "C089": Entry(linear.no_silent_fifty, "a listing gives a hundred at most, and then a cursor"),
    "C091": Entry(
        linear.texts_pass_unchanged,
        "what an agent writes is passed on as it is: no mention is taken out of it, on any forge. docs/operating.md "
        "says what notifies people on Linear",
    ),
    "C092": Entry(linear.refused_values_are_named, "no operation sets a state; what Linear says of a value is told"),
    "C198": Entry(linear.empty_comments_cost_nothing),
    "C199": Entry(
        linear.order_is_linears,
        "nothing is delivered: what an agent reads page by page follows Linear's own order, whatever its times say",
    ),
    "C250": Entry(linear.comments_of_nobody),
    "C252": Entry(linear.nulls_in_rows, "nothing is delivered: listings show such issues"),
    "C254": Entry(linear.success_decides, "there is no update: the same answer to a create is unknown, and looked for"),
    "C257": Entry(
        linear.errors_before_emptiness,
        "forbidden is not_found, with the words of what is missing. Linear's schema has no null without an error: "
        "such an answer is internal",
    ),
    "C258": Entry(
        linear.statuses_are_told_apart,
        "401 is failed_precondition and 403 not_found, as on every forge; 404 of the API's one path is unavailable",
    ),
    "C259": Entry(linear.our_faults_are_internal),
    "C261": Entry(linear.a_write_is_not_repeated, "a comment has no key: it is found by its id within the same call"),
}


def test_every_case_is_in_the_table() -> None:
    assert TABLE.keys() == CASES.keys()


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus that the copy comes from stands beside the checkout only")
def test_the_copy_holds_every_case_of_its_kinds() -> None:
    assert rows(CORPUS) == rows(OURS)


@pytest.mark.parametrize("case", TABLE)
async def test_replayed(case: str, autojump_clock: trio.testing.MockClock) -> None:
    await TABLE[case].replay(CASES[case])
