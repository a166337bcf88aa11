"""What every test of the service gets: the log, collected instead of printed."""

from collections.abc import Iterator

import pytest

from tests.support.core import Logged, logged


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    """What is logged meanwhile."""
    with logged() as events:
        yield events
