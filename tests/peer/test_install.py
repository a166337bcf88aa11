"""How the peer gets here, shown without it: npm and Node are played by small scripts."""

import sys
from pathlib import Path

import pytest

from tests.peer.conftest import SEED
from tests.support import peer as support
from tests.support.peer import Node, PeerUnavailable, find_node, installed

SHARED_SEED = Path(__file__).parents[3] / "shared" / "peer" / "emulate.seed.yaml"

FAILING_NPM = "import sys; sys.exit('npm error code ENOTFOUND\\nnpm error errno ENOTFOUND')"
SILENT_NPM = ""
WORKING_NPM = """
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
assert "--ignore-scripts" in sys.argv
assert '"emulate": "0.12.2"' in (folder / "package.json").read_text()
entry = folder / "node_modules" / "emulate" / "dist" / "index.js"
entry.parent.mkdir(parents=True)
entry.write_text("the peer")
"""


def with_npm(script: str) -> Node:
    return Node((sys.executable,), (sys.executable, "-c", script))


def program(path: Path, prints: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{prints}'\n", encoding="ascii")
    path.chmod(0o755)


def test_the_peer_is_installed_once_and_whole(tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    entry = installed(with_npm(WORKING_NPM), cache)

    assert entry.read_text(encoding="ascii") == "the peer"
    assert installed(with_npm(FAILING_NPM), cache) == entry
    assert sorted(path.name for path in cache.iterdir()) == [entry.parents[3].name, "lock"]


@pytest.mark.parametrize(
    ("npm", "why"),
    [(FAILING_NPM, "npm says ENOTFOUND"), (SILENT_NPM, "npm ended with 0")],
    ids=["no registry", "nothing installed"],
)
def test_an_install_that_failed_is_told_and_the_next_one_starts_afresh(tmp_path: Path, npm: str, why: str) -> None:
    with pytest.raises(PeerUnavailable, match=f"emulate@0.12.2 cannot be installed: {why}"):
        installed(with_npm(npm), tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert installed(with_npm(WORKING_NPM), tmp_path).is_file()


def test_what_an_interrupted_install_left_is_cleared(tmp_path: Path) -> None:
    half = tmp_path / "staging" / "tmp1234" / "node_modules"
    half.mkdir(parents=True)

    assert installed(with_npm(WORKING_NPM), tmp_path).is_file()
    assert not half.exists()


def test_an_npm_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_INSTALL_SECONDS", 0.3)

    with pytest.raises(PeerUnavailable, match="npm did not end within"):
        installed(with_npm("import time; time.sleep(60)"), tmp_path)


def test_an_install_waits_for_another_run_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_INSTALL_SECONDS", 0.1)

    with support._locked(tmp_path / "lock"), pytest.raises(PeerUnavailable, match="another test run"):
        installed(with_npm(WORKING_NPM), tmp_path)


def test_a_cache_that_cannot_be_written_is_a_reason_to_skip(tmp_path: Path) -> None:
    in_the_way = tmp_path / "cache"
    in_the_way.touch()

    with pytest.raises(PeerUnavailable, match="set XDG_CACHE_HOME"):
        installed(with_npm(WORKING_NPM), in_the_way)


@pytest.mark.parametrize(
    ("prints", "why"), [("v20.19.2", "is v20.19.2"), ("nothing of sense", "is nothing of sense"), ("", "is not usable")]
)
def test_a_node_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, why: str
) -> None:
    program(tmp_path / "node", prints)
    program(tmp_path / "npm", "11.0.0")
    monkeypatch.setattr(support, "_node_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(PeerUnavailable, match=f"{why}.*install the extra `peer`"):
        find_node()


def test_a_node_on_path_serves_where_there_is_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_node_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match="there is none"):
        find_node()

    program(tmp_path / "node", "v24.1.0")
    with pytest.raises(PeerUnavailable, match="has no npm"):
        find_node()

    program(tmp_path / "npm", "11.0.0")
    assert find_node() == Node((str(tmp_path / "node"),), (str(tmp_path / "npm"),))


def test_the_cache_is_where_the_user_keeps_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert support.cache_dir() == Path("/somewhere/compass-forged-tests")

    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/ada")
    assert support.cache_dir() == Path("/home/ada/.cache/compass-forged-tests")


def test_the_seed_is_the_shared_one() -> None:
    if not SHARED_SEED.is_file():
        pytest.skip(f"no shared seed at {SHARED_SEED}")

    assert without_remarks(SEED) == without_remarks(SHARED_SEED)


def without_remarks(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]
