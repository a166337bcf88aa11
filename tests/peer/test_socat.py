"""How socat gets here, shown without it: apt and dpkg are played by small scripts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peer import PeerUnavailable
from tests.support.socat import find_socat

APT = """
import pathlib, sys
if "--simulate" in sys.argv:
    print("NOTE: This is only a simulation!")
    print("Inst libx [1.0] (1.1 Debian:12 [amd64])")
    print("Inst socat (1.7 Debian:12 [amd64])")
    print("Conf socat (1.7 Debian:12 [amd64])")
else:
    assert sys.argv[-3:] == ["download", "libx=1.1", "socat=1.7"], sys.argv
    pathlib.Path("libx.deb").touch()
    pathlib.Path("socat.deb").touch()
"""
DPKG = """
import pathlib, sys
package, folder = map(pathlib.Path, sys.argv[2:])
if package.name == "libx.deb":
    library = folder / "usr" / "lib" / "libx.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
else:
    program = folder / "usr" / "bin" / "socat"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\\necho "$LD_LIBRARY_PATH"\\n')
    program.chmod(0o755)
"""
UNKNOWN = "import sys; sys.exit('W: old lists\\nE: Unable to locate package socat')"
OFFLINE = APT.replace("else:", "else:\n    sys.exit('E: Failed to fetch http://debian.test/pool/x.deb')")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    env = shutil.which("env")
    assert env is not None
    (folder / "env").symlink_to(env)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path, code: str) -> None:
    path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    path.chmod(0o755)


def test_the_host_s_own_is_taken(path: Path, tmp_path: Path) -> None:
    program(path / "socat", "")
    assert find_socat(tmp_path / "cache") == (str(path / "socat"),)
    assert not (tmp_path / "cache").exists()


def test_else_it_is_fetched_once_with_what_the_host_lacks(path: Path, tmp_path: Path) -> None:
    program(path / "apt-get", APT)
    program(path / "dpkg-deb", DPKG)
    command = find_socat(tmp_path / "cache")
    (path / "dpkg-deb").write_text("#!/bin/false\n")
    assert find_socat(tmp_path / "cache") == command
    (home,) = (tmp_path / "cache").glob("socat-*")
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert said == f"{home / 'usr' / 'lib'}\n"
    assert not list(home.glob("*.deb"))


@pytest.mark.parametrize(
    ("apt", "why"),
    [
        (None, "no apt-get and dpkg-deb to fetch it: install socat"),
        (UNKNOWN, "apt-get says E: Unable to locate package socat; install it"),
        (OFFLINE, "apt-get says E: Failed to fetch …; install it"),
    ],
    ids=["no Debian", "no lists", "no network"],
)
def test_what_stands_in_the_way_is_told(path: Path, tmp_path: Path, apt: str | None, why: str) -> None:
    if apt is not None:
        program(path / "apt-get", apt)
        program(path / "dpkg-deb", DPKG)
    with pytest.raises(PeerUnavailable, match=why):
        find_socat(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("socat-*"))


def test_one_that_does_not_start_is_told(path: Path, tmp_path: Path) -> None:
    program(path / "apt-get", APT)
    program(path / "dpkg-deb", DPKG.replace("echo", "exit 3; echo"))
    with pytest.raises(PeerUnavailable, match="env says nothing; install it"):
        find_socat(tmp_path / "cache")
