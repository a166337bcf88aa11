"""The ten tools over MCP, with the official SDK: lines of JSON to a server, over stdio or any stream of bytes.

Importing this package needs the ``mcp`` extra; nothing else of the agent library imports it.
"""
