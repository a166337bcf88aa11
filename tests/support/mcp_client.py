"""A plain MCP client: lines of JSON over the pipes of a process, or over a socket. Knows nothing of the SDK."""

import json
import socket
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.support.world import ROOT

ANSWER_SECONDS = 30.0
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class McpClient:
    """Asks one thing after the other."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading = reading
        self._writing = writing
        self._asked = 0

    def tell(self, line: bytes) -> None:
        """Send bytes."""
        self._writing.write(line)
        self._writing.flush()

    def answer(self) -> Any:
        """The next message."""
        line = self._reading.readline()
        assert line, "the server closed the connection"
        return json.loads(line)

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request; what else comes first is an error of the test."""
        self._asked += 1
        message = {"jsonrpc": "2.0", "id": self._asked, "method": method} | ({"params": params} if params else {})
        self.tell(json.dumps(message).encode() + b"\n")
        answer = self.answer()
        assert answer["id"] == self._asked
        assert "result" in answer, answer
        return answer["result"]

    def initialize(self) -> Any:
        """The handshake."""
        result = self.ask("initialize", INITIALIZE)
        self.tell(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return result

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """A tool's text, and whether it is an error."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        (content,) = result["content"]
        return content["text"], result["isError"]


@contextmanager
def over_process(command: Sequence[str]) -> Generator[McpClient, None, None]:
    """Over the pipes of a command, which ends with 0 when its input is closed."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin, process.stdout:
            yield McpClient(process.stdout, process.stdin)
            process.stdin.close()
            assert process.wait(ANSWER_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(ANSWER_SECONDS)


@contextmanager
def over_socket(path: Path) -> Generator[McpClient, None, None]:
    """Over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(str(path))
        with sock.makefile("rb") as reading, sock.makefile("wb") as writing:
            yield McpClient(reading, writing)
