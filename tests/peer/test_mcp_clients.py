"""The MCP bridge before what others wrote: the official inspector's command line and conformance suite."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from compass_forged.wire.schema import IssueResult
from tests.support.peer import Node, Package, PeerUnavailable, cache_dir, find_node, free_port, installed
from tests.support.scripted_daemon import Peer, scripted_daemon
from tests.support.tool_world import ISSUE, Transport, tools_over
from tests.support.world import ROOT

pytestmark = pytest.mark.peer

INSPECTOR: Final = Package("@modelcontextprotocol/inspector", "2.12.0", "clients/launcher/build/index.js")
CONFORMANCE: Final = Package("@modelcontextprotocol/conformance", "0.1.16", "dist/index.js")
APPLICABLE: Final = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
"""The scenarios of the suite that are about what the bridge offers; the others want what it has not. See the docs."""
RUN_SECONDS: Final = 60.0


def fetched(package: Package) -> tuple[Node, Path]:
    try:
        node = find_node()
        return node, installed(node, cache_dir(), package)
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def inspector() -> tuple[Node, Path]:
    return fetched(INSPECTOR)


@pytest.fixture(scope="module")
def conformance() -> tuple[Node, Path]:
    return fetched(CONFORMANCE)


def answering(peer: Peer) -> None:
    while (call_id := peer.receive_or_end()) is not None:
        peer.result(call_id, IssueResult(issue=ISSUE))


def inspect(inspector: tuple[Node, Path], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the inspector's command line over our bridge on stdio, before a daemon that answers from a script."""
    node, entry = inspector
    with tempfile.TemporaryDirectory(prefix="mcp-") as folder:
        path = Path(folder, "forge.sock")
        bridge = [sys.executable, "-m", "compass_forged", "mcp", "--socket", str(path)]
        config = Path(folder, "mcp.json")
        server = {"command": bridge[0], "args": bridge[1:], "cwd": str(ROOT), "env": {"PYTHONPATH": str(ROOT)}}
        config.write_text(json.dumps({"mcpServers": {"forge": server}}))
        with scripted_daemon(path, answering):
            return subprocess.run(
                [*node.node, str(entry), "--cli", "--config", str(config), "--server", "forge", *arguments],
                cwd=folder,
                env={"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
                check=False,
            )


def test_the_inspector_lists_the_ten_tools_and_finds_nothing_to_mend(inspector: tuple[Node, Path]) -> None:
    done = inspect(inspector, "--method", "tools/list", "--strict")
    assert done.returncode == 0, done.stderr
    listed: list[dict[str, Any]] = json.loads(done.stdout)["tools"]
    tools = tools_over(Transport())
    assert [tool["name"] for tool in listed] == list(tools)
    for tool in listed:
        assert tool["inputSchema"]["required"] == tools[tool["name"]].parameters["required"]
        assert tool["annotations"]["readOnlyHint"] is (tools[tool["name"]].approval == "read")


def test_the_inspector_calls_a_tool(inspector: tuple[Node, Path]) -> None:
    arguments = ("--tool-name", "forge_get_issue", "--tool-arg", "repo=acme/site", "issue_number=7")
    done = inspect(inspector, "--method", "tools/call", *arguments)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["content"][0]["text"].startswith("Issue #7 in acme/site. ")


def test_the_inspector_is_told_what_is_wrong_with_a_call(inspector: tuple[Node, Path]) -> None:
    arguments = ("--tool-name", "forge_get_issue", "--tool-arg", "repo=acme/site", "issue_number=0")
    done = inspect(inspector, "--method", "tools/call", *arguments)
    assert "issue_number: expected an integer from 1 to 2^63-1" in done.stdout + done.stderr


# --- the conformance suite ------------------------------------------------------------------------------------------


@contextmanager
def adapter() -> Iterator[str]:
    """The URL of the bridge behind HTTP, which is for this suite alone."""
    port = free_port()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mcp_http", str(port)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            deadline = time.monotonic() + RUN_SECONDS
            while not _answers(url):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield url
        finally:
            process.kill()
            process.wait(RUN_SECONDS)


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=1, trust_env=False)
    except httpx.ReadTimeout:
        return True
    except httpx.HTTPError:
        return False
    return True


def run_suite(conformance: tuple[Node, Path], url: str, scenario: str) -> "subprocess.CompletedProcess[str]":
    node, entry = conformance
    return subprocess.run(
        [*node.node, str(entry), "server", "--url", url, "--scenario", scenario],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def url(conformance: tuple[Node, Path]) -> Iterator[str]:
    with adapter() as found:
        yield found


@pytest.mark.parametrize("scenario", APPLICABLE)
def test_a_scenario_of_the_conformance_suite_passes(conformance: tuple[Node, Path], url: str, scenario: str) -> None:
    done = run_suite(conformance, url, scenario)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"Passed: (\d+)/(\d+), 0 failed", done.stdout)
    assert passed, done.stdout
    assert passed[1] == passed[2] != "0"


def test_the_docs_name_every_scenario_as_applicable_or_say_why_not(conformance: tuple[Node, Path]) -> None:
    node, entry = conformance
    listed = subprocess.run(
        [*node.node, str(entry), "list", "--server"], capture_output=True, text=True, timeout=RUN_SECONDS, check=True
    )
    scenarios = set(re.findall(r"^ *- ([a-z0-9-]+)", listed.stdout, re.MULTILINE))
    told = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    section = told.partition("### The conformance suite")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert scenarios == {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row.rpartition(" | ")[2])}
    applicable = section.partition("| applies |")[2].partition("\n")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", applicable)) == set(APPLICABLE)
