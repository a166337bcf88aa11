"""The daemon of the round-trip benchmark: all of it, over the memory store and a provider that only waits once.

Argument: the run directory. It logs as in production, JSON lines at info, to the null device.
"""

import gc
import os
import sys
from pathlib import Path

import trio

from bench.support.processes import raise_descriptor_limit, stdin_closed
from compass_forged.config import Config
from compass_forged.daemon import serve_with
from compass_forged.listener import RunDir
from compass_forged.observability import Counters, configure_logging
from compass_forged.ports import CallContext
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import CommentOnIssue, CommentRef, CreateIssue, ForgeAccount, ForgeRef, Issue

_FIRST_NUMBER = 1_000_000_000
"""Numbers of ten digits, so that all replies are of one size."""
_NOW = "2026-01-01T00:00:00Z"


class NullProvider(FakeProvider):
    """A forge that takes no time: it tells the guard, waits once as any real call does, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._next = _FIRST_NUMBER

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Answer with the next number."""
        number = await self._answered(context)
        return Issue(
            forge=ForgeRef(provider=self.name, host=self.host),
            repo=arm.repo,
            number=number,
            title=arm.title,
            body=arm.body,
            state="open",
            url=f"https://{self.host}/{arm.repo}/issues/{number}",
            author=ForgeAccount(login="compass-bot", is_bot=True),
            created_at=_NOW,
            updated_at=_NOW,
        )

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Answer with the next number."""
        number = await self._answered(context)
        url = f"https://{self.host}/{arm.repo}/issues/{arm.issue_number}#issuecomment-{number}"
        return CommentRef(url=url, comment_id=str(number))

    async def _answered(self, context: CallContext) -> int:
        context.forge_requests += 1
        await context.guard.sending()
        await trio.lowlevel.checkpoint()
        self._next += 1
        return self._next


async def _serve(run_dir: RunDir) -> None:
    config = Config(run_dir=str(run_dir.path), host_id="bench", store="memory")
    provider = NullProvider()
    registry = Registry([Entry(provider.name, provider.host, provider)])
    async with trio.open_nursery() as nursery:
        daemon = await nursery.start(serve_with, config, run_dir, MemoryStore(), registry, Counters())
        gc.freeze()
        print("ready", flush=True)
        await stdin_closed()
        daemon.drain()


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    with Path(os.devnull).open("w", encoding="utf-8") as log, RunDir.locked(Path(sys.argv[1])) as run_dir:
        configure_logging("json", "info", log)
        trio.run(_serve, run_dir, restrict_keyboard_interrupt_to_checkpoints=True)


if __name__ == "__main__":
    main()
