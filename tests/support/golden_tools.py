"""What a model sees of the ten tools, kept in ``tests/agent/golden``: schemas and descriptions, and a transcript each.

After a deliberate change: ``python -m tests.support.golden_tools``, and read the difference.
"""

import json
import re
from pathlib import Path

import trio

from tests.support.tool_world import ANSWERS, Transport, tool, tools_over

GOLDEN = Path(__file__).parent.parent / "agent" / "golden"
NONCE = "3f9a1c2e"
"""Stands in a transcript for the nonce that was drawn."""


def definitions() -> dict[str, str]:
    """One JSON text for each tool, by its file's name."""
    return {
        f"{name}.json": json.dumps(
            {
                "name": name,
                "label": made.label,
                "approval": made.approval,
                "description": made.description,
                "parameters": made.parameters,
                "strict_parameters": made.strict_parameters,
            },
            indent=2,
        )
        + "\n"
        for name, made in tools_over(Transport()).items()
    }


def transcripts() -> dict[str, str]:
    """One text for each tool, by its file's name."""
    return {f"{name}.txt": trio.run(_transcript, name) for name in ANSWERS}


async def _transcript(name: str) -> str:
    parts = []
    for scene, parameters, answer in ANSWERS[name]:
        text = await tool(name, answer).execute("call_1", parameters)
        if drawn := re.search(r"'--- ([0-9a-f]{8})'", text):
            text = text.replace(drawn[1], NONCE)
        parts.append(f"# {scene}\n\n> {name} {json.dumps(parameters)}\n\n{text}\n")
    return "\n\n".join(parts)


if __name__ == "__main__":
    for file, content in (definitions() | transcripts()).items():
        (GOLDEN / file).write_text(content, encoding="utf-8")
