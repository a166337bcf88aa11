"""A plain MCP server on stdio with one trivial tool, as the official SDK's documentation writes it.

Arguments: ``low`` for the low-level server, ``high`` for the one of decorators, then the text that the tool answers.
"""

import sys
from collections.abc import Generator
from typing import Any, Generic, TypeVar

import anyio

_T = TypeVar("_T")


class _Ready(Generic[_T]):
    """What awaits to a value without giving way: a handler that has nothing to wait for should cost nothing more."""

    def __init__(self, value: _T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, _T]:
        yield from ()
        return self._value


async def serve_low(text: str) -> None:
    """The low-level server: what the bridge is built on."""
    from mcp import types  # noqa: PLC0415 -- each kind imports what it needs, and no more
    from mcp.server.lowlevel import Server  # noqa: PLC0415 -- likewise
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 -- likewise

    tool = types.Tool(name="answer", description="Answer.", input_schema={"type": "object"})

    def list_tools(_: Any, __: Any) -> "_Ready[types.ListToolsResult]":
        return _Ready(types.ListToolsResult(tools=[tool]))

    def call_tool(_: Any, __: types.CallToolRequestParams) -> "_Ready[types.CallToolResult]":
        return _Ready(types.CallToolResult(content=[types.TextContent(text=text)]))

    server: Server[Any] = Server("plain", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def serve_high(text: str) -> None:
    """The server of decorators, which checks arguments with pydantic."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 -- likewise

    server = MCPServer("plain")

    def answer(repo: str, body: str, title: str = "", issue_number: int = 0) -> str:
        """Answer."""
        del repo, body, title, issue_number
        return text

    for name in ("forge_comment_on_issue", "forge_create_issue"):
        server.add_tool(answer, name=name)

    await server.run_stdio_async()


if __name__ == "__main__":
    anyio.run(serve_low if sys.argv[1] == "low" else serve_high, sys.argv[2])
