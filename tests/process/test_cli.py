"""The command line against a real daemon and the bundled forge in a process of its own."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compass_forged.emulator.seed import default_seed
from tests.support.postgres import empty_database
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, ROOT, Place, daemon, place, run_cli

pytestmark = [pytest.mark.process, pytest.mark.postgres]


@dataclass
class Shell:
    """Runs commands against one daemon."""

    where: Place

    def run(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return run_cli(*words, environ={"FORGED_CONFIG": str(self.where.config)}, stdin=stdin)

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def refused(self, status: int, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr

    def call(self, *words: str) -> tuple[str, ...]:
        return ("call", *words, "--socket", str(self.where.socket("box")))


@pytest.fixture(scope="module")
def shell() -> Generator[Shell, None, None]:
    with place() as where:
        seed = where.root / "seed.json"
        seed.write_text(json.dumps(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN})))
        forge = subprocess.Popen(
            [sys.executable, "-m", "compass_forged.emulator", "--seed", str(seed), "--dir", str(where.root)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert forge.stdout is not None
            url = json.loads(forge.stdout.readline())["url"]
            where.configure(url, store='"memory"')
            with daemon(where):
                found = Shell(where)
                found.ok("container", "open", "box")
                found.ok("session", "bind", "box", "s-1", "--agent", "scout", "--owner", "ada")
                yield found
        finally:
            forge.terminate()
            forge.communicate(timeout=30)
            assert forge.returncode == 0


def test_containers_are_opened_listed_and_closed_again_and_again(shell: Shell) -> None:
    path = shell.ok("container", "open", "tmp-1", "--uid", "0", "--uid", "1000").strip()
    assert path == str(shell.where.socket("tmp-1"))
    assert shell.ok("container", "open", "tmp-1", "--uid", "0", "--uid", "1000").strip() == path
    listed = json.loads(shell.ok("container", "list", "--json"))
    (one,) = [item for item in listed if item["name"] == "tmp-1"]
    assert (one["listening"], one["allowed_uids"]) == (True, [0, 1000])
    assert "tmp-1" in shell.ok("container", "list")
    shell.ok("container", "close", "tmp-1")
    shell.ok("container", "close", "tmp-1")
    assert not Path(path).parent.exists()
    assert "tmp-1" not in shell.ok("container", "list")


def test_sessions_are_bound_listed_and_unbound(shell: Shell) -> None:
    shell.ok("container", "open", "tmp-2")
    said = shell.ok("session", "bind", "tmp-2", "s-2", "--agent", "mole", "--owner", "bob", "--scope", "github/acme/*")
    assert said == "tmp-2: session s-2, agent mole of bob, github/acme/*\n"
    assert "mole" in shell.ok("session", "list")
    listed = json.loads(shell.ok("session", "list", "--json"))
    assert [item["session"]["scope"] for item in listed if item["container"] == "tmp-2"] == [["github/acme/*"]]
    assert "never re-owned" in shell.refused(1, "session", "bind", "tmp-2", "s-3", "--agent", "mole", "--owner", "eve")
    assert shell.ok("session", "unbind", "tmp-2") == "tmp-2: no session\n"
    shell.ok("container", "close", "tmp-2")


def test_what_cannot_be_bound_is_refused_with_a_reason(shell: Shell) -> None:
    bind = ("session", "bind", "box", "s-1", "--agent", "scout", "--owner")
    assert "'Ada'" in shell.refused(2, *bind, "Ada")
    assert "scope" in shell.refused(2, *bind, "ada", "--scope", "acme")
    assert "not open" in shell.refused(1, "session", "bind", "nowhere", "s-9", "--agent", "x", "--owner", "y")
    assert "name is 1 to 128" in shell.refused(2, "container", "open", "../up")
    assert "no group" in shell.refused(2, "container", "open", "box", "--group", "no-such-group-here")


def test_a_call_is_made_shown_and_replayed(shell: Shell, tmp_path: Path) -> None:
    body = tmp_path / "body.md"
    body.write_text("It *broke*.\n")
    words = shell.call(
        "create_issue", "repo=acme/site", "title=From the shell", f"body=@{body}", "labels=bug", "--key", "k1"
    )
    first = shell.ok(*words)
    found_number = re.match(r"acme/site#(\d+)  open  From the shell\n", first)
    assert found_number is not None
    number = f"issue_number={found_number[1]}"
    assert "written by agent scout of ada in session s-1 (verified)" in first
    assert "It *broke*." in first
    assert "was created by an earlier attempt" in shell.ok(*words)
    found = json.loads(shell.ok(*shell.call("get_issue", "repo=acme/site", number, "--json")))
    assert (found["arm"], found["issue"]["body"], found["issue"]["labels"]) == ("issue", "It *broke*.\n", ["bug"])
    assert shell.ok(*shell.call("comment_on_issue", "repo=acme/site", number, "body=-"), stdin="piped").startswith(
        "commented: http"
    )
    assert "piped" in shell.ok(*shell.call("get_issue", "repo=acme/site", number))
    assert f"#{found_number[1]}  open  From the shell  [bug]" in shell.ok(
        *shell.call("list_issues", "repo=acme/site", "labels=bug")
    )
    pull = shell.ok(*shell.call("get_pull_request", "repo=acme/site", "pull_number=3"))
    assert pull.startswith("acme/site#3  open  Load images lazily\n")


def test_a_subscription_is_kept_and_ended_and_nobody_ends_what_never_was(shell: Shell) -> None:
    words = shell.call("subscribe", "repo=acme/site", "kind=issue", "number=1")
    told = shell.ok(*words)
    assert told.startswith("subscribed: ")
    assert shell.ok(*words) == told
    ended = shell.call("unsubscribe", f"subscription_id={told.split()[1]}")
    assert [shell.ok(*ended) for _ in range(2)] == ["unsubscribed\n"] * 2
    assert "no such subscription of this agent" in shell.refused(1, *shell.call("unsubscribe", "subscription_id=41"))


def test_a_failed_call_is_one_line_and_exit_1(shell: Shell) -> None:
    said = shell.refused(1, *shell.call("get_issue", "repo=acme/site", "issue_number=404"))
    assert said == "compass-forged: not_found: no such artifact, or this forge account may not touch it\n"
    done = shell.run(*shell.call("get_issue", "repo=acme/site", "issue_number=404", "--json"))
    assert json.loads(done.stdout)["code"] == "not_found"
    assert "not_found" in shell.refused(1, *shell.call("get_pull_request", "repo=acme/site", "pull_number=1"))
    assert "no such artifact" in shell.refused(1, *shell.call("get_pull_request", "repo=acme/site", "pull_number=404"))
    unknown = shell.refused(1, *shell.call("get_issue", "repo=acme/site", "issue_number=1", "--forge", "linear"))
    assert "linear is not configured here" in unknown


def test_what_is_typed_wrong_is_said_before_anything_is_sent(shell: Shell) -> None:
    assert "no KEY=VALUE" in shell.refused(2, *shell.call("get_issue", "acme/site"))
    assert "did you mean issue_number?" in shell.refused(2, *shell.call("get_issue", "repo=a/b", "issue_numbr=1"))
    assert "is given twice" in shell.refused(2, *shell.call("get_issue", "repo=a/b", "repo=c/d"))
    assert "get_issue" in shell.refused(2, *shell.call("get_issue", "repo=a/b", "issue_number=one"))
    assert "no-such-file" in shell.refused(2, *shell.call("create_issue", "repo=a/b", "title=x", "body=@no-such-file"))
    assert "not valid JSON" in shell.refused(2, *shell.call("submit_review", "repo=a/b", "comments=["))
    assert "ARM" in shell.refused(2, *shell.call("merge", "repo=a/b"))
    assert "No such command" in shell.refused(2, "opne")


def test_text_from_a_forge_cannot_drive_the_terminal(shell: Shell) -> None:
    title = "red \x1b[31malert\u202e\u200b"
    done = shell.run(*shell.call("create_issue", "repo=acme/site", "title=plain", "body=bell\x07 and \x1b]0;title\x07"))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "control characters" in shell.refused(1, *shell.call("create_issue", "repo=acme/site", f"title={title}"))


def test_status_shows_how_the_daemon_is(shell: Shell) -> None:
    shell.run(*shell.call("get_issue", "repo=acme/site", "issue_number=1"))
    said = shell.ok("status")
    assert "serving" in said
    assert "store memory (reachable); forges github:forge.test" in said
    assert re.search(r"github:forge\.test +author +forge-author +open +\d+ of 5000 ", said)
    found = json.loads(shell.ok("status", "--json"))
    assert found["calls_in_flight"] == 0
    author = next(row for row in found["credentials"] if row["role"] == "author")
    assert (author["broken"], author["in_flight"], author["limit"]) == (False, 0, 5000)
    assert {"name": "calls", "labels": {"arm": "get_issue", "code": "ok"}, "count": 1}.items() <= next(
        {**row, "count": 1} for row in found["counters"] if row["labels"] == {"arm": "get_issue", "code": "ok"}
    ).items()


def test_commands_without_a_daemon_say_so_and_exit_69(tmp_path: Path) -> None:
    for words in (("status",), ("container", "list"), ("session", "unbind", "x")):
        done = run_cli(*words, "--run-dir", str(tmp_path))
        assert done.returncode == 69
        assert str(tmp_path / "control.sock") in done.stderr
        assert "compass-forged serve" in done.stderr


def test_configuration_is_checked_and_shown_without_secrets(shell: Shell) -> None:
    assert shell.ok("config", "check") == f"{shell.where.config}: ok; forges: github at forge.test\n"
    shown = json.loads(shell.ok("config", "show"))
    assert shown["limits"]["frame_max_bytes"] == 1 << 20
    assert AUTHOR_TOKEN not in json.dumps(shown)


def test_a_wrong_configuration_names_file_key_and_mend(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[limits]\ndrain_secs = 3\n")
    done = run_cli("config", "check", "--config", str(path))
    assert done.returncode == 2
    assert done.stderr == f"compass-forged: {path}: limits.drain_secs: unknown key; did you mean 'drain_seconds'?\n"


def test_the_documented_example_configuration_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "config.example.toml").read_text()
    token = tmp_path / "github"
    token.write_text("ghp_x\n")
    token.chmod(0o600)
    path = tmp_path / "config.toml"
    path.write_text(text.replace("/run/secrets/github", str(token)))
    done = run_cli("config", "check", "--config", str(path), environ={"GITHUB_FORGE_REVIEWER_TOKEN": "ghp_y"})
    assert done.returncode == 0, done.stderr
    shown = json.loads(run_cli("config", "show", "--config", str(path)).stdout)
    written = tomllib.loads(text)
    for table in ("limits", "budget", "log"):
        assert written[table] == shown[table], "the example shows every key of the table with its default"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"author": '{ file = "/nope" }'}, "/nope"),
        ({"author": '{ file = "relative" }'}, "forge[0].author.file: 'relative' is no absolute path"),
        ({"author": '{ env = "NOT_SET_ANYWHERE" }'}, "NOT_SET_ANYWHERE"),
        ({"base_url": '"http://example.com"'}, "base_url: "),
        ({"base_url": '"https://u:hunter2hunter2@api.github.com"'}, "base_url: "),
        ({"ca_file": '"/nope"'}, "/nope"),
        ({"host": '"a b/.."'}, "forge[0].host: 'a b/..' is no host name"),
    ],
)
def test_config_check_refuses_what_serve_would(tmp_path: Path, change: dict[str, str], words: str) -> None:
    token = tmp_path / "github"
    token.write_text("ghp_x\n")
    token.chmod(0o600)
    keys = {"provider": '"github"', "default": "true", "host": '"ghe.test"', "base_url": '"https://ghe.test/api/v3"'}
    keys |= {"author": f'{{ file = "{token}" }}', **change}
    path = tmp_path / "config.toml"
    path.write_text('store = "memory"\n[[forge]]\n' + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    done = run_cli("config", "check", "--config", str(path))
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr


def test_steering_a_daemon_takes_none_of_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        f'run_dir = "{tmp_path}"\nstore = {{ env = "NOT_SET" }}\n[[forge]]\nprovider = "github"\ndefault = true\n'
    )
    done = run_cli("status", "--config", str(path))
    assert (done.returncode, str(tmp_path / "control.sock") in done.stderr) == (69, True)


def test_a_value_may_begin_with_an_at_sign(shell: Shell) -> None:
    said = shell.ok(*shell.call("create_issue", "repo=acme/site", "title=@@home is broken", "body=-"), stdin="a\r\nb")
    number = said.split("#")[1].split()[0]
    assert "@home is broken" in said
    found = json.loads(shell.ok(*shell.call("get_issue", "repo=acme/site", f"issue_number={number}", "--json")))
    assert found["issue"]["body"] == "a\r\nb"
    assert "write @@" in shell.refused(2, *shell.call("create_issue", "repo=acme/site", "title=@home is broken"))


def test_migrations_are_applied_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('store = { env = "TEST_DSN" }\n')
    environ = {"TEST_DSN": empty_database()}
    before = run_cli("db", "status", "--config", str(path), environ=environ)
    assert before.returncode == 1
    assert "pending" in before.stdout
    assert "compass-forged db migrate" in before.stderr
    done = run_cli("db", "migrate", "--config", str(path), environ=environ)
    assert done.stdout.splitlines() == [
        "applied 0001 init",
        "applied 0002 forge_authored_artifacts",
        "applied 0003 tell_of_sessions",
        "applied 0004 subscriptions",
    ]
    assert run_cli("db", "migrate", "--config", str(path), environ=environ).stdout == "nothing to apply\n"
    after = run_cli("db", "status", "--config", str(path), "--json", environ=environ)
    assert after.returncode == 0
    assert [row["state"] for row in json.loads(after.stdout)] == ["applied"] * 4


def test_the_memory_store_has_no_schema(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('store = "memory"\n')
    done = run_cli("db", "status", "--config", str(path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "memory store has no database" in done.stderr


def test_a_closed_pipe_is_no_traceback(shell: Shell) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"'{sys.executable}' -m compass_forged config show | true"],
        cwd=ROOT,
        env={**os.environ, "FORGED_CONFIG": str(shell.where.config)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
