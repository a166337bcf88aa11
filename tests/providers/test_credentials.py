import os
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
import structlog.testing
import trio
import trio.testing

from compass_forged import observability
from compass_forged.errors import BadCredentials, ConfigError
from compass_forged.observability import redact
from compass_forged.providers.credentials import RECHECK_SECONDS, Credential, EnvToken, FileToken, StaticToken
from compass_forged.providers.tokens import TOKEN_MAX_BYTES, RecentTokens, Secret, check_token


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("canary-1234")
    shown = f"{secret} {secret!r} {secret:>40} {secret!s}"
    assert "canary" not in shown
    assert secret.reveal() == "canary-1234"
    assert secret != Secret("canary-1234")
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("  ", "empty"),
        ("canary-one\ncanary-two\n", "more than one line"),
        ("canary-one\n\n", "more than one line"),
        ("canary one", "spaces"),
        (" canary", "spaces"),
        ("canary\t", "control"),
        ("canaryé", "non-ASCII"),
        ("canary\0", "control"),
    ],
)
def test_what_is_no_token_is_refused_by_place_and_not_by_value(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as refused:
        check_token(text, "file /run/token")
    assert "file /run/token" in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
async def test_a_file_holds_a_token_and_one_line_end(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "token", f"ghs_1.2-3_4canary{end}")
    assert await FileToken(str(path)).token() == "ghs_1.2-3_4canary"


async def test_a_token_that_was_read_is_cut_out_of_logs(tmp_path: Path) -> None:
    await FileToken(str(write(tmp_path / "token", "plain-canary-99"))).token()
    assert redact("x plain-canary-99 y") == "x [secret] y"


async def test_a_file_that_changes_or_is_replaced_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "token-one")
    source = FileToken(str(path))
    assert await source.token() == "token-one"
    write(tmp_path / "new", "token-two").rename(path)
    assert await source.token() == "token-two"


async def test_an_unchanged_file_is_read_again_only_after_it_was_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "token-one")
    status = path.stat()
    source = FileToken(str(path))
    await source.token()
    path.write_text("token-two")  # the same size, and then the same time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert await source.token() == "token-one"
    source.invalidate()
    assert await source.token() == "token-two"


@pytest.mark.parametrize(("mode", "warns"), [(0o600, 0), (0o640, 0), (0o644, 1)])
async def test_a_file_open_to_everybody_is_warned_of_once(tmp_path: Path, mode: int, warns: int) -> None:
    path = write(tmp_path / "token", "token-one", mode)
    source = FileToken(str(path))
    with structlog.testing.capture_logs() as logs:
        await source.token()
        source.invalidate()
        await source.token()
    assert len(logs) == warns
    assert "token-one" not in str(logs)


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "large", "nul"])
async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "token"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe")
    elif kind == "large":
        path.write_text("x" * (TOKEN_MAX_BYTES + 1))
    name = f"{path}\0" if kind == "nul" else str(path)
    with pytest.raises(ConfigError, match=f"token: file {path}"):
        await FileToken(name).token()


async def test_an_environment_variable_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvToken("COMPASS_TEST_TOKEN")
    monkeypatch.delenv("COMPASS_TEST_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="COMPASS_TEST_TOKEN is not set"):
        await source.token()
    monkeypatch.setenv("COMPASS_TEST_TOKEN", "token-one")
    assert await source.token() == "token-one"
    source.invalidate()
    monkeypatch.setenv("COMPASS_TEST_TOKEN", "token-two")
    assert await source.token() == "token-two"


class Source:
    """A token source by hand; counts how often it was read anew."""

    def __init__(self, value: str = "token-one") -> None:
        self.value, self.invalidated = value, 0

    async def token(self) -> str:
        await trio.lowlevel.checkpoint()
        if not self.value:
            raise ConfigError("token: file /run/token is empty")
        return self.value

    def invalidate(self) -> None:
        self.invalidated += 1


async def test_a_refused_credential_fails_fast_until_another_token_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Source()
    credential = Credential("author", source)
    assert await credential.token() == "token-one"
    with structlog.testing.capture_logs() as logs:
        credential.refuse("token-one")
        credential.refuse("token-one")  # the next one of those that were in flight
    assert len(logs) == 1
    assert credential.broken
    for _ in range(5):
        with pytest.raises(BadCredentials) as refused:
            await credential.token()
        assert refused.value.outcome == "not_sent"
    assert source.invalidated == 0
    await trio.sleep(RECHECK_SECONDS)
    for _ in range(2):
        with pytest.raises(BadCredentials):
            await credential.token()
    assert source.invalidated == 1
    source.value = "token-two"
    await trio.sleep(RECHECK_SECONDS)
    assert await credential.token() == "token-two"
    assert not credential.broken


async def test_of_many_calls_that_one_revoked_token_ends_the_first_has_it_read_anew() -> None:
    source = Source()
    credential = Credential("author", source)
    refused = await credential.token()
    source.value = "token-two"
    assert [await credential.renewed(refused) for _ in range(5)] == ["token-two"] * 5
    assert source.invalidated == 1
    assert credential.changes == 2


async def test_a_source_that_cannot_be_read_is_logged_once_until_it_can() -> None:
    source = Source("")
    credential = Credential("author", source)
    with structlog.testing.capture_logs() as logs:
        for value in ("", "", "token-one", ""):
            source.value = value
            with suppress(BadCredentials):
                await credential.token()
    assert [line["why"] for line in logs] == ["token: file /run/token is empty"] * 2


def test_only_the_last_tokens_of_a_source_are_looked_for_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "_secrets", set())
    recent = RecentTokens()
    for index in [*range(100), 99, 98]:
        recent.accept(f"token-{index:04}", "there")
    assert redact("token-0098 token-0099") == "[secret] [secret]"
    assert redact("token-0005") == "token-0005"
    assert len(observability._secrets) < 100


async def test_a_file_that_turned_bad_does_not_pass_for_what_it_held(tmp_path: Path) -> None:
    path = write(tmp_path / "token", "token-one")
    source = FileToken(str(path))
    await source.token()
    write(path, "")
    for _ in range(2):
        with pytest.raises(ConfigError, match="empty"):
            await source.token()


async def test_a_source_that_cannot_be_read_is_bad_credentials_without_its_place() -> None:
    with pytest.raises(BadCredentials) as refused:
        await Credential("reviewer", Source("")).token()
    assert refused.value.role == "reviewer"
    assert refused.value.outcome == "not_sent"
    assert "/run" not in str(refused.value)


async def test_a_given_token_stays() -> None:
    source = StaticToken("token-one")
    source.invalidate()
    assert await source.token() == "token-one"
