"""How a benchmark of goals ends: its lines as a table for people or as one JSON object."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import msgspec

from bench.support.goals import Measured, goals_table
from bench.support.processes import ChildFailed
from bench.support.setup import machine, machine_line, progress

Measure: TypeAlias = Callable[[ExitStack, Path], Sequence[Measured]]
"""Starts what it needs on the stack, with files of its own under the path, and measures."""


def report(name: str, arguments: argparse.Namespace, measure: Measure, *, repetitions: int, notes: str) -> int:
    """Measure and print; the exit status, which says whether it ran and not whether goals were met."""
    found = machine()
    if hasattr(arguments, "sleepy"):
        found["cores_kept_awake"] = not arguments.sleepy
    try:
        with TemporaryDirectory(prefix="forged-bench-") as scratch, ExitStack() as stack:
            goals = measure(stack, Path(scratch))
    except ChildFailed as error:
        print(f"bench_{name}: {error}", file=sys.stderr)
        return 1
    progress("")
    if arguments.json:
        whole = {"benchmark": name, "machine": found, "repetitions": repetitions, "notes": notes, "goals": goals}
        print(msgspec.json.encode(whole).decode())
        return 0
    print(f"{machine_line(found)}  repetitions {repetitions}\n")
    print(goals_table(goals), end="\n\n")
    print(notes)
    return 0
