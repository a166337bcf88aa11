"""The daemon of the round-trip benchmark: all of it, over the memory store and a provider that only waits once.

Arguments: the run directory, and optionally as JSON what ``Options`` has. It logs as in production, JSON lines at
info, to the null device.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import trio

from bench.support.messages import SLOW_ISSUE
from bench.support.processes import raise_descriptor_limit, stdin_closed
from bench.support.sampling import sampled
from compass_forged.config import Config, Limits
from compass_forged.daemon import serve_with, settle_collector
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


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How this daemon differs from the default.

    Attributes:
        per_container: connections, and calls in flight, that a container may have; None for the daemon's defaults.
        slow_seconds: how long a comment on the slow issue takes.
        profile: where to write, at the end, where the CPU time went; empty for no profile.
    """

    per_container: int | None = None
    slow_seconds: float = 0.1
    profile: str = ""


class NullProvider(FakeProvider):
    """A forge that takes no time: it tells the guard, waits once as any real call does, and keeps nothing.

    On one issue it is slow.
    """

    def __init__(self, slow_seconds: float) -> None:
        super().__init__()
        self._next = _FIRST_NUMBER
        self._slow_seconds = slow_seconds

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
        """Answer with the next number, on the slow issue later."""
        number = await self._answered(context)
        if arm.issue_number == SLOW_ISSUE:
            await trio.sleep(self._slow_seconds)
        url = f"https://{self.host}/{arm.repo}/issues/{arm.issue_number}#issuecomment-{number}"
        return CommentRef(url=url, comment_id=str(number))

    async def _answered(self, context: CallContext) -> int:
        context.forge_requests += 1
        await context.guard.sending()
        await trio.lowlevel.checkpoint()
        self._next += 1
        return self._next


async def _serve(run_dir: RunDir, options: Options) -> None:
    limits = Limits()
    if options.per_container is not None:
        limits = Limits(connections_per_container=options.per_container, calls_per_container=options.per_container)
    config = Config(run_dir=str(run_dir.path), host_id="bench", store="memory", limits=limits)
    provider = NullProvider(options.slow_seconds)
    registry = Registry([Entry(provider.name, provider.host, provider)])
    async with trio.open_nursery() as nursery:
        daemon = await nursery.start(serve_with, config, run_dir, MemoryStore(), registry, Counters())
        settle_collector()
        print("ready", flush=True)
        with sampled(Path(options.profile)) if options.profile else nullcontext():
            await stdin_closed()
        daemon.drain()


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    options = msgspec.json.decode(sys.argv[2], type=Options) if len(sys.argv) > 2 else Options()
    with Path(os.devnull).open("w", encoding="utf-8") as log, RunDir.locked(Path(sys.argv[1])) as run_dir:
        configure_logging("json", "info", log)
        trio.run(_serve, run_dir, options, restrict_keyboard_interrupt_to_checkpoints=True)


if __name__ == "__main__":
    main()
