"""Any bytes give frames or one typed error.

    .venv/bin/python bench/fuzz_wire.py [--seed N] [--count N] [--seconds S] [--json]
    .venv/bin/python bench/fuzz_wire.py --seed N --at NUMBER      one input again
    .venv/bin/python bench/fuzz_wire.py --hex BYTES [--limit N]   received bytes given by hand

Structured fuzzing of framing and codecs in this process: valid messages made from the schema, broken where their bytes
mean something, framed, cut into pieces and fed to ``FrameBuffer``; each frame that comes out goes to ``decode_call``
and to the decoder of its kind. Checked for every input:

* the frames, and how the stream ends, are those of a second implementation of the framing, however it was cut;
* a decoder gives a value, or raises its one typed error, its text bounded and fit to be shown;
* what was valid is taken, and means what it meant; what is known to be broken is refused;
* what was taken survives being encoded and decoded again;
* no input takes over 100 ms of CPU time (measured again before it is believed), and memory stays flat.

The first violation ends the run with status 1, its seed, number and bytes shown. Ten million inputs take about fifteen
minutes of one core; ``nice`` them.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that is there

from bench.support.fuzz_measure import Histogram, Progress, progress, rss_bytes
from bench.support.fuzz_oracle import judge, take
from bench.support.fuzz_streams import BATCH, Frame, FuzzInput, batch, inputs
from compass_forged.wire.frames import FRAME_MAX_BYTES

SLOW_SECONDS: Final = 0.1
RSS_GROWTH_BYTES: Final = 32 << 20
"""How much larger than after the warm-up this process may be: the largest inputs' memory comes and goes."""
_WARM_INPUTS: Final = 20_000
_REMEASURED: Final = 3
_HEX_SHOWN: Final = 4096


class Violation(Exception):
    """The invariant does not hold for an input.

    Attributes:
        what: in one line.
        found: the input.
    """

    def __init__(self, what: str, found: FuzzInput) -> None:
        super().__init__(what)
        self.what = what
        self.found = found


@dataclass(slots=True)
class Totals:
    """What a run has counted so far."""

    inputs: int = 0
    frames: int = 0
    accepted: int = 0
    refused: int = 0
    broken: int = 0
    slow: int = 0
    seconds: float = 0.0
    rss_warm: int = 0
    rss_end: int = 0
    cpu: Histogram = field(default_factory=Histogram)
    mutations: Counter[str] = field(default_factory=Counter)

    @property
    def rss_growth(self) -> int:
        """Bytes since the warm-up; 0 for a run that is shorter than that."""
        return self.rss_end - self.rss_warm if self.rss_warm else 0


# --- many -----------------------------------------------------------------------------------------------------------


def fuzz_one(given: FuzzInput, totals: Totals) -> None:
    """Take, measure and judge one input.

    Raises:
        Violation: what must hold does not.
    """
    began = time.thread_time_ns()
    taken = take(given)
    spent = time.thread_time_ns() - began
    if spent > SLOW_SECONDS * 1e9:
        totals.slow += 1
        spent = min(spent, _least_time(given))
        if spent > SLOW_SECONDS * 1e9:
            raise Violation(f"takes {spent / 1e6:.0f} ms of CPU time, every time", given)
    if fault := judge(given, taken):
        raise Violation(fault, given)
    totals.cpu.add(spent, given.number)
    totals.inputs += 1
    totals.frames += len(taken.payloads)
    totals.broken += taken.error is not None
    refused = sum(isinstance(outcome, Exception) for outcome in taken.own)
    totals.refused += refused
    totals.accepted += len(taken.own) - refused
    totals.mutations.update(given.mutations)


def _least_time(given: FuzzInput) -> int:
    """The least of some more measurements: a machine that is busy makes one slow, not all."""
    times: list[int] = []
    for _ in range(_REMEASURED):
        began = time.thread_time_ns()
        take(given)
        times.append(time.thread_time_ns() - began)
    return min(times)


def run(seed: int, count: int, seconds: float = 0.0, *, show: Progress | None = None) -> Totals:
    """Fuzz until ``count`` inputs were taken or ``seconds`` have passed (0: no such bound).

    Raises:
        Violation: at the first one.
    """
    totals = Totals()
    began = time.monotonic()
    for index in range(-(-count // BATCH)):
        for given in islice(batch(seed, index), count - totals.inputs):
            fuzz_one(given, totals)
        totals.seconds = time.monotonic() - began
        totals.rss_end = rss_bytes()
        if totals.inputs >= _WARM_INPUTS and not totals.rss_warm:
            totals.rss_warm = totals.rss_end
        if totals.rss_growth > RSS_GROWTH_BYTES:
            grown = f"memory grew by {totals.rss_growth >> 20} MiB over {totals.inputs} inputs"
            raise Violation(grown, given)
        if show is not None:
            show(totals.inputs, f"inputs, {totals.inputs / totals.seconds:,.0f}/s")
        if seconds and totals.seconds >= seconds:
            break
    return totals


# --- for people -----------------------------------------------------------------------------------------------------


def reproduction(violation: Violation, seed: int) -> str:
    """Everything that is needed to see a violation again."""
    found = violation.found
    data = found.data.hex()
    shown = data if len(data) <= _HEX_SHOWN else f"{data[:_HEX_SHOWN]}… ({len(data) // 2} bytes)"
    return "\n".join(
        (
            f"violation: {violation.what}",
            f"again: bench/fuzz_wire.py --seed {seed} --at {found.number}",
            f"mutations: {', '.join(found.mutations)}; limit {found.limit}",
            f"chunks of {', '.join(str(len(chunk)) for chunk in found.chunks[:20])} bytes",
            f"hex: {shown}",
        )
    )


def _report(totals: Totals, seed: int) -> dict[str, object]:
    return {
        "fuzz": "wire",
        "seed": seed,
        "inputs": totals.inputs,
        "frames": totals.frames,
        "accepted": totals.accepted,
        "refused": totals.refused,
        "broken_streams": totals.broken,
        "seconds": round(totals.seconds, 1),
        "inputs_per_second": round(totals.inputs / totals.seconds) if totals.seconds else 0,
        "cpu_us_per_input": {**totals.cpu.microseconds(), "max_number": totals.cpu.largest_number},
        "slow_once": totals.slow,
        "rss_bytes": {"warm": totals.rss_warm, "end": totals.rss_end, "growth": totals.rss_growth},
        "mutations": dict(sorted(totals.mutations.items())),
    }


def _print(report: dict[str, object]) -> None:
    for name, value in report.items():
        shown = str(value)
        if isinstance(value, dict):
            shown = "  ".join(f"{key} {number:,}" for key, number in value.items())
        elif isinstance(value, int) and name != "seed":
            shown = f"{value:,}"
        print(f"{name:18} {shown}")


def _by_hand(data: bytes, limit: int) -> FuzzInput:
    unknown = Frame(b"", "call", None, refused=False, mutations=())
    return FuzzInput(0, limit, (data,), (unknown,), whole=False, mutations=("by hand",))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Structured fuzzing of framing and codecs, in this process.")
    parser.add_argument("--seed", type=int, default=None, help="a random one by default; always printed")
    parser.add_argument("--count", type=int, default=1_000_000, metavar="N", help="inputs at most (1000000)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="seconds at most (0: no bound)")
    parser.add_argument("--at", type=int, default=None, metavar="NUMBER", help="take one input of the seed alone")
    parser.add_argument("--hex", type=bytes.fromhex, default=None, metavar="BYTES", help="take these received bytes")
    parser.add_argument("--limit", type=int, default=FRAME_MAX_BYTES, metavar="N", help="of --hex: the largest payload")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = parser.parse_args(arguments)
    if found.count < 1 or found.seconds < 0:
        parser.error("--count: must be at least 1; --seconds: must not be negative")
    if found.at is not None and found.seed is None:
        parser.error("--at: needs the --seed that it was printed with")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status: 0, or 1 on a violation."""
    given = _parse(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    try:
        if given.hex is not None or given.at is not None:
            totals = Totals()
            fuzz_one(_by_hand(given.hex, given.limit) if given.hex else next(inputs(seed, given.at)), totals)
        else:
            with progress("fuzz wire", None if given.seconds else given.count, shown=not given.json) as show:
                totals = run(seed, given.count, given.seconds, show=show)
    except Violation as violation:
        print(reproduction(violation, seed), file=sys.stderr)
        if given.json:
            found = {"what": violation.what, "number": violation.found.number, "hex": violation.found.data.hex()}
            print(json.dumps({"fuzz": "wire", "seed": seed, "violation": found}))
        return 1
    report = {**_report(totals, seed), "violation": None}
    if given.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
