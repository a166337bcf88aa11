"""A tool call through the MCP bridge, and its start, beside a plain server of the official SDK, in the same run.

    .venv/bin/python bench/bench_mcp.py [--json] [--quick] [--repetitions N] [--sleepy]

The bridge is ``compass-forged mcp --socket`` before a whole daemon with the memory store and a provider that waits
once; the plain server has one trivial tool. Both get the same calls over the pipes of a process, a comment of 2 KB and
an issue of 2 KB, and answer with as many characters. The servers of a repetition are asked one after the other, in
turning order.
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
from bench.support.setup import BODY_BYTES, Cores, let_cores_sleep, open_containers, parser, progress

_TEXT: Final = "x" * BODY_BYTES
_CALLS: Final[dict[str, dict[str, object]]] = {
    "forge_comment_on_issue": {"repo": "acme/site", "issue_number": 7, "body": _TEXT},
    "forge_create_issue": {"repo": "acme/site", "title": "Sign-in ends in a blank page", "body": _TEXT},
}
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
    p50s_us: dict[str, list[float]] = field(default_factory=lambda: {tool: [] for tool in _CALLS})
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

    def call(self, running: Child, tool: str) -> str:
        """One call of a tool; the text of its answer."""
        self.calls += 1
        line = _line(self.calls, "tools/call", {"name": tool, "arguments": _CALLS[tool]})
        answer = json.loads(running.ask(line, PATIENCE_SECONDS))
        text: str = answer["result"]["content"][0]["text"]
        assert not answer["result"].get("isError"), text
        return text

    def p50_us(self, running: Child, tool: str, seconds: float) -> float:
        """The median round trip of calls that go on for so long."""
        took: list[float] = []
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            self.call(running, tool)
            took.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(took)

    def ask(self, running: Child, seconds: float) -> None:
        """Call each tool for so long, warmed up, and note the median."""
        for tool, p50s in self.p50s_us.items():
            self.p50_us(running, tool, 0.1)
            p50s.append(self.p50_us(running, tool, seconds))


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool, sleepy: bool) -> Sequence[Measured]:
    Cores(stack, scratch, sleepy=sleepy).keep_awake(awake=True)
    with child("bench.support.serve_ours", str(scratch / "run"), scratch=scratch) as daemon:
        daemon.line(PATIENCE_SECONDS)
        (socket,) = open_containers(scratch / "run" / "control.sock", range(1))
        ours = _Server("compass_forged", ("mcp", "--socket", socket))
        with ours.started(scratch) as running:
            text = max((ours.call(running, tool) for tool in _CALLS), key=len)
        ours.first_ms.clear()
        low = _Server("bench.support.serve_mcp_plain", ("low", "x" * len(text)))
        high = _Server("bench.support.serve_mcp_plain", ("high", "x" * len(text)))
        servers = [low, ours, high]
        for repetition in range(repetitions):
            progress(f"repetition {repetition + 1} of {repetitions}")
            for server in servers if repetition % 2 == 0 else reversed(servers):
                with server.started(scratch) as running:
                    server.ask(running, 0.2 if quick else 1.0)
    lines = []
    for tool, title in (("forge_comment_on_issue", "comment"), ("forge_create_issue", "create under a key")):
        mine, plain, decorated = (server.p50s_us[tool] for server in (ours, low, high))
        key = title.partition(" ")[0]
        lines += [
            measured(key, f"{title}: p50 / plain server", "x", ratios(mine, plain), ("at most", 1.25)),
            measured(f"{key}_high", f"{title}: p50 / server of decorators", "x", ratios(mine, decorated)),
            measured(f"{key}_us", f"{title}: p50", "us", mine),
        ]
    return [
        *lines,
        measured("plain_us", "plain server: p50", "us", low.p50s_us["forge_comment_on_issue"]),
        measured("start", "first answer / plain server", "x", ratios(ours.first_ms, low.first_ms), ("at most", 1.15)),
        measured("start_ms", "first answer", "ms", ours.first_ms),
    ]


def main() -> int:
    """Run and print; the exit status."""
    options = parser("MCP beside a plain server.", repetitions="9 by default, 3 with --quick")
    arguments = let_cores_sleep(options).parse_args()
    repetitions = arguments.repetitions or (3 if arguments.quick else 9)
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick, sleepy=arguments.sleepy)
    return report("mcp", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
