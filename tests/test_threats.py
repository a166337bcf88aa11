"""The table of threats and faults names tests that exist, and says where one is missing."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "threats.md"
NUMBERS = [
    *(f"T{number}" for number in (*range(1, 28), 29, *range(31, 36))),
    *(str(number) for number in (*range(7, 43), *range(44, 54), *range(55, 58))),
]
_NAMED = re.compile(r"`(tests/[a-z_/]+\.py)::([a-z0-9_]+)`")


def _rows() -> dict[str, str]:
    rows = [line for line in TABLE.read_text().splitlines() if re.match(r"\| T?[0-9]+ \|", line)]
    return {row.split("|")[1].strip(): row for row in rows}


@cache
def _tests_in(path: Path) -> set[str]:
    found = ast.parse(path.read_text()).body
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_number_has_its_row() -> None:
    assert list(_rows()) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_every_test_that_is_named_exists(number: str) -> None:
    row = _rows()[number]
    assert row.count("|") == 5
    named = _NAMED.findall(row)
    assert len(named) == row.count("::")  # none is misspelt beyond recognition
    assert named
    for file, test in named:
        assert test.startswith("test_")
        assert (ROOT / file).is_file(), file
        assert test in _tests_in(ROOT / file), f"{file}::{test}"
