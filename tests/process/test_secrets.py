"""A canary: tokens that a daemon holds, looked for in everything that leaves it, whatever a forge does with them."""

import base64
import io
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import structlog
import trio
from trio.testing import MockClock

from compass_forged.agent import ForgeCall, ForgeCallFailed, connect
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import ForgeError
from compass_forged.observability import configure_logging, get_logger
from compass_forged.providers.credentials import StaticToken
from compass_forged.wire.schema import Arm, CommentOnIssue, CreateIssue, GetIssue, ListIssues
from tests.support.forge_http import answer, new_context, new_github
from tests.support.postgres import fresh_database, psql
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, DaemonProcess, Place, place

TOKENS = (AUTHOR_TOKEN, REVIEWER_TOKEN)
READ = GetIssue(repo="acme/site", issue_number=1)
CREATE = CreateIssue(repo="acme/site", title="A title", body="The words.")
COMMENT = CommentOnIssue(repo="acme/site", issue_number=1, body="hello")
ARMS: tuple[Arm, ...] = (READ, CREATE, COMMENT, ListIssues(repo="acme/site"))


def writings(token: str) -> Iterator[str]:
    """A token as it may turn up."""
    yield token
    yield quote(token, safe="")
    for before in ("", "x", "xy"):
        encoded = base64.b64encode(f"{before}{token}".encode()).decode().rstrip("=")
        yield encoded[4:-4]  # what does not depend on its neighbours


def leaks(text: str) -> list[str]:
    return [form for token in TOKENS for form in writings(token) if form in text]


def echoes() -> list[Rule]:
    """Answers of a forge that shows the token wherever it can."""
    encoded = base64.b64encode(f"x-access-token:{AUTHOR_TOKEN}".encode()).decode()
    said = {"message": f"using {AUTHOR_TOKEN} ({encoded})", "errors": [f"header Bearer {AUTHOR_TOKEN}"]}
    headers = {"location": f"https://evil.invalid/?access_token={quote(AUTHOR_TOKEN)}", "set-cookie": AUTHOR_TOKEN}
    whole = [Rule(status=status, body=said, headers=headers) for status in (400, 403, 404, 410, 422, 500, 503)]
    return [
        *whole,
        Rule(status=429, body=said, headers={"retry-after": "1", **headers}),
        *(Rule(status=status, body=said, headers=headers) for status in (301, 302, 307)),
        Rule(status=200, body=f'"{AUTHOR_TOKEN}"'),
        Rule(status=201, body=f"{{{AUTHOR_TOKEN}"),
        Rule(status=200, body=said, headers={"x-ratelimit-reset": AUTHOR_TOKEN, "etag": f'"{AUTHOR_TOKEN}"'}),
        Rule(status=200, body=AUTHOR_TOKEN * 9, truncate=40),
        Rule(drop=True),
    ]


async def _ask_everything(where: Place, forge: Forge) -> list[str]:
    """Each arm under each answer; everything that the agent was told."""
    told: list[str] = []
    async with connect(where.socket("one")) as client:
        for number, (rule, arm) in enumerate(itertools.product(echoes(), ARMS)):
            forge.script.clear()
            forge.script.add(replace(rule, path="/repos/*", times=9))
            try:
                with trio.move_on_after(2):
                    told.append(repr(await client.forge(ForgeCall(call_id=str(number), arm=arm, client_request_id=""))))
            except ForgeCallFailed as error:
                told.append(repr(error) + str(error.__dict__))
    return told


def _rows(dsn: str) -> str:
    tables = psql(dsn, "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'").split()
    return "\n".join(psql(dsn, f"SELECT t::text FROM {table} t") for table in tables)  # noqa: S608 -- names it told


@pytest.mark.process
@pytest.mark.postgres
async def test_no_token_is_in_logs_frames_or_rows_whatever_the_forge_does() -> None:
    forge = Forge(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}))
    with place() as where:
        dsn = await trio.to_thread.run_sync(fresh_database)
        async with serve_forge(forge) as url:
            extra = (
                'level = "debug"\n[budget]\nwrite_burst = 1000\npoints_per_minute = 100000\ncreations_per_minute = 1000'
            )
            where.configure(url, store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn}, extra=extra)
            daemon = DaemonProcess(where)
            try:
                await trio.to_thread.run_sync(daemon.wait_ready)
                with where.control() as control:
                    control.open_container("one")
                    control.bind_session("one", "s-1", agent="scout", owner="ada")
                    told = await _ask_everything(where, forge)
                    told.append(repr(control.status()))
                forge.script.clear()
                async with connect(where.socket("one")) as client:
                    await client.forge(ForgeCall(call_id="last", arm=CREATE, client_request_id="key-0001"))
                forge.state.revoke_token(AUTHOR_TOKEN)
                async with connect(where.socket("one")) as client:
                    with pytest.raises(ForgeCallFailed):
                        await client.forge(ForgeCall(call_id="very-last", arm=READ))
            finally:
                daemon.close()
        logged = where.log.read_text()
        rows = await trio.to_thread.run_sync(_rows, dsn)
    assert len(told) > 60
    assert "key-0001" in rows
    assert '"call"' in logged
    for place_of_it, text in (("frames", "\n".join(told)), ("log and stderr", logged), ("rows", rows)):
        assert leaks(text) == [], place_of_it


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: type(arm).__name__)
async def test_no_token_is_in_an_exception_nor_in_its_traceback_as_it_is_logged(
    arm: Arm, autojump_clock: MockClock
) -> None:
    failures: list[httpx.Response | Exception] = [
        answer(rule.status, rule.body, rule.headers) for rule in echoes() if rule.status is not None
    ]
    failures += [httpx.ConnectError(AUTHOR_TOKEN), httpx.ReadError(AUTHOR_TOKEN), OSError(AUTHOR_TOKEN)]
    logged, told = io.StringIO(), list[str]()
    configure_logging("json", "debug", logged)
    try:
        for failure in failures:
            github, _ = new_github(*[failure] * 9, source=StaticToken(AUTHOR_TOKEN))
            try:
                await _call(github, arm)
            except ForgeError as error:
                told.append(str(error) + repr(error))
                get_logger(__name__).exception("failed")
    finally:
        structlog.reset_defaults()
    assert len(told) > 10
    assert logged.getvalue().count("Traceback") >= len(told)
    assert leaks("".join(told)) == []
    assert leaks(logged.getvalue()) == []


async def _call(github: object, arm: Arm) -> None:
    operation = {
        GetIssue: "get_issue",
        CreateIssue: "create_issue",
        CommentOnIssue: "comment_on_issue",
        ListIssues: "list_issues",
    }[type(arm)]
    await getattr(github, operation)(arm, new_context()[0])


def test_no_traceback_shows_local_variables() -> None:
    root = Path(__file__).parents[2] / "compass_forged"
    for path in root.rglob("*.py"):
        text = path.read_text()
        assert "capture_locals" not in text, path
        assert "show_locals" not in text, path
