"""The MCP bridge over HTTP, for the conformance suite alone, which speaks nothing else.

``python -m tests.support.mcp_http PORT``: one server on loopback, whose tools are answered from a script. Two of the
suite's scenarios call a tool by a name of theirs: those names stand for tools of ours, which run as ever.
"""

import sys
from dataclasses import replace
from typing import Any, Final

import uvicorn

from compass_forged.agent import AgentTool, ForgeBroker, create_forge_tools
from compass_forged.agent.mcp.server import server_of
from compass_forged.wire.schema import IssueResult
from tests.support.tool_world import ISSUE, Transport

READS: Final = "forge_get_issue"
NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def alias(tool: AgentTool, name: str, parameters: dict[str, Any]) -> AgentTool:
    """``tool`` under another name, called with these parameters whatever it is given."""

    async def run(tool_call_id: str, _: object) -> str:
        return await tool.execute(tool_call_id, parameters)

    return replace(tool, name=name, parameters=NO_PARAMETERS, _run=run)


def offered() -> list[AgentTool]:
    """The ten tools, and the two names of the suite."""
    tools = create_forge_tools(ForgeBroker(Transport(IssueResult(issue=ISSUE))))
    read = next(tool for tool in tools if tool.name == READS)
    return [
        *tools,
        alias(read, "test_simple_text", {"repo": "acme/site", "issue_number": 7}),
        alias(read, "test_error_handling", {"repo": "acme/site", "issue_number": 0}),
    ]


if __name__ == "__main__":
    app = server_of(offered()).streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
