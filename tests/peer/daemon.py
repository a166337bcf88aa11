"""A whole daemon in a process of its own, before the peer."""

from pathlib import Path
from typing import Final

from compass_forged.control.client import ControlClient
from tests.support.world import DaemonProcess, Place

AUTHOR_TOKEN: Final = "author-token"
REVIEWER_TOKEN: Final = "reviewer-token"
OUTSIDER_TOKEN: Final = "outsider-token"
LOGINS: Final = {AUTHOR_TOKEN: "forge-author", REVIEWER_TOKEN: "forge-reviewer", OUTSIDER_TOKEN: "outsider"}
"""Whose the seed's tokens are."""

HOST: Final = "peer.test"
"""The peer as coordinates have it, under the author's token; the default forge."""
OUTSIDE_HOST: Final = "outside.peer.test"
"""The same peer as a second forge, under the outsider's token."""

DSN_VARIABLE: Final = "FORGED_PEER_TEST_DSN"

_CONFIG: Final = """\
run_dir = "{place}/run"
state_dir = "{place}/state"
host_id = "peer-tests"
store = {store}

[[forge]]
provider = "github"
default = true
host = "{host}"
base_url = "{url}"
author = {{ file = "{place}/{author}" }}
reviewer = {{ file = "{place}/{reviewer}" }}

[[forge]]
provider = "github"
host = "{outside_host}"
base_url = "{url}"
author = {{ file = "{place}/{outsider}" }}

[budget]
write_burst = 60

[log]
format = "json"
"""


class PeerDaemon:
    """``python -m compass_forged serve`` below one folder; may be started again after it has ended."""

    def __init__(self, place: Path, url: str, *, store: str, dsn: str = "") -> None:
        """Writes the configuration and the token files.

        Args:
            place: a folder with a short path.
            url: the peer's.
            store: ``memory``, or ``dsn`` for the one at ``dsn``.
            dsn: may hold a password; the daemon gets it in a variable.
        """
        self._where = Place(place, {DSN_VARIABLE: dsn})
        self._process: DaemonProcess | None = None
        for token, login in LOGINS.items():
            file = place / login
            file.touch(mode=0o600)
            file.write_text(token + "\n", encoding="ascii")
        self._where.config.write_text(
            _CONFIG.format(
                place=place,
                store=f'{{ env = "{DSN_VARIABLE}" }}' if store == "dsn" else f'"{store}"',
                url=url,
                host=HOST,
                outside_host=OUTSIDE_HOST,
                author=LOGINS[AUTHOR_TOKEN],
                reviewer=LOGINS[REVIEWER_TOKEN],
                outsider=LOGINS[OUTSIDER_TOKEN],
            ),
            encoding="utf-8",
        )

    def socket(self, container: str) -> Path:
        """A container's socket."""
        return self._where.socket(container)

    def control(self) -> ControlClient:
        """A connection to the control socket; the caller closes it."""
        return self._where.control()

    def log(self) -> str:
        """What it has logged so far, all starts together."""
        return self._where.log.read_text(encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it answers on its control socket."""
        self.kill()
        self._process = DaemonProcess(self._where)
        self._process.wait_ready()

    def stop(self) -> int:
        """SIGTERM; its exit code, once it has drained."""
        assert self._process is not None
        try:
            return self._process.stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None
