"""What lies in the embedded server's directory and who uses it: paths, locks, password, postmaster.pid. No processes.

::

    <state_dir>/postgres/
      data/           the cluster
      new-…/          a cluster being made; what a killed run left of one is removed
      password        the superuser's, random, 0600
      postgres.log    what the server says
      socket          the socket's directory, or a symlink to one in the temporary directory if the path is too long
      turn.lock       held by whoever starts or stops the server
      users.lock      shared by every daemon that uses the server: the last one stops it
"""

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compass_forged.errors import StartError

SOCKET_NAME: Final = ".s.PGSQL.5432"
SOCKET_PATH_MAX_BYTES: Final = 107
_WORK_PREFIX: Final = "new-"
_SOCKET_DIR_PREFIX: Final = "compass-forged-pg-"
_LOG_KEEP_BYTES: Final = 1 << 20
_PID_FILE_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one embedded server under ``root``, which is absolute."""

    root: Path

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.root / "data"

    @property
    def password(self) -> Path:
        """The superuser's password."""
        return self.root / "password"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.root / "postgres.log"

    @property
    def turn_lock(self) -> Path:
        """Held by whoever starts or stops the server."""
        return self.root / "turn.lock"

    @property
    def users_lock(self) -> Path:
        """Shared by everyone who uses the server."""
        return self.root / "users.lock"

    @property
    def socket(self) -> Path:
        """The socket's directory, or the symlink to it."""
        return self.root / "socket"


@dataclass(frozen=True, slots=True)
class PidFile:
    """What ``postmaster.pid`` says (Postgres: ``src/include/utils/pidfile.h``).

    Attributes:
        pid: the postmaster's process id.
        socket_dir: where it listens; "" while it starts.
        shm_id: its System V shared memory segment, which shows whether any of its processes is left; None early on.
        status: ``starting``, ``stopping``, ``ready`` or ``standby``; "" early on.
    """

    pid: int
    socket_dir: str
    shm_id: int | None
    status: str


def make_layout(state_dir: Path, *, shared: bool) -> Layout:
    """Create the directory where it is missing.

    Args:
        state_dir: the daemon's state directory.
        shared: whether the server runs as another user, who then may pass through (and read nothing of ours).

    Raises:
        StartError: the operator's: the directory cannot be made or written.
    """
    layout = Layout(Path(os.path.abspath(state_dir)) / "postgres")  # noqa: PTH100 -- resolve() would follow symlinks
    try:
        layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for lock in (layout.turn_lock, layout.users_lock):
            lock.touch(mode=0o600)
        if shared:
            for folder in (layout.root.parent, layout.root):
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
    except OSError as error:
        raise StartError(f"the embedded store cannot use {layout.root}: {error.strerror}") from error
    return layout


def make_work_dir(layout: Layout, password: str, owner: tuple[int, int] | None) -> Path:
    """A directory in which to make the cluster, with the password's file in it. Called under the turn lock.

    What a killed run left of another is removed; an initdb that still writes there fails, and its rest goes next time.
    """
    for leftover in layout.root.glob(_WORK_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = layout.root / (_WORK_PREFIX + secrets.token_hex(4))
    try:
        work.mkdir(mode=0o700)
        write_private(work / "password", password)
        if owner is not None:
            os.chown(work, *owner)
            os.chown(work / "password", *owner)
    except OSError as error:
        raise StartError(f"the embedded store cannot write {layout.root}: {error.strerror}; make room there") from error
    return work


def adopt_work_dir(layout: Layout, work: Path) -> None:
    """Make the finished cluster the cluster, whole and durable, and remove what was around it."""
    (work / "data").rename(layout.data)
    shutil.rmtree(work)
    descriptor = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_password(layout: Layout) -> str:
    """The superuser's password, made at the first start.

    Raises:
        StartError: there is a cluster, and its password is gone.
    """
    if layout.password.exists():
        return layout.password.read_text(encoding="ascii").strip()
    if layout.data.exists():
        raise StartError(f"the embedded store's password is missing: restore {layout.password} from a backup")
    value = secrets.token_urlsafe(32)
    half = layout.password.with_suffix(".new")
    try:
        half.unlink(missing_ok=True)
        write_private(half, value)
        half.rename(layout.password)  # whole or not at all
    except OSError as error:
        raise StartError(f"the embedded store cannot write {layout.root}: {error.strerror}; make room there") from error
    return value


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def open_log(layout: Layout) -> tuple[int, int]:
    """The server's log for appending: its descriptor, and its size so far.

    A large one is set aside first; one such is kept.
    """
    with suppress(FileNotFoundError):
        if layout.log.stat().st_size > _LOG_KEEP_BYTES:
            layout.log.rename(layout.log.with_suffix(".log.1"))
    descriptor = os.open(layout.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return descriptor, os.fstat(descriptor).st_size


def complaints(layout: Layout, since: int) -> str:
    """What the server said is fatal since the log had that many bytes: one line, "" if nothing."""
    with layout.log.open("rb") as file:
        file.seek(since)
        text = file.read(_LOG_KEEP_BYTES).decode(errors="replace")
    fatal = [line.partition("FATAL:")[2].strip() for line in text.splitlines() if "FATAL:" in line]
    return fatal[0] if fatal else ""


def cluster_version(layout: Layout) -> int | None:
    """The major version that made the cluster; None where there is none yet.

    Raises:
        StartError: something is there that is no cluster.
    """
    if not layout.data.exists():
        return None
    try:
        return int((layout.data / "PG_VERSION").read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise StartError(f"{layout.data} holds no Postgres cluster: move it away, or restore it") from None


# --- the socket's directory ---------------------------------------------------------------------------------------


def socket_dir(layout: Layout, owner: int | None) -> Path:
    """A private directory for the socket, its path short enough for a socket's address. Called under the turn lock.

    The same as before where it still stands, so that clients find a restarted server.

    Args:
        layout: where it belongs.
        owner: the uid that the server runs as, where it is not ours.

    Raises:
        StartError: no short enough place.
    """
    if layout.socket.is_symlink() and _is_private(layout.socket.readlink(), owner):
        return layout.socket.readlink()
    drop_socket_dir(layout)
    if _fits(layout.socket):
        layout.socket.mkdir(mode=0o700)
        made = layout.socket
    else:
        made = Path(tempfile.mkdtemp(prefix=_SOCKET_DIR_PREFIX))
        if not _fits(made):
            made.rmdir()
            raise StartError(f"no path under {SOCKET_PATH_MAX_BYTES} bytes for the embedded store's socket: set TMPDIR")
        layout.socket.symlink_to(made)
    if owner is not None:
        os.chown(made, owner, -1)
    return made


def drop_socket_dir(layout: Layout) -> None:
    """Remove the socket's directory, wherever it is; one that is not ours (any more) is left alone."""
    if layout.socket.is_symlink():
        target = layout.socket.readlink()
        server = layout.data.stat().st_uid
        if _is_private(target, None) or _is_private(target, server):
            shutil.rmtree(target)
        layout.socket.unlink()
    elif layout.socket.exists():
        shutil.rmtree(layout.socket)


def _is_private(directory: Path, owner: int | None) -> bool:
    """Whether the path still leads to a directory as we make them: its name could be anybody's after a reboot."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    ours = found.st_uid == (os.geteuid() if owner is None else owner) and not found.st_mode & 0o077
    return stat.S_ISDIR(found.st_mode) and ours and directory.name.startswith(_SOCKET_DIR_PREFIX)


def _fits(directory: Path) -> bool:
    return len(os.fsencode(directory / SOCKET_NAME)) <= SOCKET_PATH_MAX_BYTES


# --- who lives ----------------------------------------------------------------------------------------------------


def read_pid_file(layout: Layout) -> PidFile | None:
    """The postmaster's own file, or None where there is none or it is not yet written."""
    try:
        lines = (layout.data / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        pid = abs(int(lines[0]))
    except (FileNotFoundError, IndexError, ValueError):
        return None
    lines += [""] * (_PID_FILE_LINES - len(lines))
    shm = lines[6].split()
    return PidFile(pid, lines[4], int(shm[1]) if len(shm) > 1 else None, lines[7].strip())


def sits_in(pid: int, data: Path) -> bool:
    """Whether the process is a postmaster of this cluster: its working directory is the cluster, for life."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except OSError:
        return False  # gone, a zombie, or another user's: not one that we started


def segment_in_use(shm_id: int | None) -> bool:
    """Whether a process is attached to the System V segment: then some server process is left."""
    if shm_id is None:
        return False
    with Path("/proc/sysvipc/shm").open(encoding="ascii") as table:
        columns = table.readline().split()
        for line in table:
            row = dict(zip(columns, line.split(), strict=True))
            if int(row["shmid"]) == shm_id:
                return int(row["nattch"]) > 0
    return False


def drop_pid_file(layout: Layout) -> None:
    """Remove the file of a postmaster that is known to be gone."""
    (layout.data / "postmaster.pid").unlink(missing_ok=True)


class FileLock:
    """An advisory lock on a file, given up by the kernel when its process ends. Never waits: see who calls it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def try_exclusive(self) -> bool:
        """Take it for us alone; False if anyone else has it (ours is then lost too)."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(self) -> None:
        """Take it together with others."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Give it up."""
        os.close(self._descriptor)
