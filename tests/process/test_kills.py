"""A daemon that is killed at any instant: counted, so that no claim about it rests on a few chosen moments."""

from collections.abc import Generator

import pytest
import trio

from tests.support.kills import CREATES, killing
from tests.support.world import Place, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]

KILLS = 25
SECONDS = 40.0
"""A machine that is busy with other things gets no further than it gets in this time."""
KILLS_AT_LEAST = 5
SEED = 20
"""Other instants: ``bench/kill_daemon.py --count 1000 --seed N``."""


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


async def test_a_daemon_killed_at_random_instants_creates_once_but_in_the_named_window(where: Place) -> None:
    until = trio.current_time() + SECONDS
    async with killing(where, SEED) as made:
        for number in range(KILLS):
            if number >= KILLS_AT_LEAST and trio.current_time() > until:
                break
            await made.round(number)
        print(made.tally)  # noqa: T201 -- what `pytest -s` is asked for
        found = made.tally.found
        assert made.tally.kills >= KILLS_AT_LEAST
        assert sum(found.values()) == made.tally.kills * CREATES
        assert made.tally.duplicates <= found["in the window"]
        if made.tally.kills == KILLS:
            # Otherwise the instants show little: the kills must fall before, within and after the creates.
            assert min(found["not created"], found["in the window"], found["recorded"] + found["answered"]) > 0
