"""Where the daemon's CPU time goes while it answers calls.

    .venv/bin/python bench/profile_calls.py [--json] [--quick] [--pattern PATTERN] [--operation OPERATION]

The whole daemon over the memory store and the null provider, under a light client; what runs in it is asked at every
tick of the kernel's clock that it spends CPU time in. A call into C (a system call, the codec, a hash) counts for the
Python function that made it.
"""

import argparse
import re
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, get_args

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.cells import PATIENCE_SECONDS
from bench.support.messages import Operation
from bench.support.processes import ChildFailed, child
from bench.support.sampling import Place
from bench.support.setup import Cells, Target, exchange, machine, machine_line, open_containers, run_cell

_CONCURRENCY: Final[dict[str, int]] = {"serial": 1, "pipelined": 64, "fleet": 200}
_FUNCTIONS_SHOWN: Final = 25
_PACKAGE: Final = re.compile(r".*/(?:site-packages|python3\.\d+)/([^/]+)")


class Share(msgspec.Struct, frozen=True):
    """A part of the daemon's CPU time: ``percent`` of all samples."""

    name: str
    percent: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, by part and by function, the greatest share first."""

    benchmark: str
    machine: dict[str, object]
    pattern: str
    operation: str
    calls: int
    samples: int
    parts: list[Share]
    functions: list[Share]


def _part(file: str) -> str:
    """The room of the package, or the library, that a file belongs to."""
    if "/compass_forged/" in file:
        return "compass_forged." + file.rpartition("/compass_forged/")[2].removesuffix(".py").replace("/", ".")
    if "/bench/" in file:
        return "the benchmark's provider"
    found = _PACKAGE.match(file)
    return found[1].removesuffix(".py") if found else file


def _shares(places: list[Place], *, functions: bool) -> list[Share]:
    total = sum(place.samples for place in places)
    counts: Counter[str] = Counter()
    for place in places:
        part = _part(place.file)
        counts[f"{part}: {place.function}" if functions else part] += place.samples
    return [Share(name, round(100 * samples / total, 1)) for name, samples in counts.most_common()]


def _profile(arguments: argparse.Namespace, scratch: Path) -> Profile:
    out = scratch / "profile.json"
    found = machine()
    with ExitStack() as stack:
        load = stack.enter_context(child("bench.support.load_light", scratch=scratch))
        options = msgspec.json.encode({"profile": str(out)}).decode()
        run_dir = scratch / "run"
        daemon = stack.enter_context(child("bench.support.serve_ours", str(run_dir), options, scratch=scratch))
        daemon.line(PATIENCE_SECONDS)
        sockets = open_containers(run_dir / "control.sock", range(_CONCURRENCY[arguments.pattern]))
        cell = Cells().make(
            Target("ours", daemon.pid, sockets),
            arguments.pattern,
            operation=arguments.operation,
            reply_bytes=exchange(sockets[0], arguments.operation)[1],
            concurrency=_CONCURRENCY[arguments.pattern],
            warm_seconds=0.2,
            seconds=1.0 if arguments.quick else 8.0,
        )
        sample = run_cell(load, cell)
    places = msgspec.json.decode(out.read_bytes(), type=list[Place])
    return Profile(
        benchmark="profile",
        machine=found,
        pattern=arguments.pattern,
        operation=arguments.operation,
        calls=sample.calls,
        samples=sum(place.samples for place in places),
        parts=_shares(places, functions=False),
        functions=_shares(places, functions=True)[:_FUNCTIONS_SHOWN],
    )


def _parse() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="Where the daemon's CPU time goes.")
    options.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    options.add_argument("--quick", action="store_true", help="a second of load: to see that it runs")
    options.add_argument("--pattern", choices=tuple(_CONCURRENCY), default="pipelined", help="how calls are laid out")
    options.add_argument("--operation", choices=get_args(Operation), default="comment", help="what is called")
    return options.parse_args()


def _table(title: str, shares: list[Share]) -> str:
    rows = [[title, "%"], *([share.name, f"{share.percent:.1f}"] for share in shares)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {percent:>5}" for name, percent in rows)


def main() -> int:
    """Run and print; the exit status."""
    arguments = _parse()
    try:
        with TemporaryDirectory(prefix="forged-bench-") as scratch:
            profile = _profile(arguments, Path(scratch))
    except ChildFailed as error:
        print(f"profile_calls: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(msgspec.json.encode(profile).decode())
        return 0
    print(machine_line(profile.machine))
    print(f"{profile.pattern}, {profile.operation}: {profile.calls:,} calls, {profile.samples:,} samples\n")
    print(_table("part", profile.parts), end="\n\n")
    print(_table("function", profile.functions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
