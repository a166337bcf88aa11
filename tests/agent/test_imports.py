"""What importing the agent library brings into a process, and the tree of its errors."""

import json
import subprocess
import sys

import compass_forged.agent
from compass_forged.agent import AgentError, CallRefused

_LIST_MODULES = "import json, sys, compass_forged.agent; print(json.dumps(sorted(sys.modules)))"


def test_the_agent_library_loads_neither_a_loop_nor_anything_of_the_daemon() -> None:
    done = subprocess.run([sys.executable, "-c", _LIST_MODULES], capture_output=True, text=True, check=True, timeout=60)
    modules: list[str] = json.loads(done.stdout)
    ours = {name for name in modules if name.partition(".")[0] == "compass_forged"}
    assert "compass_forged.agent.client" in ours
    rooms = {".".join(name.split(".")[:2]) for name in ours}
    assert rooms == {"compass_forged", "compass_forged.agent", "compass_forged.wire"}
    others = {name.partition(".")[0] for name in modules} & {
        "asyncpg",
        "click",
        "h11",
        "httpcore",
        "httpx",
        "mcp",
        "rich",
        "structlog",
        "trio",
        "trio_asyncio",
    }
    assert others == set()


def test_every_public_name_is_there() -> None:
    assert all(hasattr(compass_forged.agent, name) for name in compass_forged.agent.__all__)


def test_every_error_of_the_library_can_be_caught_as_one_and_tells_its_code() -> None:
    errors = [
        item
        for name in compass_forged.agent.__all__
        if isinstance(item := getattr(compass_forged.agent, name), type) and issubclass(item, Exception)
    ]
    assert len(errors) == 12
    assert all(issubclass(error, AgentError) for error in errors)
    refused = CallRefused("why")
    assert (refused.code, refused.message, refused.retry_after_ms, str(refused)) == (
        "invalid_argument",
        "why",
        0,
        "invalid_argument: why",
    )
