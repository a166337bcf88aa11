"""What every test gets: a deadline. A hang is a failure, not a stuck run."""

import functools
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator

import pytest
import structlog
import trio

REAL_SECONDS = 60.0
VIRTUAL_SECONDS = 10_000_000.0
"""Under a mock clock time is free; a test that waits for ever still ends there."""


def pytest_configure() -> None:
    """A shell's background job has SIGINT ignored, and whatever it starts has too: tests that interrupt would hang."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that a test runs in this process sets logging up; the next test's captured lines must not miss any."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each async test inside ``trio.fail_after``."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            virtual = {"autojump_clock", "mock_clock"} & set(item.fixturenames)
            item.obj = _bounded(item.obj, VIRTUAL_SECONDS if virtual else REAL_SECONDS)


def _bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: object, **kwargs: object) -> None:
        with trio.fail_after(seconds):
            await test(*args, **kwargs)

    return bounded
