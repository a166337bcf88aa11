"""The command line in this process: what each error becomes, and how results and states are shown."""

import gc
import importlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Self

import click
import pytest
import structlog.testing
import trio
import trio.testing

from compass_forged import __main__ as entry
from compass_forged import __version__
from compass_forged.agent import AgentError, ForgeCall
from compass_forged.agent.errors import DaemonUnreachable as AgentUnreachable
from compass_forged.agent.errors import ForgeCallFailed
from compass_forged.cli import call as call_module
from compass_forged.cli import common
from compass_forged.cli import main as main_module
from compass_forged.config import Config
from compass_forged.control.client import ControlRefused, DaemonUnreachable
from compass_forged.control.schema import ContainerState, CounterRow, CredentialState, SessionState, StatusReply
from compass_forged.errors import ConfigError, ForgedError, RestartsExhausted, StartError, StoreUnavailable
from compass_forged.store.postgres import open_postgres_store
from compass_forged.wire import schema
from compass_forged.wire.schema import Attribution, Comment, ForgeAccount, ForgeRef, Issue, PullRequest
from tests.support.postgres import empty_database
from tests.support.stores import authored, bind, issue
from tests.support.world import AUTHOR_TOKEN, place

Answer = Callable[..., Any]


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logging of this process is left alone; with which level the commands would have set it up."""
    levels: list[str] = []
    monkeypatch.setattr(main_module, "configure_logging", lambda _form, level, _stream: levels.append(level))
    monkeypatch.setattr(sys, "argv", ["compass-forged"])
    monkeypatch.delenv("FORGED_CONFIG", raising=False)
    return levels


class Daemon:
    """Stands in for the control socket: answers what a test says, and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, tuple[object, ...], dict[str, object]]] = []
        self.path = Path()

    def __call__(self, path: Path) -> Self:
        self.path = path
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Answer:
        def answer(*arguments: object, **named: object) -> object:
            self.asked.append((name, arguments, named))
            found = self.answers[name]
            if isinstance(found, BaseException):
                raise found
            return found

        return answer


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    stand_in = Daemon()
    monkeypatch.setattr(common, "ControlClient", stand_in)
    return stand_in


def run(*words: str) -> int:
    return main_module.run(list(words))


def steer(*words: str) -> int:
    return run(*words, "--run-dir", "/run/forged")


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DaemonUnreachable("no daemon at /run"), 69, "no daemon at /run"),
        (ControlRefused("invalid_argument", "name: too long"), 2, "name: too long"),
        (ControlRefused("not_found", "no container box"), 1, "no container box"),
        (ControlRefused("conflict", "already bound"), 1, "already bound"),
        (ConfigError("host_id: missing"), 2, "host_id: missing"),
        (StartError("the port is taken"), 1, "the port is taken"),
        (RestartsExhausted("it crashed too often"), 70, "it crashed too often"),
        (StoreUnavailable("a\nb\x1b[31m"), 1, "a b[31m"),
        (ExceptionGroup("g", [StartError("one"), ExceptionGroup("h", [ConfigError("two")])]), 1, "one"),
        (ExceptionGroup("g", [ExceptionGroup("h", [ConfigError("two")]), StartError("one")]), 2, "two"),
        (click.Abort(), 1, "interrupted"),
        (common.Exit("no", 7), 7, "no"),
    ],
    ids=repr,
)
def test_each_error_is_one_line_and_a_code(
    error: BaseException, code: int, said: str, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers["status"] = error
    assert steer("status") == code
    assert capsys.readouterr() == ("", f"compass-forged: {said}\n")


def test_an_interrupt_begins_a_line_of_its_own(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["status"] = KeyboardInterrupt()
    assert steer("status") == 1
    assert capsys.readouterr() == ("", "\ncompass-forged: interrupted\n")  # after the terminal's own ^C


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (ExceptionGroup("g", [StartError("one"), KeyError("x")]), "ExceptionGroup: g (2 sub-exceptions)"),
        (ValueError("a\nb\x1b[31m"), "ValueError: a b[31m"),
    ],
)
def test_what_nobody_foresaw_is_internal(
    error: Exception, said: str, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers["status"] = error
    assert steer("status") == 70
    assert capsys.readouterr() == ("", f"compass-forged: internal error: {said} (--debug shows where)\n")


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), StartError("by zero")])
def test_debug_shows_where(
    error: Exception, daemon: Daemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--debug", "status", "--run-dir", "/run/forged"]
    monkeypatch.setattr(sys, "argv", ["compass-forged", *words])
    daemon.answers["status"] = error
    assert run(*words) == (1 if isinstance(error, ForgedError) else 70)
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "by zero" in said.splitlines()[-1]


def test_usage_is_clicks_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nonsense") == 2
    assert "No such command 'nonsense'" in capsys.readouterr().err
    assert (
        run("session", "bind", "box", "s-1", "--agent", "a", "--owner", "o", "--scope", "x", "--no-repositories") == 2
    )
    assert "not both" in capsys.readouterr().err


def test_main_exits_with_the_code(capsys: pytest.CaptureFixture[str], configured: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main_module.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"compass-forged, version {__version__}\n"
    assert configured == []
    with pytest.raises(SystemExit) as ended:
        main_module.main(["nonsense"])
    assert ended.value.code == 2


# --- what is not installed ------------------------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, package: str, *modules: str) -> None:
    """Have ``package`` as if it were not installed, and ``modules`` as if they had not been imported yet."""
    monkeypatch.setitem(sys.modules, package, None)
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize(
    ("words", "package", "module", "extra"),
    [
        (["serve"], "trio", "compass_forged.cli.serve", "daemon"),
        (["db", "status"], "trio", "compass_forged.cli.store", "daemon"),
        (["db", "migrate"], "trio", "compass_forged.cli.store", "daemon"),
        (["artifacts"], "trio", "compass_forged.cli.store", "daemon"),
        (["demo"], "trio", "compass_forged.demo.run", "demo"),
    ],
)
def test_a_missing_extra_is_named(
    words: list[str],
    package: str,
    module: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    without(monkeypatch, package, module)
    assert run(*words) == 2
    said = f"compass-forged: {package} is not installed; pip install 'compass-forged[{extra}]'\n"
    assert capsys.readouterr() == ("", said)


def test_checking_a_configuration_names_the_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with place() as where:
        where.configure("http://127.0.0.1:1", store='"memory"')
        without(monkeypatch, "trio")
        assert run("config", "check", "--config", str(where.config)) == 2
    assert capsys.readouterr().err == "compass-forged: trio is not installed; pip install 'compass-forged[daemon]'\n"


def test_the_library_alone_says_what_the_commands_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "click", "compass_forged.cli.main")
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "compass-forged: click is not installed; pip install 'compass-forged[daemon]'\n"


def test_the_entry_point_runs_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    monkeypatch.setattr(main_module, "main", lambda: runs.append("main"))
    entry.main()
    assert runs == ["main"]


# --- steering a daemon ----------------------------------------------------------------------------------------------


BOX = ContainerState(name="box", socket="/run/box.sock", listening=True)
BOUND = ContainerState(
    name="den",
    socket="/run/den.sock",
    listening=False,
    allowed_uids=[1000, 1001],
    connections=2,
    session=SessionState(session_id="s-1", agent="scout", owner="ada", scope=["github/acme/*", "github/x/y"]),
)
FREE = ContainerState(
    name="hut", socket="/s", listening=True, session=SessionState(session_id="s-2", agent="a", owner="o")
)
SHUT = ContainerState(
    name="cell", socket="/s", listening=True, session=SessionState(session_id="s-3", agent="a", owner="o", scope=[])
)


def test_containers_are_opened_and_closed(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers.update(open_container=BOX, close_container=None)
    assert steer("container", "open", "box", "--uid", "1000", "--uid", "7", "--group", "123") == 0
    assert steer("container", "open", "box", "--group", "root") == 0
    assert steer("container", "close", "box") == 0
    assert capsys.readouterr().out == "/run/box.sock\n/run/box.sock\nclosed box\n"
    assert daemon.asked == [
        ("open_container", ("box",), {"allowed_uids": (1000, 7), "socket_group": 123}),
        ("open_container", ("box",), {"allowed_uids": (), "socket_group": 0}),
        ("close_container", ("box",), {}),
    ]
    assert daemon.path == Path("/run/forged/control.sock")
    assert steer("container", "open", "box", "--group", "no-such-group") == 2
    assert "no group 'no-such-group' on this host" in capsys.readouterr().err


def test_containers_and_sessions_are_listed(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["list_containers"] = [BOX, BOUND, FREE, SHUT]
    assert steer("container", "list") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["box", "/run/box.sock", "any", "0", "-"]
    assert rows[2] == ["den", "/run/den.sock", "(down)", "1000,1001", "2", "s-1"]
    assert steer("session", "list") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["s-1", "den", "scout", "ada", "github/acme/*,github/x/y"],
        ["s-2", "hut", "a", "o", "all"],
        ["s-3", "cell", "a", "o", "nothing"],
    ]
    assert steer("container", "list", "--json") == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == ["box", "den", "hut", "cell"]
    assert steer("session", "list", "--json") == 0
    assert [item["session"]["session_id"] for item in json.loads(capsys.readouterr().out)] == ["s-1", "s-2", "s-3"]


@pytest.mark.parametrize(
    ("options", "scope", "state", "said"),
    [
        ([], None, FREE, "hut: session s-2, agent a of o, all repositories"),
        (["--no-repositories"], [], SHUT, "cell: session s-3, agent a of o, no repositories"),
        (
            ["--scope", "github/acme/*", "--scope", "github/x/y"],
            ["github/acme/*", "github/x/y"],
            BOUND,
            "den: session s-1, agent scout of ada, github/acme/*, github/x/y",
        ),
    ],
)
def test_a_session_is_bound_within_its_scope(
    options: list[str],
    scope: list[str] | None,
    state: ContainerState,
    said: str,
    daemon: Daemon,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daemon.answers["bind_session"] = state
    assert steer("session", "bind", "box", "s-1", "--agent", "scout", "--owner", "ada", *options) == 0
    assert capsys.readouterr().out == f"{said}\n"
    assert daemon.asked == [("bind_session", ("box", "s-1"), {"agent": "scout", "owner": "ada", "scope": scope})]


def test_a_session_is_unbound(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["unbind_session"] = BOX
    assert steer("session", "unbind", "box") == 0
    assert capsys.readouterr().out == "box: no session\n"


def status(**more: Any) -> StatusReply:
    plain: dict[str, Any] = {
        "version": "1", "pid": 9, "host_id": "h", "store": "memory", "store_available": True, "draining": False,
        "containers": 1, "sessions": 2, "calls_in_flight": 3,
    }  # fmt: skip
    return StatusReply(**{**plain, **more})


def test_the_state_of_an_idle_daemon_is_three_lines(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["status"] = status()
    assert steer("status") == 0
    assert capsys.readouterr().out.splitlines() == [
        "compass-forged 1, pid 9, host h: serving",
        "store memory (reachable); forges none",
        "containers 1, sessions 2, calls in flight 3",
    ]


def test_what_is_wrong_with_a_daemon_stands_out(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    common_state: dict[str, Any] = {"forge": "github:github.com", "in_flight": 1, "waiting": 2}
    daemon.answers["status"] = status(
        draining=True,
        store_available=False,
        forges=["github:github.com"],
        credentials=[
            CredentialState(
                role="author",
                account="ada",
                broken=True,
                closed_for=5.0,
                points_last_minute=5,
                creations_last_hour=1,
                **common_state,
            ),
            CredentialState(
                role="reviewer", broken=False, closed_for=2.5, remaining=7, limit=9, resets_in=60.0, **common_state
            ),
            CredentialState(role="reader", broken=False, closed_for=0.0, remaining=7, **common_state),
            CredentialState(
                role="a", broken=False, closed_for=1.0, paused_for=59.5, on_trial=True, remaining=7, **common_state
            ),
            CredentialState(role="b", broken=False, closed_for=0.0, on_trial=True, remaining=7, **common_state),
        ],
        counters=[CounterRow(name="calls", labels={"arm": "get_issue", "code": "ok"}, count=4)],
    )
    assert steer("status") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith(": draining")
    assert lines[1] == "store memory (OUT OF REACH); forges github:github.com"
    assert lines[4:9] == [
        "github:github.com author ada REFUSED - - 5 1 1 2",
        "github:github.com reviewer not known closed for 2.5 s 7 of 9 60 s 0 0 1 2",
        "github:github.com reader not known open 7 of ? - 0 0 1 2",
        "github:github.com a not known WRITES PAUSED for 59.5 s 7 of ? - 0 0 1 2",
        "github:github.com b not known writes one at a time 7 of ? - 0 0 1 2",
    ]
    assert lines[10] == "calls arm=get_issue code=ok 4"
    assert steer("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["store_available"] is False


def test_the_configuration_says_where_the_daemon_is(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["list_containers"] = []
    with place() as where:
        where.configure("http://127.0.0.1:1", store='{ env = "NOT_SET" }')
        assert run("container", "list", "--json", "--config", str(where.config)) == 0
        assert daemon.path == where.run_dir / "control.sock"
    assert capsys.readouterr().out == "[]\n"


# --- configuration, store, daemon -----------------------------------------------------------------------------------


def test_a_configuration_is_checked_and_shown_without_secrets(
    capsys: pytest.CaptureFixture[str], configured: list[str]
) -> None:
    with place() as where:
        where.configure("http://127.0.0.1:1", store='"memory"')
        assert run("config", "check", "--config", str(where.config)) == 0
        assert capsys.readouterr().out == f"{where.config}: ok; forges: github at forge.test\n"
        assert run("config", "show", "--config", str(where.config)) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["host_id"] == "host-1"
    assert AUTHOR_TOKEN not in shown
    assert configured == ["warning", "warning"]


@pytest.fixture
def quiet() -> Generator[None, None, None]:
    with structlog.testing.capture_logs():
        yield


@pytest.mark.postgres
@pytest.mark.usefixtures("quiet")
def test_the_schema_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEST_DSN", empty_database())
    path = tmp_path / "config.toml"
    path.write_text('store = { env = "TEST_DSN" }\n')
    assert run("db", "status", "--config", str(path)) == 1
    before = capsys.readouterr()
    assert {line.split()[1] for line in before.out.splitlines()} == {"pending"}
    assert "compass-forged db migrate" in before.err
    assert run("db", "migrate", "--config", str(path)) == 0
    assert capsys.readouterr().out.startswith("applied 0001 init\n")
    assert run("db", "migrate", "--config", str(path)) == 0
    assert capsys.readouterr().out == "nothing to apply\n"
    assert run("db", "status", "--json", "--config", str(path)) == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"applied"}


async def fill(dsn: str) -> None:
    """An index of five artifacts of two agents."""
    async with open_postgres_store(dsn, connections=1) as store:
        scout = (await bind(store, "scout", "ada")).account
        scribe = (await bind(store, "scribe", "bob", container="c2", session="s-2")).account
        for number in (1, 2, 3):
            created = f"2026-08-17T10:00:0{number}Z"
            await store.record_authored_artifact(authored(issue(number), scout, f"key-{number}", created_at=created))
        sea = issue(4, repo="SEA", provider="linear")
        await store.record_authored_artifact(authored(sea, scribe, session_id="s-2", created_at="2026-08-17T11:00:00Z"))
        pull = issue(5, kind="pull_request")
        await store.record_authored_artifact(
            authored(pull, scribe, session_id="s-2", url="https://x/\x1b[31m5", created_at="2026-08-17T09:00:00Z")
        )


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a configuration whose store has an index."""
    dsn = empty_database()
    trio.run(fill, dsn)
    monkeypatch.setenv("TEST_DSN", dsn)
    path = tmp_path / "config.toml"
    path.write_text('store = { env = "TEST_DSN" }\n')
    return str(path)


@pytest.mark.postgres
@pytest.mark.usefixtures("quiet")
def test_artifacts_are_shown_with_who_wrote_them_the_newest_first(
    indexed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("artifacts", "--config", indexed) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["CREATED", "AGENT", "OWNER", "SESSION", "KIND", "ARTIFACT", "URL"]
    assert [line[5] for line in lines[1:]] == ["SEA#4", "Acme/app#3", "Acme/app#2", "Acme/app#1", "Acme/app#5"]
    assert lines[1][:5] == ["2026-08-17T11:00:00Z", "scribe", "bob", "s-2", "issue"]
    assert lines[2][1:3] == ["scout", "ada"]
    assert lines[5][4] == "pull_request"
    assert "\x1b" not in said.out


@pytest.mark.postgres
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--agent", "scout"], [3, 2, 1]),
        (["--repo", "sea"], [4]),
        (["--agent", "scribe", "--repo", "ACME/app"], [5]),
        (["--agent", "nobody"], []),
    ],
)
def test_artifacts_are_narrowed_by_agent_and_repository(
    indexed: str, capsys: pytest.CaptureFixture[str], options: list[str], numbers: list[int]
) -> None:
    assert run("artifacts", "--config", indexed, "--json", *options) == 0
    assert [row["number"] for row in json.loads(capsys.readouterr().out)] == numbers


@pytest.mark.postgres
@pytest.mark.usefixtures("quiet")
def test_a_shortened_list_of_artifacts_says_so(indexed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("artifacts", "--config", indexed, "--json", "--limit", "1", "--agent", "scout") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == [
        {
            "forge": {"provider": "github", "host": "github.com"},
            "repo": "Acme/app",
            "kind": "issue",
            "number": 3,
            "url": "https://github.com/acme/app/3",
            "agent": "scout",
            "owner": "ada",
            "session": "s-1",
            "client_request_id": "key-3",
            "created_at": "2026-08-17T10:00:03Z",
        }
    ]
    assert said.err == "compass-forged: these are the newest 1; --limit shows more\n"
    assert run("artifacts", "--config", indexed, "--json", "--limit", "3", "--agent", "scout") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.postgres
@pytest.mark.usefixtures("quiet")
def test_artifacts_of_a_store_that_is_not_there_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEST_DSN", empty_database())
    path = tmp_path / "config.toml"
    path.write_text('store = { env = "TEST_DSN" }\n')
    assert run("artifacts", "--config", str(path)) == 1
    assert "run compass-forged db migrate" in capsys.readouterr().err
    path.write_text('store = "memory"\n')
    assert run("artifacts", "--config", str(path)) == 2
    assert "memory store has no database" in capsys.readouterr().err
    assert run("artifacts", "--limit", "0") == 2
    assert "--limit" in capsys.readouterr().err


def test_serve_runs_the_daemon_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("compass_forged.cli.serve")
    order: list[object] = []

    async def serve(config: Config, *, task_status: trio.TaskStatus[None]) -> None:
        order.append(config.run_dir)
        task_status.started()
        await trio.testing.wait_all_tasks_blocked()
        order.append("ended")

    monkeypatch.setattr(module, "serve", serve)
    monkeypatch.setattr(module, "configure_logging", lambda form, level, _stream: order.append((form, level)))
    monkeypatch.setattr(gc, "freeze", lambda: order.append("frozen"))
    with place() as where:
        where.configure("http://127.0.0.1:1", store='"memory"')
        assert run("serve", "--config", str(where.config)) == 0
        assert order == [("json", "info"), str(where.run_dir), "frozen", "ended"]
        monkeypatch.chdir(where.root)
        assert run("serve", "--config", str(where.config), "--run-dir", "other") == 0
        assert order[5] == str(where.root / "other")  # absolute, as clients are told it


def test_demo_is_told_whether_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    stays: list[bool] = []
    monkeypatch.setattr(
        importlib.import_module("compass_forged.demo.run"), "run_demo", lambda *, keep: stays.append(keep)
    )
    assert (run("demo"), run("demo", "--keep")) == (0, 0)
    assert stays == [False, True]


# --- one call -------------------------------------------------------------------------------------------------------


class Container:
    """Stands in for a container's socket."""

    def __init__(self, result: schema.ResultArm | AgentError) -> None:
        self.result = result
        self.calls: list[ForgeCall] = []

    def __call__(self, _path: Path) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def forge(self, call: ForgeCall) -> schema.ResultArm:
        self.calls.append(call)
        if isinstance(self.result, AgentError):
            raise self.result
        return self.result


def ask(monkeypatch: pytest.MonkeyPatch, container: Container, *words: str) -> int:
    monkeypatch.setattr("compass_forged.agent.SyncForgeClient", container)
    return run("call", *words, "--socket", "/run/box.sock")


HUB = ForgeRef("github", "github.com")
ISSUE = Issue(forge=HUB, repo="acme/site", number=7, title="A\ntitle", state="open", url="https://x/7")
FULL = Issue(
    forge=HUB, repo="acme/site", number=7, title="T", state="closed", url="https://x/7", labels=["bug", "docs"],
    author=ForgeAccount("ada"), attribution=Attribution("scout", "ada", "s-1", verified=True), warnings=["a\x1b[2Jb"],
    body="one\r\ntwo\x1b[31m", comments_total=3,
    comments=[Comment(id="1", author=ForgeAccount("bob"), body="hi\x07", url="https://x/c", created_at="2026")],
)  # fmt: skip
CLAIMED = Issue(forge=HUB, repo="a/b", number=1, attribution=Attribution("scout", "ada", "s-1"))
MEMO = Issue(forge=HUB, repo="a/b", number=1, url="https://x/1", replayed=True)
OTHER = Issue(forge=HUB, repo="a/b", number=1, url="https://x/1", replayed=True, replay_mismatch=True)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (schema.IssueResult(issue=ISSUE), "acme/site#7  open  A title\nhttps://x/7\nauthor nobody; labels none\n"),
        (
            schema.IssueResult(issue=FULL),
            (
                "acme/site#7  closed  T\nhttps://x/7\nauthor ada; labels bug, docs\n"
                "written by agent scout of ada in session s-1 (verified)\nwarning: a[2Jb\n\none\ntwo[31m\n"
                "\n--- bob, 2026\nhi\n\n(2 older comments are not shown)\n"
            ),
        ),
        (
            schema.IssueResult(issue=CLAIMED),
            (
                "a/b#1    \n\nauthor nobody; labels none\n"
                "written by agent scout of ada in session s-1 (a claim in the text)\n"
            ),
        ),
        (schema.IssueResult(issue=MEMO), "a/b#1 was created by an earlier attempt: https://x/1\n"),
        (
            schema.IssueResult(issue=OTHER),
            "a/b#1 was created by an earlier attempt (the key was used for another request): https://x/1\n",
        ),
        (
            schema.PullRequestResult(pull_request=PullRequest(forge=HUB, repo="a/b", number=2, title="P")),
            "a/b#2    P\n\nauthor nobody; labels none\n",
        ),
        (
            schema.IssueCommentResult(comment=schema.CommentRef(url="https://x/c\x1b", comment_id="1")),
            "commented: https://x/c\n",
        ),
        (
            schema.PullRequestCommentResult(comment=schema.CommentRef(url="https://x/c", comment_id="1")),
            "commented: https://x/c\n",
        ),
        (
            schema.ReviewResult(review=schema.ReviewRef(url="https://x/r", review_id="1", verdict="approve")),
            "approve: https://x/r\n",
        ),
        (
            schema.IssuesResult(items=[FULL, ISSUE], next_cursor="i1~x"),
            "#7  closed  T  [bug, docs]\n#7  open  A title\nmore: cursor=i1~x\n",
        ),
        (schema.IssuesResult(items=[]), ""),
        (schema.SubscribedResult(subscription_id="sub-1"), "subscribed: sub-1\n"),
        (schema.UnsubscribedResult(), "unsubscribed\n"),
    ],
)
def test_each_result_is_shown(
    result: schema.ResultArm, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    container = Container(result)
    assert ask(monkeypatch, container, "get_issue", "repo=acme/site", "issue_number=7") == 0
    assert capsys.readouterr() == (said, "")
    assert container.calls[0].arm == schema.GetIssue(repo="acme/site", issue_number=7)
    assert ask(monkeypatch, container, "get_issue", "repo=acme/site", "issue_number=7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["arm"] == result.__struct_config__.tag


def test_a_result_that_is_an_error_fails() -> None:
    with pytest.raises(common.Exit, match="not_found: no such issue") as failed:
        call_module._show(schema.ErrorResult(code="not_found", message="no\nsuch issue"))
    assert failed.value.code == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ForgeCallFailed("unavailable", "no answer", retry_after_ms=1500, outcome="unknown"),
            1,
            "unavailable: no answer (outcome unknown, retry after 1500 ms)",
        ),
        (ForgeCallFailed("not_found", "no\nsuch issue"), 1, "not_found: no such issue"),
        (AgentUnreachable("/run/box.sock", "nobody listens", transient=False), 69, None),
    ],
)
def test_a_call_that_fails_is_one_line_and_in_json_an_object(
    error: AgentError, code: int, said: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    container = Container(error)
    assert ask(monkeypatch, container, "get_issue", "repo=a/b", "issue_number=7") == code
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err.count("\n") == 1
    if said is not None:
        assert plain.err == f"compass-forged: {said}\n"
    assert ask(monkeypatch, container, "get_issue", "repo=a/b", "issue_number=7", "--json") == code
    told = json.loads(capsys.readouterr().out)
    assert (told["arm"], told["code"], told["outcome"]) == ("error", error.code, error.outcome)


def test_a_call_carries_what_was_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = tmp_path / "body.md"
    body.write_bytes(b"one\r\ntwo")
    container = Container(schema.UnsubscribedResult())
    words = ("repo=a/b", "title=@@home", f"body=@{body}", "labels=x", "labels=y=z")
    options = ("--key", "k-1", "--forge", "github:ghe.test", "--timeout", "1.5")
    assert ask(monkeypatch, container, "create_issue", *words, *options) == 0
    sent = container.calls[0]
    assert sent.arm == schema.CreateIssue(repo="a/b", title="@home", body="one\r\ntwo", labels=["x", "y=z"])
    assert sent.forge == schema.ForgeSelector("github", "ghe.test")
    assert (sent.client_request_id, sent.timeout_ms) == ("k-1", 1500)
    review = ("repo=a/b", "pull_number=1", "verdict=approve", 'comments=[{"path": "a", "line": 3, "body": "b"}]')
    assert ask(monkeypatch, container, "submit_review", *review) == 0
    arm = container.calls[1].arm
    assert isinstance(arm, schema.SubmitReview)
    assert arm.comments == [schema.InlineComment(path="a", line=3, body="b")]
    assert (container.calls[1].forge, container.calls[1].timeout_ms) == (None, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create_issue", "repo"], "'repo' is no KEY=VALUE"),
        (["create_issue", "titel=x"], "create_issue has no field 'titel'; did you mean title?"),
        (["unsubscribe", "zzz=x"], "unsubscribe has no field 'zzz'; known: subscription_id"),
        (["create_issue", "repo=a/b", "repo=a/c"], "repo is given twice"),
        (
            ["get_issue", "repo=a/b", "issue_number=seven"],
            "get_issue: issue_number: expected a whole number, got a text",
        ),
        (["get_issue", "repo=a/b"], "get_issue: issue_number: missing"),
        (
            ["create_issue", "repo=a/b", "title=@/no/such/file"],
            "Error: title: /no/such/file: No such file or directory; to begin a value with @, write @@",
        ),
        (["create_issue", "repo=a/b", "title=@/proc/self/exe"], "/proc/self/exe: is no UTF-8; to begin"),
        (
            ["submit_review", "repo=a/b", "pull_number=1", "verdict=approve", "comments=[1]"],
            "submit_review: comments[0]: expected an object, got a whole number",
        ),
        (["submit_review", "comments=[{"], "comments: not valid JSON"),
    ],
)
def test_what_is_typed_wrong_is_not_sent(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    container = Container(schema.UnsubscribedResult())
    assert ask(monkeypatch, container, *words) == 2
    assert said in capsys.readouterr().err
    assert container.calls == []
