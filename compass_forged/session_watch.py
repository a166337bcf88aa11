"""Keeps the session table true where others end sessions too: another daemon on the same store, or an operator's SQL.

What the store tells is a hint. It makes the daemon ask the store, once for however many hints, and end what no longer
stands there. It never binds: a session begins through this daemon's own control socket, or at its start.
"""

import random
from typing import Final

import trio

from compass_forged.containers import Containers
from compass_forged.errors import StoreError
from compass_forged.observability import Counters, get_logger
from compass_forged.ports import SessionNews, SessionWatch

_log = get_logger(__name__)
_RETRY_FIRST_SECONDS: Final = 0.05
_RETRY_MAX_SECONDS: Final = 2.0


async def follow_sessions(
    watch: SessionWatch,
    containers: Containers,
    *,
    counters: Counters,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """End sessions as the store tells of their end; until cancelled.

    It begins with a look at all of them, so that a restart after a crash misses nothing.
    """
    task_status.started()
    news = SessionNews(None)
    while True:
        await _apply(news, containers, counters)
        news = await watch.news()


async def _apply(news: SessionNews, containers: Containers, counters: Counters) -> None:
    """Recheck until the store has answered: while it is out of reach, what is bound stays bound."""
    delay = _RETRY_FIRST_SECONDS
    while True:
        try:
            ended = await containers.recheck(news.sessions)
        except StoreError as error:
            if delay == _RETRY_FIRST_SECONDS:
                _log.warning("sessions could not be checked; trying until they are", error=str(error))
            await trio.sleep(random.uniform(delay / 2, delay))  # noqa: S311 -- jitter is no secret
            delay = min(delay * 2, _RETRY_MAX_SECONDS)
        else:
            break
    for session in ended:
        counters.add("sessions_ended_elsewhere")
        _log.info("session ended elsewhere", session=session.session_id, container=session.container)
