import math
import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.budget import (
    DELAY_MAX_SECONDS,
    DELAY_MIN_SECONDS,
    DELAY_UNKNOWN_SECONDS,
    RESOURCES_MAX,
    Budget,
    BudgetSettings,
    Kind,
    Reading,
    parse_count,
    reset_delay,
    retry_delay,
    served_at,
)


def told(remaining: int, resets_in: float = 600.0, limit: int | None = 5000, resource: str = "core") -> Reading:
    return Reading(resource=resource, limit=limit, remaining=remaining, resets_in=resets_in)


def spend(
    budget: Budget,
    now: float,
    reading: Reading | None = None,
    kind: Kind = "read",
    *,
    sent: bool = True,
    created: bool = True,
) -> None:
    budget.spend(kind, "core", now)
    budget.settle(kind, "core", now, reading=reading, sent=sent, created=created)


def test_nothing_told_is_no_limit() -> None:
    budget = Budget()
    for second in range(1000):
        spend(budget, float(second))
    assert budget.opens_in("read", "core", 1000.0) == 0.0


@pytest.mark.parametrize(("remaining", "wait"), [(11, 0.0), (10, 600.0), (0, 600.0)])
def test_the_reserve_is_left_untouched_until_the_reset(remaining: int, wait: float) -> None:
    budget = Budget()
    spend(budget, 100.0, told(remaining))
    assert budget.opens_in("read", "core", 100.0) == wait
    assert budget.opens_in("read", "core", 700.0) == 0.0


def test_each_resource_has_its_own_limit() -> None:
    budget = Budget()
    spend(budget, 0.0, told(0, resource="search"))
    assert budget.opens_in("read", "core", 0.0) == 0.0
    assert budget.opens_in("read", "search", 0.0) == 600.0


def test_background_reads_leave_a_tenth() -> None:
    budget = Budget()
    spend(budget, 0.0, told(500))
    assert budget.opens_in("background", "core", 0.0) == 600.0
    assert budget.opens_in("read", "core", 0.0) == 0.0
    unlimited = Budget()
    spend(unlimited, 0.0, told(11, limit=None))
    assert unlimited.opens_in("background", "core", 0.0) == 0.0


def test_requests_in_flight_count_as_spent() -> None:
    budget = Budget()
    spend(budget, 0.0, told(12))
    budget.spend("read", "core", 0.0)
    assert budget.opens_in("read", "core", 0.0) == 0.0
    budget.spend("read", "core", 0.0)
    assert budget.opens_in("read", "core", 0.0) == 600.0
    budget.settle("read", "core", 1.0, sent=False)
    assert budget.opens_in("read", "core", 1.0) == 0.0


def test_an_answer_without_headers_costs_one() -> None:
    budget = Budget()
    spend(budget, 0.0, told(12))
    spend(budget, 0.0)
    assert budget.status(0.0).resources[0].remaining == 11


def test_an_overtaken_answer_never_raises_what_remains() -> None:
    budget = Budget()
    spend(budget, 0.0, told(50))
    spend(budget, 1.0, told(80, resets_in=599.0))
    assert budget.status(1.0).resources[0].remaining == 50
    spend(budget, 2.0, told(90, resets_in=5.0))  # of a window long over
    assert budget.status(2.0).resources[0].remaining == 50
    spend(budget, 3.0, told(4990, resets_in=3000.0))  # of a new window
    assert budget.status(3.0).resources[0].remaining == 4990


def test_an_end_that_no_other_answer_confirms_hides_nothing_of_what_remains() -> None:
    budget = Budget()
    spend(budget, 0.0, told(4000, resets_in=3600.0))  # a bogus header, or the account of a token since exchanged
    spend(budget, 1.0, told(11, resets_in=1200.0))
    assert budget.opens_in("read", "core", 1.0) == 0.0
    spend(budget, 2.0, told(10, resets_in=1199.0))
    assert budget.opens_in("read", "core", 2.0) > 0.0
    assert budget.opens_in("read", "core", 3600.0) == 0.0


def test_a_fresh_window_is_found_out_by_one_request_at_a_time_where_the_limit_is_small() -> None:
    budget = Budget()
    spend(budget, 0.0, told(0, limit=8))
    assert budget.opens_in("read", "core", 600.0) == 0.0
    budget.spend("read", "core", 600.0)
    assert budget.opens_in("read", "core", 600.0) == math.inf


def test_a_burst_of_writes_then_one_a_second() -> None:
    budget = Budget()
    for _ in range(10):
        assert budget.opens_in("write", "core", 0.0) == 0.0
        spend(budget, 0.0, kind="write")
    assert budget.opens_in("write", "core", 0.0) == pytest.approx(1.0)
    assert budget.opens_in("read", "core", 0.0) == 0.0
    assert budget.opens_in("write", "core", 1.0) == 0.0


def test_creations_a_minute_and_an_hour_are_bounded() -> None:
    settings = BudgetSettings(creations_per_minute=3, creations_per_hour=5, creation_interval=0.0)
    budget = Budget(settings)
    for _ in range(3):
        spend(budget, 0.0, kind="write")
    assert budget.opens_in("write", "core", 1.0) == pytest.approx(59.0)
    for _ in range(2):
        spend(budget, 60.0, kind="write")
    assert budget.opens_in("write", "core", 61.0) == pytest.approx(3539.0)
    assert budget.opens_in("write", "core", 3600.0) == 0.0
    assert budget.status(3600.0).creations_last_hour == 2


def test_points_a_minute_are_bounded_and_a_write_weighs_five() -> None:
    budget = Budget(BudgetSettings(points_per_minute=18, creation_interval=0.0))
    spend(budget, 0.0, kind="write")  # of six that may go at once
    assert budget.opens_in("read", "search", 0.0) == 0.0  # whatever the resource
    spend(budget, 0.0)
    assert budget.opens_in("read", "core", 0.0) == 5.0  # and one more each five seconds
    assert budget.opens_in("write", "core", 0.0) == 5.0
    for second in range(5, 60, 5):
        spend(budget, float(second))
    assert budget.status(59.0).points_last_minute == 17
    assert budget.opens_in("read", "core", 60.0) == 0.0
    assert budget.status(60.0).points_last_minute == 11


def test_a_burst_of_points_leaves_the_rest_of_the_minute_to_others() -> None:
    budget, now, waits = Budget(), 0.0, []
    for _ in range(2000):
        delay = budget.opens_in("read", "core", now)
        now += delay
        waits.append(delay)
        spend(budget, now)
    assert waits[:300] == [0.0] * 300
    assert max(waits) == pytest.approx(0.1)


def test_points_in_any_minute_stay_within_their_limit_even_where_answers_are_slow() -> None:
    budget = Budget(BudgetSettings(points_per_minute=18))
    for _ in range(6):
        budget.spend("read", "core", 0.0)
    for second in range(5, 61, 5):
        budget.spend("read", "core", float(second))
    assert budget.opens_in("read", "core", 70.0) == math.inf  # any of them may be counted now
    budget.settle("read", "core", 70.0)
    assert budget.opens_in("read", "core", 70.0) == 60.0


def test_a_request_that_never_went_out_costs_no_points() -> None:
    budget = Budget(BudgetSettings(points_per_minute=5))
    spend(budget, 0.0, kind="write", sent=False)
    assert budget.opens_in("write", "core", 0.0) == 0.0
    spend(budget, 0.0, kind="write", created=False)
    assert budget.opens_in("read", "core", 0.0) == 60.0


def test_points_for_less_than_one_write_are_refused() -> None:
    with pytest.raises(ValueError, match="5 at least"):
        BudgetSettings(points_per_minute=4)


def test_a_write_that_never_went_out_is_given_back() -> None:
    budget = Budget(BudgetSettings(creations_per_hour=1))
    spend(budget, 0.0, kind="write", sent=False)
    assert budget.opens_in("write", "core", 0.0) == 0.0
    assert budget.status(0.0).creations_last_hour == 0


@pytest.mark.parametrize("limit", ["creations_per_minute", "creations_per_hour"])
def test_a_write_that_made_nothing_is_none_of_the_creations(limit: str) -> None:
    budget = Budget(replace(BudgetSettings(creation_interval=0.0), **{limit: 2}))
    for _ in range(20):
        spend(budget, 0.0, kind="write", created=False)
        assert budget.opens_in("write", "core", 0.0) == 0.0
    assert budget.status(0.0).creations_last_hour == 0
    for _ in range(2):
        spend(budget, 0.0, kind="write")
    assert budget.opens_in("write", "core", 0.0) == (60.0 if limit == "creations_per_minute" else 3600.0)


def test_a_write_that_made_nothing_keeps_its_turn_in_the_pace_and_its_request() -> None:
    settings = BudgetSettings(creation_burst=2, creation_interval=5.0)
    refused, unsent = Budget(settings), Budget(settings)
    for _ in range(2):
        spend(refused, 0.0, kind="write", created=False)
        spend(unsent, 0.0, kind="write", sent=False, created=False)
    assert refused.opens_in("write", "core", 0.0) == pytest.approx(5.0)
    assert unsent.opens_in("write", "core", 0.0) == 0.0
    spend(refused, 0.0, told(50))
    spend(refused, 5.0, kind="write", created=False)
    assert refused.status(5.0).resources[0].remaining == 49


def test_of_creations_at_one_time_only_the_refused_one_is_given_back() -> None:
    budget = Budget()
    for _ in range(3):
        budget.spend("write", "core", 1.0)
    budget.settle("write", "core", 2.0, created=False)
    budget.settle("write", "core", 2.0)
    budget.settle("write", "core", 2.0)
    assert budget.status(2.0).creations_last_hour == 2


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_refused_writes_never_exhaust_the_hour(writes: list[tuple[float, bool]]) -> None:
    settings = BudgetSettings(creations_per_minute=1000, creations_per_hour=5, creation_burst=3, creation_interval=1.0)
    budget, now, made = Budget(settings), 0.0, deque[float]()
    for passing, created in writes:
        now += passing
        delay = budget.opens_in("write", "core", now)
        while made and made[0] + 3600.0 <= now:
            made.popleft()
        if len(made) < 5:
            assert delay <= settings.creation_interval + 1e-6  # the pace alone
        now += delay
        spend(budget, now, kind="write", created=created)
        if created:
            made.append(now)
    assert budget.status(now).creations_last_hour <= 5


def test_a_throttle_closes_everything_and_doubles_to_its_end() -> None:
    budget = Budget()
    now, waits = 0.0, []
    for _ in range(6):
        waits.append(budget.throttle(None, now))
        assert budget.opens_in("read", "search", now) == waits[-1]
        now += waits[-1]
    assert waits == [60, 120, 240, 480, 900, 900]
    assert budget.throttle(None, now + 900) == 60


def test_answers_in_flight_at_a_throttle_do_not_lengthen_it() -> None:
    budget = Budget()
    assert budget.throttle(None, 0.0) == 60
    assert budget.throttle(None, 1.0) == 59
    assert budget.throttle(5.0, 2.0) == 58
    assert budget.throttle(100.0, 2.0) == 100
    assert budget.status(2.0).closed_for == 100


def test_no_burst_follows_a_throttle() -> None:
    budget = Budget()
    budget.throttle(30.0, 0.0)
    spend(budget, 30.0, kind="write")
    assert budget.opens_in("write", "core", 30.0) == pytest.approx(1.0)


def test_an_exhausted_resource_opens_at_its_reset() -> None:
    budget = Budget()
    assert budget.exhaust("core", 40.0, 0.0) == 40.0
    assert budget.opens_in("read", "core", 10.0) == 30.0
    assert budget.opens_in("read", "core", 40.0) == 0.0


def test_a_refusal_for_another_limit_than_was_asked_of_holds_both() -> None:
    budget = Budget()
    spend(budget, 0.0, told(4000))
    budget.spend("read", "core", 0.0)
    assert budget.exhaust("search", 40.0, 0.0, asked="core") == 40.0
    budget.settle("read", "core", 0.0, reading=told(0, 40.0, resource="search"))
    assert (budget.opens_in("read", "search", 0.0), budget.opens_in("read", "core", 0.0)) == (40.0, 40.0)
    assert budget.opens_in("read", "graphql", 0.0) == 0.0
    spend(budget, 5.0, told(3999))  # of before the refusal: it opens nothing
    assert budget.exhaust("search", 10.0, 5.0, asked="core") == 10.0  # and an earlier end shortens nothing
    assert budget.opens_in("write", "core", 5.0) == 35.0
    assert {one.resource: one.remaining for one in budget.status(5.0).resources} == {"core": 3999, "search": 0}
    assert budget.opens_in("read", "core", 40.0) == 0.0


def test_a_limit_that_every_request_takes_of_holds_nothing_beside_it() -> None:
    budget = Budget()
    shared = Reading(resource="complexity", limit=1000, remaining=900, resets_in=600.0, shared=True)
    spend(budget, 0.0, shared)
    budget.exhaust("complexity", 40.0, 0.0, asked="core")
    spend(budget, 1.0, replace(shared, resets_in=3600.0))  # a window that has begun since
    assert budget.opens_in("read", "core", 1.0) == 0.0


@pytest.mark.parametrize("bad", [{"creations_per_minute": 0}, {"throttle_first": 0.0}, {"reserve": -1}])
def test_settings_under_which_nothing_passes_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        BudgetSettings(**bad)


SERVED = served_at("Tue, 10 Oct 2017 16:00:00 GMT", 0.0)


@pytest.mark.parametrize(
    ("reset", "delay"),
    [
        ("1507651260", 61.0),
        ("1507651200", 1.0),
        ("1", DELAY_MIN_SECONDS),
        ("99999999999", DELAY_MAX_SECONDS),
        ("1507651200000", DELAY_UNKNOWN_SECONDS),  # more digits than a time in seconds has
        ("soon", DELAY_UNKNOWN_SECONDS),
        ("\u0661", DELAY_UNKNOWN_SECONDS),
        (None, DELAY_UNKNOWN_SECONDS),
    ],
)
def test_resets_are_drawn_into_bounds(reset: str | None, delay: float) -> None:
    assert reset_delay(reset, SERVED) == delay


@pytest.mark.parametrize(
    ("header", "delay"),
    [
        (None, None),
        ("60", 60.0),
        (" 60 ", 60.0),
        ("0", DELAY_MIN_SECONDS),
        ("999999", DELAY_MAX_SECONDS),
        ("-5", None),
        ("soon", None),
        ("Tue, 10 Oct 2017 16:02:00 GMT", 120.0),
        ("Tue, 10 Oct 2017 16:02:00 -0000", 120.0),
        ("Tue, 10 Oct 2016 16:02:00 GMT", DELAY_MIN_SECONDS),
    ],
)
def test_retry_after_as_number_or_date(header: str | None, delay: float | None) -> None:
    assert retry_delay(header, SERVED) == delay


def test_the_server_clock_counts_and_ours_only_without_it() -> None:
    assert SERVED == 1507651200.0
    assert served_at(None, 5.0) == 5.0
    assert served_at("yesterday", 5.0) == 5.0


@given(st.text(max_size=30))
def test_any_header_text_gives_a_bounded_delay(text: str) -> None:
    assert DELAY_MIN_SECONDS <= reset_delay(text, 1e9) <= DELAY_MAX_SECONDS
    retry = retry_delay(text, 1e9)
    assert retry is None or DELAY_MIN_SECONDS <= retry <= DELAY_MAX_SECONDS
    assert served_at(text, 1.0) is not None
    count = parse_count(text)
    assert count is None or count >= 0


class _Server:
    """A forge that counts: ``limit`` requests in each window, and never less than nothing."""

    def __init__(self, limit: int, window: float) -> None:
        self.limit, self.window = limit, window
        self.start, self.used, self.refused = 0.0, 0, 0

    def serve(self, now: float) -> Reading:
        if now >= self.start + self.window:
            self.start += self.window * math.floor((now - self.start) / self.window)
            self.used = 0
        if self.used >= self.limit:
            self.refused += 1
        self.used += 1
        return told(max(0, self.limit - self.used), self.start + self.window - now + 1, self.limit)


@given(
    limit=st.integers(20, 60),
    steps=st.lists(st.tuples(st.sampled_from(["ask", "answer"]), st.floats(0, 20)), max_size=200),
    order=st.randoms(use_true_random=False),
)
def test_never_over_a_budget_however_answers_come(
    limit: int, steps: list[tuple[str, float]], order: random.Random
) -> None:
    budget, server, now = Budget(), _Server(limit, 120.0), 0.0
    flying: list[Reading] = []
    spend(budget, now, server.serve(now))
    for step, passing in steps:
        now += passing
        if step == "answer" and flying:
            reading = flying.pop(order.randrange(len(flying)))
            budget.settle("read", "core", now, reading=reading)
        elif step == "ask" and len(flying) < 8 and budget.opens_in("read", "core", now) == 0:
            budget.spend("read", "core", now)
            flying.append(server.serve(now))
    assert server.refused == 0


@given(
    st.lists(
        st.one_of(
            st.builds(told, st.integers(0, 100), st.floats(1, 3600), st.integers(0, 100)),
            st.floats(1, 3600),
            st.none(),
        ),
        max_size=30,
    ),
    st.floats(0, 50),
)
def test_whatever_was_said_it_opens_by_itself(said: list[Reading | float | None], passing: float) -> None:
    budget, now = Budget(), 0.0
    for word in said:
        now += passing
        if isinstance(word, Reading):
            spend(budget, now, word, kind="write")
        else:
            budget.throttle(word, now)
    waits = 0
    while (delay := budget.opens_in("write", "core", now)) > 0:
        assert delay <= 3600.0 + len(said)  # the longest closure, and the pace of what was written meanwhile
        now += delay
        waits += 1
        assert waits < 10  # each wait ends one closure; none comes back by itself


def test_a_forge_that_names_another_limit_each_time_fills_no_memory() -> None:
    budget = Budget()
    spend(budget, 0.0, told(11))
    for number in range(3 * RESOURCES_MAX):
        spend(budget, 0.0, told(0, resource=f"limit_{number}"))
        budget.exhaust(f"other_{number}", 10.0, 0.0)
    kept = {each.resource: each.remaining for each in budget.status(0.0).resources}
    assert len(kept) == 1 + RESOURCES_MAX
    assert kept["core"] is not None
    assert f"other_{3 * RESOURCES_MAX - 1}" in kept
