"""A tool call through the MCP bridge, and its start, beside a plain server of the official SDK, in the same run.

    .venv/bin/python bench/bench_mcp.py [--json] [--quick] [--repetitions N]

The bridge is ``compass-forged mcp --socket`` before a whole daemon with the memory store and a provider that waits
once; the plain server has one trivial tool. Both get the same call, an issue of 2 KB, over the pipes of a process, and
answer with as many characters. The servers of a repetition are asked one after the other, in turning order.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.cells import PATIENCE_SECONDS
from bench.support.goals import Measured, measured, ratios
from bench.support.outcome import report
from bench.support.processes import Child, child
from bench.support.setup import BODY_BYTES, open_containers, parser, progress

_ARGUMENTS: Final = {"repo": "acme/site", "title": "Sign-in ends in a blank page", "body": "x" * BODY_BYTES}
_HANDSHAKE: Final = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
_NOTES: Final = (
    "p50 of calls one after the other. First answer: from starting the process to the answer to initialize.\n"
    "The SDK's low-level server is what the bridge is built on; its server of decorators is there for comparison."
)


def _line(request: int, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request, "method": method, "params": params}).encode()


@dataclass(slots=True)
class _Server:
    """One contender."""

    module: str
    arguments: tuple[str, ...]
    calls: int = 0
    p50s_us: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)

    @contextmanager
    def started(self, scratch: Path) -> Iterator[Child]:
        """Start it and take the time to its first answer."""
        begin = time.perf_counter()
        with child(self.module, *self.arguments, scratch=scratch) as running:
            running.ask(_line(0, "initialize", _HANDSHAKE), PATIENCE_SECONDS)
            self.first_ms.append((time.perf_counter() - begin) * 1e3)
            running.tell(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            yield running

    def call(self, running: Child) -> str:
        """One tool call; the text of its answer."""
        self.calls += 1
        line = _line(self.calls, "tools/call", {"name": "forge_create_issue", "arguments": _ARGUMENTS})
        answer = json.loads(running.ask(line, PATIENCE_SECONDS))
        text: str = answer["result"]["content"][0]["text"]
        assert not answer["result"].get("isError"), text
        return text

    def ask_for(self, running: Child, seconds: float) -> None:
        """Call for that long, and note the median round trip."""
        took: list[float] = []
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            self.call(running)
            took.append((time.perf_counter() - begin) * 1e6)
        self.p50s_us.append(statistics.median(took))


def _measure(_: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    with child("bench.support.serve_ours", str(scratch / "run"), scratch=scratch) as daemon:
        daemon.line(PATIENCE_SECONDS)
        (socket,) = open_containers(scratch / "run" / "control.sock", range(1))
        ours = _Server("compass_forged", ("mcp", "--socket", socket))
        with ours.started(scratch) as running:
            text = ours.call(running)
        ours.first_ms.clear()
        low = _Server("bench.support.serve_mcp_plain", ("low", "x" * len(text)))
        high = _Server("bench.support.serve_mcp_plain", ("high", "x" * len(text)))
        servers = [low, ours, high]
        for repetition in range(repetitions):
            progress(f"repetition {repetition + 1} of {repetitions}")
            for server in servers if repetition % 2 == 0 else reversed(servers):
                with server.started(scratch) as running:
                    server.ask_for(running, 0.1)  # warm
                    server.p50s_us.pop()
                    server.ask_for(running, 0.2 if quick else 1.0)
    return [
        measured("call", "tool call: p50 / plain server", "x", ratios(ours.p50s_us, low.p50s_us), ("at most", 1.25)),
        measured("call_high", "tool call: p50 / server of decorators", "x", ratios(ours.p50s_us, high.p50s_us)),
        measured("call_us", "tool call: p50", "us", ours.p50s_us),
        measured("plain_us", "plain server: p50", "us", low.p50s_us),
        measured("start", "first answer / plain server", "x", ratios(ours.first_ms, low.first_ms), ("at most", 1.15)),
        measured("start_ms", "first answer", "ms", ours.first_ms),
    ]


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser("MCP beside a plain server.", repetitions="9 by default, 3 with --quick").parse_args()
    repetitions = arguments.repetitions or (3 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("mcp", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
