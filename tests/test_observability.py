import base64
import io
import json
import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import structlog
import trio
from trio.testing import MockClock

from compass_forged import observability
from compass_forged.observability import (
    LATE_SECONDS,
    LOG_STRING_MAX_CHARS,
    LOG_TRACEBACK_MAX_CHARS,
    Counters,
    FrequentEvent,
    LogFormat,
    configure_logging,
    flush_lines,
    forget_secret,
    get_logger,
    redact,
    register_secret,
)

TOKEN = "ghp_" + "A1b2" * 9


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(observability, "_secrets", set())
    yield
    structlog.reset_defaults()


def lines(**values: Any) -> list[dict[str, Any]]:
    """What one event with these values comes to in the log, as JSON."""
    out = io.StringIO()
    configure_logging("json", "debug", out)
    get_logger("t").info("event", **values)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    "token",
    [
        TOKEN,
        "gho_0123456789abcdef",
        "ghs_" + "x" * 36,
        "ghs_12345_" + "eyJhbGciOi.eyJpc3Mi-x.c2ln",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "lin_api_0123456789abcdefghij",
        "lin_oauth_0123456789abcdefghij",
        "Bearer abcdefgh12345678",
        "bearer  abcdefgh.12345678==",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiI0NzExIn0.c2lnbmF0dXJl-_x",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEow+/=",
    ],
)
def test_a_token_is_cut_out_by_its_shape(token: str) -> None:
    assert redact(f"a {token}, b") == "a [secret], b"


@pytest.mark.parametrize("text", ["ghp_short", "the bearer of news", "github_pattern", "acme/site#7"])
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text


def test_a_registered_secret_is_cut_out_wherever_it_stands() -> None:
    register_secret("correct horse")
    assert redact("x=correct horse;correct horse") == "x=[secret];[secret]"


def test_a_secret_that_holds_another_leaves_nothing_of_itself() -> None:
    for value in ("abcdefgh", "abcdefgh-tail", "head-abcdefgh"):
        register_secret(value)
    assert redact("abcdefgh-tail head-abcdefgh abcdefgh") == "[secret] [secret] [secret]"


@pytest.mark.parametrize("before", ["", "x", "xy", "x-access-token:"])
@pytest.mark.parametrize("secret", ["correct horse/battery", "pä55+wörd?~", "abcdefgh"])
def test_a_registered_secret_is_cut_out_in_other_writings(secret: str, before: str) -> None:
    register_secret(secret)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(f"{before}{secret}:rest".encode()).decode()
        left = redact(encoded)
        assert "[secret]" in left
        assert len(left) - len("[secret]") <= len(encode(f"{before}:rest".encode())) + 4
    assert redact(f"?t={quote(secret, safe='')}&") == "?t=[secret]&"


def test_a_secret_that_was_forgotten_stays_nowhere() -> None:
    register_secret("correct horse")
    forget_secret("correct horse")
    assert observability._secrets == set()


def test_a_very_short_secret_would_cut_words_and_is_ignored() -> None:
    register_secret("1234567")
    assert redact("1234567") == "1234567"


def test_an_event_is_one_json_object_a_line() -> None:
    (event,) = lines(arm="get_issue", ms=1.5, ok=True, nothing=None)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "event", "level": "info", "arm": "get_issue", "ms": 1.5, "ok": True, "nothing": None}


def test_nothing_in_an_event_holds_a_token() -> None:
    class Told(Exception):
        pass

    register_secret("hunter2hunter2")
    out = io.StringIO()
    configure_logging("json", "debug", out)
    try:
        raise Told(f"with {TOKEN} and hunter2hunter2")
    except Told as error:
        get_logger("t").exception(
            f"event {TOKEN}", one=TOKEN, many=[TOKEN, {"deep": (TOKEN,)}], error=error, raw=TOKEN.encode()
        )
    written = out.getvalue()
    assert "Told" in written
    assert TOKEN not in written
    assert "hunter2" not in written


def test_a_long_string_is_cut() -> None:
    (event,) = lines(long="x" * (LOG_STRING_MAX_CHARS + 1), whole="x" * LOG_STRING_MAX_CHARS)
    assert event["long"] == "x" * LOG_STRING_MAX_CHARS + "…"
    assert event["whole"] == "x" * LOG_STRING_MAX_CHARS


def test_a_token_across_the_cut_is_redacted_before_it_is_cut() -> None:
    (event,) = lines(long="x " * 90 + TOKEN)
    assert "ghp_" not in event["long"]


def test_a_traceback_keeps_its_lines_and_is_bounded_at_its_start() -> None:
    out = io.StringIO()
    configure_logging("json", "debug", out)
    try:
        raise ValueError("y" * LOG_TRACEBACK_MAX_CHARS + " the end")
    except ValueError:
        get_logger("t").exception("event")
    try:
        raise ValueError("short\x1b[2J")
    except ValueError:
        get_logger("t").exception("event")
    long, short = (json.loads(line)["exception"] for line in out.getvalue().splitlines())
    assert len(long) == LOG_TRACEBACK_MAX_CHARS + 1
    assert long.startswith("…")
    assert long.endswith(" the end")
    assert short.startswith("Traceback (most recent call last):\n")
    assert short.endswith("ValueError: short\\x1b[2J")


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_agents_text_neither_starts_a_line_nor_drives_a_terminal(form: LogFormat) -> None:
    out = io.StringIO()
    configure_logging(form, "debug", out)
    get_logger("t").info("event", call_id="a\nlevel=error \x1b[2J\x9b\u2028\ud800 b")
    written = out.getvalue()
    assert written.count("\n") == 1
    assert not {"\x1b[2J", "\x9b", "\u2028", "\ud800"} & {
        written[i : i + n] for i in range(len(written)) for n in (1, 4)
    }
    written.encode()


def test_a_level_below_the_chosen_one_is_not_written() -> None:
    out = io.StringIO()
    configure_logging("json", "warning", out)
    get_logger("t").info("quiet")
    get_logger("t").warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


def test_auto_is_json_where_no_terminal_is_and_colours_where_one_is() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain, terminal = io.StringIO(), Terminal()
    for out in (plain, terminal):
        configure_logging("auto", "info", out)
        get_logger("t").info("event")
    assert plain.getvalue().startswith("{")
    assert "\x1b[" in terminal.getvalue()


def test_logging_goes_to_stderr_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    get_logger("t").info("event")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "event"


def test_libraries_that_log_urls_are_kept_quiet() -> None:
    configure_logging("json", "debug", io.StringIO())
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)


def test_counters_count_by_name_and_labels() -> None:
    counters = Counters()
    counters.add("calls", arm="get_issue", code="ok")
    counters.add("calls", 2, code="ok", arm="list_issues")
    counters.add("calls", code="internal", arm="get_issue")
    counters.add("other")
    assert counters.total("calls") == 4
    assert counters.total("calls", code="ok") == 3
    assert counters.total("calls", code="ok", arm="get_issue") == 1
    assert counters.total("none") == 0
    assert list(counters.rows()) == [
        ("calls", {"arm": "get_issue", "code": "internal"}, 1),
        ("calls", {"arm": "get_issue", "code": "ok"}, 1),
        ("calls", {"arm": "list_issues", "code": "ok"}, 2),
        ("other", {}, 1),
    ]


def test_a_traceback_on_a_console_shows_no_local_variables() -> None:
    def fails(password: str) -> None:
        raise ValueError("broken")

    out = io.StringIO()
    configure_logging("console", "debug", out)
    try:
        fails("hunter2" + "hunter2")
    except ValueError:
        get_logger("t").exception("event")
    assert "ValueError: broken" in out.getvalue()
    assert "hunter2hunter2" not in out.getvalue()


def test_what_json_has_no_word_for_is_written_as_text_and_numbers_stay_numbers() -> None:
    (event,) = lines(path=Path("/x"), many={1: (2, None)}, big=2**70, small=-0.25, yes=True, ключ="é\x1b")
    del event["timestamp"], event["event"], event["level"]
    assert event == {
        "path": "/x", "many": {"1": [2, None]}, "big": 2**70, "small": -0.25, "yes": True, "ключ": "é\\x1b",
    }  # fmt: skip


def test_a_line_is_ascii_whatever_it_holds() -> None:
    out = io.StringIO()
    configure_logging("json", "debug", out)
    get_logger("t").info("ö", word="é\u202e", ключ="x" * 70 + "é", odd=math.inf)
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue())["odd"] == math.inf


WORDS: dict[str, str] = {"who": "ada\n\u202e", "token": TOKEN, "long": "x" * 300}
NUMBERS: dict[str, float] = {"ms": 1.5, "n": 3, "bad": math.inf}


def frequent() -> FrequentEvent:
    return FrequentEvent(get_logger("t"), "event", tuple(WORDS), tuple(NUMBERS))


def frequent_line(form: LogFormat, level: str) -> str:
    out = io.StringIO()
    configure_logging(form, level, out)
    frequent().info(tuple(WORDS.values()), *NUMBERS.values())
    return out.getvalue()


def test_a_frequent_event_is_the_line_that_it_would_be_otherwise() -> None:
    (quick,) = [json.loads(line) for line in frequent_line("json", "debug").splitlines()]
    (usual,) = lines(**WORDS, **NUMBERS)
    quick_at, usual_at = (datetime.fromisoformat(line.pop("timestamp")) for line in (quick, usual))
    assert abs(quick_at - usual_at) < timedelta(seconds=60)
    assert list(quick.items()) == list(usual.items())
    assert set(quick) == {*WORDS, *NUMBERS, "event", "level"}


def test_a_frequent_events_time_is_written_as_any_other() -> None:
    at = int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 1_000_000_000
    assert observability._stamp(at + 60_000_999) == "2026-01-02T03:04:05.060000Z"
    assert observability._stamp(at + 1_000_000_000) == "2026-01-02T03:04:06.000000Z"


def test_a_frequent_event_keeps_to_the_level_and_the_form() -> None:
    assert frequent_line("json", "warning") == ""
    assert "event" in frequent_line("console", "info")
    assert not frequent_line("console", "info").startswith("{")


def test_a_secret_that_is_registered_later_is_cut_out_of_words_that_are_kept() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ())
    event.info(("a-secret-word",))
    register_secret("a-secret-word")
    event.info(("a-secret-word",))
    assert [json.loads(line)["who"] for line in out.getvalue().splitlines()] == ["a-secret-word", "[secret]"]


def test_a_frequent_event_is_captured_like_any_other() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ("n",))
    with structlog.testing.capture_logs() as captured:
        event.info(("ada",), 1)
    structlog.reset_defaults()
    with structlog.testing.capture_logs() as again:
        event.info(("ada",), 1)
    assert captured == again == [{"who": "ada", "n": 1, "event": "event", "log_level": "info"}]
    assert out.getvalue() == ""


async def test_lines_of_a_frequent_event_are_gathered_for_a_moment_at_most(autojump_clock: MockClock) -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ("n",))
    async with trio.open_nursery() as nursery:
        await nursery.start(flush_lines)
        for round_of_two in (0, 2):
            event.info(("ada",), round_of_two + 1)
            event.info(("ada",), round_of_two + 2)
            assert len(out.getvalue().splitlines()) == round_of_two
            await trio.sleep(LATE_SECONDS + 0.001)
            assert [json.loads(line)["n"] for line in out.getvalue().splitlines()] == list(range(1, round_of_two + 3))
        event.info(("ada",), 5)
        get_logger("t").warning("another")
        assert [json.loads(line)["event"] for line in out.getvalue().splitlines()][4:] == ["event", "another"]
        event.info(("ada",), 6)
        nursery.cancel_scope.cancel()
    assert json.loads(out.getvalue().splitlines()[-1])["n"] == 6, "what is gathered at the end is written"
    event.info(("ada",), 7)
    assert json.loads(out.getvalue().splitlines()[-1])["n"] == 7, "nobody gathers any more"


async def test_daemons_of_two_threads_keep_their_lines_and_each_other_alive() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ("n",))

    async def daemon(who: str) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(flush_lines)
            for number in range(100):
                event.info((who,), number)
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for who in ("ada", "bob"):
            nursery.start_soon(trio.to_thread.run_sync, partial(trio.run, daemon, who))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    for who in ("ada", "bob"):
        assert [line["n"] for line in lines if line["who"] == who] == list(range(100))


async def test_of_two_that_would_gather_the_first_does_and_without_it_nobody(autojump_clock: MockClock) -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ())
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as of_the_first:
            await of_the_first.start(flush_lines)
            await nursery.start(flush_lines)
            event.info(("ada",))
            assert out.getvalue() == ""
            of_the_first.cancel_scope.cancel()
        assert len(out.getvalue().splitlines()) == 1
        event.info(("bob",))
        assert len(out.getvalue().splitlines()) == 2
        nursery.cancel_scope.cancel()
    assert len(out.getvalue().splitlines()) == 2


async def test_what_is_gathered_is_written_before_another_sink_takes_over(autojump_clock: MockClock) -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    event = FrequentEvent(get_logger("t"), "event", ("who",), ())
    async with trio.open_nursery() as nursery:
        await nursery.start(flush_lines)
        event.info(("ada",))
        configure_logging("json", "info", out)
        event.info(("bob",))
        await trio.sleep(LATE_SECONDS + 0.001)
        assert [json.loads(line)["who"] for line in out.getvalue().splitlines()] == ["ada", "bob"]
        nursery.cancel_scope.cancel()


def test_a_kind_counts_as_its_counters_do() -> None:
    counters = Counters()
    kind = counters.kind("calls", "code", "arm")
    kind.add("ok", "read")
    kind.add("ok", "read")
    counters.add("calls", arm="read", code="ok")
    assert list(counters.rows()) == [("calls", {"arm": "read", "code": "ok"}, 3)]
