"""The SQL files as Python sees them: named statements and numbered migrations. Reads the package's own files, no more.

In the wheel the files lie inside the package; in a checkout (an editable install) they lie beside it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from compass_forged.errors import StartError

_MIGRATION_NAME: Final = re.compile(r"(?P<version>[0-9]{4})_(?P<name>[a-z0-9_]+)\.sql")
_STATEMENT_HEAD: Final = re.compile(r"^-- name: (?P<name>[a-z_]+)\n-- (?P<sentence>.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement of ``sql/queries.sql``: its name, what it does in a sentence, and its text."""

    name: str
    sentence: str
    sql: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of ``sql/migrations``. ``checksum`` is the SHA-256 of its bytes, 32 bytes."""

    version: int
    name: str
    checksum: bytes = field(repr=False)
    sql: str = field(repr=False)


def sql_folder() -> Traversable:
    """The folder of the SQL files.

    Raises:
        StartError: the installation is broken: the files are in neither place.
    """
    inside = files("compass_forged") / "sql"
    beside = Path(__file__).parents[2] / "sql"
    for folder in (inside, beside):
        if (folder / "queries.sql").is_file():
            return folder
    raise StartError("the package's SQL files are missing: install compass-forged again")


def parse_statements(text: str) -> dict[str, Statement]:
    """The statements in the text of a queries file, by name.

    Raises:
        ValueError: a name stands twice.
    """
    heads = list(_STATEMENT_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    statements: dict[str, Statement] = {}
    for head, end in zip(heads, ends, strict=True):
        if head["name"] in statements:
            raise ValueError(f"queries.sql: the name {head['name']} stands twice")
        sql = text[head.end() : end].strip().removesuffix(";")
        statements[head["name"]] = Statement(head["name"], head["sentence"], sql)
    return statements


@cache
def statements() -> Mapping[str, Statement]:
    """Every statement that the daemon sends, by name. Read once."""
    return parse_statements((sql_folder() / "queries.sql").read_text(encoding="utf-8"))


def parse_migration(file_name: str, content: bytes) -> Migration:
    """A migration from its file.

    Raises:
        ValueError: the file's name is not ``NNNN_name.sql``.
    """
    match = _MIGRATION_NAME.fullmatch(file_name)
    if match is None:
        raise ValueError(f"sql/migrations/{file_name}: the name must be like 0001_init.sql")
    return Migration(int(match["version"]), match["name"], hashlib.sha256(content).digest(), content.decode())


@cache
def migrations() -> tuple[Migration, ...]:
    """The migrations that this version brings, in order. Read once."""
    folder = sql_folder() / "migrations"
    found = [parse_migration(entry.name, entry.read_bytes()) for entry in folder.iterdir() if entry.name[0] != "."]
    return tuple(sorted(found, key=lambda migration: migration.version))
