import os
import sys
from pathlib import Path

import pytest
import structlog.testing
import trio
import trio.testing

from compass_forged.errors import ConfigError
from compass_forged.observability import redact
from compass_forged.providers.token_command import REFRESH_SECONDS, CommandToken
from compass_forged.providers.tokens import TOKEN_MAX_BYTES


def script(folder: Path, code: str) -> list[str]:
    path = folder / "print-token"
    path.write_text(code)
    return [sys.executable, "-S", "-E", str(path)]


class Stub(CommandToken):
    """Runs nothing: its answers are given, and the runs counted."""

    def __init__(self, *answers: str | ConfigError) -> None:
        super().__init__(["/bin/tokens"])
        self.answers = list(answers)
        self.runs = 0
        self.seconds = 1.0

    async def _run(self) -> str:
        self.runs += 1
        await trio.sleep(self.seconds)
        answer = self.answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer


async def test_what_the_command_prints_is_the_token_and_never_logged(tmp_path: Path) -> None:
    source = CommandToken([*script(tmp_path, "import sys; print(sys.argv[1] + '-canary')"), "a b"[:1]])
    assert await source.token() == "a-canary"
    assert redact("a-canary") == "[secret]"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import sys; print('canary-secret', file=sys.stderr); sys.exit(3)", "ended with status 3"),
        ("", "is empty"),
        ("print('canary-secret\\ncanary-secret')", "more than one line"),
        (f"print('x' * {TOKEN_MAX_BYTES + 1})", f"printed over {TOKEN_MAX_BYTES} bytes"),
        ("import itertools\nfor _ in itertools.count(): print('canary-secret')", "printed over"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "printed no text"),
        ("import time; time.sleep(30)", "took over 0.3 s"),
    ],
)
async def test_a_command_that_gives_no_token_is_named_without_what_it_said(
    tmp_path: Path, code: str, what: str
) -> None:
    source = CommandToken([*script(tmp_path, code), "--secret=canary-secret"], run_seconds=0.3 if "30" in code else 20)
    with trio.fail_after(25), pytest.raises(ConfigError, match=what) as refused:
        await source.token()
    assert "python" in str(refused.value)
    assert "canary" not in str(refused.value)


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"command no-such-program cannot be started \(No such file"):
        await CommandToken(["/bin/no-such-program", "canary"]).token()


async def test_what_a_cancelled_command_started_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids)!r} + '.new', {str(pids)!r})\n"
        "time.sleep(60)\n"
    )
    source = CommandToken(script(tmp_path, code), run_seconds=30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.token)
        with trio.fail_after(20):
            while not pids.exists():  # noqa: ASYNC110 -- a file of another process
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    for pid in map(int, pids.read_text().split()):
        with trio.fail_after(5):
            while _runs(pid):  # noqa: ASYNC110 -- a grandchild is reaped by whoever adopts it
                await trio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_however_many_ask_it_runs_once_and_again_when_its_time_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Stub("token-one", "token-two")
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(source.token)
    assert source.runs == 1
    await trio.sleep(REFRESH_SECONDS - 2)
    assert await source.token() == "token-one"
    await trio.sleep(2)
    assert await source.token() == "token-two"
    assert source.runs == 2


async def test_a_cancelled_caller_leaves_the_run_to_the_next(autojump_clock: trio.testing.MockClock) -> None:
    source = Stub("token-one", "token-two")
    got: list[str] = []

    async def follower() -> None:
        got.append(await source.token())

    async with trio.open_nursery() as nursery:
        leader = trio.CancelScope()

        async def led() -> None:
            with leader:
                await source.token()

        nursery.start_soon(led)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(follower)
        await trio.testing.wait_all_tasks_blocked()
        leader.cancel()
    assert got == ["token-one"]
    assert source.runs == 2


async def test_a_command_that_fails_later_is_left_alone_while_its_old_token_is_good(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Stub("token-one", ConfigError("token: command tokens ended with status 1"), "token-two")
    await source.token()
    await trio.sleep(REFRESH_SECONDS)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            assert await source.token() == "token-one"
    assert (source.runs, len(logs)) == (2, 1)
    await trio.sleep(30)
    assert await source.token() == "token-two"


async def test_a_refused_token_is_not_used_on(autojump_clock: trio.testing.MockClock) -> None:
    source = Stub("token-one", ConfigError("token: command tokens ended with status 1"), "token-two")
    await source.token()
    source.invalidate()
    with pytest.raises(ConfigError, match="status 1"):
        await source.token()
    assert await source.token() == "token-two"


def test_no_shell_reads_the_command() -> None:
    assert not any(os.sep + "sh" in word for word in CommandToken(["/bin/tokens", "$(x)"])._command)
