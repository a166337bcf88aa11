"""Known bugs of tools that do this job, replayed: each case in the table either has its replays or says why not."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio.testing

from tests.cases import cancelling, clocks, framing
from tests.support.cases import Case, read_cases

CASES = {row["id"]: Case(**row) for row in read_cases(Path(__file__).with_name("cases.jsonl"))}
CORPUS = Path(__file__).parents[3] / "shared" / "cases" / "corpus.jsonl"

Replay: TypeAlias = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True)
class Entry:
    """How a case is replayed.

    Attributes:
        real: replays over real sockets, on the real clock.
        virtual: replays in which every wait is trio's, on a clock that jumps.
        process: replays that start a daemon in a process of its own.
        otherwise: where this daemon does not do what the case expects, or not with the operation that it names: what
            it does instead, which the replays assert, and why.
    """

    real: tuple[Replay, ...] = ()
    virtual: tuple[Replay, ...] = ()
    process: tuple[Replay, ...] = ()
    otherwise: str = ""


TABLE: dict[str, Entry] = {
    "C069": Entry(
        real=(cancelling.cancelled_while_waiting, cancelling.cancelled_in_connect, cancelling.cancelled_in_reply),
        virtual=(cancelling.cancelled_anywhere,),
    ),
    "C070": Entry(process=(cancelling.sigterm_under_load,)),
    "C076": Entry(
        virtual=(clocks.linear_is_not_there, clocks.unusable_retry_times),
        otherwise="there is no Linear provider yet: a call to it is not_found and sends nothing. The fault is the same "
        "for GitHub's limits, and is replayed there",
    ),
    "C098": Entry(
        virtual=(clocks.refused_token,),
        otherwise="no token source knows when its token expires, so none is refreshed ahead of that: sources are read "
        "anew when the forge refuses what they gave, and the write goes out once more",
    ),
    "C112": Entry(
        real=(framing.deep_frames,),
        virtual=(framing.deep_replies, framing.deep_answers),
        otherwise="frames hold MessagePack: the JSON of the case is no frame at all, and the same nesting is replayed "
        "in both encodings",
    ),
    "C118": Entry(
        real=(cancelling.errors_at_the_deadline,),
        virtual=(cancelling.store_error_at_the_deadline, cancelling.forge_error_at_the_deadline),
        otherwise="no transaction spans a forge's answer: a record is one statement, so there is nothing to roll back",
    ),
    "C122": Entry(
        real=(framing.unknown_frames,),
        otherwise="there is no cancel frame; like any frame that is unknown it is the fault invalid_argument, under "
        "its call_id where that can be read. unimplemented is kept for operations that a provider has not",
    ),
    "C123": Entry(real=(cancelling.clients_that_never_cancel, cancelling.writes_that_outlive_their_deadline)),
    "C126": Entry(real=(framing.replaced_socket, framing.socket_mode)),
    "C135": Entry(
        real=(framing.line_ends,),
        otherwise="comments are read with their issue; there is no list_comments",
    ),
    "C156": Entry(real=(cancelling.broken_answers, cancelling.answers_cut_anywhere)),
    "C157": Entry(real=(cancelling.dripping_answers,)),
    "C166": Entry(real=(framing.restarted_daemon,)),
    "C170": Entry(real=(framing.any_cut, framing.any_cut_at_the_full_limit, framing.any_cut_of_a_reply)),
    "C171": Entry(
        real=(framing.bad_between_good, framing.any_bad_payload),
        otherwise="a frame of length zero cannot be skipped safely: a last fault, then the connection is closed. Every "
        "other bad frame leaves it up",
    ),
    "C194": Entry(real=(cancelling.slow_reader,), otherwise="the large replies are those of list_issues"),
    "C199": Entry(
        virtual=(clocks.subscriptions_deliver_nothing, clocks.order_is_the_forge_s),
        otherwise="nothing is ingested or delivered yet, and there is no Linear provider: subscribe sends nothing. "
        "What an agent reads page by page follows the forge's own order and cursor, whatever the times say",
    ),
    "C212": Entry(
        virtual=(clocks.reset_times, clocks.no_hot_loop),
        otherwise="a reset in the past is drawn to one second, not to a minute: a caller that tries again as soon as "
        "it may costs one request a second, and every other call is refused without one",
    ),
    "C213": Entry(virtual=(clocks.retry_after_forms,)),
    "C223": Entry(
        real=(framing.unknown_arms,),
        virtual=(framing.unknown_items,),
        otherwise="there is no timeline to list: lists of issues and comments stand for it. On the socket an unknown "
        "arm is a fault of structure, invalid_argument, and not unimplemented. An item without the marks of one makes "
        "its page unusable (internal): it is not passed over in silence",
    ),
    "C225": Entry(real=(framing.misspelt_fields,)),
    "C241": Entry(
        virtual=(clocks.offset_dates, clocks.dates_that_are_none),
        otherwise="pull requests are not read yet (unimplemented): issues stand for them. closed_at is not shown",
    ),
    "C249": Entry(real=(cancelling.failures_keep_their_kind,)),
}


def _replays(of: Callable[[Entry], tuple[Replay, ...]], *marks: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(CASES[case], replay, id=f"{case}-{replay.__name__}", marks=marks)
        for case, entry in TABLE.items()
        if case in CASES
        for replay in of(entry)
    ]


def test_every_case_is_in_the_table() -> None:
    assert TABLE.keys() == CASES.keys()
    assert all(entry.real or entry.virtual or entry.process for entry in TABLE.values())


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus that the copy comes from stands beside the checkout only")
def test_the_copy_holds_every_case_of_its_kinds() -> None:
    corpus = {row["id"]: Case(**row) for row in read_cases(CORPUS)}
    assert corpus == CASES


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.real))
async def test_replayed(case: Case, replay: Replay) -> None:
    await replay(case)


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.virtual))
async def test_replayed_in_virtual_time(case: Case, replay: Replay, autojump_clock: trio.testing.MockClock) -> None:
    await replay(case)


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.process, pytest.mark.process))
async def test_replayed_by_a_process(case: Case, replay: Replay) -> None:
    await replay(case)
