"""From samples to what is shown: metrics per repetition, medians with their spread, ratios, a table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from bench.support.cells import Sample

_REFERENCES: Final = ("echo", "grpc", "grpc_bytes", "connect", "asgi")
PLACES: Final[Mapping[str, int]] = {
    "p50_us": 1,
    "p99_us": 1,
    "calls_per_second": 0,
    "server_us": 1,
    "client_us": 1,
    "cpu_us": 1,
}
WORDS: Final[Mapping[str, str]] = {
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "calls_per_second": "calls/s",
    "server_us": "server CPU µs/call",
    "client_us": "client CPU µs/call",
    "cpu_us": "CPU of both, µs/call",
}
"""Each metric for people. Of calls/s more is better, of all others less."""
_HIDDEN: Final = frozenset({"client_us", "cpu_us"})
"""In the JSON only: the first tells whether the client was the one that ran out of CPU."""


class Spread(msgspec.Struct, frozen=True):
    """A metric over the repetitions."""

    median: float
    min: float
    max: float
    repetitions: list[float]


@dataclass(frozen=True, slots=True)
class Row:
    """What is compared with each other: one shape under one kind of client.

    Attributes:
        shape: its key, such as ``one``.
        title: the same for people.
        client: ``light`` or ``library``.
        contenders: key to samples, one a repetition; ``ours`` first.
    """

    shape: str
    title: str
    client: str
    contenders: Mapping[str, Sequence[Sample]]


class Result(msgspec.Struct, frozen=True):
    """The numbers of a row. ``ratios`` are ours over the reference's, repetition by repetition."""

    shape: str
    title: str
    client: str
    metrics: dict[str, dict[str, Spread]]
    ratios: dict[str, dict[str, Spread]]


def result_of(row: Row) -> Result:
    """The metrics of a row by contender, and its ratios by reference."""
    metrics = {
        contender: {name: spread([values[name] for values in per_sample]) for name in per_sample[0]}
        for contender, per_sample in (
            (key, [_metrics(sample) for sample in got]) for key, got in row.contenders.items()
        )
    }
    ours = metrics["ours"]
    ratios = {f"ours/{key}": _ratios(ours, other) for key, other in metrics.items() if key != "ours"}
    return Result(row.shape, row.title, row.client, metrics, ratios)


def _metrics(sample: Sample) -> dict[str, float]:
    found = {} if sample.p50_us is None else {"p50_us": sample.p50_us}
    if sample.p99_us is not None:
        found["p99_us"] = sample.p99_us
    if not found:
        found["calls_per_second"] = sample.calls / sample.seconds
    found["server_us"] = sample.server_cpu_seconds / sample.calls * 1e6
    found["client_us"] = sample.client_cpu_seconds / sample.calls * 1e6
    found["cpu_us"] = found["server_us"] + found["client_us"]
    return {name: round(value, 3) for name, value in found.items()}


def _ratios(ours: Mapping[str, Spread], other: Mapping[str, Spread]) -> dict[str, Spread]:
    """Repetition by repetition, so that what slows the machine for a while slows both sides of a ratio."""
    return {
        name: spread([a / b for a, b in zip(mine.repetitions, other[name].repetitions, strict=True) if b])
        for name, mine in ours.items()
    }


def spread(values: list[float]) -> Spread:
    rounded = [round(value, 4) for value in values]
    return Spread(round(statistics.median(values), 4), min(rounded), max(rounded), rounded)


def table(results: Sequence[Result]) -> str:
    """The results for people: a block for each shape, medians with their spread, and a column for each ratio."""
    blocks: dict[str, list[Result]] = {}
    for result in results:
        blocks.setdefault(result.title, []).append(result)
    return "\n\n".join(_block(title, of_it) for title, of_it in blocks.items())


def _block(title: str, results: Sequence[Result]) -> str:
    """A shape's rows, with a column for each contender that it has."""
    references = [key for key in _REFERENCES if any(key in result.metrics for result in results)]
    head = ["client", "metric", "ours", *references, *(f"ours/{key}" for key in references)]
    rows = [head, *(_line(result, name, references) for result in results for name in _seen(result))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([title, *(aligned(row, widths) for row in rows)])


def _seen(result: Result) -> list[str]:
    return [name for name in result.metrics["ours"] if name not in _HIDDEN]


def _line(result: Result, metric: str, references: Sequence[str]) -> list[str]:
    places = PLACES[metric]
    values = [_shown(result.metrics.get(key, {}).get(metric), places) for key in ("ours", *references)]
    ratios = [_shown(result.ratios.get(f"ours/{key}", {}).get(metric), 2) for key in references]
    return [result.client, WORDS[metric], *values, *ratios]


def aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, numbers to the right."""
    words = [text.ljust(width) for text, width in zip(line[:2], widths[:2], strict=True)]
    numbers = [text.rjust(width) for text, width in zip(line[2:], widths[2:], strict=True)]
    return "  ".join(words + numbers).rstrip()


def _shown(spread: Spread | None, places: int) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:,.{places}f} ({spread.min:,.{places}f}..{spread.max:,.{places}f})"
