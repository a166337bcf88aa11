"""Logs and counters of the daemon: one JSON object a line, each call once, never a body, a title or a token.

Modules take their logger with ``get_logger(__name__)``; nothing is configured at import, so that a library user and a
test decide for themselves. Counters are plain numbers by name and labels; ``status`` shows them.
"""

import base64
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, MutableMapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from threading import get_ident
from time import time_ns
from typing import Any, Final, Literal, TextIO, TypeAlias, TypeVar
from urllib.parse import quote

import structlog
import trio

from compass_forged.logsink import LineSink

LATE_SECONDS: Final = 0.05
LOG_STRING_MAX_CHARS: Final = 200
LOG_TRACEBACK_MAX_CHARS: Final = 16_000
_T = TypeVar("_T", bound=Hashable)
LogFormat: TypeAlias = Literal["json", "console", "auto"]

_TOKEN_SHAPES = re.compile(
    r"gh[a-z]_[A-Za-z0-9._-]{16,}|github_pat_[A-Za-z0-9_]{16,}|lin_[a-z]+_[A-Za-z0-9]{16,}|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"  # a JSON Web Token
    r"|-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,24}PRIVATE KEY-----)?"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_secrets: set[str] = set()
_caches: list[Callable[[], None]] = []


def remembered(maxsize: int) -> Callable[[Callable[[_T], str]], Callable[[_T], str]]:
    """``lru_cache`` for what redacts: it forgets everything when another secret is registered."""

    def remember(function: Callable[[_T], str]) -> Callable[[_T], str]:
        cached = lru_cache(maxsize)(function)
        _caches.append(cached.cache_clear)
        return cached

    return remember


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


class FrequentEvent:
    """One kind of INFO line that is written for every call, and costs a tenth of what structlog takes for it.

    While ``flush_lines`` runs, these lines are gathered and written together, ``LATE_SECONDS`` later at most.

    Where JSON lines are written the line is rendered right here, with the same words in the same order; anywhere else
    (a console, a test that captures logs, a process that configured nothing) structlog gets it as usual.
    """

    def __init__(
        self, logger: structlog.stdlib.BoundLogger, event: str, words: tuple[str, ...], numbers: tuple[str, ...]
    ) -> None:
        """Name the fields.

        Args:
            logger: whose line it is.
            event: what it is called.
            words: fields whose values are few and come again: a line's rendering of them is kept.
            numbers: the fields after them.
        """
        self._logger = logger
        self._event = event
        self._words = words
        self._fields = (*words, *numbers)
        self._rest = "".join(f"{json.dumps(number)}: %s, " for number in numbers)
        self._rest += f'"event": {json.dumps(event)}, "level": "info", "timestamp": "%s"}}'
        self._rendered = remembered(4096)(self._render)

    def info(self, words: tuple[str, ...], *numbers: float) -> None:
        """Log one line."""
        sink = _lines.sink
        if not _lines.direct:
            self._logger.info(self._event, **dict(zip(self._fields, (*words, *numbers), strict=True)))
        elif sink.wake is not None and sink.thread == get_ident():
            sink.defer((self._line, words, numbers, time_ns()))
        else:
            sink.msg(self._line(words, numbers, time_ns()))

    def _line(self, words: tuple[str, ...], numbers: tuple[float, ...], nanoseconds: int) -> str:
        shown: Iterable[object] = numbers
        if not all(map(isfinite, numbers)):
            shown = [_json_value("", number) for number in numbers]
        return self._rendered(words) + self._rest % (*shown, _stamp(nanoseconds))

    def _render(self, words: tuple[str, ...]) -> str:
        return "{" + "".join(
            f"{json.dumps(field)}: {_json_value('', word)}, " for field, word in zip(self._words, words, strict=True)
        )


def _stamp(nanoseconds: int) -> str:
    """The time as structlog's ISO stamps have it; of the second, which comes again, the text is kept."""
    second, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_second(second)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[: -len("+00:00")]


class _Lines:
    """Where lines go, and whether they are JSON at INFO, as ``configure_logging`` has set it up."""

    def __init__(self) -> None:
        self.sink = LineSink(None)
        self._processors: list[Any] = []
        self._info = False

    def set_up(self, sink: LineSink, processors: list[Any], level: int) -> None:
        if self.sink.thread == get_ident():
            self.sink.flush()  # it may write to the same place
        self.sink = sink
        self._processors = processors
        self._info = level <= logging.INFO

    @property
    def direct(self) -> bool:
        # Another configuration may have taken over; and structlog's way to capture logs in a test changes this one's
        # list in place.
        return (
            self._info
            and structlog.get_config()["processors"] is self._processors
            and self._processors[-1] is _render_json
        )


_lines: Final = _Lines()


async def flush_lines(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Write the gathered lines of frequent events every ``LATE_SECONDS``, while there are any; until cancelled.

    A process that is killed loses what it had gathered. Any other line of the thread brings the gathered ones out
    before itself. Of several daemons in one process the first gathers, for its own thread; what nobody gathers is
    written at once.
    """
    sink = _lines.sink
    some = trio.Event()
    kept = sink.keep(some.set)
    task_status.started()
    if not kept:
        await trio.sleep_forever()
    try:
        while True:
            await some.wait()
            await trio.sleep(LATE_SECONDS)
            sink.flush()
            some = trio.Event()
            sink.wake = some.set
    finally:
        sink.wake = None
        sink.flush()


def register_secret(value: str) -> None:
    """Have ``value`` cut out of everything that is logged from now on, in base64 and percent-encoded too.

    Values under 8 characters are ignored.
    """
    if len(value) >= 8:  # noqa: PLR2004 -- a shorter one would cut ordinary words out of the log
        _secrets.update(_forms(value))
        for cache_clear in _caches:
            cache_clear()


def forget_secret(value: str) -> None:
    """Undo ``register_secret``: for a token that has expired, so that what is registered does not grow for ever."""
    _secrets.difference_update(_forms(value))


def _forms(value: str) -> set[str]:
    """A value as it may turn up in a text: as it is, in a URL, and in base64 however its bytes are aligned there."""
    raw = value.encode("utf-8", "surrogatepass")
    found = {value, quote(raw, safe="")}
    for before in range(3):
        # The characters that depend on the value alone: those before share bits with what precedes it.
        start, end = (before * 8 + 5) // 6, (before + len(raw)) * 8 // 6
        padded = b"\0" * before + raw
        found |= {encode(padded).decode()[start:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    return found


def redact(text: str) -> str:
    """``text`` without tokens: by their shapes, and by every value that was registered."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may hold another, whose rest would stay
        text = text.replace(secret, "[secret]")
    return _TOKEN_SHAPES.sub("[secret]", text)


def _redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        event[key] = _traceback(value) if key == "exception" and isinstance(value, str) else _safe(value)
    return event


def _safe(value: Any) -> Any:
    """A value as it may be logged: redacted, short, and without what would drive a terminal."""
    if isinstance(value, str):
        return _safe_text(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(item) for item in value]
    return _safe_text(str(value))


def _safe_text(value: str) -> str:
    text = _CONTROL.sub(_escaped, redact(value))
    return text if len(text) <= LOG_STRING_MAX_CHARS else text[:LOG_STRING_MAX_CHARS] + "…"


_WORD_MAX_CHARS: Final = 64


@remembered(4096)
def _json_word(value: str) -> str:
    """A short string as JSON, safe to log. The words of calls are few and the same all day: names, arms, codes."""
    return json.dumps(_safe_text(value))


_json_key: Final = lru_cache(maxsize=256)(json.dumps)  # the code's own words


def _json_value(key: str, value: Any) -> str:
    if isinstance(value, str):
        if key == "exception":
            return json.dumps(_traceback(value))
        if len(value) <= _WORD_MAX_CHARS:
            return _json_word(value)
    elif type(value) is int or (type(value) is float and isfinite(value)):
        return repr(value)
    return json.dumps(_safe(value))


def _render_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """An event as one JSON object in ASCII: what ``_redact_event`` and a serialiser do, in a third of the time."""
    return "{" + ", ".join([f"{_json_key(key)}: {_json_value(key, value)}" for key, value in event.items()]) + "}"


def _traceback(text: str) -> str:
    """A traceback keeps its lines, and of a very long one its end, where the error stands."""
    lines = "\n".join(_CONTROL.sub(_escaped, line) for line in redact(text).split("\n"))
    return lines if len(lines) <= LOG_TRACEBACK_MAX_CHARS else "…" + lines[-LOG_TRACEBACK_MAX_CHARS:]


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def configure_logging(form: LogFormat = "auto", level: str = "info", stream: TextIO | None = None) -> LineSink:
    """Set up logging for a process: JSON lines, or colours where ``auto`` finds a terminal.

    Returns:
        The sink, which tells how many lines were lost.
    """
    out = stream or sys.stderr
    sink = LineSink(out)
    terminal = out is not None and out.isatty()  # pyright: ignore[reportUnnecessaryComparison] -- None where fd 2 is closed
    console = form == "console" or (form == "auto" and terminal)
    renderers = (
        # Tracebacks come as plain text: the pretty ones show local variables, and tokens with them.
        _redact_event,
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback),
    )
    processors = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        *(renderers if console else (_render_json,)),
    ]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    _lines.set_up(sink, processors, threshold)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    # These log whole URLs at INFO and set-cookie headers at DEBUG.
    for chatty in ("httpx", "httpcore", "hpack", "asyncio", "trio_asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return sink


class Counters:
    """Named counts with labels: ``counters.add("calls", arm="get_issue", code="ok")``."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, name: str, amount: int = 1, /, **labels: str) -> None:
        """Count ``amount`` more."""
        self._counts[name, tuple(sorted(labels.items()) if len(labels) > 1 else labels.items())] += amount

    def kind(self, name: str, *labels: str) -> "CountOfKind":
        """A counter whose label names are fixed, for what is counted at every call."""
        return CountOfKind(self._counts, name, labels)

    def total(self, name: str, /, **labels: str) -> int:
        """The sum of a name's counts over all label sets that contain ``labels``."""
        wanted = set(labels.items())
        return sum(count for (key, have), count in self._counts.items() if key == name and wanted <= set(have))

    def rows(self) -> Iterable[tuple[str, dict[str, str], int]]:
        """Every count as (name, labels, count), sorted."""
        return [(name, dict(labels), count) for (name, labels), count in sorted(self._counts.items())]


class CountOfKind:
    """One name and its label names: ``calls.add("get_issue", "ok")`` counts as ``Counters.add`` would."""

    __slots__ = ("_counts", "_keys", "_labels", "_name")

    def __init__(
        self, counts: Counter[tuple[str, tuple[tuple[str, str], ...]]], name: str, labels: tuple[str, ...]
    ) -> None:
        """Made by ``Counters.kind``."""
        self._counts = counts
        self._name = name
        self._labels = labels
        self._keys: dict[tuple[str, ...], tuple[str, tuple[tuple[str, str], ...]]] = {}

    def add(self, *values: str) -> None:
        """Count one more under these values, which must be words of the program: each pair is kept."""
        key = self._keys.get(values)
        if key is None:
            key = self._keys[values] = (self._name, tuple(sorted(zip(self._labels, values, strict=True))))
        self._counts[key] += 1
