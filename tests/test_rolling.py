import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_forged.rolling import RollingLimit


def test_it_opens_a_span_after_what_has_ended() -> None:
    limit = RollingLimit(10, 60.0)
    for now in (0.0, 5.0):
        limit.begin(5)
        limit.end(now, 5)
    assert limit.opens_in(5.0, 1) == 55.0
    assert limit.opens_in(5.0, 5) == 55.0
    assert limit.opens_in(5.0, 6) == 60.0
    assert limit.opens_in(60.0, 5) == 0.0
    assert limit.used(60.0) == 5
    assert limit.used(65.0) == 0


def test_what_is_in_flight_counts_until_it_ends() -> None:
    limit = RollingLimit(1, 60.0)
    limit.begin()
    assert limit.opens_in(1_000_000.0) == math.inf
    limit.end(1_000_000.0)
    assert limit.opens_in(1_000_000.0) == 60.0


def test_what_never_went_out_is_given_back() -> None:
    limit = RollingLimit(1, 60.0)
    limit.begin()
    limit.end(0.0, counts=False)
    assert limit.opens_in(0.0) == 0.0


@settings(deadline=None)
@given(
    limit=st.integers(5, 30),
    requests=st.lists(
        st.tuples(st.floats(0, 20), st.sampled_from([1, 5]), st.floats(0, 90), st.floats(0, 1)), max_size=60
    ),
)
def test_no_window_of_the_other_side_ever_holds_more(
    limit: int, requests: list[tuple[float, int, float, float]]
) -> None:
    """Each request arrives at some moment between its start and its end; windows may begin at any of them."""
    rolling, now = RollingLimit(limit, 60.0), 0.0
    flying: list[tuple[float, int]] = []
    arrivals: list[tuple[float, int]] = []
    for passing, weight, duration, share in requests:
        now += passing
        for ended_at, ended_weight in sorted(flying):
            if ended_at <= now:
                rolling.end(ended_at, ended_weight)
                flying.remove((ended_at, ended_weight))
        delay = rolling.opens_in(now, weight)
        assert delay <= 60.0 + 1e-5 or delay == math.inf
        if delay == 0:
            rolling.begin(weight)
            flying.append((now + duration, weight))
            arrivals.append((now + duration * share, weight))
        elif math.isinf(delay):
            assert flying  # only then can time alone not tell
        else:
            assert copy.deepcopy(rolling).opens_in(now + delay, weight) == pytest.approx(0.0, abs=1e-5)
    for start, _ in arrivals:
        assert sum(weight for at, weight in arrivals if start <= at < start + 60.0 - 1e-5) <= limit
